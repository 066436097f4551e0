"""Volumes and stretches against closed forms: prisms and spheres under maps that are known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv
from scipy.spatial.transform import Rotation

from meshstage.cohort.demo import build_wall
from meshstage.errors import InputError
from meshstage.judging.measures import (
    QUANTITIES,
    Cavity,
    at_rest,
    cavity_of,
    cavity_volume,
    measure,
    points_where,
    stretches,
    wall_volume,
)
from meshstage.judging.measuring import measure_subjects, read_measures, write_measures
from meshstage.meshes.surface import triangles_of
from scripts_in_process import run_script

N, RADIUS, HEIGHT = 12, 10.0, 30.0
# A regular N-gon's area.
AREA = N / 2 * RADIUS**2 * np.sin(2 * np.pi / N)


def cup(levels: int = 5) -> pv.PolyData:
    """Make a prism on a regular 12-gon: open at the top, closed by a fan at the bottom."""
    angle = 2 * np.pi * np.arange(N) / N
    ring = RADIUS * np.stack([np.cos(angle), np.sin(angle)], 1)
    z = np.linspace(0, HEIGHT, levels)
    points = np.concatenate(
        [[[0.0, 0.0, 0.0]], *(np.column_stack([ring, np.full(N, height)]) for height in z)]
    )
    here, beside = np.arange(N), (np.arange(N) + 1) % N
    triangles = [np.stack([np.zeros(N, int), 1 + beside, 1 + here], 1)]
    for level in range(levels - 1):
        low, high = 1 + level * N, 1 + (level + 1) * N
        triangles.append(np.stack([low + here, low + beside, high + beside], 1))
        triangles.append(np.stack([low + here, high + beside, high + here], 1))
    return pv.PolyData.from_regular_faces(points, np.concatenate(triangles))


def cavity(mesh: Any, **regions: np.ndarray) -> Cavity:
    return cavity_of(mesh, np.ones(mesh.n_points, bool), regions)


def values(mesh: Any, reference: np.ndarray, points: np.ndarray, **regions: Any) -> dict:
    found = cavity(mesh, **regions)
    rest = at_rest(found, reference)
    return {(name, region): value for name, region, value in measure(found, rest, points)}


# ---------------------------------------------------------------- volumes


def test_a_prism_is_area_times_height_wherever_it_stands():
    mesh = cup()
    turn = Rotation.random(random_state=1).as_matrix()
    for points in (mesh.points, mesh.points @ turn.T + [100.0, -50.0, 7.0]):
        assert cavity_volume(cavity(mesh), np.asarray(points)) == pytest.approx(AREA * HEIGHT)


def test_a_tube_has_two_caps():
    mesh = cup().extract_cells(np.arange(N, cup().n_cells)).extract_surface(algorithm=None)
    found = cavity(mesh)
    assert [len(rim) for rim in found.rims] == [N, N]
    assert cavity_volume(found, np.asarray(mesh.points, float)) == pytest.approx(AREA * HEIGHT)


def test_a_closed_sphere_is_wall_and_cavity_and_has_no_base():
    ball = pv.Icosphere(radius=20.0, nsub=4)
    found, points = cavity(ball), np.asarray(ball.points, float)
    sphere = 4 / 3 * np.pi * 20.0**3
    # A polyhedron within: with 5,120 triangles 0.2 % smaller.
    assert sphere * 0.997 < cavity_volume(found, points) < sphere
    assert wall_volume(found, points) == cavity_volume(found, points)
    names = {name for name, _, _ in measure(found, at_rest(found, points), 0.9 * points)}
    assert names == {"cavity_volume", "ejected_fraction", "wall_volume"}


def test_the_wall_of_tetrahedra_is_their_sum():
    """The demo's wall is an ellipsoidal shell; its outer less its inner cup is the wall."""
    wall = build_wall(8)
    mesh = wall.mesh(wall.points)
    mesh.point_data["depth"] = wall.depth
    inner = cavity_of(mesh, points_where(mesh, "depth", 0.0), {})
    outer = cavity_of(mesh, points_where(mesh, "depth", 1.0), {})
    # The inner surface is turned into the cavity, away from the wall.
    between = cavity_volume(outer, wall.points) + cavity_volume(inner, wall.points)
    # The base is flat in both, so that caps lie in it.
    assert wall_volume(inner, wall.points) == pytest.approx(between)
    assert len(inner.rims) == 1


def test_an_open_surface_has_no_wall():
    mesh = cup()
    found = values(mesh, np.asarray(mesh.points), np.asarray(mesh.points))
    assert ("wall_volume", "") not in found


# ---------------------------------------------------------------- stretches


def test_stretches_are_those_of_the_map():
    """The sides of a prism feel r around and s along; its bottom has no direction around."""
    mesh, r, s = cup(), 0.8, 0.9
    turn = Rotation.random(random_state=2).as_matrix()
    reference = np.asarray(mesh.points) @ turn.T
    moved = (np.asarray(mesh.points) * [r, r, s]) @ turn.T + [5.0, 6.0, 7.0]
    found = values(mesh, reference, moved)
    assert found["longitudinal_stretch", ""] == pytest.approx(s)
    assert found["circumferential_stretch", ""] == pytest.approx(r)
    assert found["cavity_volume", ""] == pytest.approx(r * r * s * AREA * HEIGHT / 1000)
    assert found["ejected_fraction", ""] == pytest.approx(100 * (1 - r * r * s))


def test_turning_and_moving_stretches_nothing():
    mesh = cup()
    reference = np.asarray(mesh.points)
    moved = reference @ Rotation.random(random_state=3).as_matrix().T + 40.0
    found = values(mesh, reference, moved)
    assert found["longitudinal_stretch", ""] == pytest.approx(1)
    assert found["circumferential_stretch", ""] == pytest.approx(1)
    assert found["ejected_fraction", ""] == pytest.approx(0, abs=1e-9)


def test_a_shape_turned_inside_out_has_ejected_more_than_all():
    mesh = cup()
    reference = np.asarray(mesh.points)
    found = values(mesh, reference, reference * [1, 1, -0.5])
    assert found["ejected_fraction", ""] == pytest.approx(150)
    with pytest.raises(InputError, match="encloses no volume"):
        values(mesh, reference * [1, 1, 0], reference)


def test_regions_have_their_own_stretch():
    """The upper half is stretched along, the lower is not; the whole is their mean by area."""
    mesh = cup(levels=5)
    reference = np.asarray(mesh.points)
    z = reference[:, 2]
    moved = reference.copy()
    moved[:, 2] = np.where(z > HEIGHT / 2, HEIGHT / 2 + 1.2 * (z - HEIGHT / 2), z)
    found = values(
        mesh, reference, moved, lower=z <= HEIGHT / 2, upper=z >= HEIGHT / 2, none=z > 99
    )
    assert found["longitudinal_stretch", "lower"] == pytest.approx(1)
    assert found["longitudinal_stretch", "upper"] == pytest.approx(1.2)
    assert found["longitudinal_stretch", ""] == pytest.approx(1.1)
    assert ("longitudinal_stretch", "none") not in found


def test_shear_around_the_axis_stretches_along_it():
    """Twisting a plane facet by tan t stretches what stood upright by sqrt(1 + tan² t)."""
    square = pv.Plane(i_resolution=1, j_resolution=1).triangulate()
    triangles = triangles_of(square)
    laid = directions_of_plane(triangles, np.asarray(square.points, float))
    sheared = np.asarray(square.points, float) @ np.array([[1.0, 0, 0], [0.5, 1, 0], [0, 0, 1]])
    ((along, around),) = stretches(Cavity(triangles, (), None, {}), laid, sheared).values()
    assert (along, around) == pytest.approx((np.sqrt(1.25), 1.0))


def directions_of_plane(triangles: np.ndarray, points: np.ndarray) -> Any:
    from meshstage.judging.measures import Directions, _edges

    ones = np.ones(len(triangles))
    y, x = (np.outer(ones, axis) for axis in ([0.0, 1, 0], [1.0, 0, 0]))
    return Directions(y, x, ones, np.linalg.pinv(_edges(triangles, points)))


# ---------------------------------------------------------------- refusals


def test_what_encloses_nothing_is_refused():
    mesh = cup()
    with pytest.raises(InputError, match="no triangle of the template's surface"):
        cavity_of(mesh, np.arange(mesh.n_points) < 2, {})
    flipped = mesh.regular_faces.copy()
    flipped[3] = flipped[3][::-1]
    with pytest.raises(InputError, match="not turned alike"):
        cavity(pv.PolyData.from_regular_faces(mesh.points, flipped))
    mesh.point_data["side"] = np.zeros(mesh.n_points)
    with pytest.raises(InputError, match="no side of the template is 1"):
        points_where(mesh, "side", 1.0)
    with pytest.raises(InputError, match=r"no array 'wall' of one number each \(it has: side\)"):
        points_where(mesh, "wall", 1.0)


def test_cells_name_their_corners():
    mesh = cup()
    mesh.cell_data["part"] = np.where(np.arange(mesh.n_cells) < N, 1, 2)
    inside = points_where(mesh, "part", 1)
    assert np.flatnonzero(inside).tolist() == list(range(N + 1))  # the bottom's fan


# ---------------------------------------------------------------- the table and the command


def test_truth_and_prediction_stand_side_by_side(tiny_cohort, tmp_path):
    """Without the template's cap a ball has a rim; a prediction of nothing keeps the reference."""
    mesh = tiny_cohort.template.mesh()
    z = np.asarray(mesh.points)[:, 2]
    open_ball = cavity_of(mesh, z < z.max() - 1, {})
    subjects = tiny_cohort.subjects["val"]
    rows = measure_subjects(open_ball, subjects, lambda s: np.zeros_like(s.targets))
    write_measures(tmp_path / "measures.csv", rows)
    again = read_measures(tmp_path / "measures.csv")
    assert [row[:5] for row in again] == [row[:5] for row in rows]
    for row, kept in zip(rows, again, strict=True):
        assert kept.true == pytest.approx(row.true, rel=1e-6)
    subject = subjects[0]
    at_rest = cavity_volume(open_ball, np.asarray(subject.reference)) / 1000
    volumes = [r for r in rows if (r.subject, r.quantity) == (subject.id, "cavity_volume")]
    assert [r.predicted for r in volumes] == pytest.approx([at_rest] * len(subject.stages))
    expected = [
        cavity_volume(open_ball, subject.reference + target) / 1000 for target in subject.targets
    ]
    assert [r.true for r in volumes] == pytest.approx(expected)
    with pytest.raises(InputError, match=r"the prediction: .* values are not finite"):
        measure_subjects(open_ball, subjects, lambda s: np.full_like(s.targets, np.nan))
    other = replace(open_ball, n_points=7)
    with pytest.raises(InputError, match=r"number of points is 42, but 7 in the template"):
        measure_subjects(other, subjects, lambda s: s.targets)
    with pytest.raises(InputError, match="is no table of measures"):
        read_measures(tmp_path / "nothing.csv")


def test_the_command_says_what_a_cavity_is(tmp_path, capsys):
    arguments = ("--template", tmp_path, "--subjects", tmp_path, "--predictions", tmp_path)
    code = run_script("measure.py", *arguments, "--cavity", "depth", "--output", tmp_path)
    assert code == 2
    assert "'depth' is not ARRAY=VALUE" in capsys.readouterr().err


def test_the_docs_explain_every_quantity():
    text = (Path(__file__).resolve().parents[2] / "docs" / "patient.md").read_text()
    for quantity in QUANTITIES:
        assert f"| `{quantity.name}` | {quantity.unit}{' ' if quantity.unit else ''}|" in text
