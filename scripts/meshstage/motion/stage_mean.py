"""Models that do not look at the shape: no motion, and the mean motion at a stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from meshstage.cohort.statistics import Statistics
from meshstage.motion.cycle import LARGEST_GAP, grid, interpolation
from meshstage.motion.model import MotionModel, Observed


@dataclass(frozen=True)
class NoMotion(MotionModel):
    """Nothing moves.

    Parameters
    ----------
    n_points, n_target : int
    """

    n_points: int
    n_target: int

    @classmethod
    def fit(cls, train: Sequence[Observed], statistics: Statistics, cycle: str) -> Self:
        """Take the size of the targets."""
        return cls(*train[0].targets.shape[1:])

    def predict(self, scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Give zeros, (S, n_points, n_target)."""
        return np.zeros((len(stages), self.n_points, self.n_target), np.float32)


@dataclass(frozen=True)
class StageMean(MotionModel):
    """The mean motion at a stage, whoever the subject is.

    Parameters
    ----------
    stages : (n_stages,) array
        Rising; of `cycle.grid`.
    values : (n_stages, n_points, n_target) float32 array, units of the target
    cycle : str
    """

    stages: np.ndarray
    values: np.ndarray
    cycle: str

    @classmethod
    def fit(cls, train: Sequence[Observed], statistics: Statistics, cycle: str) -> Self:
        """Average over the subjects at each stage of the cohort."""
        stages = grid(np.concatenate([s.stages for s in train]), cycle)
        total = np.zeros((len(stages), *train[0].targets.shape[1:]))
        times = np.zeros(len(stages))
        for subject in train:
            weights, gap = interpolation(subject.stages, stages, cycle)
            near = gap <= LARGEST_GAP
            total[near] += np.tensordot(weights[near], subject.targets, axes=1)
            times += near
        known = times > 0
        if not known.any():  # many stages, all bunched: then each subject counts everywhere
            each = [
                np.tensordot(interpolation(s.stages, stages, cycle)[0], s.targets, axes=1)
                for s in train
            ]
            return cls(stages, np.mean(each, axis=0).astype(np.float32), cycle)
        values = (total[known] / times[known, None, None]).astype(np.float32)
        return cls(stages[known], values, cycle)

    def predict(self, scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Interpolate the mean motion, (S, n_points, n_target)."""
        weights, _ = interpolation(self.stages, stages, self.cycle)
        mean: np.ndarray = np.tensordot(weights, self.values, axes=1).astype(np.float32)
        return mean
