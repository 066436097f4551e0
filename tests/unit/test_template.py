"""The template: edges and features, shape model, surface of a volume, files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from meshstage.cohort.shape_model import ShapeModel, read_shape_model, restrict_shape_model
from meshstage.cohort.template import Template, build_template, load_template, prepare_template
from meshstage.errors import InputError
from shared_data import shared
from small_cohort import ball, sphere, write, write_cohort

REPOSITORY = Path(__file__).resolve().parents[2]


def same(one: Template, other: Template) -> bool:
    arrays = ("points", "edge_index", "edge_features")
    return one.fingerprint == other.fingerprint and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays
    )


def test_what_is_built_is_loaded_again_and_agrees_with_the_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    built = build_template(write_cohort(tmp_path), tmp_path / "template")
    loaded = load_template(tmp_path / "template")
    assert same(built, loaded)
    assert loaded.mesh().n_points == 42
    assert loaded.shape_model is not None
    assert loaded.shape_model.n_modes == 2
    index = torch.load(tmp_path / "template" / "shared_edge_index.pt", weights_only=True)
    features = torch.load(tmp_path / "template" / "shared_edge_features.pt", weights_only=True)
    assert (index.dtype, features.dtype) == (torch.int64, torch.float32)
    assert np.array_equal(index.numpy(), built.edge_index)
    assert np.array_equal(features.numpy(), built.edge_features)


def test_edges_go_both_ways_sorted_and_features_are_differences(tmp_path: Path) -> None:
    template = prepare_template(write_cohort(tmp_path)).template
    edges = template.edge_index.T.tolist()
    # A closed surface of triangles has 3/2 edges a face: 120, each in both directions.
    assert len(edges) == 240
    assert edges == sorted(edges)
    assert {(i, j) for i, j in edges} == {(j, i) for i, j in edges}
    for (i, j), row in zip(edges, template.edge_features.astype(float), strict=True):
        difference = template.points[j] - template.points[i]
        # float32 rounds 30 mm to 2e-6 mm.
        np.testing.assert_allclose(row[:3], difference, rtol=0, atol=2e-6)
        assert abs(row[3] - np.sqrt(difference @ difference)) < 4e-6


def test_building_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    mesh = write_cohort(tmp_path)
    for name in ("one", "two"):
        build_template(mesh, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 5
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_float64_far_from_the_origin_is_kept(tmp_path: Path) -> None:
    mesh = sphere()
    offset = np.array([1e6, 2e6, -1e6])
    mesh.points = mesh.points.astype(np.float64) + offset
    mesh.save(tmp_path / "m.vtp")
    built = build_template(tmp_path / "m.vtp", tmp_path / "template")
    assert built.points.dtype == np.float64
    assert np.array_equal(load_template(tmp_path / "template").points, mesh.points)
    # The longest edge of the sphere, moved or not, to the spacing of float64 at 2e6 mm.
    mesh.points = mesh.points - offset
    mesh.save(tmp_path / "home.vtp")
    home = prepare_template(tmp_path / "home.vtp").template
    np.testing.assert_allclose(built.edge_features, home.edge_features, rtol=0, atol=1e-8)


def test_edges_of_triangulated_polygons_are_those_of_monai_physio(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = shared("data", "interop", "mgn", "shared_edge_index.pt")
    lengths = torch.load(theirs.with_name("shared_edge_features.pt"), weights_only=True)
    mesh = shared("data", "interop", "cohort", "pca_mean.vtp")
    template = prepare_template(mesh, edges="triangulated").template
    assert np.array_equal(template.edge_index, torch.load(theirs, weights_only=True).numpy())
    # They subtract in float32: 4 units in the last place of some 30 mm.
    np.testing.assert_allclose(template.edge_features, lengths.numpy(), rtol=0, atol=8e-6)


@pytest.mark.parametrize("suffix", [".vtp", ".vtu", ".vtk", ".ply"])
def test_a_template_of_any_format_is_the_same(suffix: str, tmp_path: Path) -> None:
    mesh = sphere()
    (mesh.cast_to_unstructured_grid() if suffix == ".vtu" else mesh).save(tmp_path / f"m{suffix}")
    mesh.save(tmp_path / "n.vtp")
    built = build_template(tmp_path / f"m{suffix}", tmp_path / "template")
    assert built.mesh_path.suffix == (".vtp" if suffix in (".vtp", ".ply") else ".vtu")
    assert same(load_template(tmp_path / "template"), prepare_template(tmp_path / "n.vtp").template)


# ---- the surface of a volume


def test_the_surface_of_a_volume_keeps_its_map_and_its_shapes(tmp_path: Path) -> None:
    """A score moves a surface point exactly as it moves that point of the volume."""
    path = write_cohort(tmp_path, ball(), ".vtu")
    volume = prepare_template(path).template
    built = build_template(path, tmp_path / "template", surface=True)
    loaded = load_template(tmp_path / "template")
    assert built.mesh_path.name == "pca_mean_template.vtp"
    assert loaded.surface is not None
    assert (loaded.n_points, loaded.surface.source_n_points) == (42, 43)
    assert loaded.surface.source_fingerprint == volume.fingerprint
    ids = loaded.surface.point_ids
    assert sorted(ids) == list(range(42))
    assert np.array_equal(volume.points[ids], loaded.points)
    whole, part = volume.shape_model, loaded.shape_model
    assert whole is not None
    assert part is not None
    np.testing.assert_allclose(np.linalg.norm(part.components, axis=1), 1.0, atol=1e-12)
    for mode in range(2):
        full = np.sqrt(whole.eigenvalues[mode]) * whole.components[mode].reshape(-1, 3)
        kept = np.sqrt(part.eigenvalues[mode]) * part.components[mode].reshape(-1, 3)
        np.testing.assert_allclose(kept, full[ids], rtol=0, atol=1e-12)


def test_a_mode_that_moves_no_point_of_the_surface_becomes_zero(tmp_path: Path) -> None:
    components = np.zeros((1, 9))
    components[0, 6] = 1.0  # moves point 2 only
    model = restrict_shape_model(ShapeModel(np.array([4.0]), components), np.array([0, 1]))
    assert (model.eigenvalues.tolist(), model.components.tolist()) == ([0.0], [[0.0] * 6])
    value = {"eigenvalues": [0.0], "components": [[0.0] * 6]}
    write(tmp_path / "pca_model.json", value)
    assert read_shape_model(tmp_path / "pca_model.json", 2).n_modes == 1


def test_a_surface_mesh_is_its_own_surface(tmp_path: Path) -> None:
    path = write_cohort(tmp_path)
    template = prepare_template(path, surface=True).template
    assert template.surface is None
    assert same(template, prepare_template(path).template)


def test_a_template_with_arrays_that_nobody_asks_for_is_built(tmp_path: Path) -> None:
    mesh = sphere()
    mesh.point_data["ED->ES"] = np.arange(42.0)
    mesh.save(tmp_path / "m.vtk")
    build_template(tmp_path / "m.vtk", tmp_path / "template")
    assert load_template(tmp_path / "template").mesh().point_data.keys() == ["ED->ES"]


# ---- faults


def test_isolated_points_are_counted_and_no_edges_said(tmp_path: Path) -> None:
    mesh = sphere()
    points = np.vstack([mesh.points, [[99.0, 0, 0], [0, 99, 0]]])
    pv.PolyData(points, faces=mesh.faces).save(tmp_path / "m.vtp")
    template = prepare_template(tmp_path / "m.vtp").template
    assert template.n_isolated_points == 2
    assert "2 of 44 points are isolated" in template.warnings[0]
    pv.PolyData(points).save(tmp_path / "m.vtp")
    template = build_template(tmp_path / "m.vtp", tmp_path / "template")
    assert template.edge_index.shape == (2, 0)
    assert template.edge_features.shape == (0, 4)
    assert "no edge" in load_template(tmp_path / "template").warnings[0]


def test_unmerged_triangles_and_separate_bodies_are_told(tmp_path: Path) -> None:
    """80 triangles with three points each, of the 42 places of the sphere."""
    mesh = sphere()
    points = np.asarray(mesh.points)[mesh.regular_faces.ravel()]
    soup = pv.PolyData.from_regular_faces(points, np.arange(240).reshape(-1, 3))
    soup.save(tmp_path / "m.vtp")
    (warning,) = prepare_template(tmp_path / "m.vtp").template.warnings
    assert "240 points at 42 places" in warning
    assert "80 separate pieces" in warning
    two = pv.merge([mesh, mesh.translate((99, 0, 0))], merge_points=False)
    two.extract_surface(algorithm="dataset_surface").save(tmp_path / "m.vtp")
    template = prepare_template(tmp_path / "m.vtp").template
    assert (template.n_pieces, template.n_places) == (2, 84)
    assert "2 separate pieces" in template.warnings[0]
    mesh.save(tmp_path / "m.vtp")
    assert prepare_template(tmp_path / "m.vtp").template.warnings == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "not an object"),
        ({}, "'eigenvalues' is missing"),
        ({"eigenvalues": "x", "components": 3}, "eigenvalues is not a list of numbers"),
        ({"eigenvalues": [-1.0], "components": [[1.0, *[0.0] * 8]]}, "negative"),
        ({"eigenvalues": [1.0], "components": [[2.0, *[0.0] * 8]]}, "has length 2"),
        ({"eigenvalues": [1.0], "components": [[1.0, *[0.0] * 5]]}, "2 points"),
        ({"eigenvalues": [1.0, 2.0], "components": [[1.0, *[0.0] * 8]]}, "2 eigenvalues"),
        ({"eigenvalues": [True], "components": [[1.0, *[0.0] * 8]]}, "not a list of numbers"),
        ({"eigenvalues": [1.0], "components": [[[1, 0, 0]]]}, "lists of numbers"),
        ({"eigenvalues": [1.0], "components": [[1.0, *[0.0] * 8]], "mean": [0.0]}, "mean have 1"),
    ],
)
def test_shape_models_that_are_refused(value: Any, words: str, tmp_path: Path) -> None:
    write(tmp_path / "pca_model.json", value)
    with pytest.raises(InputError) as error:
        read_shape_model(tmp_path / "pca_model.json", 3)
    assert any(words in problem.what for problem in error.value.problems), error.value


@pytest.mark.parametrize("fault", ["nan", "one place", "model", "missing"])
def test_a_template_that_cannot_be_used_writes_nothing(fault: str, tmp_path: Path) -> None:
    mesh = sphere()
    points = np.array(mesh.points)
    if fault == "nan":
        points[5, 2] = np.nan
    mesh.points = points * 0 if fault == "one place" else points
    if fault != "missing":
        mesh.save(tmp_path / "m.vtp")
    if fault == "model":
        (tmp_path / "pca_model.json").symlink_to("nowhere.json")
    with pytest.raises(InputError) as error:
        build_template(tmp_path / "m.vtp", tmp_path / "template")
    assert str(tmp_path) in str(error.value)
    assert not (tmp_path / "template").exists()


def test_a_template_folder_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    build_template(write_cohort(tmp_path), tmp_path / "template")
    mesh = sphere()
    other = pv.PolyData(mesh.points, faces=mesh.faces.reshape(-1, 4)[::-1].ravel())
    other.save(tmp_path / "template" / "pca_mean_template.vtp")
    with pytest.raises(InputError, match="build the template again"):
        load_template(tmp_path / "template")
    (tmp_path / "template" / "template.json").write_text("{}")
    with pytest.raises(InputError, match=r"not a template\.json"):
        load_template(tmp_path / "template")


@pytest.mark.spawn
def test_loading_a_template_needs_no_torch(tmp_path: Path) -> None:
    build_template(write_cohort(tmp_path), tmp_path / "template")
    code = (
        "import sys, pathlib; from meshstage.cohort.template import load_template; "
        "load_template(pathlib.Path(sys.argv[1])).edge_features; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "template")],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY / "scripts",
    )
    assert done.stdout.strip() == "False"
