"""Synthetic subjects: scores like those of the training subjects, and a teacher's motion."""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from meshstage.cohort.statistics import Statistics
from meshstage.motion.baselines import MODELS
from meshstage.training.motion_tensors import MOTION_TENSORS, MotionTensors
from meshstage.training.samples import PhaseSampleDataset

_log = logging.getLogger(__name__)

# Distinguishes the stream of a subject's scores from those of `training.plan`.
_STREAM = 2


def draw_scores(scores: np.ndarray, n_subjects: int, seed: int) -> np.ndarray:
    """Draw scores like given ones: normal, within the ellipsoid that holds these.

    With the mean ``m`` and the covariance ``C`` of the given scores (of n - 1 degrees of freedom),
    each draw is from ``N(m, C)``, and drawn again while its Mahalanobis distance
    ``sqrt((b - m)' C^+ (b - m))`` is above the largest of the given ones. Where scores span less
    than all dimensions, as fewer subjects than scores do, draws stay within that span.

    Parameters
    ----------
    scores : (n, n_pca) array, standard deviations
    n_subjects : int
    seed : int
        A subject's scores follow from seed and number alone: more subjects change none before.

    Returns
    -------
    (n_subjects, n_pca) float64 array
    """
    mean = scores.mean(axis=0)
    left, lengths, axes = np.linalg.svd(scores - mean, full_matrices=False)
    spanned = lengths > 1e-9 * max(lengths.max(initial=0.0), 1e-300)
    degrees = np.sqrt(max(len(scores) - 1, 1))
    # Scores in units of their spread along each axis: their length is the Mahalanobis distance.
    whitened = left[:, spanned] * degrees
    largest = np.linalg.norm(whitened, axis=1).max()
    drawn = np.empty((n_subjects, int(spanned.sum())))
    for number, row in enumerate(drawn):
        generator = np.random.default_rng([seed, number, _STREAM])
        row[:] = generator.standard_normal(len(row))
        while np.linalg.norm(row) > largest:
            row[:] = generator.standard_normal(len(row))
    found: np.ndarray = mean + drawn * (lengths[spanned] / degrees) @ axes[spanned]
    return found


class TaughtDataset(PhaseSampleDataset):
    """Real samples, and after them those of synthetic subjects.

    A synthetic subject has the stages of a real one, in turn. Its targets are computed when a
    batch asks for them.

    Parameters
    ----------
    real : PhaseSampleDataset
    teacher : MotionTensors
    n_synthetic : int
    seed : int
        Of the synthetic scores.
    """

    is_stored = False

    def __init__(
        self, real: PhaseSampleDataset, teacher: MotionTensors, n_synthetic: int, seed: int
    ) -> None:
        super().__init__(real.subjects, real.cache_max_samples)
        self.teacher, self._n_real = teacher, len(real)
        scores = draw_scores(
            np.stack([subject.shape_scores for subject in real.subjects]), n_synthetic, seed
        )
        stages = [real.subjects[k % len(real.subjects)].stages for k in range(n_synthetic)]
        for number, own in enumerate(stages):
            self._where += [(len(real.subjects) + number, phase) for phase in range(len(own))]
            self.subject_ids += [f"synthetic-{number + 1}"] * len(own)
        repeated = np.repeat(scores, [len(own) for own in stages], axis=0)
        self.shape_scores = np.concatenate([self.shape_scores, repeated])
        self.stages = np.concatenate([self.stages, *stages])

    @torch.no_grad()
    def targets(self, indices: Sequence[int]) -> Tensor:
        """Copy the targets of real samples, compute those of synthetic ones."""
        where = np.asarray(indices)
        is_real = where < self._n_real
        batch = torch.empty((len(where), self.n_points, self.n_target))
        batch[is_real] = super().targets(where[is_real].tolist())
        made = where[~is_real]
        if len(made):
            scores, stages = self.shape_scores[made], self.stages[made]
            motion = self.teacher(torch.from_numpy(scores), torch.from_numpy(stages))
            batch[~is_real] = motion.to(batch.dtype)
        return batch


def fit_teacher(
    kind: str, train: PhaseSampleDataset, statistics: Statistics, cycle: str
) -> dict[str, Tensor]:
    """Fit a teacher on the training subjects, as the network of its name and the baseline are."""
    model = MODELS[kind][1].fit(train.subjects, statistics, cycle)
    _log.info("the teacher (%s) is fitted: %s", kind, model.about())
    return MOTION_TENSORS[kind].tensors_of(model)
