"""What a network corrects: a motion model that was fitted on the training subjects."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.motion.baselines import MODELS
from meshstage.motion.model import Observed
from meshstage.training.motion_tensors import MOTION_TENSORS

_MOTION = "motion."


class BaseMotion(nn.Module):
    """A motion model, how far it is off, and for which scores a network may correct it.

    Parameters
    ----------
    kind : str
        Of `motion_tensors.MOTION_TENSORS`.
    tensors : mapping of str to Tensor
        Of `fit_base`.
    statistics : Statistics
    cycle : str

    Attributes
    ----------
    residual_scale : () tensor
        Root of the mean square that the model leaves of the training targets, by their scale.
    radius : () tensor
        Length of the normalised scores of the farthest training subject.
    """

    residual_scale: Tensor
    radius: Tensor
    pca_mean: Tensor
    pca_scale: Tensor

    def __init__(
        self, kind: str, tensors: Mapping[str, Tensor], statistics: Statistics, cycle: str
    ) -> None:
        super().__init__()
        own = {k.removeprefix(_MOTION): v for k, v in tensors.items() if k.startswith(_MOTION)}
        self.motion = MOTION_TENSORS[kind](own, cycle)
        for name in ("residual_scale", "radius"):
            self.register_buffer(name, tensors[name])
        for name in ("pca_mean", "pca_scale"):
            values = torch.tensor(getattr(statistics, name), dtype=torch.float64)
            self.register_buffer(name, values)
        self.target_scale = statistics.target_scale

    def forward(self, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict from normalised scores (B, n_pca) and stages (B,), by the targets' scale."""
        scores = pca.double() * self.pca_scale + self.pca_mean
        motion: Tensor = self.motion(scores, stage) / self.target_scale
        return motion.to(pca.dtype)

    def corrected(self, correction: Tensor, pca: Tensor, stage: Tensor) -> Tensor:
        """Add what a network gives, (B, n_points, n_target), in units of what the base leaves."""
        share = (self.residual_scale * self.trust(pca)).to(pca.dtype)
        return self(pca, stage) + share[:, None, None] * correction

    def trust(self, pca: Tensor) -> Tensor:
        """Part of a network's correction that counts: (B, n_pca) to (B,) float64.

        1 in the ellipsoid around the mean scores, with axes along the scores and as their scales,
        that just holds all training subjects; from there it falls in proportion to the distance,
        to 0 twice as far out.
        """
        distance = pca.double().square().sum(dim=1).sqrt()
        # A millionth more, since the scores of the farthest subject are rounded to float32.
        return (2 - distance / (self.radius * (1 + 1e-6)).clamp(min=1e-6)).clamp(0, 1)


def fit_base(
    kind: str, train: Sequence[Observed], statistics: Statistics, cycle: str
) -> dict[str, Tensor]:
    """Fit a base on the training subjects; give the tensors of a `BaseMotion`."""
    model = MODELS[kind][1].fit(train, statistics, cycle)
    square = n_values = 0.0
    for subject in train:
        left = subject.targets - model.predict(subject.shape_scores, subject.stages)
        square += float(np.square(left, dtype=np.float64).sum())
        n_values += left.size
    scores = statistics.normalise_scores(np.stack([s.shape_scores for s in train]))
    motion = MOTION_TENSORS[kind].tensors_of(model)
    return {
        "residual_scale": torch.tensor(
            np.sqrt(square / n_values) / statistics.target_scale, dtype=torch.float64
        ),
        "radius": torch.tensor(np.linalg.norm(scores, axis=1).max(), dtype=torch.float64),
        **{_MOTION + name: tensor for name, tensor in motion.items()},
    }
