"""Procrustes: the rotation, translation and scale that bring shapes together."""

import numpy as np
from scipy.spatial.transform import Rotation

from meshstage.cohort.alignment import Align
from meshstage.cohort.geometry import rms, size

_MAX_ROUNDS = 100
# Of the size of the shapes: far below what a file of float32 keeps.
_TOLERANCE = 1e-9


def transform_points(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Map points (n, 3) by a matrix (4, 4)."""
    mapped: np.ndarray = points @ matrix[:3, :3].T + matrix[:3, 3]
    return mapped


def procrustes(
    points: np.ndarray, target: np.ndarray, align: Align, weights: np.ndarray | None = None
) -> np.ndarray:
    """Find the transform that brings points nearest to a target in correspondence.

    Parameters
    ----------
    points, target : (n, 3) array, mm
    align : "none", "rigid" or "similarity"
        What the transform may be; never a reflection.
    weights : (n,) array, optional
        How much each point counts.

    Returns
    -------
    (4, 4) float64 array
        ``transform_points(matrix, points)`` is near the target. Rotation and translation are those
        of weighted least squares. The scale leaves, of the difference to the target, no part along
        the target: shapes that are brought to their mean, so scaled, have that mean again, where
        the scale of least squares would shrink it.

    References
    ----------
    Umeyama (1991), IEEE TPAMI 13(4):376-380; for the scale Cootes et al. (1995), "Active shape
    models", CVIU 61(1), appendix A (projection into the tangent space of the mean).
    """
    matrix = np.eye(4)
    if align == "none":
        return matrix
    weights = np.ones(len(points)) if weights is None else weights
    centre, wanted = (np.average(x, axis=0, weights=weights) for x in (points, target))
    rotation, _ = Rotation.align_vectors(target - wanted, points - centre, weights)
    linear = rotation.as_matrix()
    if align == "similarity":
        weighted = weights[:, None] * (target - wanted)
        turned = (points - centre) @ linear.T
        linear = linear * (weighted * (target - wanted)).sum() / (weighted * turned).sum()
    matrix[:3, :3] = linear
    matrix[:3, 3] = wanted - linear @ centre
    return matrix


def generalised_procrustes(shapes: np.ndarray, align: Align) -> tuple[np.ndarray, np.ndarray]:
    """Bring many shapes together: each onto their mean, which follows from them.

    Parameters
    ----------
    shapes : (n_shapes, n_points, 3) array, mm
    align : "none", "rigid" or "similarity"

    Returns
    -------
    matrices : (n_shapes, 4, 4) float64 array
        The first shape keeps its place and direction. With a scale, they are brought to the mean
        of their sizes (RMS distance from the centre).
    mean : (n_points, 3) float64 array, mm
        Of the transformed shapes.

    References
    ----------
    Gower (1975), "Generalized Procrustes analysis", Psychometrika 40(1).
    """
    usual = float(np.mean([size(shape) for shape in shapes]))
    mean = shapes[0] * usual / size(shapes[0]) if align == "similarity" else shapes[0]
    for _ in range(_MAX_ROUNDS):
        matrices = np.array([procrustes(shape, mean, align) for shape in shapes])
        before, mean = mean, _mean(matrices, shapes)
        if rms(mean - before) <= _TOLERANCE * usual:
            break
    if align != "none":
        moved = transform_points(matrices[0], shapes[0])
        matrices = procrustes(moved, shapes[0], "rigid") @ matrices
    return matrices, _mean(matrices, shapes)


def _mean(matrices: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    moved = [transform_points(m, s) for m, s in zip(matrices, shapes, strict=True)]
    return np.mean(moved, axis=0)
