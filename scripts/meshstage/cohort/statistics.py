"""Normalisation statistics of a cohort: what brings coordinates, scores and targets to size one."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.cohort.subject import Subject, differences
from meshstage.cohort.template import Template
from meshstage.errors import InputError, Problem, raise_if_any
from meshstage.files import read_json, sha256, write_json

# Scores are standard deviations of the shape model by definition: over a population their spread
# is near one. A smaller one is a cohort too small or too uniform to show it, and dividing by it
# would blow up the score of the next subject: two hearts that differ by 0.01 would put a third
# hundreds of units off. Half leaves room for populations narrower than the shape model's.
SMALLEST_SCORE_SCALE = 0.5


@dataclass(frozen=True)
class Statistics:
    """Means and scales, all float64.

    Parameters
    ----------
    coordinate_mean, coordinate_scale : tuple of 3 floats, mm
        Per axis over the template's points; scale is the standard deviation.
    pca_mean, pca_scale : tuple of n_pca floats, standard deviations of the shape model
        Per mode over the training subjects, each subject counted once; scales that are computed
        here are at least `SMALLEST_SCORE_SCALE`.
    target_scale : float, units of the target
        Largest absolute target value of the training samples.
    n_target : int
        Width of the target array.
    target_array : str
        Name of the target array.
    """

    coordinate_mean: tuple[float, ...]
    coordinate_scale: tuple[float, ...]
    pca_mean: tuple[float, ...]
    pca_scale: tuple[float, ...]
    target_scale: float
    n_target: int
    target_array: str

    @property
    def n_pca(self) -> int:
        """Number of shape scores."""
        return len(self.pca_mean)

    @property
    def n_features(self) -> int:
        """Width of a node's input: x, y, z, shape scores, stage."""
        return 3 + self.n_pca + 1

    def normalise_coordinates(self, points: np.ndarray) -> np.ndarray:
        """Bring (n_points, 3) mm to zero mean and unit scale, in float64 before any cast."""
        return (np.asarray(points, np.float64) - self.coordinate_mean) / self.coordinate_scale

    def normalise_scores(self, scores: np.ndarray) -> np.ndarray:
        """Bring (..., n_pca) shape scores to zero mean and unit scale, in float64."""
        return (np.asarray(scores, np.float64) - self.pca_mean) / self.pca_scale

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, as ``stats.json`` and a checkpoint hold them."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Statistics":
        """Take the fields from a mapping that may hold more.

        Raises
        ------
        KeyError
            If a field is missing.
        """
        return cls(
            **{
                name: tuple(map(float, values[name]))
                for name in ("coordinate_mean", "coordinate_scale", "pca_mean", "pca_scale")
            },
            target_scale=float(values["target_scale"]),
            n_target=int(values["n_target"]),
            target_array=str(values["target_array"]),
        )

    def digest(self) -> str:
        """Hash of all values: equal if and only if they are equal."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True))


def _scale(values: np.ndarray) -> np.ndarray:
    """Compute the standard deviation per column, 1 where it is zero to rounding.

    Rounding leaves some 1e-16 of the column's size in a float64 deviation, and some 1e-7 of the
    extent in coordinates that a float32 file held: below that a column says nothing.
    """
    deviation = values.std(axis=0)
    noise = np.maximum(1e-7 * deviation.max(), 1e-12 * np.abs(values).max(axis=0))
    return np.where(deviation > noise, deviation, 1.0)


def compute_statistics(template: Template, train: Sequence[Subject]) -> Statistics:
    """Compute the statistics over the template's points and the training subjects.

    Raises
    ------
    InputError
        If there is no training subject, or the subjects differ in target array, width or
        number of shape scores.
    """
    if not train:
        raise InputError("no training subject: the subjects table needs at least one `train` row")
    first = train[0]
    n_pca, n_target = len(first.shape_scores), first.targets.shape[2]
    first_has = {"target_array": first.target_array, "n_target": n_target, "n_pca": n_pca}
    raise_if_any(
        problem
        for subject in train
        for problem in differences(
            subject, f"subject {first.id}", "make all subjects alike", **first_has
        )
    )
    points = np.asarray(template.points, np.float64)
    scores = np.stack([subject.shape_scores for subject in train])
    largest = max(float(np.abs(subject.targets).max()) for subject in train)
    return Statistics(
        coordinate_mean=tuple(points.mean(axis=0).tolist()),
        coordinate_scale=tuple(_scale(points).tolist()),
        pca_mean=tuple(scores.mean(axis=0).tolist()),
        pca_scale=tuple(np.maximum(_scale(scores), SMALLEST_SCORE_SCALE).tolist()),
        target_scale=largest if largest > 0 else 1.0,
        n_target=n_target,
        target_array=first.target_array,
    )


def write_statistics(
    path: Path, statistics: Statistics, template: Template, train: Sequence[Subject]
) -> None:
    """Write ``stats.json``: the values, and who and what they came from."""
    write_json(
        path,
        {
            **statistics.to_dict(),
            "template_fingerprint": template.fingerprint,
            "train_subjects": {subject.id: subject.hashes for subject in train},
        },
    )


def read_statistics(path: Path) -> Statistics:
    """Read ``stats.json``.

    Raises
    ------
    InputError
        If the file is missing, not JSON, or lacks a value.
    """
    try:
        return Statistics.from_dict(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            Problem(f"not a statistics file ({error})", "make it with compute_stats.py", str(path))
        ) from None
