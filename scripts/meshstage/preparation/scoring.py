"""The scores and the pose of a new shape, also where only a part of it was seen."""

import logging
from dataclasses import dataclass

import numpy as np

from meshstage.cohort.alignment import Align
from meshstage.cohort.geometry import FAR_IN_SIZE, fit_pose, rms, size
from meshstage.errors import InputError, Problem
from meshstage.preparation.procrustes import procrustes, transform_points

_MAX_ROUNDS = 2000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scored:
    """What was found of a shape.

    Parameters
    ----------
    shape_scores : (n_scores,) float64, standard deviations
    matrix : (4, 4) float64
        Maps the patient's space into the template's, mm; never a reflection.
    residual : float, mm
        RMS distance of the points, so mapped, from the shape that the scores describe.
    """

    shape_scores: np.ndarray
    matrix: np.ndarray
    residual: float


def score_points(
    points: np.ndarray,
    mean: np.ndarray,
    modes: np.ndarray,
    align: Align = "rigid",
    weights: np.ndarray | None = None,
    noise: float = 0.0,
) -> Scored:
    """Find the most probable scores and pose of a shape (MAP).

    Minimises, over the scores ``b`` and a transform ``T``,

        sum_i w_i |T x_i - mean_i - sum_k b_k mode_ki|^2 / noise^2  +  sum_k b_k^2

    that is: scores in standard deviations have a unit normal prior, and each coordinate of point
    ``i`` a normal error of ``noise / sqrt(w_i)`` mm. With ``T`` fixed,

        b = (M' W M + noise^2)^-1 M' W (T x - mean)

    with one column of ``M`` per mode; with ``b`` fixed, ``T`` is the Procrustes fit (its scale the
    one that `procrustes` takes, as for the shapes of a cohort). Both are found alternately until
    the scores settle. Without noise the prior does not count: ``b`` is the projection, the least
    squares fit (scores of modes that move nothing are 0).

    Parameters
    ----------
    points, mean : (n, 3) array, mm
        In correspondence: those points that were seen.
    modes : (n_scores, n, 3) array, mm
        What one standard deviation of each score moves.
    align : "none", "rigid" or "similarity"
        What ``T`` may be.
    weights : (n,) array, optional
        0 for points that do not count; by default 1.
    noise : float, mm

    Raises
    ------
    InputError
        If no three points off a line count, weights are no weights, or the points are mirrored
        or in another unit.

    References
    ----------
    Blanz and Vetter (2002), "Reconstructing the complete 3D shape of faces from partial
    information", it - Information Technology 44(6).
    """
    weights = _checked_weights(points, weights)
    seen = weights > 0
    points, mean, modes, weights = points[seen], mean[seen], modes[:, seen], weights[seen]
    _check_points(points, mean, align)
    roots = np.sqrt(weights)[:, None]
    matrix = (modes * roots).reshape(len(modes), -1).T
    prior = noise * np.eye(len(modes))
    # Of the stacked equations; the prior's right-hand sides are 0.
    solve = np.linalg.pinv(np.vstack([matrix, prior]))[:, : matrix.shape[0]]
    scores, shape = np.zeros(len(modes)), mean
    for _ in range(_MAX_ROUNDS):
        transform = procrustes(points, shape, align, weights)
        aligned = transform_points(transform, points)
        before, scores = scores, solve @ ((aligned - mean) * roots).ravel()
        shape = mean + np.tensordot(scores, modes, axes=1)
        if np.abs(scores - before).max(initial=0.0) < 1e-10 or align == "none":
            break
    else:
        _log.warning(
            "pose and scores still change by %.2g standard deviations after %d rounds: the points "
            "hardly tell them apart",
            np.abs(scores - before).max(),
            _MAX_ROUNDS,
        )
    return Scored(scores, transform, rms(aligned - shape))


def _checked_weights(points: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    if weights is None:
        return np.ones(len(points))
    if weights.shape != (len(points),):
        raise InputError(f"weights are {weights.shape}, but there are {len(points)} points")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("a weight is negative or not finite; give 0 to points that do not count")
    return weights.astype(np.float64)


def _check_points(points: np.ndarray, mean: np.ndarray, align: Align) -> None:
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) if len(points) else [0]
    if align != "none" and (len(points) < 3 or spread[1] <= 1e-6 * spread[0]):
        what = f"{len(points)} points count, on one place or line: they tell no pose"
        raise InputError(Problem(what, "give at least three points off a line"))
    if not len(points):
        raise InputError("no point counts; give weights larger than 0")
    sizes = size(points), size(mean)
    if align != "none" and max(sizes) > FAR_IN_SIZE * min(sizes):
        what = f"its points are {sizes[0]:.4g} mm RMS from their centre, the model's {sizes[1]:.4g}"
        raise InputError(Problem(what, "bring the mesh to millimetres"))
    pose = fit_pose(points, mean)
    # Half: a flat mesh is fitted as well by either hand, one that is no mirror image worse.
    if pose and pose.mirrored_residual < 0.5 * pose.residual:
        what = (
            f"is mirrored against the template: the best rotation leaves {pose.residual:.1%} of "
            f"its size, the best reflection {pose.mirrored_residual:.1%}"
        )
        raise InputError(Problem(what, "check left and right, and that all axes mean the same"))
