"""Shapes are brought together by rotations, shifts and scales, and never mirrored."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from meshstage.cohort.geometry import size
from meshstage.preparation.procrustes import (
    generalised_procrustes,
    procrustes,
    transform_points,
)

QUARTER_TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
POINTS = np.array([[10, 0, 0], [0, 20, 0], [0, 0, 30], [40, 50, 60], [-5, 7, 9]], float)  # mm

# Inputs are exact, and only 3 x 3 products and an SVD round: some 10 eps of the 100 mm extent.
EXACT = 1e-12


def matrix(linear, shift):
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = linear, shift
    return found


@pytest.mark.parametrize(("align", "scale"), [("rigid", 1.0), ("similarity", 2.5)])
def test_a_known_transform_is_found(align, scale):
    expected = matrix(scale * QUARTER_TURN, [5.0, -7.0, 11.0])
    found = procrustes(POINTS, transform_points(expected, POINTS), align)
    np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT)


def test_without_alignment_nothing_moves():
    assert np.array_equal(procrustes(POINTS, POINTS @ QUARTER_TURN.T + 3, "none"), np.eye(4))
    matrices, mean = generalised_procrustes(np.stack([POINTS, POINTS + 2]), "none")
    assert np.array_equal(matrices, np.stack([np.eye(4)] * 2))
    assert np.array_equal(mean, POINTS + 1)


@pytest.mark.parametrize("align", ["rigid", "similarity"])
def test_a_mirrored_shape_is_turned_and_never_mirrored_back(align):
    found = procrustes(POINTS * [-1, 1, 1], POINTS, align)
    assert np.linalg.det(found[:3, :3]) > 0


def test_a_point_without_weight_does_not_count():
    target = POINTS @ QUARTER_TURN.T
    target[4] += 1000.0
    found = procrustes(POINTS, target, "rigid", np.array([1.0, 1, 1, 1, 0]))
    np.testing.assert_allclose(found, matrix(QUARTER_TURN, 0), rtol=0, atol=EXACT)


@pytest.mark.parametrize("align", ["rigid", "similarity"])
def test_poses_of_one_shape_are_undone_and_the_first_stays(align):
    """The same shape in 5 poses: all come to lie on the first, whatever a scale may be."""
    rng = np.random.default_rng(3)
    turns = Rotation.random(5, rng).as_matrix()
    scales = [1.0, 1.0, 1.0, 1.0, 1.0] if align == "rigid" else [0.5, 0.8, 1.0, 1.2, 1.5]
    shapes = np.stack(
        [
            s * POINTS @ turn.T + 50 * rng.normal(size=3)
            for s, turn in zip(scales, turns, strict=True)
        ]
    )
    matrices, mean = generalised_procrustes(shapes, align)
    moved = [transform_points(m, shape) for m, shape in zip(matrices, shapes, strict=True)]
    # Rounds end when the mean moves less than 1e-9 of 40 mm.
    np.testing.assert_allclose(moved, np.broadcast_to(mean, (5, *mean.shape)), rtol=0, atol=1e-6)
    # By hand: the mean of the scales is 1, so that the mean shape has the size of POINTS.
    assert size(mean) == pytest.approx(size(POINTS), rel=1e-9)
    assert np.linalg.det(matrices[:, :3, :3]).min() > 0
    direction = shapes[0] - shapes[0].mean(axis=0)
    np.testing.assert_allclose(
        mean - shapes[0].mean(axis=0), direction / scales[0], rtol=0, atol=1e-6
    )
    if align == "rigid":
        np.testing.assert_allclose(matrices[0], np.eye(4), rtol=0, atol=1e-9)


def test_the_mean_is_the_one_that_leaves_least():
    """No small turn or shift of any shape brings the sum of squares further down."""
    rng = np.random.default_rng(4)
    shapes = POINTS + rng.normal(scale=3.0, size=(4, *POINTS.shape))
    matrices, _ = generalised_procrustes(shapes, "rigid")

    def left(transforms):
        moved = np.stack(
            [transform_points(m, shape) for m, shape in zip(transforms, shapes, strict=True)]
        )
        return np.square(moved - moved.mean(axis=0)).sum()

    least = left(matrices)
    for index in range(4):
        for _ in range(5):
            turn = Rotation.from_rotvec(rng.normal(scale=0.01, size=3)).as_matrix()
            other = matrices.copy()
            other[index] = matrix(turn, rng.normal(scale=0.1, size=3)) @ other[index]
            assert left(other) > least


@pytest.mark.parametrize("align", ["rigid", "similarity"])
def test_a_training_shape_comes_to_lie_where_it_was_when_it_is_brought_to_the_mean(align):
    """So that a new patient is aligned as the training subjects were, in size too."""
    rng = np.random.default_rng(5)
    shapes = POINTS + rng.normal(scale=5.0, size=(4, *POINTS.shape))
    matrices, mean = generalised_procrustes(shapes, align)
    again = [procrustes(shape, mean, align) for shape in shapes]
    # Rounds end when the mean moves less than 1e-9 of 40 mm; a scale of least squares would be
    # off by (5 / 40)^2, some percent.
    np.testing.assert_allclose(again, matrices, rtol=0, atol=1e-6)
