"""A ridge regression of motion modes on shape scores and features of the stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meshstage.cohort.statistics import Statistics
from meshstage.motion.cycle import encode, grid, most_harmonics
from meshstage.motion.model import MotionModel, Observed
from meshstage.motion.modes import principal_modes

_VARIANCE_KEPT, _MOST_MODES = 0.9999, 20
_PENALTIES = np.logspace(-4, 4, 9)
_FOLDS = 5
_UNPENALISED = 1e3  # a feature this many times as large costs a millionth of the penalty


@dataclass(frozen=True)
class Ridge(MotionModel):
    """A linear map from ``features`` to coefficients of the modes of single motions.

    Parameters
    ----------
    motion_mean : (n_points * n_target,) array, units of the target
    modes : (n_modes, n_points * n_target) array
        Orthonormal motion modes, by falling variance.
    variances : (n_modes,) array
        Parts of the whole variance.
    weights : (n_modes, n_features) array
    intercept : (n_modes,) array
    pca_mean, pca_scale : (n_pca,) array
        What shape scores are normalised with.
    n_target, n_harmonics : int
    cycle : str
    penalty : float
        Not a number if nothing was penalised.
    note : str
        How the penalty was found.
    """

    motion_mean: np.ndarray
    modes: np.ndarray
    variances: np.ndarray
    weights: np.ndarray
    intercept: np.ndarray
    pca_mean: np.ndarray
    pca_scale: np.ndarray
    n_target: int
    n_harmonics: int
    cycle: str
    penalty: float
    note: str

    @classmethod
    def fit(cls, train: Sequence[Observed], statistics: Statistics, cycle: str) -> Self:
        """Fit modes, then the ridge on them; its penalty by leaving out whole subjects."""
        mean, modes, variances = principal_modes(
            [s.targets for s in train], _VARIANCE_KEPT, _MOST_MODES
        )
        n_harmonics = most_harmonics(len(grid(np.concatenate([s.stages for s in train]), cycle)))
        rows = [
            features(statistics.normalise_scores(s.shape_scores), s.stages, n_harmonics, cycle)
            for s in train
        ]
        x = np.concatenate(rows)
        coordinates = np.concatenate(
            [(s.targets.reshape(len(s.stages), -1) - mean) @ modes.T for s in train]
        )
        groups = np.repeat(np.arange(len(train)), list(map(len, rows)))
        # Stage terms without shape scores are not penalised, no more than an intercept is: a ridge
        # that learned nothing of shape is the mean motion, not the mean of the mean motion.
        free = np.where(np.arange(x.shape[1]) < 2 * n_harmonics, _UNPENALISED, 1.0)
        weights, intercept, penalty, note = _fit_ridge(x * free, coordinates, groups)
        return cls(
            motion_mean=mean,
            modes=modes,
            variances=variances,
            weights=weights * free,
            intercept=intercept,
            pca_mean=np.array(statistics.pca_mean),
            pca_scale=np.array(statistics.pca_scale),
            n_target=train[0].targets.shape[2],
            n_harmonics=n_harmonics,
            cycle=cycle,
            penalty=penalty,
            note=note,
        )

    def predict(self, scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Predict one subject's motion, (S, n_points, n_target)."""
        normalised = (scores - self.pca_mean) / self.pca_scale
        x = features(normalised, stages, self.n_harmonics, self.cycle)
        motion = self.motion_mean + (x @ self.weights.T + self.intercept) @ self.modes
        predicted: np.ndarray = motion.astype(np.float32)
        return predicted.reshape(len(stages), -1, self.n_target)

    def about(self) -> dict[str, Any]:
        """Give the penalty and how it was found."""
        return {"penalty": None if np.isnan(self.penalty) else self.penalty, "note": self.note}

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


def features(scores: np.ndarray, stages: np.ndarray, n_harmonics: int, cycle: str) -> np.ndarray:
    """Products ``[1, shape scores] x [1, encoded stage]`` without their constant.

    Parameters
    ----------
    scores : (n_pca,) array, normalised
    stages : (n_samples,) array
    n_harmonics : int
        Of `cycle.encode`.
    cycle : str

    Returns
    -------
    (n_samples, (1 + n_pca) * (1 + 2 n_harmonics) - 1) array
    """
    ones = np.ones((len(stages), 1))
    encoded = np.concatenate([ones, encode(stages, n_harmonics, cycle)], axis=1)
    shape = np.concatenate([ones, np.tile(scores, (len(stages), 1))], axis=1)
    return (shape[:, :, None] * encoded[:, None, :]).reshape(len(stages), -1)[:, 1:]


def _fit_ridge(
    x: np.ndarray, coordinates: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, str]:
    """Fit the ridge; its penalty by cross-validation that leaves out whole subjects."""
    n_subjects, n_modes = len(np.unique(groups)), coordinates.shape[1]
    if not n_modes or not x.shape[1]:
        note = "no motion, or a single stage and no shape scores: the ridge predicts the mean"
        return np.zeros((n_modes, x.shape[1])), coordinates.mean(axis=0), float("nan"), note
    from sklearn.linear_model import Ridge as Regression
    from sklearn.model_selection import GridSearchCV, GroupKFold

    if n_subjects < 2:
        ridge, penalty = Regression(alpha=1.0).fit(x, coordinates), 1.0
        note = "one training subject: no cross-validation, penalty 1, nothing learned of shape"
    else:
        folds = GroupKFold(min(_FOLDS, n_subjects))
        search = GridSearchCV(
            Regression(), {"alpha": _PENALTIES}, scoring="neg_mean_squared_error", cv=folds
        ).fit(x, coordinates, groups=groups)
        ridge, penalty = search.best_estimator_, float(search.best_params_["alpha"])
        note = f"penalty by {folds.get_n_splits()}-fold cross-validation over {n_subjects} subjects"
        if n_subjects < _FOLDS:
            note += ": few, so take the ridge with caution"
    # One mode makes scikit-learn return flat arrays.
    return ridge.coef_.reshape(n_modes, -1), np.reshape(ridge.intercept_, n_modes), penalty, note
