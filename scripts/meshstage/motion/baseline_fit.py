"""Fit the baselines: the mean motion, its principal modes and a ridge regression."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.subject import Subject
from meshstage.cohort.template import Template
from meshstage.errors import InputError, Problem
from meshstage.motion.baselines import Baselines, on_circle, periodic_weights, ridge_features
from meshstage.motion.residuals import square_errors

# A subject's motion is interpolated over at most this part of a cycle when the mean is taken; a
# straight line over more, from 0.04 round to 1 say, would invent a heart that stands still.
_LARGEST_GAP = 0.25
_MOST_STAGES = 64
_MOST_MODES = 20
_VARIANCE_KEPT = 0.9999
_MOST_HARMONICS = 4
_PENALTIES = np.logspace(-4, 4, 9)
_FOLDS = 5
_UNPENALISED = 1e3  # a feature this many times as large costs a millionth of the penalty
_BLOCK_VALUES = 4_000_000  # float64 values held at once while modes are made: 32 MB


def fit_baselines(
    template: Template,
    statistics: Statistics,
    train: Sequence[Subject],
    val: Sequence[Subject] = (),
) -> Baselines:
    """Fit all baselines on the training subjects.

    Parameters
    ----------
    template : Template
    statistics : Statistics
    train : sequence of Subject
    val : sequence of Subject
        Not fitted on: their RMSE stands in ``about["rmse"]`` beside that of train, so that a
        run in progress can be compared with it.

    Raises
    ------
    InputError
        If there is no training subject, or one does not fit the statistics.
    """
    if not train:
        raise InputError("no training subject to fit the baselines on; give at least one")
    _check_widths(statistics, [*train, *val])
    stages, stage_mean = _fit_stage_mean(train)
    motion_mean, modes, variances = _fit_modes(train)
    n_harmonics = min(_MOST_HARMONICS, (len(stages) - 1) // 2)
    pca_mean, pca_scale = np.array(statistics.pca_mean), np.array(statistics.pca_scale)
    features = np.concatenate(
        [
            ridge_features(
                np.tile((s.shape_scores - pca_mean) / pca_scale, (len(s.stages), 1)),
                np.asarray(s.stages, float),
                n_harmonics,
            )
            for s in train
        ]
    )
    coordinates = np.concatenate(
        [(s.targets.reshape(len(s.stages), -1) - motion_mean) @ modes.T for s in train]
    )
    groups = np.repeat(np.arange(len(train)), [len(s.stages) for s in train])
    # Stage terms without shape scores are not penalised, no more than an intercept is: a ridge
    # that learned nothing of shape is the mean motion, not the mean of the mean motion.
    free = np.where(np.arange(features.shape[1]) < 2 * n_harmonics, _UNPENALISED, 1.0)
    weights, intercept, chosen = _fit_ridge(features * free, coordinates, groups)
    about: dict[str, Any] = {
        "template_fingerprint": template.fingerprint,
        "target_array": statistics.target_array,
        "train_subjects": {s.id: s.hashes for s in train},
        "n_stages": len(stages),
        "n_harmonics": n_harmonics,
        "n_modes": len(modes),
        "explained_variance_ratio": variances.tolist(),
        "ridge": chosen,
        "open_cycles": _open_cycles(train, statistics.target_scale),
    }
    baselines = Baselines(
        stages=stages,
        stage_mean=stage_mean,
        motion_mean=motion_mean,
        modes=modes,
        ridge_weights=weights * free,
        ridge_intercept=intercept,
        pca_mean=pca_mean,
        pca_scale=pca_scale,
        n_harmonics=n_harmonics,
        about=about,
    )
    about["rmse"] = {"train": _rmse(baselines, train), "val": _rmse(baselines, val)}
    return baselines


def _rmse(baselines: Baselines, subjects: Sequence[Subject]) -> dict[str, float] | None:
    """RMSE of each baseline over some subjects, units of the target; None without any."""
    if not subjects:
        return None
    total: dict[str, float] = {}
    count = 0
    for subject in subjects:
        predicted = baselines.predict(subject.shape_scores, subject.stages)
        for name, values in predicted.items():
            square = float(square_errors(values, subject.targets).sum())
            total[name] = total.get(name, 0.0) + square
        count += subject.targets.shape[0] * subject.targets.shape[1]
    return {name: math.sqrt(value / count) for name, value in total.items()}


def _check_widths(statistics: Statistics, train: Sequence[Subject]) -> None:
    for subject in train:
        for what, mine, wanted in (
            ("shape scores", len(subject.shape_scores), len(statistics.pca_mean)),
            ("target components", subject.targets.shape[2], statistics.n_target),
        ):
            if mine != wanted:
                raise InputError(
                    Problem(
                        f"{mine} {what}, but {wanted} in the statistics",
                        "compute the statistics again with compute_stats.py",
                        subject=subject.id,
                    )
                )


def _open_cycles(train: Sequence[Subject], scale: float) -> list[str]:
    """Name the subjects with stages 0 and 1 whose targets differ there by more than 1 %."""
    found = []
    for subject in train:
        first, last = (np.flatnonzero(subject.stages == stage) for stage in (0.0, 1.0))
        if first.size and last.size:
            step = subject.targets[last[0]] - subject.targets[first[0]]
            if np.abs(step).max() > 0.01 * scale:
                found.append(subject.id)
    return found


def _fit_stage_mean(train: Sequence[Subject]) -> tuple[np.ndarray, np.ndarray]:
    """Average over the subjects at each stage of the cohort (at even stages if it has many)."""
    stages = np.unique(on_circle(np.concatenate([s.stages for s in train])))
    if len(stages) > _MOST_STAGES:
        stages = np.arange(_MOST_STAGES) / _MOST_STAGES
    total = np.zeros((len(stages), *train[0].targets.shape[1:]))
    times = np.zeros(len(stages))
    for subject in train:
        weights, gap = periodic_weights(subject.stages, stages)
        near = gap <= _LARGEST_GAP
        total[near] += np.tensordot(weights[near], subject.targets, axes=1)
        times += near
    known = times > 0
    if not known.any():  # many stages, all bunched: then each subject counts everywhere
        each = [
            np.tensordot(periodic_weights(s.stages, stages)[0], s.targets, axes=1) for s in train
        ]
        return stages, np.mean(each, axis=0).astype(np.float32)
    return stages[known], (total[known] / times[known, None, None]).astype(np.float32)


def _fit_modes(train: Sequence[Subject]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Principal components of the motion by its Gram matrix, a block of points at a time."""
    n_samples = sum(len(s.stages) for s in train)
    flat = [s.targets.reshape(len(s.stages), -1) for s in train]
    n_values = flat[0].shape[1]
    step = max(1, _BLOCK_VALUES // n_samples)
    blocks = [slice(start, start + step) for start in range(0, n_values, step)]
    mean, gram = np.empty(n_values), np.zeros((n_samples, n_samples))

    def centred(block: slice) -> np.ndarray:
        part = np.concatenate([f[:, block] for f in flat]).astype(np.float64)
        mean[block] = part.mean(axis=0)
        return part - mean[block]

    for block in blocks:
        part = centred(block)
        gram += part @ part.T
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1].clip(min=0), vectors[:, ::-1]
    total = values.sum()
    # Rounding leaves eigenvalues of some 1e-16 of the largest where there is no motion at all.
    real = int((values > 1e-12 * max(values[0], np.finfo(float).tiny)).sum())
    enough = int(np.searchsorted(np.cumsum(values), _VARIANCE_KEPT * total)) + 1
    kept = min(real, enough, _MOST_MODES)
    modes = np.empty((kept, n_values))
    for block in blocks:
        modes[:, block] = (vectors[:, :kept] / np.sqrt(values[:kept])).T @ centred(block)
    return mean, modes, values[:kept] / total if total > 0 else values[:0]


def _fit_ridge(
    features: np.ndarray, coordinates: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Fit the ridge; its penalty by cross-validation that leaves out whole subjects."""
    n_subjects, n_modes = len(np.unique(groups)), coordinates.shape[1]
    if not n_modes or not features.shape[1]:
        note = "no motion, or a single stage and no shape scores: the ridge predicts the mean"
        weights = np.zeros((n_modes, features.shape[1]))
        return weights, coordinates.mean(axis=0), {"penalty": None, "note": note}
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV, GroupKFold

    if n_subjects < 2:
        ridge = Ridge(alpha=1.0).fit(features, coordinates)
        note = "one training subject: no cross-validation, penalty 1, nothing learned of shape"
        chosen: dict[str, Any] = {"penalty": 1.0, "note": note}
    else:
        folds = GroupKFold(min(_FOLDS, n_subjects))
        search = GridSearchCV(
            Ridge(), {"alpha": _PENALTIES}, scoring="neg_mean_squared_error", cv=folds
        ).fit(features, coordinates, groups=groups)
        ridge = search.best_estimator_
        note = f"penalty by {folds.get_n_splits()}-fold cross-validation over {n_subjects} subjects"
        if n_subjects < _FOLDS:
            note += ": few, so take the ridge with caution"
        chosen = {"penalty": float(search.best_params_["alpha"]), "note": note}
    # One mode makes scikit-learn return flat arrays.
    return ridge.coef_.reshape(n_modes, -1), np.reshape(ridge.intercept_, n_modes), chosen
