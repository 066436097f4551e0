"""A fitted motion model in torch: the same motion as its ``predict``, batched and traceable."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from meshstage.motion.gaussian_process import GaussianProcess
from meshstage.motion.model import MotionModel
from meshstage.motion.ridge import Ridge
from meshstage.motion.stage_mean import StageMean


class MotionTensors(nn.Module, ABC):
    """Buffers that predict a motion; all arithmetic is float64, whatever the inputs are.

    Autocast leaves float64 alone, and fields that float32 would blur stay exact where a motion is
    zero.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Of `tensors_of`, or of the ``state_dict`` of such a module.
    cycle : str
        Of `motion.cycle.CYCLES`.
    """

    def __init__(self, tensors: Mapping[str, Tensor], cycle: str) -> None:
        super().__init__()
        self.cycle = cycle
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    @classmethod
    def of(cls, model: MotionModel, cycle: str) -> Self:
        """Take over a motion model that was fitted with this cycle."""
        return cls(cls.tensors_of(model), cycle)

    @staticmethod
    @abstractmethod
    def tensors_of(model: MotionModel) -> dict[str, Tensor]:
        """Give what the motion is computed from."""

    @abstractmethod
    def forward(self, shape_scores: Tensor, stage: Tensor) -> Tensor:
        """Predict motions.

        Parameters
        ----------
        shape_scores : (B, n_pca) tensor, standard deviations
        stage : (B,) tensor in [0, 1]

        Returns
        -------
        (B, n_points, n_target) float64 tensor, units of the target
        """


class StageMeanTensors(MotionTensors):
    """`StageMean`."""

    stages: Tensor
    values: Tensor

    @staticmethod
    def tensors_of(model: MotionModel) -> dict[str, Tensor]:
        """Give stages and the mean motion at each."""
        assert isinstance(model, StageMean)
        return {"stages": _tensor(model.stages), "values": _tensor(model.values)}

    def forward(self, shape_scores: Tensor, stage: Tensor) -> Tensor:
        """Interpolate the mean motion."""
        return combine(interpolation(self.stages, stage, self.cycle), self.values)


class RidgeTensors(MotionTensors):
    """`Ridge`."""

    pca_mean: Tensor
    pca_scale: Tensor
    weights: Tensor
    intercept: Tensor
    motion_mean: Tensor
    modes: Tensor

    @staticmethod
    def tensors_of(model: MotionModel) -> dict[str, Tensor]:
        """Give the regression and its modes."""
        assert isinstance(model, Ridge)
        names = ("pca_mean", "pca_scale", "weights", "intercept")
        return {name: _tensor(getattr(model, name)) for name in names} | {
            "motion_mean": _tensor(model.motion_mean.reshape(-1, model.n_target)),
            "modes": _tensor(_at_points(model.modes, model.n_target)),
        }

    def forward(self, shape_scores: Tensor, stage: Tensor) -> Tensor:
        """Evaluate the regression."""
        x = (shape_scores.double() - self.pca_mean) / self.pca_scale
        ones = torch.ones_like(stage.double())[:, None]
        n_harmonics = (self.weights.shape[1] + 1) // (1 + x.shape[1]) // 2
        encoded = torch.cat([ones, encode(stage, n_harmonics, self.cycle)], dim=1)
        shape = torch.cat([ones, x], dim=1)
        features = (shape[:, :, None] * encoded[:, None, :]).flatten(1)[:, 1:]
        amounts = features @ self.weights.T + self.intercept
        return self.motion_mean + combine(amounts, self.modes)


class GaussianProcessTensors(MotionTensors):
    """`GaussianProcess`."""

    pca_mean: Tensor
    pca_scale: Tensor
    train_scores: Tensor
    linear: Tensor
    rbf: Tensor
    length: Tensor
    alpha: Tensor
    stages: Tensor
    mean: Tensor
    modes: Tensor
    fields: Tensor

    @staticmethod
    def tensors_of(model: MotionModel) -> dict[str, Tensor]:
        """Give kernel, training scores with their weights, and modes."""
        assert isinstance(model, GaussianProcess)
        kernel, modes = model.kernel, model.modes
        arrays = {
            "pca_mean": model.pca_mean,
            "pca_scale": model.pca_scale,
            "train_scores": model.train_scores,
            "linear": kernel.linear,
            "rbf": kernel.rbf,
            "length": kernel.length,
            "alpha": (model.scale * model.shrink)[:, None] * model.alpha,
            "stages": modes.stages,
            "mean": modes.mean,
            "modes": modes.modes,
            "fields": _at_points(modes.fields, modes.n_target),
        }
        return {name: _tensor(array) for name, array in arrays.items()}

    def forward(self, shape_scores: Tensor, stage: Tensor) -> Tensor:
        """Evaluate the process, and move along its modes."""
        weights = interpolation(self.stages, stage, self.cycle)
        amounts = weights @ self.mean
        if len(self.modes):
            # A sample's cycle at its stage: (B, n_modes) times (B, n_stages) on (.., n_fields).
            both = self.coefficients(shape_scores)[:, :, None] * weights[:, None, :]
            amounts = amounts + both.flatten(1) @ self.modes.flatten(0, 1)
        return combine(amounts, self.fields)

    def coefficients(self, shape_scores: Tensor) -> Tensor:
        """Coefficients of the modes: (B, n_pca) to (B, n_modes), units of the target."""
        return (self.covariance(self.normalised(shape_scores)) * self.alpha).sum(dim=2)

    def normalised(self, shape_scores: Tensor) -> Tensor:
        """Bring scores to zero mean and unit scale, in float64."""
        return (shape_scores.double() - self.pca_mean) / self.pca_scale

    def covariance(self, x: Tensor) -> Tensor:
        """Covariance of normalised scores with the training subjects: (B, n_modes, n)."""
        apart = (x[:, None] - self.train_scores)[:, None] / self.length[:, None]
        curved = self.rbf[:, None] * torch.exp(-apart.square().sum(dim=3) / 2)
        straight = self.linear[:, None] * (x @ self.train_scores.T)[:, None]
        return straight + curved


MOTION_TENSORS: dict[str, type[MotionTensors]] = {
    "stage_mean": StageMeanTensors,
    "ridge": RidgeTensors,
    "gp": GaussianProcessTensors,
}
"""By the names of `motion.baselines.MODELS`."""


def encode(stage: Tensor, n_harmonics: int, cycle: str) -> Tensor:
    """Features of stages as `motion.cycle.encode` makes them: (B,) to (B, 2 K) float64."""
    n_rates, turn = (2 * n_harmonics, np.pi) if cycle == "open" else (n_harmonics, 2 * np.pi)
    rates = turn * torch.arange(1, n_rates + 1, dtype=torch.float64, device=stage.device)
    angles = stage.double()[:, None] * rates
    cosines = torch.cos(angles)
    return cosines if cycle == "open" else torch.cat([cosines, torch.sin(angles)], dim=1)


def interpolation(known: Tensor, stage: Tensor, cycle: str) -> Tensor:
    """Weights of linear interpolation, as `motion.cycle.interpolation` makes them.

    Parameters
    ----------
    known : (n_known,) tensor in [0, 1]
        Rising, all different.
    stage : (B,) tensor in [0, 1]
        Compared with ``known`` in float32, which a network's stages are: so a known stage gets
        its own value alone.
    cycle : str

    Returns
    -------
    (B, n_known) float64 tensor
        Each row sums to 1.
    """
    knots, stage = known.float().double(), stage.float().double()
    if cycle == "closed":  # once round, from the last stage to the first
        knots = torch.cat([knots[-1:] - 1, knots, knots[:1] + 1])
    steps = knots.diff().clamp(min=1e-9)
    # 0 before a step, 1 after it: a knot's weight is how far it is reached, less the next one.
    reached = ((stage[:, None] - knots[:-1]) / steps).clamp(0, 1)
    start, end = torch.ones_like(stage)[:, None], torch.zeros_like(stage)[:, None]
    weights = torch.cat([start, reached], dim=1) - torch.cat([reached, end], dim=1)
    if cycle == "open":
        return weights
    first, inner, last = weights[:, :1], weights[:, 1:-1], weights[:, -1:]
    others = known.shape[0] - 1
    # The knot before the first is the last one, that after the last the first.
    return inner + functional.pad(last, (0, others)) + functional.pad(first, (others, 0))


def combine(amounts: Tensor, fields: Tensor) -> Tensor:
    """Add up fields, (B, n) of (n, n_points, n_target): (B, n_points, n_target) float64."""
    return (amounts @ fields.flatten(1).double()).unflatten(1, fields.shape[1:])


def _at_points(flat: np.ndarray, n_target: int) -> np.ndarray:
    """Reshape (n, n_points * n_target) to (n, n_points, n_target), also where n is 0 (noise)."""
    return flat.reshape(len(flat), flat.shape[1] // n_target, n_target)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
