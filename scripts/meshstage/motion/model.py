"""What every motion model is: fitted on subjects, asked for scores and stages, saved as arrays."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, Self

import numpy as np

from meshstage.cohort.statistics import Statistics


class Observed(Protocol):
    """A subject whose motion is known; an ingested `Subject` is one."""

    @property
    def shape_scores(self) -> np.ndarray:
        """(n_pca,) array, standard deviations."""

    @property
    def stages(self) -> np.ndarray:
        """(n_phases,) array."""

    @property
    def targets(self) -> np.ndarray:
        """(n_phases, n_points, n_target) array, units of the target."""


class Arrays:
    """A dataclass of arrays, numbers and strings that is saved as plain arrays."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give the fields by name; numbers and strings as arrays without axes."""
        return {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Make what :meth:`to_arrays` was called on; other keys are ignored.

        Raises
        ------
        KeyError
            If a field is missing.
        """
        found = {f.name: np.asarray(arrays[f.name]) for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: v if v.ndim else v.item() for k, v in found.items()})


class MotionModel(Arrays, ABC):
    """A population motion model; subclasses are frozen dataclasses of plain arrays."""

    @classmethod
    @abstractmethod
    def fit(cls, train: Sequence[Observed], statistics: Statistics, cycle: str) -> Self:
        """Fit on training subjects, at least one; ``cycle`` is of `cycle.CYCLES`."""

    @abstractmethod
    def predict(self, scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Predict one subject's motion.

        Parameters
        ----------
        scores : (n_pca,) array, standard deviations
        stages : (S,) array

        Returns
        -------
        (S, n_points, n_target) float32 array, units of the target
        """

    def about(self) -> dict[str, Any]:
        """Say what people should know of the fit, as ``baselines.json`` holds it."""
        return {}
