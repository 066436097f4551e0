"""From a folder of meshes to a cohort: what is recovered, what is written, what is refused."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv
from scipy.spatial.transform import Rotation

from meshstage.checks.cohort import check_cohort, ingested_entries
from meshstage.cohort.alignment import read_alignment
from meshstage.cohort.demo import make_demo_cohort
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.shape_model import read_shape_model
from meshstage.cohort.statistics import compute_statistics
from meshstage.cohort.subject import Subject, load_subject
from meshstage.cohort.template import Template, build_template
from meshstage.config.preparation import Preparation
from meshstage.config.subjects import read_subjects_table
from meshstage.errors import InputError
from meshstage.meshes.reading import read_mesh, write_mesh
from meshstage.motion.baselines import MODELS
from meshstage.preparation.pipeline import prepare_cohort
from meshstage.preparation.plan import plan_cohort
from scripts_in_process import run_script
from shared_data import shared

PATTERN = r"(?P<subject>.+)_(?P<phase>\d+)\.vtu"


@dataclass
class Ingested:
    template: Template
    folder: Path
    by_split: dict[str, list[Subject]]
    warnings: list[str]

    def rmse_of(self, kind: str) -> float:
        """RMSE of a motion model on the test subjects, mm."""
        train, test = self.by_split["train"], self.by_split["test"]
        statistics = compute_statistics(self.template, train)
        model = MODELS[kind][1].fit(train, statistics, "closed")
        errors = [model.predict(s.shape_scores, s.stages) - s.targets for s in test]
        return float(np.sqrt(np.mean([np.square(e).sum(axis=2).mean() for e in errors])))


def ingest(cohort: Path, folder: Path) -> Ingested:
    template = build_template(next(cohort.glob("pca_mean.vt?")), folder / "template")
    rows, by_split, directories = read_subjects_table(cohort / "subjects.tsv"), {}, []
    for row in rows:
        directories.append(folder / row.manifest.parent.name)
        ingest_subject(row.manifest, template, directories[-1])
        by_split.setdefault(row.split, []).append(load_subject(directories[-1]))
    entries, problems = ingested_entries(directories, rows)
    report = check_cohort(template, entries, cohort / "subjects.tsv", None, problems)
    return Ingested(template, cohort, by_split, [p.sentence() for p in report.problems])


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Ingested:
    """Make a coarser demo: 20 subjects to train on, 5 to validate, 5 to test."""
    folder = tmp_path_factory.mktemp("original")
    make_demo_cohort(folder / "cohort", n_subjects=30, n_phases=6, resolution=4, seed=5)
    return ingest(folder / "cohort", folder / "ingested")


@pytest.fixture(scope="module")
def raw(original, tmp_path_factory) -> Path:
    """Meshes without arrays, each subject turned and moved; a table names their splits."""
    folder = tmp_path_factory.mktemp("raw")
    rows, generator = ["subject\tmesh\tstage\tsplit"], np.random.default_rng(1)
    for row in read_subjects_table(original.folder / "subjects.tsv"):
        name = row.manifest.parent.name
        turn = Rotation.random(random_state=int(generator.integers(1 << 30)))
        shift = generator.uniform(-100, 100, 3)
        for number, phase in enumerate(json.loads(row.manifest.read_text())["phases"]):
            mesh = read_mesh(row.manifest.with_name(phase["mesh"]))
            mesh.clear_data()
            mesh.points = turn.apply(np.asarray(mesh.points, np.float64)) + shift
            write_mesh(folder / f"{name}_{number}.vtu", mesh)
            rows.append(f"{name}\t{name}_{number}.vtu\t{phase['stage']}\t{row.split}")
    (folder / "meshes.tsv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def prepared(raw, tmp_path_factory) -> Ingested:
    folder = tmp_path_factory.mktemp("prepared")
    settings = Preparation(meshes=str(raw / "meshes.tsv"), variance=1)
    prepare_cohort(plan_cohort(settings), folder / "cohort")
    return ingest(folder / "cohort", folder / "ingested")


def everybody(cohort: Ingested) -> list[Subject]:
    return sorted((s for own in cohort.by_split.values() for s in own), key=lambda s: s.id)


# ---------------------------------------------------------------- what is recovered


def test_the_subspace_of_scores_is_recovered(original, prepared):
    """Canonical correlations are the singular values of Qx' Qy of centred, orthonormal scores."""
    bases = []
    for cohort in (original, prepared):
        scores = np.array([subject.shape_scores for subject in everybody(cohort)])
        assert scores.shape == (30, 4)  # the demo has four modes, and rounding is none
        bases.append(np.linalg.qr(scores - scores.mean(axis=0))[0])
    assert np.linalg.svd(bases[0].T @ bases[1], compute_uv=False).min() >= 0.99


def test_references_are_rebuilt_from_all_modes_and_found_back(prepared, raw):
    mesh = prepared.template.mesh()
    model = read_shape_model(prepared.folder / "pca_model.json", mesh.n_points)
    alignment = read_alignment(prepared.folder / "alignment.json")
    for subject in everybody(prepared):
        rebuilt = model.points(subject.shape_scores, np.asarray(mesh.points, np.float64))
        assert np.linalg.norm(rebuilt - subject.reference, axis=1).max() <= 0.01
        own = np.asarray(read_mesh(raw / f"{subject.id}_0.vtu").points)
        matrix = alignment.matrix(subject.id)
        # Meshes are float32, some 100 mm from the origin: 1e-5 mm.
        np.testing.assert_allclose(own @ matrix[:3, :3].T + matrix[:3, 3], rebuilt, atol=1e-3)
        assert np.linalg.det(matrix[:3, :3]) == pytest.approx(1)


def test_the_check_is_clean(prepared):
    assert prepared.warnings == []


def test_targets_are_the_turned_motion(original, prepared):
    """Lengths do not change when everything turns; each phase was its own displacement."""
    for before, after in zip(everybody(original), everybody(prepared), strict=True):
        # The demo's phases are float32 some 100 mm from the origin after turning.
        np.testing.assert_allclose(
            np.linalg.norm(after.targets, axis=2),
            np.linalg.norm(before.targets, axis=2),
            atol=1e-3,
        )
        np.testing.assert_array_equal(after.stages, before.stages)


def test_preparing_costs_no_accuracy_but_by_mixing_the_scores(original, prepared):
    """Turned motions and affinely mixed scores are all that a preparation changes.

    So models of the prepared cohort err as those of the original one, whose scores are mixed by
    the same map and whose meshes no preparation has touched.
    """
    scores = {subject.id: subject.shape_scores for subject in everybody(prepared)}
    before = original.by_split["train"]
    own = np.array([[*subject.shape_scores, 1.0] for subject in before])
    matrix = np.linalg.lstsq(own, np.array([scores[subject.id] for subject in before]))[0]
    mixed = {
        split: [replace(s, shape_scores=np.append(s.shape_scores, 1.0) @ matrix) for s in subjects]
        for split, subjects in original.by_split.items()
    }
    control = replace(original, by_split=mixed)
    # Meshes are float32, some 100 mm from the origin: 1e-5 mm beside errors of some 0.5 mm.
    assert prepared.rmse_of("ridge") == pytest.approx(control.rmse_of("ridge"), rel=1e-4)
    # Scores of such meshes differ by 1e-6, which alone moves the search for a kernel, and with it
    # this cohort's RMSE by up to 3 %.
    assert prepared.rmse_of("gp") == pytest.approx(control.rmse_of("gp"), rel=0.05)


def test_a_ridge_is_as_accurate_as_on_the_original_scores(original, prepared):
    """It hardly cares how scores are mixed; a Gaussian process with a length per score does."""
    assert prepared.rmse_of("ridge") == pytest.approx(original.rmse_of("ridge"), rel=0.05)


def test_modes_are_those_of_the_training_subjects_alone(raw, prepared, tmp_path):
    """Altering a held-out subject's meshes leaves template and shape model as they are."""
    rows = [line.split("\t") for line in (raw / "meshes.tsv").read_text().splitlines()[1:]]
    table = ["subject\tmesh\tstage\tsplit"]
    for subject, name, stage, split in rows:
        path = raw / name
        if split == "test":
            mesh = read_mesh(path)
            mesh.points = mesh.points * [1.0, 1.1, 0.9]
            path = tmp_path / name
            write_mesh(path, mesh)
        table.append(f"{subject}\t{path}\t{stage}\t{split}")
    (tmp_path / "meshes.tsv").write_text("\n".join(table) + "\n")
    settings = Preparation(meshes=str(tmp_path / "meshes.tsv"), variance=1)
    prepare_cohort(plan_cohort(settings), tmp_path / "cohort")
    for name in ("pca_mean.vtu", "pca_model.json"):
        assert (tmp_path / "cohort" / name).read_bytes() == (prepared.folder / name).read_bytes()


# ---------------------------------------------------------------- small cohorts of surfaces


def write_surfaces(folder: Path, change: Callable[[str, int, Any], Any] = lambda s, p, m: m) -> str:
    """Write four spheres, stretched differently, that swell: phases 0, 50 (percent)."""
    generator = np.random.default_rng(3)
    for name in ("a", "b", "c", "d"):
        ball = pv.Icosphere(radius=30.0, nsub=2)
        ball.clear_data()
        stretch = 1 + 0.1 * generator.standard_normal(3)
        bump = 1 + 0.05 * np.outer(np.sin(ball.points[:, 2] / 10), generator.standard_normal(3))
        at_rest = ball.points * stretch * bump
        for phase, factor in ((0, 1.0), (50, 1.1)):
            mesh = ball.copy()
            mesh.points = at_rest * factor
            mesh.point_data["velocity"] = at_rest * [1.0, 0.0, 0.0]
            mesh.point_data["region"] = np.arange(mesh.n_points) // 40
            mesh = change(name, phase, mesh)
            if mesh is not None:
                (folder / name).mkdir(parents=True, exist_ok=True)
                mesh.save(folder / name / f"{phase}.vtp")
    return str(folder)


def settings_of(meshes: str, **changes: Any) -> Preparation:
    given = {"pattern": r"(?P<subject>\w+)/(?P<phase>\d+)\.vtp", "stage": "percent"}
    return Preparation(meshes=meshes, **{**given, "split": "1/0/0", **changes})


def prepare(meshes: str, output: Path, **changes: Any) -> Path:
    prepare_cohort(plan_cohort(settings_of(meshes, **changes)), output)
    return output


def refused(meshes: str, output: Path, **changes: Any) -> list[str]:
    with pytest.raises(InputError) as raised:
        prepare(meshes, output, **changes)
    return [problem.sentence() for problem in raised.value.problems]


def test_what_the_rows_say(tmp_path):
    output = prepare(write_surfaces(tmp_path / "raw"), tmp_path / "out", modes=2)
    assert (output / "subjects.tsv").read_text() == "manifest\tsplit\n" + "".join(
        f"{name}/manifest.json\ttrain\n" for name in "abcd"
    )
    manifest = json.loads((output / "a" / "manifest.json").read_text())
    assert [phase["stage"] for phase in manifest["phases"]] == [0.0, 0.5]
    assert len(json.loads((output / "a" / "pca.json").read_text())) == 2
    template = read_mesh(output / "pca_mean.vtp")
    # All subjects have the same regions; velocities are each subject's own.
    assert template.point_data.keys() == ["region"]


def test_scores_are_standard_deviations_of_the_training_subjects(tmp_path):
    """With all modes nothing is left by the pose: mean 0 and deviation 1 over these."""
    output = prepare(write_surfaces(tmp_path / "raw"), tmp_path / "out", variance=1)
    scores = np.array([json.loads((output / n / "pca.json").read_text()) for n in "abcd"])
    assert scores.shape == (4, 3)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scores.std(axis=0, ddof=1), 1, rtol=1e-6)


def test_an_array_of_theirs_turns_with_the_subject(tmp_path):
    """Subject b lies a quarter turn about z off the others, and so do its velocities."""
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])

    def turned(name: str, phase: int, mesh: Any) -> Any:
        if name == "b":
            mesh.points = mesh.points @ quarter.T
            mesh.point_data["velocity"] = mesh.point_data["velocity"] @ quarter.T
        return mesh

    straight = prepare(write_surfaces(tmp_path / "one"), tmp_path / "out1", target="velocity")
    other = prepare(write_surfaces(tmp_path / "two", turned), tmp_path / "out2", target="velocity")
    ours, theirs = (
        read_mesh(folder / "b" / "phase_000.vtp").point_data["velocity"]
        for folder in (straight, other)
    )
    # Rounding of float32 alone, of some 30 mm.
    np.testing.assert_allclose(theirs, ours, atol=1e-3)


def test_none_of_the_alignments_moves_what_it_must_not(tmp_path):
    meshes = write_surfaces(tmp_path / "raw")
    for align in ("none", "rigid", "similarity"):
        output = prepare(meshes, tmp_path / align, align=align)
        alignment = read_alignment(output / "alignment.json")
        matrices = [alignment.matrix(name)[:3, :3] for name in "abcd"]
        scales = [np.cbrt(np.linalg.det(matrix)) for matrix in matrices]
        if align == "none":
            np.testing.assert_array_equal(matrices, np.broadcast_to(np.eye(3), (4, 3, 3)))
        elif align == "rigid":
            np.testing.assert_allclose(scales, 1)
        else:
            assert np.ptp(scales) > 0.01


# ---------------------------------------------------------------- refusals


def test_everything_that_is_wrong_is_told_at_once(tmp_path):
    generator = np.random.default_rng(0)

    def spoil(name: str, phase: int, mesh: Any) -> Any:
        if name == "b" and phase == 50:  # the same numbers of points and cells
            mesh.points = mesh.points[generator.permutation(mesh.n_points)]
        if name == "c":
            mesh.points = mesh.points / 10  # centimetres
        if name == "d" and phase == 50:
            mesh.points[7] = np.nan
        return mesh

    found = refused(write_surfaces(tmp_path / "raw", spoil), tmp_path / "out")
    text = "\n".join(found)
    assert "b/50.vtp, subject b, phase 50 (stage 0.5): its points are not where the cells" in text
    assert "c/0.vtp, subject c: is 10." in text
    assert "d/50.vtp, subject d, phase 50 (stage 0.5): the points: 3 of" in text
    assert len(found) == 3
    assert not (tmp_path / "out").exists()


def _mirror(name: str, phase: int, mesh: Any) -> Any:
    if name == "b":
        mesh.points = mesh.points * [-1.0, 1.0, 1.0]
    return mesh


def _shuffle(name: str, phase: int, mesh: Any) -> Any:
    if name == "b":
        mesh.points = mesh.points[np.random.default_rng(phase).permutation(mesh.n_points)]
    return mesh


def _flip_triangle(name: str, phase: int, mesh: Any) -> Any:
    if name == "b":
        faces = mesh.regular_faces.copy()
        faces[0] = faces[0][[1, 2, 0]]
        faces[5] = [faces[5][0], faces[5][1], faces[9][2]]
        mesh = pv.PolyData.from_regular_faces(mesh.points, faces)
    return mesh


def _twice(name: str, phase: int, mesh: Any) -> Any:
    if name == "b":
        (source,) = [pv.read(_twice.folder / "a" / f"{phase}.vtp")]  # type: ignore[attr-defined]
        mesh.points = source.points + 40
    return mesh


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_mirror, "mirrored against most subjects"),
        (_shuffle, "vertices in another order"),
        (_flip_triangle, "the template is what most subjects have"),
        (_twice, "has the shape of subject a"),
    ],
)
def test_meshes_that_are_not_in_correspondence(tmp_path, change, words):
    _twice.folder = tmp_path / "raw"  # type: ignore[attr-defined]
    (found,) = refused(write_surfaces(tmp_path / "raw", change), tmp_path / "out")
    assert words in found
    assert "subject b" in found


def test_too_few_subjects(tmp_path):
    meshes = write_surfaces(tmp_path / "raw", lambda s, p, m: m if s in "ab" else None)
    (found,) = refused(meshes, tmp_path / "out")
    assert "there are 2 subjects to train on (of 2), and a shape model needs at least 3" in found


def test_a_missing_phase_is_a_warning(tmp_path, caplog):
    def without(name: str, phase: int, mesh: Any) -> Any:
        return None if (name, phase) == ("c", 50) else mesh

    prepare(write_surfaces(tmp_path / "raw", without), tmp_path / "out")
    assert "subject c: 1 phases are missing that most subjects have: stage 0.5" in caplog.text


def test_a_target_that_is_not_there_is_told_of_every_mesh(tmp_path):
    found = refused(write_surfaces(tmp_path / "raw"), tmp_path / "out", target="strain")
    assert len(found) == 8
    assert all("has no point array 'strain'" in each for each in found)


def test_what_stands_is_not_touched_by_a_preparation_that_fails(tmp_path):
    meshes = write_surfaces(tmp_path / "raw")
    output = prepare(meshes, tmp_path / "out")
    before = {p: p.read_bytes() for p in output.rglob("*") if p.is_file()}
    (tmp_path / "raw" / "d" / "50.vtp").write_text("broken")
    refused(meshes, output)
    assert {p: p.read_bytes() for p in tmp_path.joinpath("out").rglob("*") if p.is_file()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "raw"]


# ---------------------------------------------------------------- the command


def test_the_command_writes_a_figure_of_the_modes_too(tmp_path):
    meshes = write_surfaces(tmp_path / "raw")
    arguments = ["--pattern", r"(?P<subject>\w+)/(?P<phase>\d+)\.vtp", "--stage", "percent"]
    out = tmp_path / "out"
    assert run_script(
        "prepare_cohort.py", "--meshes", meshes, *arguments, "--split", "1/0/0", "--output", out
    ) == 0  # fmt: skip
    assert (out / "modes.png").stat().st_size > 10_000
    assert run_script("prepare_cohort.py", "--meshes", meshes, "--modes", "x", "--output", out) == 2


# ---------------------------------------------------------------- real hearts


@pytest.mark.parametrize("name", ["heart-control", "heart-surface"])
def test_hearts_are_prepared_as_they_came(tmp_path, name):
    """Their manifests were made by the same steps elsewhere, all three hearts in the modes."""
    cohort = shared("data", "cohorts", name)
    table, theirs = ["subject\tmesh\tstage\tsplit"], {}
    for row in read_subjects_table(cohort / "subjects.tsv"):
        manifest = json.loads(row.manifest.read_text())
        theirs[manifest["subject_id"]] = row.manifest.parent, manifest
        for phase in manifest["phases"]:
            mesh = row.manifest.parent / phase["mesh"]
            table.append(f"{manifest['subject_id']}\t{mesh}\t{phase['stage']}\ttrain")
    (tmp_path / "meshes.tsv").write_text("\n".join(table) + "\n")
    settings = Preparation(meshes=str(tmp_path / "meshes.tsv"), variance=1)
    prepare_cohort(plan_cohort(settings), tmp_path / "out")
    # Their files keep multiples of 2^-10 mm.
    ours, given = (read_mesh(f / "pca_mean.vtp").points for f in (tmp_path / "out", cohort))
    np.testing.assert_allclose(ours, given, atol=2e-3)
    for row in read_subjects_table(tmp_path / "out" / "subjects.tsv"):
        mine = json.loads(row.manifest.read_text())
        folder, manifest = theirs[mine["subject_id"]]
        scores = json.loads((folder / manifest["pca_coefficients"]).read_text())
        found = json.loads(row.manifest.with_name("pca.json").read_text())
        np.testing.assert_allclose(found, scores, atol=1e-3)
        for own, other in zip(mine["phases"], manifest["phases"], strict=True):
            moved, expected = (
                read_mesh(mesh).point_data["displacement"]
                for mesh in (row.manifest.parent / own["mesh"], folder / other["mesh"])
            )
            np.testing.assert_allclose(moved, expected, atol=2e-3)


def test_faces_keep_their_motion_though_their_modes_are_others(tmp_path):
    """Their template and modes are of other people; seven faces have six modes, which hold them."""
    cohort = shared("data", "cohorts", "face")
    table, given = ["subject\tmesh\tstage\tsplit"], {}
    for row in read_subjects_table(cohort / "subjects.tsv"):
        manifest = json.loads(row.manifest.read_text())
        phases = manifest["phases"][:2]  # the reference is the first
        given[manifest["subject_id"]] = row.manifest.parent, phases
        for phase in phases:
            mesh = row.manifest.parent / phase["mesh"]
            table.append(f"{manifest['subject_id']}\t{mesh}\t{phase['stage']}\t{row.split}")
    (tmp_path / "meshes.tsv").write_text("\n".join(table) + "\n")
    settings = Preparation(meshes=str(tmp_path / "meshes.tsv"), variance=1, align="none")
    prepared = prepare_cohort(plan_cohort(settings), tmp_path / "out")
    assert prepared.model.n_modes == 6
    mean = np.asarray(prepared.mesh.points, np.float64)
    for row in read_subjects_table(tmp_path / "out" / "subjects.tsv"):
        mine = json.loads(row.manifest.read_text())
        folder, phases = given[mine["subject_id"]]
        for own, other in zip(mine["phases"], phases, strict=True):
            ours, theirs = (
                read_mesh(mesh).point_data["displacement"]
                for mesh in (row.manifest.parent / own["mesh"], folder / other["mesh"])
            )
            # Their files keep multiples of 2^-10 mm.
            np.testing.assert_allclose(ours, theirs, atol=2e-3)
        if row.split == "train":
            scores = np.array(json.loads(row.manifest.with_name("pca.json").read_text()))
            reference = read_mesh(row.manifest.with_name(mine["fitted_reference_mesh"])).points
            # Float32 of some 100 mm.
            np.testing.assert_allclose(prepared.model.points(scores, mean), reference, atol=1e-3)
