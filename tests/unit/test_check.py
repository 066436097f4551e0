"""Problems of a whole cohort, leakage between splits, the report in its three forms."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from meshstage.checks.cohort import Report, check_cohort, ingested_entries
from meshstage.checks.files import check_files
from meshstage.checks.report import html_page, read_report, text_table, write_report
from meshstage.cohort import examine
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.template import build_template
from meshstage.config.subjects import read_subjects_table, subject_stems
from meshstage.errors import InputError, Problem
from small_cohort import ball, change, change_mesh, sphere, write, write_cohort

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_cohort.py"


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    write_cohort(tmp_path)
    return tmp_path


def check(cohort: Path, **options: Any) -> Report:
    return check_files(cohort / "pca_mean.vtp", cohort / "subjects.tsv", **options)


def add_row(cohort: Path, manifest: str, split: str) -> None:
    with (cohort / "subjects.tsv").open("a") as stream:
        stream.write(f"{manifest}\t{split}\n")


def errors(report: Report) -> str:
    return text_table([problem for problem in report.problems if problem.severity == "error"])


def test_a_good_cohort_has_no_problem(cohort: Path) -> None:
    report = check(cohort)
    assert report.problems == []
    assert report.n_subjects == {"train": 3, "val": 1}
    assert report.n_phases == 12


def test_every_problem_of_everybody_is_listed(cohort: Path) -> None:
    (cohort / "alpha" / "manifest.json").write_text("{")
    (cohort / "bravo" / "phase_1.vtp").unlink()
    write(cohort / "charlie" / "pca.json", [1.0])
    write(cohort / "pca_model.json", [])
    add_row(cohort, "delta/manifest.json", "train")
    text = errors(check(cohort))
    for words in ("alpha", "phase_1.vtp", "charlie", "pca_model.json", "stands twice"):
        assert words in text


def test_a_table_and_a_template_that_cannot_be_read_are_both_said(cohort: Path) -> None:
    (cohort / "pca_mean.vtp").write_bytes(b"")
    (cohort / "bravo" / "manifest.json").write_text("{")
    text = errors(check(cohort))
    assert "pca_mean.vtp" in text
    assert "bravo" in text
    (cohort / "subjects.tsv").write_text("manifest,split\n")
    text = errors(check(cohort))
    assert "pca_mean.vtp" in text
    assert "subjects.tsv" in text


# ---- leakage


def _copy(cohort: Path, encode: Callable[[Any, Path], None], to: str = "delta") -> None:
    for path in (cohort / "bravo").glob("phase_*.vtp"):
        encode(pv.read(path), cohort / to / path.name)


def _float64(mesh: Any, path: Path) -> None:
    mesh.points = np.asarray(mesh.points, dtype=np.float64)
    mesh.point_data["displacement"] = mesh.point_data["displacement"].astype(np.float64)
    mesh.save(path)


def _six_digits(mesh: Any, path: Path) -> None:
    """Round as a writer of text with %.6g does."""
    rounded = [[float(f"{x:.6g}") for x in row] for row in mesh.points]
    mesh.points = np.array(rounded)
    values = [[float(f"{x:.6g}") for x in row] for row in mesh.point_data["displacement"]]
    mesh.point_data["displacement"] = np.array(values)
    mesh.save(path)


def _more_arrays(mesh: Any, path: Path) -> None:
    mesh.point_data["a_first"] = np.arange(mesh.n_points)
    mesh.save(path)


@pytest.mark.parametrize(
    "encode",
    [
        lambda mesh, path: mesh.save(path),
        lambda mesh, path: mesh.save(path, binary=False),
        _float64,
        _six_digits,
        _more_arrays,
    ],
    ids=["bytes", "ascii", "float64", "six digits", "more arrays"],
)
def test_the_same_data_in_two_splits_is_leakage_in_any_encoding(
    encode: Callable[[Any, Path], None], cohort: Path
) -> None:
    _copy(cohort, encode)
    text = errors(check(cohort))
    for words in ("leakage", "3 of 3 phases", "bravo (train)", "delta (val)"):
        assert words in text


def test_a_similar_subject_is_no_copy(cohort: Path) -> None:
    """A thousandth of a millimetre on 60 mm is more than rounding explains."""

    def nudge(mesh: Any, path: Path) -> None:
        rng = np.random.default_rng(0)
        moved = rng.normal(scale=1e-3, size=mesh.points.shape)
        mesh.point_data["displacement"] = mesh.point_data["displacement"] + moved
        mesh.points = np.asarray(mesh.points) + moved
        mesh.save(path)

    _copy(cohort, nudge)
    shutil.copy(cohort / "bravo" / "reference.vtp", cohort / "delta" / "reference.vtp")
    assert check(cohort).n_errors == 0


def test_far_from_the_origin_different_phases_are_not_taken_for_one(tmp_path: Path) -> None:
    """At 1e6 mm float32 rounds to 0.06 mm; the phases of these subjects differ by 1 mm."""
    mesh = sphere()
    mesh.points = np.asarray(mesh.points, dtype=np.float64) + 1e6
    write_cohort(tmp_path, mesh)
    assert "leakage" not in errors(check(tmp_path))
    _copy(tmp_path, _float64)
    assert "leakage" in errors(check(tmp_path))


@pytest.mark.parametrize("link", [True, False])
def test_one_file_under_two_splits_is_named_with_both(link: bool, cohort: Path) -> None:
    if link:
        (cohort / "delta" / "phase_1.vtp").unlink()
        (cohort / "delta" / "phase_1.vtp").symlink_to("../bravo/phase_1.vtp")
    else:
        phases = json.loads((cohort / "delta/manifest.json").read_text())["phases"]
        phases[1]["mesh"] = "../bravo/phase_1.vtp"
        change(cohort / "delta" / "manifest.json", lambda m: m.update(phases=phases))
    text = errors(check(cohort))
    for words in ("leakage", "1 of 3 phases", "are the same file", "bravo (train)", "delta (val)"):
        assert words in text


def test_a_reference_that_all_share_is_legal(cohort: Path) -> None:
    for path in cohort.glob("*/manifest.json"):
        change(path, lambda m: m.update(fitted_reference_mesh="../pca_mean.vtp"))
    assert check(cohort).n_errors == 0


def test_within_one_split_a_copy_is_an_error_and_one_shared_phase_a_warning(cohort: Path) -> None:
    shutil.copy(cohort / "bravo" / "phase_1.vtp", cohort / "alpha" / "phase_1.vtp")
    report = check(cohort)
    assert report.n_errors == 0
    assert any("byte for byte" in p.what for p in report.problems)
    _copy(cohort, lambda mesh, path: mesh.save(path), to="alpha")
    assert "bravo (train)" in errors(check(cohort))


# ---- ids and table


@pytest.mark.parametrize("name", ["bravo", "BRAVO", "bravo ", "bra\u200bvo"])
def test_ids_that_look_alike_are_errors(name: str, cohort: Path) -> None:
    change(cohort / "delta" / "manifest.json", lambda m: m.update(subject_id=name))
    text = errors(check(cohort))
    assert "subject_id" in text
    assert str(cohort / "bravo" / "manifest.json") in text


def test_ids_in_two_forms_of_unicode_are_errors(cohort: Path) -> None:
    change(cohort / "alpha" / "manifest.json", lambda m: m.update(subject_id="B\u00f6rn"))
    change(cohort / "bravo" / "manifest.json", lambda m: m.update(subject_id="Bo\u0308rn"))
    assert "form of accents" in errors(check(cohort))


@pytest.mark.parametrize("written", ["bravo/manifest.json", "./alpha/../bravo/manifest.json"])
def test_a_manifest_that_stands_twice_is_named_with_its_lines(written: str, cohort: Path) -> None:
    add_row(cohort, written, "val")
    text = errors(check(cohort))
    assert "at line 3 (train) and at line 6 (val)" in text
    assert "leakage" not in text  # said once, in the words of the cause


def test_a_cohort_needs_a_training_subject(cohort: Path) -> None:
    text = (cohort / "subjects.tsv").read_text().replace("train", "test")
    (cohort / "subjects.tsv").write_text(text)
    assert "no subject is in the split train" in errors(check(cohort))


# ---- what differs between subjects


def test_the_subject_that_differs_is_blamed_and_not_the_others(cohort: Path) -> None:
    (cohort / "pca_model.json").unlink()
    write(cohort / "bravo" / "pca.json", [1.0, 2.0, 3.0])
    for index in range(3):
        change_mesh(
            cohort / f"delta/phase_{index}.vtp",
            lambda m: m.point_data.set_array(np.ones((42, 6)), "displacement"),
        )
    report = check(cohort)
    found = {(p.subject, p.what) for p in report.problems if p.severity == "error"}
    assert found == {
        ("bravo", "has 3 shape scores, the other subjects have 2"),
        ("delta", "the target 'displacement' has 6 components, in the others 3"),
    }


def test_a_training_subject_is_right_against_any_number_of_others(cohort: Path) -> None:
    (cohort / "pca_model.json").unlink()
    rows = ["alpha/manifest.json\tval", "charlie/manifest.json\ttest", "bravo/manifest.json\ttrain"]
    (cohort / "subjects.tsv").write_text("\n".join(["manifest\tsplit", *rows]) + "\n")
    write(cohort / "bravo" / "pca.json", [1.0, 2.0, 3.0])
    report = check(cohort)
    assert {p.subject for p in report.problems if p.severity == "error"} == {"alpha", "charlie"}


def test_a_template_that_no_mesh_fits_is_blamed_itself(cohort: Path) -> None:
    (cohort / "pca_model.json").unlink()
    mesh = sphere()
    points = np.vstack([mesh.points, [[0.0, 0.0, 0.0]]])
    pv.PolyData(points, faces=[*mesh.faces, 3, 0, 1, 42]).save(cohort / "pca_mean.vtp")
    first = check(cohort).problems[0]
    assert first.file == str(cohort / "pca_mean.vtp")
    assert "has 43 points" in first.what
    assert "has 42" in first.what


@pytest.mark.parametrize(
    ("network", "n_errors"), [("mgn", 1), ("physics", 2), ("mlp", 0), (None, 0)]
)
def test_only_a_network_on_a_graph_needs_edges(
    network: str | None, n_errors: int, tmp_path: Path
) -> None:
    write_cohort(tmp_path, pv.PolyData(np.asarray(sphere().points)))
    report = check(tmp_path, network=network)
    assert report.n_errors == n_errors
    assert any("no edge" in problem.what for problem in report.problems)


# ---- warnings


def test_a_value_far_outside_the_rest_is_warned_of(cohort: Path) -> None:
    def edit(mesh: Any) -> None:
        values = np.array(mesh.point_data["displacement"])
        values[3, 1] = 5000.0
        mesh.point_data["displacement"] = values

    change_mesh(cohort / "bravo" / "phase_1.vtp", edit)
    report = check(cohort)
    assert report.n_errors == 0
    found = [p for p in report.problems if "far outside the rest" in p.what]
    assert [(p.subject, p.file) for p in found] == [("bravo", str(cohort / "bravo/phase_1.vtp"))]
    assert "5000" in found[0].what


def test_a_score_that_never_varies_is_warned_of(cohort: Path) -> None:
    for index, name in enumerate(("alpha", "bravo", "charlie")):
        write(cohort / name / "pca.json", [0.25, float(index)])
    found = [problem.what for problem in check(cohort).problems]
    whats = [what for what in found if "never varies" in what]
    assert len(whats) == 1
    assert "0 never varies: it is 0.25" in whats[0]


def test_scores_of_one_subject_alone_vary_in_no_mode(cohort: Path) -> None:
    """Two of the three training subjects cannot be read: one warning, not one per score."""
    for name in ("alpha", "charlie"):
        (cohort / name / "manifest.json").write_text("{")
    found = [p for p in check(cohort).problems if "shape score" in p.what]
    assert [p.subject for p in found] == ["bravo"]
    assert "only one training subject has shape scores" in found[0].what


# ---- after ingest


def test_what_ingest_recorded_is_checked_as_the_files_are(cohort: Path) -> None:
    """The rule `check` sees subject.json only, and must find what the check of files finds."""
    (cohort / "alpha" / "manifest.json").write_text("{")
    change(cohort / "charlie" / "manifest.json", lambda m: m.update(subject_id="bravo"))
    _copy(cohort, _six_digits)
    add_row(cohort, "bravo/manifest.json", "val")
    rows = read_subjects_table(cohort / "subjects.tsv")
    template = build_template(cohort / "pca_mean.vtp", cohort / "results" / "template")
    stems = subject_stems(rows)
    assert stems == ["row-0001", "bravo", "row-0003", "delta", "bravo"]
    directories = [cohort / "results" / stem for stem in stems]
    for row, directory in zip(rows, directories, strict=True):
        ingest_subject(row.manifest, template, directory, record_errors=True)
    shutil.rmtree(cohort / "bravo")  # nothing is read again
    entries, problems = ingested_entries(list(dict.fromkeys(directories)), rows)
    report = check_cohort(template, entries, cohort / "subjects.tsv", None, problems)
    text = errors(report)
    for words in ("not valid JSON", "used twice", "leakage", "stands twice"):
        assert words in text


def test_a_row_without_an_ingested_subject_is_an_error(cohort: Path) -> None:
    rows = read_subjects_table(cohort / "subjects.tsv")
    template = build_template(cohort / "pca_mean.vtp", cohort / "template")
    for row in rows[:3]:
        ingest_subject(row.manifest, template, cohort / "out" / row.manifest.parent.name)
    found = [cohort / "out" / name for name in ("alpha", "bravo", "charlie")]
    entries, problems = ingested_entries(found, rows)
    assert len(entries) == 3
    assert "line 5" in problems[0].what
    entries, problems = ingested_entries([*found, cohort / "out" / "delta"], rows)
    assert "does not exist" in problems[0].what


def test_a_subject_of_another_template_is_an_error(cohort: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    write_cohort(other, ball(), ".vtu")
    one = build_template(cohort / "pca_mean.vtp", cohort / "template")
    two = build_template(other / "pca_mean.vtu", other / "template")
    ingest_subject(cohort / "bravo" / "manifest.json", one, cohort / "out")
    entries, _ = ingested_entries([cohort / "out"], None)
    assert "another template" in errors(check_cohort(two, entries))


# ---- the report


class _Cells(HTMLParser):
    """Collects cells, and whatever would load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.others: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("script", "img", "link", "iframe", "b") or any("src" in a for a in attrs):
            self.others.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def _report(what: str) -> Report:
    problem = Problem(what, "mend {it}", "a/<b>.vtp", "x&y", "1 (stage 0.5)")
    return Report("t.vtp", "mgn", {"train": 1}, 3, [problem])


def test_the_page_stands_alone_and_escapes_what_users_write() -> None:
    page = html_page(_report("<script>alert(1)</script> \u202e\n & 'it'"))
    parser = _Cells()
    parser.feed(page)
    assert parser.others == []
    assert parser.cells[1] == "x&y"
    assert parser.cells[3] == "a/<b>.vtp"
    assert parser.cells[4].startswith("<script>alert(1)</script> \\u202e\\n & 'it'")
    assert "http" not in page


def test_a_report_comes_back_from_strict_json(tmp_path: Path) -> None:
    report = _report("half a pair \ud800 and ü")
    write_report(tmp_path, report)
    json.loads((tmp_path / "cohort.json").read_text(), parse_constant=pytest.fail)
    assert read_report(tmp_path / "cohort.json") == report
    (tmp_path / "cohort.json").write_text("{}")
    with pytest.raises(InputError, match="check the cohort again"):
        read_report(tmp_path / "cohort.json")


def test_a_table_is_one_line_a_problem_or_fits_the_terminal() -> None:
    problems = _report("a\nb " + "long " * 60).problems
    assert len(text_table(problems).splitlines()) == 2
    wrapped = text_table(problems, width=80)
    assert max(map(len, wrapped.splitlines())) <= 80
    assert wrapped.count("long") == 60


# ---- the script


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True
    )


@pytest.mark.spawn
def test_report_and_gate_of_the_workflow(cohort: Path) -> None:
    (cohort / "bravo" / "phase_1.vtp").write_bytes(b"")
    template = build_template(cohort / "pca_mean.vtp", cohort / "template")
    subjects = [cohort / "out" / name for name in ("alpha", "bravo", "charlie", "delta")]
    for directory in subjects:
        manifest = cohort / directory.name / "manifest.json"
        ingest_subject(manifest, template, directory, record_errors=True)
    checked = ["--template", cohort / "template", "--subjects-table", cohort / "subjects.tsv"]
    checked += ["--subjects", *subjects, "--output", cohort / "check"]
    done = run(*checked, "--report-only")
    assert done.returncode == 0, done.stderr
    gate = ["--gate", cohort / "check" / "cohort.json", "--output", cohort / "passed.txt"]
    done = run(*gate)
    assert done.returncode == 2
    assert "phase_1.vtp, subject bravo, phase 1 (stage 0.4): is empty" in done.stderr
    assert "phase_1.vtp" in done.stdout
    assert not (cohort / "passed.txt").exists()
    shutil.copy(cohort / "alpha" / "phase_1.vtp", cohort / "bravo" / "phase_1.vtp")
    ingest_subject(cohort / "bravo" / "manifest.json", template, cohort / "out" / "bravo")
    assert run(*checked, "--report-only").returncode == 0
    assert run(*gate).returncode == 0
    assert "4 subjects" in (cohort / "passed.txt").read_text()


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, KeyError, MemoryError])
@pytest.mark.parametrize("reader", ["read_mesh_file", "draft_manifest"])
def test_no_exception_of_one_subject_ends_the_check_of_the_others(
    reader: str, kind: type[Exception], cohort: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = getattr(examine, reader)

    def fail(path: Path) -> Any:
        if "bravo" in str(path):
            raise kind("odd")
        return read(path)

    monkeypatch.setattr(examine, reader, fail)
    (cohort / "charlie" / "manifest.json").write_text("{")
    found = {p.subject: p.what for p in check(cohort).problems if p.severity == "error"}
    assert set(found) == {"bravo", "charlie"}
    assert kind.__name__ in found["bravo"] and "odd" in found["bravo"]


def test_scores_of_the_first_modes_are_enough_if_all_subjects_have_them(cohort: Path) -> None:
    for path in cohort.glob("*/pca.json"):
        write(path, json.loads(path.read_text())[:1])
    found = [p for p in check(cohort).problems if "modes" in p.what]
    assert [(p.severity, p.what) for p in found] == [
        (
            "warning",
            "all subjects have 1 shape scores, pca_model.json has 2 modes: the first 1 are meant",
        )
    ]
    write(cohort / "bravo" / "pca.json", [1.0, 2.0])
    assert "has 2 shape scores, the other subjects have 1" in errors(check(cohort))


@pytest.mark.spawn
def test_a_file_that_kills_its_reader_is_laid_to_its_subject(cohort: Path) -> None:
    """A worker that dies must not take the others' results with it."""
    # The workers are forked from the process in which the reader has been replaced.
    code = """
import os, pathlib, sys
import meshstage.checks.files as c, meshstage.cohort.examine as e
fork = c.multiprocessing.get_context("fork")
type(fork).set_forkserver_preload = lambda self, names: None
c.multiprocessing.get_context = lambda kind: fork
read = e.read_mesh_file
e.read_mesh_file = lambda path: os._exit(1) if "charlie/phase_1" in str(path) else read(path)
folder = pathlib.Path(sys.argv[1])
report = c.check_files(folder / "pca_mean.vtp", folder / "subjects.tsv", jobs=2)
print(*(f"{p.subject}|{p.what}" for p in report.problems), sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(cohort)],
        capture_output=True,
        text=True,
        cwd=SCRIPT.parent,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("charlie|")
    assert "crashes the reader" in lines[0]


@pytest.mark.spawn
def test_processes_find_what_one_process_finds(cohort: Path) -> None:
    (cohort / "bravo" / "phase_1.vtp").write_bytes(b"")
    change(cohort / "delta" / "manifest.json", lambda m: m.update(subject_id="bravo"))
    assert check(cohort, jobs=2) == check(cohort, jobs=1)


def test_physics_demands_tetrahedra_and_other_networks_do_not(tiny_cohort):
    """The tiny cohort is a surface: it has edges, and no tissue."""
    entries, _ = ingested_entries(tiny_cohort.subject_directories["train"], None)
    for network, wanted in (("mgn", 0), ("mlp", 0), ("physics", 1)):
        report = check_cohort(tiny_cohort.template, entries, network=network)
        found = [p for p in report.problems if "no linear tetrahedron" in p.what]
        assert len(found) == wanted
        assert all(p.severity == "error" for p in found)


def test_physics_demands_displacements(tiny_cohort):
    entries, _ = ingested_entries(tiny_cohort.subject_directories["train"], None)
    record = entries[1].record.model_copy(update={"is_displacement": False})
    entries[1] = replace(entries[1], record=record)
    found = [
        problem
        for problem in check_cohort(tiny_cohort.template, entries, network="physics").problems
        if "strains no body" in problem.what
    ]
    assert [problem.subject for problem in found] == [record.label]
