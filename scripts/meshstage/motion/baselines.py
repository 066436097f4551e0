"""What a model has to beat: predictions that need no network, fitted on training subjects.

zero
    Nothing moves.
stage_mean
    The mean motion at a stage, whoever the subject is.
ridge
    A ridge regression of motion modes on shape scores and harmonics of the stage.

Beside them stands the floor: what is left of the true motion after projecting it on the first k
motion modes of the training subjects. It sees the truth, so it is no prediction: no method that
moves meshes in these modes can be better.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.errors import InputError, Problem
from meshstage.files import atomic, read_json, sha256, write_json

# Every baseline that `Baselines.predict` may give, with its name in tables and figures.
TITLES = {
    "zero": "no motion",
    "stage_mean": "mean motion at the stage",
    "ridge": "ridge on shape scores",
}


@dataclass(frozen=True)
class Baselines:
    """Fitted baselines; plain arrays, applied without scikit-learn.

    Parameters
    ----------
    stages : (n_stages,) array
        Stages of the cohort, in [0, 1), rising.
    stage_mean : (n_stages, n_points, n_target) float32 array, units of the target
    motion_mean : (n_points * n_target,) array, units of the target
    modes : (n_modes, n_points * n_target) array
        Orthonormal motion modes, by falling variance.
    ridge_weights : (n_modes, n_features) array
    ridge_intercept : (n_modes,) array
    pca_mean, pca_scale : (n_pca,) array
        What shape scores are normalised with.
    n_harmonics : int
        Harmonics of the cycle in the ridge's features.
    about : dict
        What they were fitted on and how, as it stands in ``baselines.json``.
    """

    stages: np.ndarray
    stage_mean: np.ndarray
    motion_mean: np.ndarray
    modes: np.ndarray
    ridge_weights: np.ndarray
    ridge_intercept: np.ndarray
    pca_mean: np.ndarray
    pca_scale: np.ndarray
    n_harmonics: int
    about: dict[str, Any]

    def predict(self, shape_scores: np.ndarray, stages: np.ndarray) -> dict[str, np.ndarray]:
        """Predict each baseline's targets of one subject.

        Parameters
        ----------
        shape_scores : (n_pca,) array
        stages : (n_asked,) array

        Returns
        -------
        dict
            Name (of `TITLES`) to (n_asked, n_points, n_target) float32 array, units of the target.
        """
        stages = np.asarray(stages, float)
        weights, _ = periodic_weights(self.stages, stages)
        mean = np.tensordot(weights, self.stage_mean, axes=1).astype(np.float32)
        scores = np.tile((shape_scores - self.pca_mean) / self.pca_scale, (len(stages), 1))
        features = ridge_features(scores, stages, self.n_harmonics)
        coordinates = features @ self.ridge_weights.T + self.ridge_intercept
        ridge = (self.motion_mean + coordinates @ self.modes).astype(np.float32)
        return {
            "zero": np.zeros_like(mean),
            "stage_mean": mean,
            "ridge": ridge.reshape(mean.shape),
        }

    def floor_square_errors(self, targets: np.ndarray) -> np.ndarray:
        """Sum of squares that projecting on the first k modes leaves of each sample.

        Parameters
        ----------
        targets : (n_samples, n_points, n_target) array

        Returns
        -------
        (n_samples, n_modes + 1) array
            Column k: after k modes; column 0: after the mean alone.
        """
        centred = np.asarray(targets, np.float64).reshape(len(targets), -1) - self.motion_mean
        coordinates = centred @ self.modes.T
        left = [np.einsum("ij,ij->i", centred, centred)]
        for k, mode in enumerate(self.modes):
            # Subtracting and summing again, since total minus squares cancels near zero.
            centred -= coordinates[:, k, None] * mode
            left.append(np.einsum("ij,ij->i", centred, centred))
        return np.stack(left, axis=1)


def periodic_weights(known: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of linear interpolation between stages on a circle (stage 1 is stage 0).

    Parameters
    ----------
    known : (n_known,) array
        In any order; a stage that stands twice shares its weight.
    asked : (n_asked,) array

    Returns
    -------
    weights : (n_asked, n_known) array
        Each row sums to 1.
    gap : (n_asked,) array
        Part of the cycle that was interpolated over; 0 where the stage is known.
    """
    unique, inverse, times = np.unique(on_circle(known), return_inverse=True, return_counts=True)
    asked = on_circle(asked)
    n = len(unique)
    position = np.searchsorted(unique, asked)
    right = position % n
    exact = (position < n) & (unique[right] == asked)
    left = np.where(exact, right, (position - 1) % n)
    gap = (unique[right] - unique[left]) % 1.0
    gap = np.where(exact, 0.0, np.where(gap == 0, 1.0, gap))  # a single stage: all the way round
    part = np.divide((asked - unique[left]) % 1.0, gap, out=np.zeros(len(asked)), where=~exact)
    weights = np.zeros((len(asked), n))
    rows = np.arange(len(asked))
    np.add.at(weights, (rows, left), 1 - part)
    np.add.at(weights, (rows, right), part)
    return weights[:, inverse] / times[inverse], gap


def on_circle(stages: np.ndarray) -> np.ndarray:
    """Bring stages to [0, 1), where 1 is 0."""
    # Nine digits: 0.1 + 0.2 and 0.3 are one stage, 0.291 and 0.295 are two.
    return np.round(np.asarray(stages, float) % 1.0, 9) % 1.0


def ridge_features(scores: np.ndarray, stages: np.ndarray, n_harmonics: int) -> np.ndarray:
    """Products ``[1, shape scores] x [1, cos, sin of 1..K cycles]`` without their constant.

    Parameters
    ----------
    scores : (n_samples, n_pca) array, normalised
    stages : (n_samples,) array
    n_harmonics : int

    Returns
    -------
    (n_samples, (1 + n_pca) * (1 + 2 n_harmonics) - 1) array
    """
    ones = np.ones((len(stages), 1))
    angles = 2 * np.pi * np.outer(stages, np.arange(1, n_harmonics + 1))
    cycle = np.concatenate([ones, np.cos(angles), np.sin(angles)], axis=1)
    shape = np.concatenate([ones, scores], axis=1)
    return (shape[:, :, None] * cycle[:, None, :]).reshape(len(stages), -1)[:, 1:]


_ARRAYS = (
    "stages",
    "stage_mean",
    "motion_mean",
    "modes",
    "ridge_weights",
    "ridge_intercept",
    "pca_mean",
    "pca_scale",
)


def arrays_path(path: Path) -> Path:
    """Where the arrays of ``baselines.json`` lie: beside it, with the ending ``.npz``."""
    return path.with_suffix(".npz")


def write_baselines(path: Path, baselines: Baselines) -> None:
    """Write the arrays as ``.npz`` and, after it, the JSON that holds their hash."""
    arrays = {name: getattr(baselines, name) for name in _ARRAYS}
    with atomic(arrays_path(path)) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)
    digest = sha256(*arrays.values())
    write_json(path, {**baselines.about, "arrays": arrays_path(path).name, "arrays_sha256": digest})


def read_baselines(path: Path) -> Baselines:
    """Read what :func:`write_baselines` wrote.

    Raises
    ------
    InputError
        If a file is missing, or the arrays are not those that the JSON was written with.
    """
    about = read_json(path)
    beside = arrays_path(path)
    try:
        with np.load(beside, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in _ARRAYS}
        digest, n_harmonics = about["arrays_sha256"], int(about["n_harmonics"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            Problem(f"not a pair of baselines files ({error})", "run fit_baselines.py", str(beside))
        ) from None
    if sha256(*arrays.values()) != digest:
        raise InputError(
            Problem(f"not the arrays that {path.name} names", "run fit_baselines.py", str(beside))
        )
    return Baselines(**arrays, n_harmonics=n_harmonics, about=about)
