"""Ask a trained model: one of ours, one of the user's own, or one that MONAI Physio wrote."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.errors import InputError
from meshstage.training.method import TrainingMethod

# Rows (nodes or edges, times samples) that go through a network at once: 200 MB per array
# of width 512 or 50 MB at 128, and enough to keep any device busy.
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Predictor:
    """A trained model, ready to be asked.

    Parameters
    ----------
    directory : Path
        The model directory.
    checkpoint : Path
        The file whose weights these are.
    metadata : dict
        Of the model directory; empty where its writer left none.
    mesh : pyvista mesh
        The template.
    method : TrainingMethod
        Ready for `predict_batch`: its inputs are on the device.
    network : nn.Module
    template_folder : Path
        Where the template, and its shape model if there is one, lie.
    """

    directory: Path
    checkpoint: Path
    metadata: dict[str, Any]
    mesh: Any
    method: TrainingMethod
    network: nn.Module
    template_folder: Path

    @property
    def statistics(self) -> Statistics:
        """What inputs and targets are normalised with."""
        return self.method.inputs.statistics

    @property
    def points(self) -> np.ndarray:
        """Points of the template, (n_points, 3) float64, mm."""
        return np.asarray(self.mesh.points, np.float64)

    @property
    def n_pca(self) -> int:
        """Number of shape scores."""
        return self.statistics.n_pca

    @property
    def n_target(self) -> int:
        """Components of the target."""
        return self.statistics.n_target

    @property
    def target_array(self) -> str:
        """Name of the target array."""
        return self.statistics.target_array

    @property
    def stages_trained(self) -> list[float]:
        """Stages of the training samples, ascending; empty where the model does not tell."""
        return list(self.metadata.get("training_stages", []))

    @property
    def moves_meshes(self) -> bool:
        """Whether the target is a displacement, so that it moves points."""
        by_name = self.n_target == 3 and self.target_array == "displacement"
        return bool(self.metadata.get("target_is_displacement", by_name))

    def check_scores(self, shape_scores: np.ndarray) -> None:
        """Refuse scores that this model does not take.

        Raises
        ------
        InputError
            If their number is not the model's, or one is not finite.
        """
        scores = np.asarray(shape_scores, np.float64)
        if scores.shape != (self.n_pca,):
            raise InputError(
                f"{scores.size} shape scores, but the model in {self.directory} takes {self.n_pca}"
            )
        if not np.isfinite(scores).all():
            raise InputError("a shape score is not finite; give finite numbers")

    def predict(self, shape_scores: np.ndarray, stages: Sequence[float] | np.ndarray) -> np.ndarray:
        """Predict the targets of one subject at some stages.

        Parameters
        ----------
        shape_scores : (n_pca,) array, standard deviations
        stages : (n_stages,) array in [0, 1]

        Returns
        -------
        (n_stages, n_points, n_target) float32 array, in the targets' units

        Raises
        ------
        InputError
            If the number of scores is not the model's, a score is not finite, or a stage lies
            outside of 0 to 1.
        """
        self.check_scores(shape_scores)
        check_stages(stages)
        inputs, n_stages = self.method.inputs, len(stages)
        pca, stage = inputs.samples(np.tile(shape_scores, (n_stages, 1)), np.asarray(stages))
        targets = np.empty((n_stages, inputs.n_points, self.n_target), np.float32)
        with torch.inference_mode():
            for some, points in self._parts(n_stages):
                where = inputs.coordinates[points]
                predicted = forward_at(self.method, self.network, where, pca[some], stage[some])
                targets[some, points] = (predicted * self.statistics.target_scale).cpu().numpy()
        return targets

    def deviation(
        self, shape_scores: np.ndarray, stages: Sequence[float] | np.ndarray
    ) -> np.ndarray | None:
        """Say how far off `predict` may be, where the model tells: a Gaussian process does.

        Returns
        -------
        (n_stages, n_points) float32 array or None
            Root of the expected squared length of the error, in the targets' units.
        """
        inputs, n_stages = self.method.inputs, len(stages)
        pca, stage = inputs.samples(np.tile(shape_scores, (n_stages, 1)), np.asarray(stages))
        with torch.inference_mode():
            found = self.method.deviation_batch(self.network, pca, stage)
        if found is None:
            return None
        deviation: np.ndarray = (found * self.statistics.target_scale).float().cpu().numpy()
        return deviation

    def _parts(self, n_samples: int) -> Iterator[tuple[slice, slice]]:
        """Cut samples and points into parts of bounded memory."""
        n_points = self.method.inputs.n_points
        # Of its own class: one that extends it may look at other vertices.
        alone = vars(type(self.method)).get("is_pointwise", False) and self.method.base == "none"
        n_piece = min(n_points, _ROWS_AT_ONCE) if alone else n_points
        at_once = max(1, _ROWS_AT_ONCE // self.method.rows_per_sample)
        for first in range(0, n_samples, at_once):
            for point in range(0, n_points, n_piece):
                yield slice(first, first + at_once), slice(point, point + n_piece)

    def trust(self, shape_scores: np.ndarray) -> float:
        """Part of a network's correction of its base that counts at these scores; 1 without one."""
        scores, _ = self.method.inputs.samples(np.asarray(shape_scores)[None], np.zeros(1))
        return float(self.method.trust(scores))

    def warnings(self, shape_scores: np.ndarray, stages: Sequence[float] | np.ndarray) -> list[str]:
        """Say which scores and stages lie outside of what the model was trained on, how far."""
        found = []
        lows, highs = (self.metadata.get(f"training_scores_{end}", []) for end in ("min", "max"))
        # Where the model does not tell its ranges, no score is outside.
        for mode, (score, low, high) in enumerate(zip(shape_scores, lows, highs, strict=False), 1):
            outside = max(low - score, score - high)
            if outside > 0:
                found.append(
                    f"shape score {mode} is {score:.4g}, {outside:.2g} standard deviations "
                    f"outside of the training range [{low:.4g}, {high:.4g}]"
                )
        trust = self.trust(shape_scores)
        if trust < 1:
            found.append(
                f"the shape scores lie outside of the training subjects' ellipsoid: the network's "
                f"part counts {trust:.0%}, the rest is the base ({self.method.base})"
            )
        trained = self.stages_trained
        for stage in stages if trained else ():
            outside = max(trained[0] - stage, stage - trained[-1])
            if outside > 0:
                found.append(
                    f"stage {stage:.4g} is {outside:.2g} outside of the training range "
                    f"[{trained[0]:.4g}, {trained[-1]:.4g}]"
                )
        return found


def forward_at(
    method: TrainingMethod, network: nn.Module, coordinates: Tensor, pca: Tensor, stage: Tensor
) -> Tensor:
    """Run a method's `predict_batch` at some normalised coordinates, (n_points, 3)."""
    there = copy.copy(method)
    there.inputs = method.inputs.at(coordinates)
    return there.predict_batch(network, pca, stage)


def check_stages(stages: Sequence[float] | np.ndarray) -> None:
    """Refuse a stage that is none.

    Raises
    ------
    InputError
        If one is not within 0 and 1.
    """
    wanted = np.asarray(stages, np.float64)
    outside = wanted[~((wanted >= 0) & (wanted <= 1))]
    if outside.size:
        raise InputError(f"stage {outside[0]:g} is not within 0 and 1; give stages in [0, 1]")
