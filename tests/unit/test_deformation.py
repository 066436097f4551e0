"""Displacement fields on images: what moves where, in which axes, and what is refused."""

import numpy as np
import pytest
import pyvista as pv
import SimpleITK as sitk
from scipy.spatial.transform import Rotation

from meshstage.errors import InputError
from meshstage.meshes.reading import write_mesh
from meshstage.prediction.deformation import fade, fit_motion, spread_points
from meshstage.prediction.images import (
    Grid,
    check_overlap,
    displacement_fields,
    read_grid,
    resample,
    to_lps,
)
from meshstage.prediction.reading import MOVED_BY, Motion, read_motion
from scripts_in_process import run_script

CENTRE, RADIUS = np.array([12.0, -30.0, 8.0]), 30.0  # mm
# Every axis does something of its own: any exchange, or wrong sign, moves other voxels.
STRETCH = np.array([[0.2, 0.1, 0.0], [0.0, -0.2, 0.1], [0.0, 0.0, 0.1]])
SHIFT = np.array([6.0, -4.0, 3.0])
OBLIQUE = Rotation.from_euler("xyz", [20, -35, 10], degrees=True).as_matrix()
FLIPPED = np.diag([-1.0, -1.0, 1.0])  # the direction of a RAS image: its axes run right, anterior


def sphere() -> pv.PolyData:
    """Give a sphere of 162 points."""
    mesh = pv.Icosphere(radius=RADIUS, nsub=2, center=CENTRE)
    mesh.clear_data()
    mesh.points = np.asarray(mesh.points, np.float64)
    return mesh


def displacement(points: np.ndarray) -> np.ndarray:
    """Where points go, in the mesh's own axes."""
    return (points - CENTRE) @ STRETCH.T + SHIFT


def grid_around(centre: np.ndarray, direction: np.ndarray) -> Grid:
    """Give 60 x 64 x 50 voxels of 1.6 x 1.5 x 1.9 mm around a place."""
    size, spacing = np.array([60, 64, 50]), np.array([1.6, 1.5, 1.9])
    return Grid(size, spacing, centre - direction @ (spacing * (size - 1) / 2), direction)


def motion_of(mesh: pv.PolyData) -> Motion:
    return Motion(["phase"], mesh, displacement(np.asarray(mesh.points))[None])


def voxels_inside(mesh: pv.PolyData, grid: Grid) -> np.ndarray:
    found = pv.PolyData(grid.positions()).select_interior_points(mesh, method="cell_locator")
    return np.asarray(found.point_data["selected_points"]) > 0


def dice(a: np.ndarray, b: np.ndarray) -> float:
    return 2 * (a & b).sum() / (a.sum() + b.sum())


@pytest.mark.parametrize("space", ["lps", "ras"])
@pytest.mark.parametrize("direction", [np.eye(3), FLIPPED, OBLIQUE], ids=["lps", "ras", "oblique"])
def test_label_that_is_warped_is_the_moved_mesh(space, direction):
    mesh, moved = sphere(), sphere()
    moved.points = np.asarray(mesh.points) + displacement(np.asarray(mesh.points))
    grid = grid_around(to_lps(CENTRE + SHIFT, space), direction)
    _, fields = displacement_fields(motion_of(mesh), grid, space, None, inverse=True)
    [(_, _, inverse)] = fields
    for each in (mesh, moved):
        each.points = to_lps(np.asarray(each.points), space)
    rest, true = voxels_inside(mesh, grid), voxels_inside(moved, grid)
    field = sitk.Cast(resample(inverse, grid), sitk.sitkVectorFloat64)
    label = grid.image(rest.astype(np.float32))
    warped = sitk.Resample(label, sitk.DisplacementFieldTransform(field), sitk.sitkLinear)
    assert dice(sitk.GetArrayFromImage(warped).ravel() > 0.5, true) > 0.98
    assert dice(rest, true) < 0.85  # it has moved far enough for a wrong axis to be seen


@pytest.mark.parametrize("space", ["lps", "ras"])
def test_affine_motion_is_exact_in_the_whole_organ(space):
    """Radial functions with a linear trend, and linear interpolation between nodes, keep it."""
    grid = grid_around(to_lps(CENTRE, space), OBLIQUE)
    _, fields = displacement_fields(motion_of(sphere()), grid, space, None, inverse=True)
    [(_, forward, inverse)] = fields
    # The weight is 1 inside; nodes are 3.8 mm apart at most, 6.2 along a diagonal, and facets
    # lie up to 0.5 mm within the radius.
    own = to_lps(grid.positions(), space)
    inside = np.linalg.norm(own - CENTRE, axis=1) < 0.75 * RADIUS
    found = sitk.GetArrayFromImage(resample(forward, grid)).reshape(-1, 3)[inside]
    expected = to_lps(displacement(own[inside]), space)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)  # float32 of 15 mm
    # The inverse of x + S (x - c) + t at y: x - y, with x = c + (1 + S)^-1 (y - c - t).
    rest = CENTRE + (own - CENTRE - SHIFT) @ np.linalg.inv(np.eye(3) + STRETCH).T
    inside = np.linalg.norm(rest - CENTRE, axis=1) < 0.75 * RADIUS
    found = sitk.GetArrayFromImage(resample(inverse, grid)).reshape(-1, 3)[inside]
    expected = to_lps(rest - own, space)[inside]
    # ITK stops at a hundredth of a node's distance (3.8 mm) for the worst node.
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.04)


def test_motion_fades_and_folds_nothing():
    grid = grid_around(CENTRE, np.eye(3))
    weight, fields = displacement_fields(motion_of(sphere()), grid, "lps", 12.0, inverse=False)
    [(_, forward, inverse)] = fields
    assert inverse is None
    distance = np.linalg.norm(grid.positions() - CENTRE, axis=1) - RADIUS
    weights = sitk.GetArrayFromImage(resample(weight, grid)).ravel()
    vectors = sitk.GetArrayFromImage(resample(forward, grid)).reshape(-1, 3)
    assert (weights >= 0).all() and (weights <= 1).all()
    # Nodes are as far apart as voxels, 3 mm along a diagonal; facets lie 0.5 mm inside.
    assert (weights[distance < -3.5] == 1).all()
    beyond = distance > 12.0 + 3.0
    assert beyond.any() and not weights[beyond].any() and not vectors[beyond].any()


def test_default_distance_of_fading_keeps_space_unfolded():
    """The determinant of the gradient of x + u(x) is positive at every voxel."""
    grid = grid_around(CENTRE, np.eye(3))
    _, fields = displacement_fields(motion_of(sphere()), grid, "lps", None, inverse=False)
    [(_, forward, _)] = fields
    field = sitk.Cast(forward, sitk.sitkVectorFloat64)
    assert sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(field)).min() > 0


def test_weight_is_smooth_step_of_the_distance_outside_and_one_inside():
    at_distances = CENTRE + np.outer([0, RADIUS + 3, RADIUS + 6, RADIUS + 13], [1, 0, 0])
    box = pv.Box([c + s * RADIUS for c in CENTRE for s in (-1, 1)])
    np.testing.assert_allclose(fade(at_distances, box, 12.0), [1, 27 / 32, 0.5, 0], atol=1e-6)
    # Without its lid the box has no inside: the middle is 30 mm from the next side.
    opened = box.extract_cells(range(5)).extract_surface(algorithm="dataset_surface")
    assert fade(CENTRE[None], opened, 12.0) == 0
    with pytest.raises(InputError, match="has no triangles"):
        fade(at_distances, pv.PolyData(at_distances), 12.0)


def test_interpolation_goes_through_vertices_of_any_motion():
    points = np.asarray(sphere().points)
    wave = np.sin(points / 10.0)
    motion, spacing = fit_motion(points, np.stack([wave, 2 * wave]))
    # The equations of 162 points are solved to 8 digits or more.
    np.testing.assert_allclose(motion(points), np.hstack([wave, 2 * wave]), atol=1e-7)
    assert 6 < spacing < 10  # sqrt(4 pi 30^2 / 162) = 8.4 mm


def test_centres_are_spread_and_never_two_at_one_place():
    line = np.column_stack([np.repeat(np.arange(5.0), 2), np.zeros(10), np.zeros(10)])
    assert sorted(line[spread_points(line, 3), 0]) == [0, 2, 4]
    assert sorted(line[spread_points(line, 10), 0]) == [0, 1, 2, 3, 4]


def test_flat_mesh_is_a_sentence():
    plane = pv.Plane()
    with pytest.raises(InputError, match="lie in one plane"):
        fit_motion(np.asarray(plane.points), np.zeros((1, plane.n_points, 3)))


def test_image_elsewhere_is_a_sentence_that_knows_the_other_space(caplog):
    points = np.asarray(sphere().points)
    far = grid_around(CENTRE + 500, np.eye(3))
    with pytest.raises(InputError, match=r"does not overlap .*--space patient"):
        check_overlap(points, far, "lps")
    away = np.array([150.0, 150.0, 0.0])
    flipped = grid_around(to_lps(CENTRE + away, "ras"), np.eye(3))
    with pytest.raises(InputError, match=r"taken for lps; .*--mesh-space ras"):
        check_overlap(points + away, flipped, "lps")
    above = CENTRE + np.array([0.0, 0.0, 70.0])  # the image begins 22 mm above the centre
    check_overlap(points, grid_around(above, np.eye(3)), "lps")
    assert "vertices lie outside of the image" in caplog.text


def predicted(folder, moved_by="displacement"):
    """Write two phases as predicting writes them."""
    mesh = sphere()
    rest = np.asarray(mesh.points)
    for index, factor in enumerate([0.0, 1.0]):
        phase = mesh.copy()
        phase.points = rest + factor * displacement(rest)
        phase.point_data["displacement"] = factor * displacement(rest)
        if moved_by:
            phase.field_data[MOVED_BY] = [moved_by]
        write_mesh(folder / f"phase_{index:03d}_stage_{factor / 2}.vtp", phase)
    return folder


@pytest.mark.parametrize("ending", [".nii.gz", ".mha"])
def test_script_writes_fields_on_the_grid_of_the_image(tmp_path, ending):
    grid = grid_around(to_lps(CENTRE, "ras"), OBLIQUE)
    image = tmp_path / f"ct{ending}"
    sitk.WriteImage(grid.image(np.zeros(np.prod(grid.size), np.int16)), str(image))
    options = ["--prediction", predicted(tmp_path / "one"), "--image", image, "--mesh-space", "ras"]
    output = tmp_path / "fields"
    assert run_script("deformation_field.py", *options, "--output", output) == 0
    names = {f"phase_00{i}_stage_{s}" for i, s in ((0, "0.0"), (1, "0.5"))}
    files = {f"{name}_{d}{ending}" for name in names for d in ("forward", "inverse")}
    assert {path.name for path in output.iterdir()} == files | {f"weight{ending}"}
    field = sitk.ReadImage(str(output / f"phase_001_stage_0.5_forward{ending}"))
    assert field.GetSize() == tuple(grid.size)
    np.testing.assert_allclose(field.GetDirection(), OBLIQUE.ravel(), atol=1e-6)
    # The centre goes by the shift, which a file of either kind gives back in LPS.
    middle = field.TransformPhysicalPointToIndex(to_lps(CENTRE, "ras"))
    point = to_lps(np.array(field.TransformIndexToPhysicalPoint(middle)), "ras")
    np.testing.assert_allclose(field[middle], to_lps(displacement(point), "ras"), atol=1e-5)
    only = tmp_path / "only"
    assert run_script("deformation_field.py", *options, "--output", only, "--inverse") == 0
    assert {path.name for path in only.iterdir()} == {f for f in files if "forward" not in f} | {
        f"weight{ending}"
    }


def test_what_is_no_image_or_no_prediction_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_grid(tmp_path / "ct.nii.gz")
    (tmp_path / "ct.mha").write_text("not an image")
    with pytest.raises(InputError, match="is no image that SimpleITK reads"):
        read_grid(tmp_path / "ct.mha")
    sitk.WriteImage(sitk.Image([4, 4], sitk.sitkInt16), str(tmp_path / "slice.mha"))
    with pytest.raises(InputError, match="has 2 dimensions"):
        read_grid(tmp_path / "slice.mha")
    with pytest.raises(InputError, match="holds no predicted meshes"):
        read_motion(tmp_path)
    with pytest.raises(InputError, match="its target is no displacement"):
        read_motion(predicted(tmp_path / "still", moved_by=None))
