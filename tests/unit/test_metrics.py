"""Metrics against closed forms: spheres, boxes, planes."""

import numpy as np
import pytest
import pyvista as pv

from meshstage.errors import InputError
from meshstage.judging import metrics
from meshstage.meshes.surface import triangles_of
from meshstage.motion.residuals import square_errors

RADIUS = 30.0  # mm


@pytest.fixture(scope="module")
def sphere() -> pv.PolyData:
    """Sphere of 2562 almost evenly spread points."""
    return pv.Icosphere(radius=RADIUS, nsub=4)


def sagitta(sphere: pv.PolyData) -> float:
    """How far a triangle's middle lies below the sphere, mm."""
    return RADIUS - float(np.linalg.norm(sphere.cell_centers().points, axis=1).min())


def box(*lengths: float) -> pv.UnstructuredGrid:
    grid = pv.ImageData(dimensions=(2, 2, 2), spacing=lengths)
    return grid.cast_to_unstructured_grid()


def test_rmse_counts_points_and_not_components() -> None:
    truth = np.zeros((4, 3))
    # Each point is off by 3 and 4 in two components: 5 in all.
    guess = np.tile([3.0, 0.0, 4.0], (4, 1))
    assert metrics.rmse(square_errors(guess, truth)) == 5.0
    guess[:2] = 0  # half of the points right
    assert metrics.rmse(square_errors(guess, truth)) == pytest.approx(5 / np.sqrt(2))


def test_square_errors_do_not_lose_float32_digits() -> None:
    truth, guess = np.float32([[0.1, 0, 0]]), np.float32([[1e4, 0, 0]])
    # The difference needs more digits than float32 has; Python's own floats are float64.
    assert square_errors(guess, truth)[0] == (float(guess[0, 0]) - float(truth[0, 0])) ** 2


@pytest.mark.parametrize(
    ("error", "baseline", "expected"),
    [(1.0, 4.0, 0.75), (4.0, 4.0, 0.0), (8.0, 4.0, -1.0), (1.0, 0.0, None), (None, 1.0, None)],
)
def test_skill(error: float | None, baseline: float | None, expected: float | None) -> None:
    assert metrics.skill(error, baseline) == expected


def test_weighted_percentile_follows_the_weight() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 90.0, 9.0])
    assert metrics.weighted_percentile(values, weights, 90) == 1.0
    assert metrics.weighted_percentile(values, weights, 95) == 2.0
    assert metrics.weighted_percentile(values, weights, 99.5) == 3.0
    assert metrics.weighted_percentile(values, weights, 100) == 3.0


def test_point_weights_of_a_solid_are_volumes_in_equal_parts() -> None:
    grid = pv.ImageData(dimensions=(3, 2, 2), spacing=(2, 3, 5)).cast_to_unstructured_grid()
    # Two cells of 30 mm^3; the corners that both share are those in the middle, x = 2.
    expected = np.where(grid.points[:, 0] == 2, 2, 1) * 30 / 8
    np.testing.assert_allclose(metrics.point_weights(grid), expected, rtol=1e-14)


def test_point_weights_of_a_surface_sum_to_its_area(sphere: pv.PolyData) -> None:
    weights = metrics.point_weights(sphere)
    assert weights.sum() == pytest.approx(sphere.area, rel=1e-12)
    square = pv.Plane(i_size=2, j_size=3, i_resolution=1, j_resolution=1)
    np.testing.assert_allclose(metrics.point_weights(square), 6 / 4)


def test_points_without_a_cell_have_no_weight() -> None:
    mesh = pv.PolyData.from_regular_faces(
        np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [5, 5, 5]], float), np.array([[0, 1, 2]])
    )
    np.testing.assert_allclose(metrics.point_weights(mesh), [1 / 6, 1 / 6, 1 / 6, 0])


def test_volume_of_a_box_is_exact_wherever_it_lies() -> None:
    grid = box(2, 3, 5)
    triangles = triangles_of(grid)
    assert metrics.is_closed(triangles)
    # Shifted by 100 mm, terms of 1e6 mm^3 cancel to 30: 1e-10 is left of 1e-16.
    assert metrics.enclosed_volume(grid.points + 100.0, triangles) == pytest.approx(30, abs=1e-8)


def test_volume_of_a_scaled_sphere_grows_with_the_cube(sphere: pv.PolyData) -> None:
    triangles = triangles_of(sphere)
    volume = metrics.enclosed_volume(sphere.points, triangles)
    assert metrics.enclosed_volume(1.1 * sphere.points, triangles) == pytest.approx(
        1.1**3 * volume,
        rel=1e-6,  # the points are float32
    )
    # The polyhedron lies between the spheres of its points and of its triangles' middles.
    inner = 4 / 3 * np.pi * (RADIUS - sagitta(sphere)) ** 3
    assert inner < volume < 4 / 3 * np.pi * RADIUS**3


def test_surface_of_a_solid_is_numbered_by_the_solids_points() -> None:
    grid = pv.ImageData(dimensions=(4, 4, 4)).cast_to_unstructured_grid()
    triangles = triangles_of(grid)
    inside = np.flatnonzero(((grid.points > 0) & (grid.points < 3)).all(axis=1))
    assert len(inside) == 8
    assert set(np.unique(triangles)) == set(range(grid.n_points)) - set(inside)


def test_open_or_unoriented_surfaces_are_not_closed(sphere: pv.PolyData) -> None:
    triangles = triangles_of(sphere)
    assert metrics.is_closed(triangles)
    assert not metrics.is_closed(triangles[1:])
    flipped = triangles.copy()
    flipped[0] = flipped[0, ::-1]
    assert not metrics.is_closed(flipped)
    assert not metrics.is_closed(np.concatenate([triangles, triangles[:1]]))
    assert not metrics.is_closed(triangles[:0])


def test_parallel_planes_are_their_distance_apart() -> None:
    plane = pv.Plane(i_size=10, j_size=10, i_resolution=7, j_resolution=7).triangulate()
    points = plane.points.astype(float)
    distances = metrics.surface_distances(
        points, points + np.array([0, 0, 2.5]), triangles_of(plane)
    )
    assert distances == pytest.approx((2.5, 2.5), rel=1e-12)


def test_concentric_spheres_are_the_difference_of_radii_apart(sphere: pv.PolyData) -> None:
    points, triangles = sphere.points.astype(float), triangles_of(sphere)
    distances = metrics.surface_distances(points, 1.1 * points, triangles)
    assert distances is not None
    # 3 mm; a flat triangle lies at most a sagitta below the sphere of its corners, and a point
    # over a corner of the smaller sphere is exactly 3 mm from it at most.
    for distance in distances:
        assert 3 - 1.1 * sagitta(sphere) <= distance <= 3 + 1e-5


def test_shifted_sphere_has_the_distances_of_the_closed_form(sphere: pv.PolyData) -> None:
    points, triangles = sphere.points.astype(float), triangles_of(sphere)
    shift = 2.0
    moved = points + np.array([0, 0, shift])
    there = metrics.surface_distances(points, moved, triangles)
    back = metrics.surface_distances(moved, points, triangles)
    assert there is not None and there == pytest.approx(back)
    # At height c = cos(polar), which is uniform over a sphere's area, a point is this far away:
    c = np.linspace(-1, 1, 20001)
    away = np.abs(np.sqrt(RADIUS**2 - 2 * RADIUS * shift * c + shift**2) - RADIUS)
    # Triangles lie below the sphere by a sagitta (0.05 mm) at most; the percentile moves by a
    # ring of points, 1/40 of the range.
    assert there[0] == pytest.approx(away.mean(), abs=sagitta(sphere))
    assert there[1] == pytest.approx(np.percentile(away, 95), abs=sagitta(sphere) + shift / 40)


def test_surface_distances_see_shape_and_not_points(sphere: pv.PolyData) -> None:
    """A turned sphere has other points but is the same surface: only sagittas are left."""
    points, triangles = sphere.points.astype(float), triangles_of(sphere)
    angle = 0.3
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    distances = metrics.surface_distances(points, points @ turn.T, triangles)
    assert distances is not None and max(distances) <= sagitta(sphere)
    assert np.linalg.norm(points @ turn.T - points, axis=1).mean() > 5


def test_hd95_is_the_worse_of_both_directions() -> None:
    """A shrunk square lies on the large one, whose border is far from the shrunk one."""
    plane = pv.Plane(i_size=8, j_size=8, i_resolution=8, j_resolution=8).triangulate()
    points, triangles = plane.points.astype(float), triangles_of(plane)
    distances = metrics.surface_distances(points, points / 2, triangles)
    assert distances is not None
    # Points are 1 mm apart, borders 4 and 2 mm from the middle. Of the large square's area (64)
    # corners hold 4 x 1/4 and lie sqrt(8) away; their neighbours, 8 x 1/2, lie sqrt(5) away:
    # 1.6 % and 6.2 % of the area, so that the 95th percentile is sqrt(5).
    assert distances[1] == pytest.approx(np.sqrt(5), rel=1e-12)


def test_a_collapsed_surface_has_no_distances(sphere: pv.PolyData) -> None:
    triangles = triangles_of(sphere)
    assert metrics.surface_distances(sphere.points, 0 * sphere.points, triangles) is None


@pytest.mark.parametrize(
    "cell",
    [
        pv.examples.cells.Tetrahedron(),
        pv.examples.cells.Pyramid(),
        pv.examples.cells.Wedge(),
        pv.examples.cells.Hexahedron(),
        pv.examples.cells.Voxel(),
    ],
    ids=lambda grid: grid.get_cell(0).type.name,
)
def test_inverted_cells_of_every_solid_kind(cell: pv.UnstructuredGrid) -> None:
    corners = metrics.corner_tetrahedra(cell)
    assert corners is not None
    points = cell.points.astype(float)
    assert metrics.count_inverted(1.5 * points + 3, points, corners) == 0
    mirrored = points * [1, 1, -1]
    assert metrics.count_inverted(mirrored, points, corners) == 1
    # A mesh that is numbered the other way is not inverted by that.
    assert metrics.count_inverted(1.5 * mirrored, mirrored, corners) == 0
    for point, neighbours in neighbours_of(cell).items():
        if len(neighbours) == 3:  # not the tip of a pyramid
            # Pushed a little beyond its three neighbours: its own corner turns over, and in the
            # larger cells no other does.
            moved = points.copy()
            moved[point] += 1.2 * (points[neighbours].mean(axis=0) - points[point])
            assert metrics.count_inverted(moved, points, corners) == 1


def neighbours_of(cell: pv.UnstructuredGrid) -> dict[int, list[int]]:
    """Points at the other ends of each point's edges, by VTK's own table of edges."""
    edges = [list(edge.point_ids) for edge in cell.get_cell(0).edges]
    return {
        point: [other for edge in edges if point in edge for other in edge if other != point]
        for point in range(cell.n_points)
    }


def test_inverted_counts_cells_and_not_corners() -> None:
    grid = pv.ImageData(dimensions=(4, 2, 2)).cast_to_unstructured_grid()
    corners = metrics.corner_tetrahedra(grid)
    assert corners is not None
    moved = grid.points.astype(float)
    moved[moved[:, 0] == 3, 0] = 1.5  # the last of three cells is turned over, from 2 back to 1.5
    assert metrics.count_inverted(moved, grid.points, corners) == 1
    assert metrics.corner_tetrahedra(pv.Sphere()) is None


def test_regions_of_points_and_of_cells() -> None:
    grid = pv.ImageData(dimensions=(3, 2, 2)).cast_to_unstructured_grid()
    grid.cell_data["side"] = np.array([7, 9])
    grid.point_data["end"] = np.where(grid.points[:, 0] == 2, "right", "left")
    sides = metrics.region_points(grid, "side")
    assert list(sides) == ["7", "9"]
    np.testing.assert_array_equal(sides["7"], np.flatnonzero(grid.points[:, 0] <= 1))
    np.testing.assert_array_equal(sides["9"], np.flatnonzero(grid.points[:, 0] >= 1))
    ends = metrics.region_points(grid, "end")
    np.testing.assert_array_equal(ends["right"], np.flatnonzero(grid.points[:, 0] == 2))


def test_what_names_no_regions_is_a_sentence() -> None:
    grid = box(1, 1, 1)
    grid.point_data["height"] = np.linspace(0, 1, 8)
    with pytest.raises(InputError, match=r"no array 'nothing' for regions \(it has: height\)"):
        metrics.region_points(grid, "nothing")
    with pytest.raises(InputError, match="'height' does not name regions: 8 different values"):
        metrics.region_points(grid, "height")


def mean_of_totals(totals: np.ndarray) -> np.ndarray:
    return totals[:, 0] / totals[:, 1]


def test_bootstrap_interval_of_a_mean_is_the_normal_one() -> None:
    values = np.random.default_rng(3).normal(10, 2, size=400)
    sums = np.stack([values, np.ones_like(values)], axis=1)
    interval = metrics.bootstrap_interval(sums, mean_of_totals)
    assert interval is not None
    half = 1.96 * values.std() / np.sqrt(len(values))  # what the bootstrap converges to
    # 2000 resamples find a 2.5 % point within about 3 % of the half width; 3 sigma.
    assert interval[0] == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval[1] == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert metrics.bootstrap_interval(sums, mean_of_totals) == interval


def test_bootstrap_resamples_whole_subjects() -> None:
    # One subject of 100 samples with error 1, one of 100 with error 3: drawn one by one, the
    # mean of 200 samples would hardly move; of two subjects it is 1 or 3 in half of the draws.
    sums = np.array([[100.0, 100.0], [300.0, 100.0]])
    assert metrics.bootstrap_interval(sums, mean_of_totals) == (1.0, 3.0)
    assert metrics.bootstrap_interval(sums[:1], mean_of_totals) is None
    assert metrics.bootstrap_interval(np.zeros((3, 2)), mean_of_totals) is None
