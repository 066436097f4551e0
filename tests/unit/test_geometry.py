"""Geometry that does not fit together is warned of, with the subject and the number."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from meshstage.checks.files import check_files
from meshstage.cohort.geometry import distances_from_model, fit_pose, size
from meshstage.cohort.shape_model import ShapeModel
from meshstage.errors import Problem
from meshstage.meshes.reading import read_mesh
from meshstage.meshes.space import mesh_space
from shared_data import shared
from small_cohort import SUBJECTS, change_mesh, sphere, write_cohort

# Corners of a box with half sides 3, 2, 1: its covariance is diagonal, 9, 4, 1 of 14.
BOX = np.array([[x, y, z] for x in (-3, 3) for y in (-2, 2) for z in (-1, 1)], dtype=float)


def test_a_pose_is_found_whatever_size_and_place() -> None:
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    pose = fit_pose(2.5 * BOX @ quarter.T + [10.0, -20.0, 30.0], BOX)
    assert pose is not None
    # Residuals are roots of what rounds at 1e-15; an arc cosine is as good near 90 degrees.
    assert pose.degrees == pytest.approx(90.0, abs=1e-9)
    assert pose.residual == pytest.approx(0.0, abs=1e-6)
    # The other hand must turn the thinnest axis over: 2 - 2 (13/14 - 1/14) = 4/14.
    assert pose.mirrored_residual == pytest.approx(np.sqrt(4 / 14), rel=1e-12)


def test_a_mirrored_box_fits_a_reflection_only() -> None:
    pose = fit_pose(BOX * [-1, 1, 1], BOX)
    assert pose is not None
    assert pose.residual == pytest.approx(np.sqrt(4 / 14), rel=1e-12)
    assert pose.mirrored_residual == pytest.approx(0.0, abs=1e-6)


def test_other_signs_of_x_and_y_are_a_turn_and_a_point_has_no_pose() -> None:
    pose = fit_pose(BOX * [-1, -1, 1], BOX)
    assert pose is not None and pose.degrees == pytest.approx(180.0, abs=1e-5)
    assert fit_pose(np.ones((8, 3)), BOX) is None
    assert size(BOX) == pytest.approx(np.sqrt(14))


@pytest.mark.parametrize("score", [1.5, 0.5, -1.5])
def test_the_distance_from_scores_is_that_along_the_mode(score: float) -> None:
    """One unit mode of 2 mm a standard deviation; the subject lies 3 mm along it."""
    component = np.zeros(24)
    component[[1, 14]] = 0.6, 0.8
    model = ShapeModel(np.array([4.0]), component[None])
    reference = BOX + 3.0 * component.reshape(8, 3)
    from_mean, from_scores = distances_from_model(reference, np.array([score]), model, BOX)
    assert from_mean == pytest.approx(3.0 / np.sqrt(8), rel=1e-12)
    assert from_scores == pytest.approx(abs(3.0 - 2.0 * score) / np.sqrt(8), abs=1e-12)


# ---- what the check says


def warnings(cohort: Path) -> list[Problem]:
    report = check_files(cohort / "pca_mean.vtp", cohort / "subjects.tsv")
    assert report.n_errors == 0
    return report.problems


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    write_cohort(tmp_path)
    assert warnings(tmp_path) == []
    return tmp_path


def edit(cohort: Path, name: str, change: Callable[[Any], Any], which: str = "*.vtp") -> None:
    for path in sorted((cohort / name).glob(which)):
        change_mesh(path, change)


def scale(*factors: float) -> Callable[[Any], None]:
    def change(mesh: Any) -> None:
        mesh.points = np.asarray(mesh.points) * np.float32(factors)
        if "displacement" in mesh.point_data:
            mesh.point_data["displacement"] *= np.float32(factors)

    return change


def spread(path: Path) -> float:
    points = np.asarray(pv.read(path).points, float)
    return float(np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()))


def test_metres_among_millimetres(cohort: Path) -> None:
    edit(cohort, "bravo", scale(0.001, 0.001, 0.001))
    references = [cohort / name / "reference.vtp" for name in SUBJECTS]
    usual = np.median([spread(path) for path in (cohort / "pca_mean.vtp", *references)])
    factor = usual / spread(cohort / "bravo/reference.vtp")
    [problem] = warnings(cohort)
    assert (problem.subject, problem.file) == ("bravo", str(cohort / "bravo/reference.vtp"))
    assert f"{factor:.4g} times smaller than template and cohort" in problem.what
    assert 900 < factor < 1100


def test_a_phase_in_metres_is_named(cohort: Path) -> None:
    edit(cohort, "bravo", scale(0.001, 0.001, 0.001), "phase_1.vtp")
    found = [p for p in warnings(cohort) if "RMS from its centre" in p.what]
    assert [(p.subject, p.phase) for p in found] == [("bravo", "1")]


def test_a_template_in_metres_is_blamed_itself(cohort: Path) -> None:
    (cohort / "pca_model.json").unlink()
    change_mesh(cohort / "pca_mean.vtp", scale(0.001, 0.001, 0.001))
    found = [p for p in warnings(cohort) if "times" in p.what]
    assert [(p.subject, p.file) for p in found] == [(None, str(cohort / "pca_mean.vtp"))]


@pytest.mark.parametrize(
    ("factors", "words"), [((-1, 1, 1), "is mirrored"), ((-1, -1, 1), "is turned by 180 degrees")]
)
def test_one_subject_with_other_axes(factors: tuple[float, ...], words: str, cohort: Path) -> None:
    edit(cohort, "bravo", scale(*factors))
    [problem] = warnings(cohort)
    assert problem.subject == "bravo"
    assert words in problem.what


def test_a_subject_that_names_another_space(cohort: Path) -> None:
    for name in SUBJECTS:
        space = "RAS" if name == "bravo" else "LPS"
        edit(cohort, name, lambda m, space=space: m.field_data.set_array([space], "SPACE"))
    [problem] = warnings(cohort)
    assert problem.subject == "bravo"
    assert "the space RAS, most of the cohort LPS" in problem.what


def test_a_space_in_the_head_of_a_file_is_read(tmp_path: Path) -> None:
    sphere().save(tmp_path / "a.vtk")
    data = (tmp_path / "a.vtk").read_bytes()
    assert mesh_space(read_mesh(tmp_path / "a.vtk")) is None
    title = data.split(b"\n")[1]
    (tmp_path / "a.vtk").write_bytes(data.replace(title, b"3D Slicer output. SPACE=RAS", 1))
    assert mesh_space(read_mesh(tmp_path / "a.vtk")) == "RAS"


def test_scores_of_another_subject(cohort: Path) -> None:
    """Opposite scores lie twice as far from the subject as the mean does."""
    path = cohort / "bravo" / "pca.json"
    path.write_text(json.dumps([-score for score in json.loads(path.read_text())]))
    [problem] = warnings(cohort)
    assert problem.subject == "bravo"
    template = np.asarray(pv.read(cohort / "pca_mean.vtp").points, float)
    offset = np.asarray(pv.read(cohort / "bravo/reference.vtp").points, float) - template
    near = float(np.sqrt((offset**2).sum(axis=1).mean()))
    # 3 digits are shown; float32 points of 30 mm round at 2e-6 mm.
    assert f"{2 * near:.3g} mm RMS" in problem.what and f"({near:.3g} mm)" in problem.what


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda phase, reference, template: reference - phase, "are reference minus phase"),
        (lambda phase, reference, template: phase - template, "are phase minus template"),
        (lambda phase, reference, template: phase, "equal the coordinates"),
    ],
)
def test_targets_that_are_another_difference(
    other: Callable[..., np.ndarray], words: str, cohort: Path
) -> None:
    files = (cohort / "pca_mean.vtp", cohort / "bravo/reference.vtp")
    template, reference = (np.asarray(pv.read(path).points) for path in files)

    def change(mesh: Any) -> None:
        values = other(np.asarray(mesh.points), reference, template)
        mesh.point_data["displacement"] = np.array(values)

    edit(cohort, "bravo", change, "phase_*.vtp")
    found = [p for p in warnings(cohort) if words in p.what]
    assert [p.subject for p in found] == ["bravo"]
    assert "in 3 of 3 phases" in found[0].what


@pytest.mark.parametrize("name", ["face", "heart-control", "heart-surface", "sphere-cycle"])
def test_real_cohorts_give_no_warning_of_geometry(name: str) -> None:
    folder = shared("data", "cohorts", name)
    report = check_files(folder / "pca_mean.vtp", folder / "subjects.tsv")
    # sphere-cycle has one subject, and heart-control's surfaces are three pieces.
    known = ("only one training subject", "separate pieces")
    assert [p for p in report.problems if not any(words in p.what for words in known)] == []
