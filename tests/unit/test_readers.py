"""Readers of other people's files, which the tests write from the descriptions of their makers."""

import argparse
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import openpyxl
import pytest
import pyvista as pv
import scipy.io
import scipy.sparse

import convert_atlas
from meshstage.cohort.shape_model import read_shape_model
from meshstage.errors import InputError
from meshstage.meshes.reading import read_mesh
from meshstage.preparation.readers import READERS
from meshstage.preparation.source import PhaseMesh

QUARTER_TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


def save_numbers(path: Path, rows: np.ndarray, header: str = "", delimiter: str = " ") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, rows, fmt="%.17g", delimiter=delimiter, header=header, comments="")
    return path


def points_of(mesh: PhaseMesh) -> np.ndarray:
    return np.asarray(mesh.read().points, dtype=np.float64)


def refused(match: str, call: Callable[[], Any]) -> None:
    """Everything broken is one sentence, with a place."""
    with pytest.raises(InputError, match=match) as caught:
        call()
    problem = caught.value.problems[0]
    assert problem.file and "\n" not in problem.sentence()


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# ---- ShapeWorks


class Project:
    """Two subjects in two phases: the particles are 42 points of a sphere, turned and scaled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mean = pv.Icosphere(radius=30.0, nsub=2)
        # An icosphere's first points are those of the coarser one.
        self.particles = np.asarray(self.mean.points, dtype=np.float64)[:42]
        self.mean.save(folder / "mean.vtp")
        save_numbers(folder / "mean.particles", self.particles)
        self.rows = []
        for index, name in enumerate(("P01_ed", "P01_es", "P02_ed", "P02_es")):
            row = {"name": name, "shape_1": f"{name}.nrrd"}
            for kind, points in (("local", self.local(index)), ("world", self.world(index))):
                file = f"particles/{name}_{kind}.particles"
                save_numbers(folder / file, points)
                row[f"{kind}_particles_1"] = file
            self.rows.append(row)
        self.write()

    def local(self, index: int) -> np.ndarray:
        """Turn by a quarter, stretch along x, shift."""
        return (self.particles * [1 + index / 10, 1, 1]) @ QUARTER_TURN.T + [index, 5.0, 0.0]

    def world(self, index: int) -> np.ndarray:
        """Two are larger and two smaller: their mean is the mean shape."""
        return self.particles * (1 + 0.1 * [1, -1, 2, -2][index])

    def write(self) -> None:
        (self.folder / "study.swproj").write_text(json.dumps({"data": self.rows, "studio": {}}))

    def find(self, file: str = "study.swproj", **options: Any) -> list[PhaseMesh]:
        given = {"mean_mesh": self.folder / "mean.vtp", **options}
        return READERS["shapeworks"].find(self.folder / file, **given)

    def read_all(self, **options: Any) -> None:
        for mesh in self.find(**options):
            mesh.read()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_shapeworks_names_subjects_and_phases(project: Project) -> None:
    meshes = project.find()
    assert [(m.subject, m.phase, m.stage, m.split) for m in meshes] == [
        (subject, phase, None, None) for subject in ("P01", "P02") for phase in ("ed", "es")
    ]
    assert meshes[1].files[0] == project.folder / "particles/P01_es_local.particles"
    assert {project.folder / "study.swproj", project.folder / "mean.vtp"} <= set(meshes[1].files)


def test_shapeworks_gives_back_turns_and_stretches_exactly(project: Project) -> None:
    """The particles moved by an affine map, so every point of the surface moves by it too."""
    mean = np.asarray(project.mean.points, dtype=np.float64)
    for index, mesh in enumerate(project.find()):
        wanted = (mean * [1 + index / 10, 1, 1]) @ QUARTER_TURN.T + [index, 5.0, 0.0]
        # A few times the float32 rounding of the mean mesh's points of 30 mm.
        assert np.abs(points_of(mesh) - wanted).max() < 1e-4
        assert mesh.read().n_cells == project.mean.n_cells


def test_shapeworks_passes_through_all_particles_and_is_smooth_between(project: Project) -> None:
    bent = project.particles + 0.01 * project.particles[:, [2, 0, 1]] ** 2
    save_numbers(project.folder / "particles/P01_ed_local.particles", bent)
    moved = points_of(project.find()[0])
    assert np.abs(moved[:42] - bent).max() < 1e-4
    mean = np.asarray(project.mean.points, dtype=np.float64)
    # The bend is up to 9 mm; 42 particles are some 18 mm apart, and the fit between is good to a
    # tenth of it.
    assert np.abs(moved - (mean + 0.01 * mean[:, [2, 0, 1]] ** 2)).max() < 0.9


def test_shapeworks_means_world_particles_unless_told(project: Project) -> None:
    """Their mean is the mean shape here, so that both ways agree."""
    told = project.find(particles="world", mean_particles=project.folder / "mean.particles")
    for mesh, other in zip(project.find(particles="world"), told, strict=True):
        assert np.abs(points_of(mesh) - points_of(other)).max() < 1e-4


def test_shapeworks_stages_come_from_the_names(project: Project) -> None:
    for row, stage in zip(project.rows, (0, 40, 0, 40), strict=True):
        row["name"] = row["name"][:3] + f"-{stage}%"
    project.write()
    meshes = project.find(names=r"(?P<subject>\w+)-(?P<stage>\d+)%")
    assert [(m.phase, m.stage) for m in meshes] == [("0", 0.0), ("40", 40.0)] * 2


def test_shapeworks_workbook_reads_as_the_json(project: Project) -> None:
    book = openpyxl.Workbook()
    book.active.title = "optimize"
    sheet = book.create_sheet("data")
    sheet.append(list(project.rows[0]))
    for row in project.rows:
        sheet.append(list(row.values()))
    sheet.append([])
    book.save(project.folder / "study.xlsx")
    meshes, others = project.find("study.xlsx"), project.find()
    assert [(m.subject, m.phase, m.files[0]) for m in meshes] == [
        (m.subject, m.phase, m.files[0]) for m in others
    ]


PARTICLES = "particles/P02_es_local.particles"
SHAPEWORKS_FAULTS: dict[str, tuple[Callable[[Project], Any], str]] = {
    "no project": (
        lambda p: (p.folder / "study.swproj").unlink(),
        "does not exist",
    ),
    "not JSON": (
        lambda p: (p.folder / "study.swproj").write_text('{"data": ['),
        "not valid JSON",
    ),
    "another JSON": (
        lambda p: (p.folder / "study.swproj").write_text("[]"),
        "is no project of ShapeWorks",
    ),
    "no shapes": (
        lambda p: (p.folder / "study.swproj").write_text('{"data": []}'),
        "has no shapes",
    ),
    "a file that is not there": (
        lambda p: (p.folder / PARTICLES).unlink(),
        "row 4: the file does not exist",
    ),
    "not optimized": (
        lambda p: (p.rows[1].pop("local_particles_1"), p.write()),
        "row 2 has no local_particles_1; its columns of particles: world_particles_1",
    ),
    "a name of another kind": (
        lambda p: (p.rows[1].update(name="P01"), p.write()),
        "row 2: the name 'P01' does not match",
    ),
    "duplicates": (
        lambda p: (p.rows[1].update(name="P01_ed"), p.write()),
        "are the same phase",
    ),
    "two columns": (
        lambda p: save_numbers(p.folder / PARTICLES, p.particles[:, :2]),
        "has 2 numbers per row, not 3",
    ),
    "cut within a row": (
        lambda p: (p.folder / PARTICLES).write_text("1 2 3\n4 5"),
        "is no table of numbers, or cut off: .*row 2",
    ),
    "cut between rows": (
        lambda p: save_numbers(p.folder / PARTICLES, p.particles[:40]),
        "has 40 particles, the mean shape 42",
    ),
    "empty": (lambda p: (p.folder / PARTICLES).write_text("\n"), "holds no numbers"),
    "not finite": (
        lambda p: save_numbers(p.folder / PARTICLES, p.particles * np.nan),
        "126 of 126 values are not finite",
    ),
    "words": (
        lambda p: (p.folder / PARTICLES).write_text("x y z\n1 2 3\n"),
        "is no table of numbers",
    ),
    "world counts differ": (
        lambda p: save_numbers(p.folder / p.rows[3]["world_particles_1"], p.particles[:40]),
        "has 40 particles, .*P01_ed_world.particles has 42",
    ),
    "one place": (
        lambda p: [
            save_numbers(p.folder / row["world_particles_1"], p.particles[[0, *range(41)]])
            for row in p.rows
        ],
        "two particles of the mean shape lie at one place",
    ),
    "flat": (
        lambda p: [
            save_numbers(p.folder / row["world_particles_1"], p.particles * [1, 1, 0])
            for row in p.rows
        ],
        "lie at one place|lie in one plane",
    ),
    "another unit": (
        lambda p: p.mean.scale(0.1).save(p.folder / "mean.vtp"),
        "do not lie where this mesh is",
    ),
    "no mean mesh": (lambda p: (p.folder / "mean.vtp").unlink(), "does not exist"),
}


@pytest.mark.parametrize("fault", SHAPEWORKS_FAULTS)
def test_shapeworks_refuses(project: Project, fault: str) -> None:
    spoil, words = SHAPEWORKS_FAULTS[fault]
    spoil(project)
    if fault == "duplicates":  # has a subject and a phase for its place
        with pytest.raises(InputError, match=words):
            project.find()
        return
    refused(words, project.read_all)


def test_shapeworks_lists_all_that_is_missing_at_once(project: Project) -> None:
    for row in project.rows[:2]:
        (project.folder / row["local_particles_1"]).unlink()
    (project.folder / "mean.vtp").unlink()
    with pytest.raises(InputError) as caught:
        project.find()
    assert len(caught.value.problems) == 3


def test_a_workbook_that_is_none_is_one_sentence(project: Project) -> None:
    (project.folder / "study.xlsx").write_bytes(b"PK\x03\x04 damaged")
    refused("cannot be read as a workbook", lambda: project.find("study.xlsx"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mean_mesh": "mean.vtp", "nothing": 1}, "has no option --nothing"),
        ({}, "needs --mean-mesh"),
        ({"mean_mesh": "mean.vtp", "particles": "both"}, "--particles is 'both'"),
        ({"mean_mesh": "mean.vtp", "names": "("}, "is no regular expression"),
        ({"mean_mesh": "mean.vtp", "names": "(?P<subject>.*)"}, "lacks the groups"),
    ],
)
def test_options_are_checked(project: Project, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        READERS["shapeworks"].find(project.folder / "study.swproj", **options)


# ---- biv-me


class Models:
    """One case of three frames and one of two, for a surface of 500 points from 388."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(4)
        weights = rng.random((500, 388)) * (rng.random((500, 388)) < 0.02)
        self.matrix = weights / weights.sum(axis=1, keepdims=True)
        self.triangles = rng.permuted(np.tile(np.arange(500), (900, 1)), axis=1)[:, :3]
        self.control_points = rng.normal(size=(5, 388, 3))
        scipy.io.savemat(folder / "matrix.mat", {"S": scipy.sparse.csc_matrix(self.matrix)})
        # As in biv-me's own list: tabs, counted from 1.
        save_numbers(folder / "triangles.txt", self.triangles + 1, delimiter="\t")
        names = ["case_1/case_1_model_frame_000", "case_1/case_1_model_frame_001"]
        names += ["case_1/case_1_model_frame_002", "b_model_frame_000", "b_model_frame_010"]
        self.files = [folder / "models" / f"{name}.txt" for name in names]
        for file, points in zip(self.files, self.control_points, strict=True):
            self.save(file, points)
        (folder / "models" / "case_1" / "shift_file.txt").write_text("0 0\n")

    def save(self, path: Path, points: np.ndarray, header: str = "x,y,z,Frame") -> None:
        save_numbers(path, np.column_stack([points, np.zeros(len(points))]), header, ",")

    def find(self, matrix: str = "matrix.mat") -> list[PhaseMesh]:
        return READERS["biv-me"].find(
            self.folder / "models",
            subdivision=self.folder / matrix,
            triangles=self.folder / "triangles.txt",
        )

    def read_all(self) -> None:
        for mesh in self.find():
            mesh.read()


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path)


def test_biv_me_names_cases_and_frames(models: Models) -> None:
    rows = [(m.subject, m.phase, m.stage, m.files[0]) for m in models.find()]
    frames = [("case_1", "000", 0.0), ("case_1", "001", 1.0), ("case_1", "002", 2.0)]
    frames += [("b", "000", 0.0), ("b", "010", 10.0)]
    assert sorted(rows) == sorted(
        (*frame, file) for frame, file in zip(frames, models.files, strict=True)
    )
    assert READERS["biv-me"].stage_unit == "index"


def test_biv_me_subdivides_to_the_given_triangles(models: Models) -> None:
    save_numbers(models.folder / "matrix.txt", models.matrix)
    for name in ("matrix.mat", "matrix.txt"):
        read = {mesh.files[0]: mesh for mesh in models.find(name)}
        for file, control_points in zip(models.files, models.control_points, strict=True):
            surface = read[file].read()
            # Rounding of sums of some eight products of numbers near 1.
            assert np.abs(surface.points - models.matrix @ control_points).max() < 1e-12
            assert np.array_equal(surface.regular_faces, models.triangles)


def test_biv_me_takes_the_header_in_any_case(models: Models) -> None:
    models.save(models.files[0], models.control_points[0], "x,y,z,frame")
    models.read_all()


BIV_ME_FAULTS: dict[str, tuple[Callable[[Models], Any], str]] = {
    "no models": (lambda m: [file.unlink() for file in m.files], "holds no models of biv-me"),
    "no matrix": (lambda m: (m.folder / "matrix.mat").unlink(), "does not exist"),
    "another matrix": (
        lambda m: scipy.io.savemat(m.folder / "matrix.mat", {"T": m.matrix}),
        "has no variable S",
    ),
    "damaged matrix": (
        lambda m: (m.folder / "matrix.mat").write_bytes(b"MATLAB 5.0" + bytes(100)),
        "cannot be read as a MATLAB file",
    ),
    "no triangles": (lambda m: (m.folder / "triangles.txt").unlink(), "does not exist"),
    "triangles from 0": (
        lambda m: save_numbers(m.folder / "triangles.txt", m.triangles),
        "names points 0 to 499, there are points 1 to 500",
    ),
    "quads": (
        lambda m: save_numbers(m.folder / "triangles.txt", np.ones((5, 4))),
        "has 4 numbers per row, not 3",
    ),
    "half points": (
        lambda m: save_numbers(m.folder / "triangles.txt", m.triangles + 0.5),
        "that are not whole",
    ),
    "another header": (
        lambda m: m.save(m.files[0], m.control_points[0], "x,y,z"),
        "begins with 'x,y,z', not with the columns x,y,z,Frame",
    ),
    "a column less": (
        lambda m: save_numbers(m.files[0], m.control_points[0], "x,y,z,Frame", ","),
        "has 3 numbers per row, not 4",
    ),
    "counts differ": (
        lambda m: m.save(m.files[0], m.control_points[0][:380]),
        "has 380 control points, the subdivision matrix 388",
    ),
    "cut within a row": (
        lambda m: m.files[0].write_text("x,y,z,Frame\n1,2,3,0\n1,2"),
        "is no table of numbers, or cut off",
    ),
    "not finite": (
        lambda m: m.save(m.files[0], m.control_points[0] + np.inf),
        "are not finite",
    ),
    "no name": (
        lambda m: m.files[0].rename(m.files[0].with_name("a\\b_model_frame_000.txt")),
        "it is a path and not a name",
    ),
}


@pytest.mark.parametrize("fault", BIV_ME_FAULTS)
def test_biv_me_refuses(models: Models, fault: str) -> None:
    spoil, words = BIV_ME_FAULTS[fault]
    spoil(models)
    if fault == "no name":
        with pytest.raises(InputError, match=words):
            models.find()
        return
    refused(words, models.read_all)


def test_one_case_in_two_folders_is_a_duplicate(models: Models) -> None:
    models.save(models.folder / "models/again/b_model_frame_000.txt", models.control_points[0])
    with pytest.raises(InputError, match=r"subject b, phase 000: .* are the same phase"):
        models.find()


# ---- atlases


class Atlases:
    """One sphere of 42 points, with 5 modes: as files of Bai et al. and of the Cardiac Atlas."""

    VARIANCES = np.array([16.0, 9.0, 4.0, 1.0, 0.25])

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(5)
        self.mesh = pv.Icosphere(radius=30.0, nsub=1)
        self.mean = np.asarray(self.mesh.points, dtype=np.float64)
        self.modes = np.linalg.qr(rng.normal(size=(126, 5)))[0].T
        self.both = np.linalg.qr(rng.normal(size=(252, 5)))[0].T  # of ED and ES together
        self.both_mean = np.concatenate([self.mean.ravel(), 0.8 * self.mean.ravel()])
        pv.PolyData(self.mean, self.mesh.faces).save(folder / "LV_ED_mean.vtk")
        self.save_csv("pc", self.modes.T)
        self.save_csv("var", self.VARIANCES[:, None])
        self.save_h5()
        save_numbers(folder / "triangles.txt", self.mesh.regular_faces + 1, delimiter=",")

    def save_csv(self, kind: str, rows: np.ndarray) -> None:
        path = save_numbers(self.folder / "rows.csv", rows, delimiter=",")
        packed = self.folder / f"LV_ED_{kind}_100_modes.csv.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))

    def save_h5(self, **other: np.ndarray | None) -> None:
        """Write it as MATLAB does: columns are rows, vectors have two axes."""
        arrays = {"MU": self.both_mean[:, None], "COEFF": self.both}
        arrays |= {"LATENT": self.VARIANCES[None]}
        with h5py.File(self.folder / "atlas.h5", "w") as file:
            for name, array in (arrays | other).items():
                if array is not None:
                    file[name] = array

    def find(self, name: str, **options: Any) -> list[PhaseMesh]:
        if name == "uk-digital-heart":
            return READERS[name].find(self.folder / "LV_ED_mean.vtk", **options)
        triangles = self.folder / "triangles.txt"
        return READERS[name].find(self.folder / "atlas.h5", triangles=triangles, **options)

    def scores(self, mesh: PhaseMesh) -> np.ndarray:
        """Solve for the scores of a mesh of the Cardiac Atlas, from its half of the modes."""
        half = slice(0, 126) if mesh.phase == "ED" else slice(126, 252)
        moved = points_of(mesh).ravel() - self.both_mean[half]
        scaled = (np.sqrt(self.VARIANCES)[:, None] * self.both)[:, half]
        scores, residual, _, _ = np.linalg.lstsq(scaled.T, moved, rcond=None)
        assert residual.max() < 1e-12
        return scores


@pytest.fixture
def atlases(tmp_path: Path) -> Atlases:
    return Atlases(tmp_path)


@pytest.mark.parametrize("source", ["LV_ED_mean.vtk", "."])
def test_bai_becomes_a_template_with_modes(atlases: Atlases, source: str) -> None:
    output = atlases.folder / "out"
    given = {"format": "uk-digital-heart", "source": atlases.folder / source, "output": output}
    convert_atlas.main(argparse.Namespace(**given, phase=None, modes=None, triangles=None))
    model = read_shape_model(output / "pca_model.json", 42)
    assert np.allclose(model.eigenvalues, atlases.VARIANCES, rtol=1e-12)
    assert np.allclose(model.components, atlases.modes, atol=1e-12)
    assert np.allclose(model.mean, atlases.mean.ravel(), rtol=1e-12)
    mesh = read_mesh(output / "pca_mean.vtp")
    assert np.allclose(mesh.points, atlases.mean, rtol=1e-12)
    assert np.array_equal(mesh.regular_faces, atlases.mesh.regular_faces)


def test_rounding_of_modes_moves_points_as_the_files_say(atlases: Atlases) -> None:
    atlases.save_csv("pc", np.round(atlases.modes.T, 3))
    atlas = READERS["uk-digital-heart"].atlas(atlases.folder, None)
    for mode, variance in enumerate(atlases.VARIANCES):
        moved = atlas.phase_mesh("ED", np.eye(5)[mode]).points - atlases.mean
        wanted = np.sqrt(variance) * np.round(atlases.modes[mode], 3).reshape(-1, 3)
        assert np.allclose(moved, wanted, atol=1e-12)
    assert np.allclose(np.linalg.norm(atlas.model.components, axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("phase", ["ED", "ES"])
def test_the_cardiac_atlas_becomes_a_template_of_one_phase(atlases: Atlases, phase: str) -> None:
    output = atlases.folder / "out"
    given = {"format": "cardiac-atlas", "source": atlases.folder / "atlas.h5", "output": output}
    triangles = atlases.folder / "triangles.txt"
    convert_atlas.main(argparse.Namespace(**given, phase=phase, modes=3, triangles=triangles))
    model = read_shape_model(output / "pca_model.json", 42)
    half = slice(0, 126) if phase == "ED" else slice(126, 252)
    moves = np.sqrt(model.eigenvalues)[:, None] * model.components
    wanted = np.sqrt(atlases.VARIANCES[:3])[:, None] * atlases.both[:3, half]
    assert np.allclose(moves, wanted, atol=1e-12)
    mesh = read_mesh(output / "pca_mean.vtp")
    scale = 1.0 if phase == "ED" else 0.8
    assert np.allclose(mesh.points, scale * atlases.mean, rtol=1e-12)
    assert np.array_equal(mesh.regular_faces, atlases.mesh.regular_faces)


def test_synthetic_subjects_have_one_set_of_scores_in_both_phases(atlases: Atlases) -> None:
    meshes = atlases.find("cardiac-atlas", subjects=3)
    assert [(m.subject[-1], m.phase, m.stage) for m in meshes] == [
        (number, phase, stage) for number in "012" for phase, stage in (("ED", 0.0), ("ES", 1.0))
    ]
    scores = np.array([atlases.scores(mesh) for mesh in meshes])
    assert np.allclose(scores[0::2], scores[1::2], atol=1e-9)
    assert np.abs(scores[0] - scores[2]).max() > 0.1


def test_synthetic_subjects_are_of_unit_spread_and_repeat(atlases: Atlases) -> None:
    few = atlases.find("cardiac-atlas", subjects=2, score_seed=3)
    many = atlases.find("cardiac-atlas", subjects=400, score_seed=3)
    assert all(np.array_equal(points_of(a), points_of(b)) for a, b in zip(few, many, strict=False))
    other = atlases.find("cardiac-atlas", subjects=1, score_seed=4)
    assert not np.array_equal(points_of(other[0]), points_of(few[0]))
    scores = np.array([atlases.scores(mesh) for mesh in many[::2]])
    # Five standard errors of the mean (1/20) and of the standard deviation (1/28) of 400 numbers.
    assert np.abs(scores.mean(axis=0)).max() < 5 / 20
    assert np.abs(scores.std(axis=0) - 1).max() < 5 / 28


def test_a_synthetic_subject_may_have_the_first_modes_only(atlases: Atlases) -> None:
    mesh = atlases.find("uk-digital-heart", subjects=1, atlas_modes=2)[0]
    scores = atlases.modes @ (points_of(mesh) - atlases.mean).ravel()
    assert np.abs(scores[:2]).min() > 1e-3 and np.abs(scores[2:]).max() < 1e-9


def test_the_modes_of_an_h5_file_may_stand_either_way(atlases: Atlases) -> None:
    before = points_of(atlases.find("cardiac-atlas")[0])
    atlases.save_h5(COEFF=atlases.both.T, MU=atlases.both_mean, LATENT=atlases.VARIANCES)
    other = atlases.folder / "other.h5"
    (atlases.folder / "atlas.h5").rename(other)
    triangles = atlases.folder / "triangles.txt"
    meshes = READERS["cardiac-atlas"].find(other, triangles=triangles)
    # A sum of five products may round in another order.
    assert np.abs(points_of(meshes[0]) - before).max() < 1e-12


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


ATLAS_FAULTS: dict[str, tuple[str, Callable[[Atlases], Any], str]] = {
    "no modes": (
        "uk-digital-heart",
        lambda a: (a.folder / "LV_ED_pc_100_modes.csv.gz").unlink(),
        r"should hold one file LV_ED_pc_\*_modes.csv\*, it holds none",
    ),
    "no mean": (
        "uk-digital-heart",
        lambda a: (a.folder / "LV_ED_mean.vtk").unlink(),
        "does not exist",
    ),
    "truncated modes": (
        "uk-digital-heart",
        lambda a: cut(a.folder / "LV_ED_pc_100_modes.csv.gz"),
        "damaged or truncated",
    ),
    "not packed": (
        "uk-digital-heart",
        lambda a: (a.folder / "LV_ED_var_100_modes.csv.gz").write_text("1\n2\n"),
        "cannot be unpacked as gzip",
    ),
    "variances differ": (
        "uk-digital-heart",
        lambda a: a.save_csv("var", a.VARIANCES[:4, None]),
        "there are 4 variances and a mean of 126 numbers, but 5 modes of 126 numbers",
    ),
    "modes of another mesh": (
        "uk-digital-heart",
        lambda a: a.save_csv("pc", a.modes.T[:123]),
        "5 modes of 123 numbers",
    ),
    "modes are scaled": (
        "uk-digital-heart",
        lambda a: a.save_csv("pc", 4 * a.modes.T),
        "has length 4, not 1",
    ),
    "modes not finite": (
        "uk-digital-heart",
        lambda a: a.save_csv("pc", a.modes.T * np.nan),
        "are not finite",
    ),
    "negative": (
        "uk-digital-heart",
        lambda a: a.save_csv("var", -a.VARIANCES[:, None]),
        r"a variance is negative \(-16\)",
    ),
    "no file": ("cardiac-atlas", lambda a: (a.folder / "atlas.h5").unlink(), "does not exist"),
    "truncated": ("cardiac-atlas", lambda a: cut(a.folder / "atlas.h5"), "as HDF5"),
    "another file": (
        "cardiac-atlas",
        lambda a: a.save_h5(MU=None, LATENT=None),
        "has no /MU, /LATENT",
    ),
    "counts differ": (
        "cardiac-atlas",
        lambda a: a.save_h5(MU=a.both_mean[:250]),
        "a mean of 250 numbers, but",
    ),
    "one phase": (
        "cardiac-atlas",
        lambda a: a.save_h5(MU=a.both_mean[:123], COEFF=np.eye(5, 123)),
        "123 numbers, which are no points of two phases",
    ),
    "not numbers": (
        "cardiac-atlas",
        lambda a: a.save_h5(MU=np.array([b"x"])),
        "as HDF5",
    ),
    "nan": ("cardiac-atlas", lambda a: a.save_h5(MU=a.both_mean * np.nan), "are not finite"),
    "triangles of another": (
        "cardiac-atlas",
        lambda a: save_numbers(a.folder / "triangles.txt", a.mesh.regular_faces),
        "names points 0 to 41",
    ),
}


@pytest.mark.parametrize("fault", ATLAS_FAULTS)
def test_atlases_refuse(atlases: Atlases, fault: str) -> None:
    name, spoil, words = ATLAS_FAULTS[fault]
    spoil(atlases)
    refused(words, lambda: atlases.find(name)[0].read())


def test_more_modes_than_there_are_are_refused(atlases: Atlases) -> None:
    with pytest.raises(InputError, match="6 modes are asked for, the atlas has 5"):
        atlases.find("cardiac-atlas", atlas_modes=6)[0].read()


# ---- all


def test_rows_of_the_table_are_whole() -> None:
    for name, reader in READERS.items():
        assert reader.name == name and reader.help
        assert reader.stage_unit in ("percent", "fraction", "index", "seconds")


@pytest.mark.parametrize("library", ["h5py", "openpyxl"])
def test_an_optional_library_is_named(
    atlases: Atlases, project: Project, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # its import fails
    (project.folder / "study.xlsx").write_bytes(b"PK")
    call = {
        "h5py": lambda: atlases.find("cardiac-atlas")[0].read(),
        "openpyxl": lambda: project.find("study.xlsx"),
    }[library]
    refused(f"is read by {library}, which is not installed; pip install {library}", call)
