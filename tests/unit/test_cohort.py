"""Ingest: what is written of a subject, what is recorded of a faulty one, what is loaded."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.mapping import map_array
from meshstage.cohort.statistics import compute_statistics
from meshstage.cohort.subject import load_record, load_subject, load_subjects
from meshstage.cohort.template import Template, prepare_template
from meshstage.errors import InputError
from meshstage.meshes.surface import extract_surface
from small_cohort import ball, change, change_mesh, write, write_cohort


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    write_cohort(tmp_path)
    return tmp_path


@pytest.fixture
def template(cohort: Path) -> Template:
    return prepare_template(cohort / "pca_mean.vtp").template


def test_a_subject_is_kept_as_its_files_have_it(cohort: Path, template: Template) -> None:
    record = ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out/bravo")
    subject = load_subject(cohort / "out" / "bravo")
    assert (subject.id, subject.stem, subject.target_array) == ("bravo", "bravo", "displacement")
    assert load_record(subject.directory) == record
    assert subject.hashes == record.hashes
    assert subject.stages.tolist() == [0.1, 0.4, 0.7]
    assert subject.shape_scores.tolist() == json.loads((cohort / "bravo/pca.json").read_text())
    assert (subject.targets.dtype, subject.targets.shape) == (np.float32, (3, 42, 3))
    assert subject.reference.dtype == np.float64
    reference = pv.read(cohort / "bravo" / "reference.vtp")
    assert np.array_equal(subject.reference, reference.points)
    for index, targets in enumerate(subject.targets):
        phase = pv.read(cohort / "bravo" / f"phase_{index}.vtp")
        assert np.array_equal(targets, phase.point_data["displacement"])
        largest = float(np.abs(phase.point_data["displacement"]).max())
        assert record.phases[index].max_abs_target == pytest.approx(largest, rel=1e-7)
    assert subject.is_displacement


def test_hashes_follow_the_data_and_nothing_else(cohort: Path, template: Template) -> None:
    def hashes(name: str) -> dict[str, str]:
        return ingest_subject(cohort / "bravo/manifest.json", template, cohort / name).hashes

    before = hashes("one")
    assert hashes("two") == before
    change_mesh(cohort / "bravo/phase_1.vtp", lambda m: m.save(cohort / "bravo/phase_1.vtp"))
    assert hashes("three") == before
    write(cohort / "bravo" / "pca.json", [0.5, 0.25])
    changed = hashes("four")
    assert [key for key in before if before[key] != changed[key]] == ["shape_scores"]

    def move(mesh: Any) -> None:
        mesh.point_data["displacement"] = mesh.point_data["displacement"] * 2

    change_mesh(cohort / "bravo/phase_1.vtp", move)
    again = hashes("five")
    assert [key for key in changed if changed[key] != again[key]] == ["targets"]


@pytest.mark.parametrize(("shift", "expected"), [(0.9e-4, True), (1.1e-4, False)])
def test_a_displacement_may_be_off_by_1e_4_of_the_diagonal(
    shift: float, expected: bool, cohort: Path, template: Template
) -> None:
    def edit(mesh: Any) -> None:
        mesh.points = np.asarray(mesh.points, float)
        mesh.points[7, 1] += shift * template.diagonal

    change_mesh(cohort / "bravo/phase_2.vtp", edit)
    record = ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out")
    assert record.is_displacement is expected
    assert bool(record.warnings) is not expected


@pytest.mark.parametrize("width", [1, 2, 6])
def test_targets_of_any_width_are_kept_but_only_three_can_displace(
    width: int, cohort: Path, template: Template
) -> None:
    def edit(mesh: Any) -> None:
        values = np.arange(42 * width).reshape(42, width)
        mesh.point_data["displacement"] = values[:, 0] if width == 1 else values

    for index in range(3):
        change_mesh(cohort / f"bravo/phase_{index}.vtp", edit)
    record = ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out")
    assert (record.n_target, record.is_displacement) == (width, False)
    targets = load_subject(cohort / "out").targets
    assert targets[1].ravel().tolist() == list(range(42 * width))


def test_without_record_errors_nothing_is_written(cohort: Path, template: Template) -> None:
    (cohort / "bravo" / "phase_1.vtp").write_bytes(b"")
    write(cohort / "bravo" / "pca.json", ["a"])
    with pytest.raises(InputError) as error:
        ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out" / "bravo")
    assert len(error.value.problems) == 2
    assert not (cohort / "out").exists()


@pytest.mark.spawn
def test_the_script_reads_several_subjects_and_a_broken_one_ends_no_other(cohort: Path) -> None:
    scripts = Path(__file__).resolve().parents[2] / "scripts"

    def call(script: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, scripts / script, *options]
        return subprocess.run(command, cwd=cohort, capture_output=True, text=True, check=False)

    call("build_template.py", "--mesh=pca_mean.vtp", "--output=template")
    (cohort / "alpha" / "pca.json").unlink()
    manifests = ["--manifest", "alpha/manifest.json", "bravo/manifest.json"]
    options = ["--template=template", *manifests, "--output"]
    done = call("ingest_subject.py", *options, "out/one", "out/two")
    assert done.returncode == 2
    assert "alpha" in done.stderr and "pca.json" in done.stderr.splitlines()[-1]
    assert [path.name for path in (cohort / "out").iterdir()] == ["two"]
    assert load_subject(cohort / "out/two").id == "bravo"
    refused = call("ingest_subject.py", *options, "out/one")
    assert refused.returncode == 2
    assert "2 manifests and 1 folders" in refused.stderr


def test_with_record_errors_all_of_them_are_kept_with_empty_arrays(
    cohort: Path, template: Template
) -> None:
    (cohort / "bravo" / "phase_1.vtp").write_bytes(b"")
    change(cohort / "bravo" / "manifest.json", lambda m: m["phases"][2].update(stage=1.5))
    output = cohort / "out" / "row-0002"
    record = ingest_subject(cohort / "bravo/manifest.json", template, output, record_errors=True)
    assert len(record.errors) == 2
    assert {(e.subject, e.severity) for e in record.errors} == {("bravo", "error")}
    assert load_record(output) == record
    assert np.load(output / "targets.npy").size == 0
    assert np.load(output / "reference.npy").shape == (0, 3)
    assert sorted(path.name for path in output.iterdir()) == [
        "reference.npy",
        "subject.json",
        "targets.npy",
    ]
    with pytest.raises(InputError) as error:
        load_subject(output)
    assert len(error.value.problems) == 2


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{}", b'{"subject_id": null}'])
def test_a_manifest_that_says_nothing_is_recorded_too(
    content: bytes, cohort: Path, template: Template
) -> None:
    (cohort / "bravo" / "manifest.json").write_bytes(content)
    record = ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out", True)
    assert record.errors
    assert (record.id, record.label) == (None, "bravo")
    assert load_record(cohort / "out") == record


def test_faults_in_the_manifest_do_not_hide_those_in_the_meshes(
    cohort: Path, template: Template
) -> None:
    change(cohort / "bravo" / "manifest.json", lambda m: m.pop("pca_coefficients"))
    (cohort / "bravo" / "phase_2.vtp").unlink()
    record = ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out", True)
    text = "\n".join(error.what for error in record.errors)
    assert "'pca_coefficients' is missing" in text
    assert "does not exist" in text


def test_nothing_is_written_but_in_the_output_folder(cohort: Path, template: Template) -> None:
    change(cohort / "bravo" / "manifest.json", lambda m: m.update(subject_id="../../escaped"))
    before = {path: path.stat().st_mtime_ns for path in cohort.rglob("*")}
    ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out", record_errors=True)
    after = {path: path.stat().st_mtime_ns for path in cohort.rglob("*")}
    new = {path for path in after if after[path] != before.get(path)}
    assert new - {cohort} == {cohort / "out", *(cohort / "out").iterdir()}
    assert not (cohort.parent / "escaped").exists()


def test_problems_of_all_subjects_are_raised_together(cohort: Path, template: Template) -> None:
    for name in ("alpha", "bravo"):
        (cohort / name / "phase_0.vtp").unlink()
        ingest_subject(cohort / name / "manifest.json", template, cohort / "out" / name, True)
    with pytest.raises(InputError) as error:
        load_subjects([cohort / "out/alpha", cohort / "out/bravo", cohort / "out/nobody"])
    assert {p.subject for p in error.value.problems} == {"alpha", "bravo", None}


def test_arrays_that_do_not_fit_their_record_are_refused(cohort: Path, template: Template) -> None:
    ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out")
    np.save(cohort / "out" / "targets.npy", np.zeros((3, 41, 3), dtype=np.float32))
    with pytest.raises(InputError, match="ingest the subject again"):
        load_subject(cohort / "out")
    for name in ("targets.npy", "reference.npy"):
        ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out")
        np.save(cohort / "out" / name, np.array([object()]), allow_pickle=True)
        with pytest.raises(InputError, match=rf"{name}: cannot be read as an array"):
            load_subject(cohort / "out")


def test_five_thousand_subjects_need_few_descriptors(cohort: Path, template: Template) -> None:
    """Most systems let a process open 1,024 files; 256 is the least that one meets (macOS)."""
    ingest_subject(cohort / "bravo/manifest.json", template, cohort / "out")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        # One folder 5,000 times: each of them is mapped for itself.
        subjects = load_subjects([cohort / "out"] * 5000)
        statistics = compute_statistics(template, subjects)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert statistics.target_scale == np.abs(subjects[0].targets).max()
    assert np.array_equal(subjects[-1].targets, np.load(cohort / "out" / "targets.npy"))


def test_a_mapped_array_is_the_file_read_only_and_outlives_it(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "a.npy", values)
    mapped = map_array(tmp_path / "a.npy")
    with (tmp_path / "a.npy").open("r+b") as stream:  # nothing has been copied: it shows at once
        stream.seek(-8, 2)
        stream.write(np.float64(7.0).tobytes())
    values[1, 2] = 7.0
    (tmp_path / "a.npy").unlink()
    assert np.array_equal(mapped, values)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0, 0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        mapped.flags.writeable = True


@pytest.mark.parametrize("size", [0, 4, 100, 159])
def test_an_array_cut_short_is_refused(size: int, tmp_path: Path) -> None:
    """Four float64 of a .npy file stand at bytes 128 to 160."""
    np.save(tmp_path / "a.npy", np.arange(4.0))
    data = (tmp_path / "a.npy").read_bytes()
    assert len(data) == 160
    (tmp_path / "a.npy").write_bytes(data[:size])
    with pytest.raises((ValueError, EOFError, OSError)):
        map_array(tmp_path / "a.npy")


def test_subjects_of_a_volume_or_of_its_surface_fit_a_surface_template(tmp_path: Path) -> None:
    path = write_cohort(tmp_path, ball(), ".vtu")
    template = prepare_template(path, surface=True).template
    assert template.surface is not None
    ids = template.surface.point_ids
    ingest_subject(tmp_path / "bravo/manifest.json", template, tmp_path / "out/volume")
    volume = load_subject(tmp_path / "out" / "volume")
    for index in range(3):
        targets = pv.read(tmp_path / f"bravo/phase_{index}.vtu").point_data["displacement"]
        assert np.array_equal(volume.targets[index], targets[ids])
    for name in ("reference", *(f"phase_{index}" for index in range(3))):
        mesh = pv.read(tmp_path / f"bravo/{name}.vtu")
        surface = extract_surface(mesh)
        for key in mesh.point_data:
            surface.point_data[key] = mesh.point_data[key][ids]
        surface.save(tmp_path / f"bravo/{name}.vtp")
    text = (tmp_path / "bravo/manifest.json").read_text().replace(".vtu", ".vtp")
    (tmp_path / "bravo/manifest.json").write_text(text)
    ingest_subject(tmp_path / "bravo/manifest.json", template, tmp_path / "out/surface")
    surface_subject = load_subject(tmp_path / "out" / "surface")
    assert np.array_equal(surface_subject.targets, volume.targets)
    assert np.array_equal(surface_subject.reference, volume.reference)
    assert volume.is_displacement
    assert surface_subject.is_displacement


def test_scores_of_a_volumes_model_are_free_where_its_surface_is_used(tmp_path: Path) -> None:
    path = write_cohort(tmp_path, ball(), ".vtu")
    write(tmp_path / "bravo" / "pca.json", [0.1, 0.2, 0.3])
    manifest = tmp_path / "bravo" / "manifest.json"
    with pytest.raises(InputError, match="has 3 shape scores"):
        ingest_subject(manifest, prepare_template(path).template, tmp_path / "out")
    surface = prepare_template(path, surface=True).template
    assert len(ingest_subject(manifest, surface, tmp_path / "out").shape_scores) == 3
