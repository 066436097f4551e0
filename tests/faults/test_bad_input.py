"""One fault in a good cohort: one sentence, laid to the right subject, phase and file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from meshstage.checks.files import check_files
from meshstage.errors import Problem
from small_cohort import change, change_mesh, write_cohort

Fault = Callable[[Path], Any]

MANIFEST = "bravo/manifest.json"
PHASE = "bravo/phase_0.vtp"


def field(**values: Any) -> Fault:
    """Set keys of bravo's manifest."""
    return lambda folder: change(folder / MANIFEST, lambda m: m.update(values))


def phase(**values: Any) -> Fault:
    """Set keys of the first phase in bravo's manifest."""
    return lambda folder: change(folder / MANIFEST, lambda m: m["phases"][0].update(values))


def content(name: str, data: bytes | str) -> Fault:
    """Replace a file's content."""
    raw = data if isinstance(data, bytes) else data.encode()
    return lambda folder: (folder / name).write_bytes(raw)


def instead(name: str, make: Callable[[Path], Any]) -> Fault:
    """Put something else in the place of a file."""

    def fault(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return fault


def renamed(ending: str) -> Fault:
    """Give bravo's first phase another ending, in the manifest too."""

    def fault(folder: Path) -> None:
        (folder / PHASE).rename(folder / f"bravo/phase_0{ending}")
        phase(mesh=f"phase_0{ending}")(folder)

    return fault


def array(edit: Callable[[Any], Any]) -> Fault:
    """Edit bravo's first phase."""
    return lambda folder: change_mesh(folder / PHASE, edit)


def values(make: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Replace the target array of bravo's first phase."""

    def edit(mesh: Any) -> None:
        old = np.array(mesh.point_data["displacement"])
        del mesh.point_data["displacement"]
        mesh.point_data["displacement"] = make(old)

    return array(edit)


def faces(make: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Replace the triangles of bravo's first phase."""

    def edit(mesh: Any) -> None:
        new = make(np.array(mesh.regular_faces))
        mesh.faces = np.column_stack([np.full(len(new), 3), new]).ravel()

    return array(edit)


def poke(value: float) -> Callable[[np.ndarray], np.ndarray]:
    """Put one value at point 17, component 1."""

    def make(old: np.ndarray) -> np.ndarray:
        new = old.astype(np.float64)
        new[17, 1] = value
        return new

    return make


DEEP = "[" * 100_000

FAULTS: dict[str, tuple[Fault, str]] = {
    # JSON
    "nested deeply": (content(MANIFEST, DEEP), "nested too deeply"),
    "closed again": (content(MANIFEST, DEEP + "]" * 100_000), "nested too deeply"),
    "utf-16": (content(MANIFEST, '{"a": 1}'.encode("utf-16")), "not UTF-8"),
    "latin-1": (content(MANIFEST, '{"subject_id": "Jürg"}'.encode("latin-1")), "not UTF-8"),
    "two values": (content(MANIFEST, "{} {}"), "line 1, column 4"),
    "single quotes": (content(MANIFEST, "{'subject_id': 1}"), "line 1, column 2"),
    "a comment": (content(MANIFEST, '{"a": 1, // why\n"b": 2}'), "line 1, column 10"),
    "key twice": (content(MANIFEST, '{"subject_id": "a",\n"subject_id": "b"}'), "line 2"),
    "overflow": (content(MANIFEST, '{"x": 1e999}'), "1e999 overflows at line 1, column 7"),
    "null": (content(MANIFEST, "null"), "null, not an object"),
    "not there": (lambda folder: (folder / MANIFEST).unlink(), "does not exist"),
    "a folder": (instead(MANIFEST, Path.mkdir), "is a folder"),
    # fields
    "stage huge": (phase(stage=10**400), "overflows"),
    "stage above": (phase(stage=1.0000001), "phases[0].stage is 1.0000001, outside 0 to 1"),
    "stage below": (phase(stage=-1e-9), "outside 0 to 1"),
    "stage list": (phase(stage=[0.1]), "phases[0].stage is a list, not a number"),
    "stage null": (phase(stage=None), "phases[0].stage is null, not a number"),
    "stage text": (phase(stage="0.1"), "not a number"),
    "stage bool": (phase(stage=False), "a bool (false), not a number"),
    "stage twice": (phase(stage=0.70), "0.7 stands twice"),
    "phases object": (field(phases={"a": 1}), "phases is an object, not a list"),
    "phases text": (field(phases="abc"), "phases is a string, not a list"),
    "phases empty": (field(phases=[]), "empty list"),
    "phases of text": (field(phases=["phase_0.vtp"]), "phases[0] is a string"),
    "array name": (field(target_array=3), "target_array is a number (3), not a string"),
    "array blank": (field(target_array=" "), "target_array"),
    "id number": (field(subject_id=7), "subject_id is a number (7), not a string"),
    "id long": (field(subject_id="x" * 201), "201 bytes"),
    "id newline": (field(subject_id="a\nb"), "control character"),
    "id nul": (field(subject_id="a\0b"), "NUL"),
    "id path": (field(subject_id="../../x"), "leave the output folder"),
    "id windows": (field(subject_id="a\\b"), "leave the output folder"),
    "id surrogate": (field(subject_id="\ud800"), "surrogate"),
    # paths
    "home": (phase(mesh="~/phase_0.vtp"), "'~' is not expanded"),
    "variable": (phase(mesh="$HOME/phase_0.vtp"), "environment variables are not expanded"),
    "braces": (phase(mesh="${DATA}/phase_0.vtp"), "environment variables are not expanded"),
    "percent": (phase(mesh="%TEMP%/phase_0.vtp"), "environment variables are not expanded"),
    "backslash": (phase(mesh="..\\bravo\\phase_0.vtp"), "'\\'"),
    "address": (phase(mesh="https://a.b/phase_0.vtp"), "download it first"),
    "case": (phase(mesh="Phase_0.vtp"), "its folder has 'phase_0.vtp'"),
    "no folder": (phase(mesh="a/b/phase_0.vtp"), "there is no folder"),
    "long name": (phase(mesh="x" * 300 + ".vtp"), "File name too long"),
    "nul in path": (phase(mesh="a\0.vtp"), "NUL"),
    "half a pair": (phase(mesh="\ud800.vtp"), "surrogate"),
    "device": (phase(mesh="/dev/zero"), "neither a file nor a link"),
    "a system file": (phase(mesh="/etc/passwd"), "no mesh file by its ending"),
    "folder": (phase(mesh=".."), "is a folder"),
    "pipe": (instead(PHASE, os.mkfifo), "neither a file nor a link"),
    "dangling": (instead(PHASE, lambda p: p.symlink_to("no/where.vtp")), "link to no/where.vtp"),
    "circle": (instead(PHASE, lambda p: p.symlink_to("phase_0.vtp")), "leads in a circle"),
    # shape scores
    "scores text": (content("bravo/pca.json", '"x"'), "a string, not a list of numbers"),
    "scores bool": (content("bravo/pca.json", "[0.5, true]"), "shape score 1 is a bool"),
    "scores object": (content("bravo/pca.json", '{"a": 1}'), "an object, not a list"),
    "scores huge": (content("bravo/pca.json", "[1e400, 0]"), "overflows"),
    "scores too few": (content("bravo/pca.json", "[0.5]"), "has 1 shape scores"),
    # meshes
    "text": (renamed(".txt"), "'.txt'"),
    "gz": (renamed(".vtp.gz"), "'.gz'"),
    "no ending": (renamed(""), "no mesh file by its ending ''"),
    "vtu": (renamed(".vtu"), "rename it to .vtp"),
    "vtk": (renamed(".vtk"), "not a legacy VTK file"),
    "stl": (renamed(".stl"), "no STL file"),
    "lfs": (content(PHASE, "version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer"),
    "npz": (content(PHASE, b"PK\x03\x04"), "zip archive"),
    "blank": (content(PHASE, "\n\n"), "is empty"),
    "one cell fewer": (faces(lambda f: f[:-1]), "79 cells, the template has 80"),
    "turned round": (faces(lambda f: f[:, ::-1]), "order"),
    "cells shuffled": (faces(lambda f: f[::-1]), "order"),
    "other cells": (faces(lambda f: np.vstack([[[0, 1, 2]], f[1:]])), "other cells"),
    # arrays
    "nan": (values(poke(np.nan)), "NaN at point 17, component 1"),
    "-inf": (values(poke(-np.inf)), "-infinity at point 17, component 1"),
    "beyond float32": (values(poke(1e300)), "as float32"),
    "text array": (values(lambda old: np.array(["a"] * len(old))), "holds no numbers"),
    "two wide": (values(lambda old: old[:, :2]), "has 2 components, other phases have 3"),
    "none": (array(lambda mesh: mesh.clear_data()), "it has: none"),
    "nan point": (array(lambda mesh: mesh.points.__setitem__((3, 2), np.nan)), "points: 1 of 126"),
    "points gone": (array(lambda mesh: pv.PolyData(mesh.points[:1])), "has 1 point,"),
}


def found(folder: Path) -> list[Problem]:
    report = check_files(folder / "pca_mean.vtp", folder / "subjects.tsv", network="mgn")
    return [problem for problem in report.problems if problem.severity == "error"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_said_once_where_it_is(name: str, tmp_path: Path) -> None:
    fault, words = FAULTS[name]
    write_cohort(tmp_path)
    fault(tmp_path)
    problems = found(tmp_path)
    said = [problem for problem in problems if words in problem.sentence()]
    assert said, [problem.sentence() for problem in problems]
    for problem in problems:
        assert problem.file
        assert "\n" not in problem.sentence()
        assert problem.todo
    # All that is said concerns the one subject that has the fault.
    assert len({problem.subject for problem in problems}) == 1
    assert len(said) == 1


def test_odd_but_legal_input_passes(tmp_path: Path) -> None:
    write_cohort(tmp_path)
    renamed(".VTP")(tmp_path)
    phase(stage=0)(tmp_path)
    field(subject_id="$(id);`x`", notes={"a": [1, None]})(tmp_path)
    field(fitted_reference_mesh="./../bravo/reference.vtp")(tmp_path)
    (tmp_path / MANIFEST).write_bytes(b"\xef\xbb\xbf" + (tmp_path / MANIFEST).read_bytes())
    (tmp_path / "link").symlink_to(tmp_path / "alpha")
    linked = {"mesh": "../link/phase_0.vtp"}
    change(tmp_path / "alpha/manifest.json", lambda m: m["phases"][0].update(linked))
    assert found(tmp_path) == []


def test_nothing_runs_and_nothing_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids and paths that a shell would obey are names like any other."""
    write_cohort(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for text in ("x;touch pwned", "$(touch pwned)", "`touch pwned`", "| touch pwned"):
        field(subject_id=text, target_array=text)(tmp_path)
        phase(mesh=text)(tmp_path)
        assert found(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
