"""Size and pose of points: what tells meshes that fit together from those that do not."""

from typing import NamedTuple

import numpy as np

from meshstage.cohort.shape_model import ShapeModel


def rms(vectors: np.ndarray) -> float:
    """Root of the mean squared length of (n_points, 3) vectors."""
    return float(np.sqrt(np.square(vectors).sum(axis=1).mean()))


def size(points: np.ndarray) -> float:
    """RMS distance of (n_points, 3) points from their centre, in their unit."""
    return rms(points - points.mean(axis=0))


# No two subjects of one organ differ that much; centimetres and millimetres differ by 10.
FAR_IN_SIZE = 5.0


def size_factor(a: float, b: float) -> float:
    """How many times the larger of two sizes is the smaller one, infinite where that is 0."""
    low, high = sorted([a, b])
    return high / low if low > 0 else float("inf")


class Pose(NamedTuple):
    """How one set of points lies against another.

    Parameters
    ----------
    degrees : float
        Angle of the rotation that fits best.
    residual, mirrored_residual : float
        RMS distance that the best rotation leaves, and the best reflection, as a fraction of the
        size; both sets are centred and scaled to size 1.
    """

    degrees: float
    residual: float
    mirrored_residual: float


def fit_pose(points: np.ndarray, target: np.ndarray) -> Pose | None:
    """Fit points to others in correspondence, (n_points, 3) each; None if one set is a point.

    References
    ----------
    Umeyama (1991), IEEE TPAMI 13(4):376-380: with the singular values s of the covariance, the
    squared residual is ``2 - 2 (s1 + s2 + s3)``, with ``-s3`` for the other handedness.
    """
    a, b = (x - x.mean(axis=0) for x in (points, target))
    if not (a.any() and b.any()):
        return None
    covariance = (a / rms(a)).T @ (b / rms(b)) / len(a)
    u, s, vt = np.linalg.svd(covariance)
    hand = 1.0 if np.linalg.det(u @ vt) > 0 else -1.0
    rotation = u @ np.diag([1.0, 1.0, hand]) @ vt
    cosine = np.clip((np.trace(rotation) - 1.0) / 2.0, -1.0, 1.0)

    def left(sign: float) -> float:
        return float(np.sqrt(max(0.0, 2.0 - 2.0 * (s[0] + s[1] + sign * s[2]))))

    return Pose(float(np.degrees(np.arccos(cosine))), left(hand), left(-hand))


def distances_from_model(
    reference: np.ndarray, scores: np.ndarray, model: ShapeModel, template_points: np.ndarray
) -> tuple[float, float]:
    """RMS distance of a reference from the mean, and from the shape that its scores describe.

    Parameters
    ----------
    reference, template_points : (n_points, 3) array, mm
        The template is the mean, unless the model has one.
    scores : (n_scores,) array, standard deviations
        Of the first modes.
    model : ShapeModel
    """
    mean, described = model.mean_points(template_points), model.points(scores, template_points)
    return rms(reference - mean), rms(reference - described)
