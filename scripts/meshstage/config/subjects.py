"""The table of subjects: which manifests, and which split each is in."""

import csv
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshstage.cohort.names import subject_stem
from meshstage.errors import InputError, Problem
from meshstage.files import file_problem, read_json, read_text, real_path, shorten

SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Splits in order, and what they are called in tables and figures."""


@dataclass(frozen=True)
class SubjectRow:
    """One row of the table of subjects.

    Parameters
    ----------
    manifest : Path
        As written, below the table's folder unless absolute.
    split : str
        ``train``, ``val`` or ``test``.
    line : int
        Line of the table, from 1.
    """

    manifest: Path
    split: str
    line: int


def read_subjects_table(path: Path) -> list[SubjectRow]:
    """Read the table of subjects: tab-separated, with the columns ``manifest`` and ``split``.

    Returns
    -------
    list of SubjectRow
        In the table's order. Manifests need not exist: each is judged with its subject.

    Raises
    ------
    InputError
        With every line that is wrong: columns missing, unknown or twice, a split that is none,
        an empty cell, no row at all.
    """
    lines = re.split(r"\r\n|\n|\r", read_text(path))
    cells = [(number, _split_line(line)) for number, line in enumerate(lines, start=1)]
    filled = [(number, row) for number, row in cells if row]
    if not filled:
        raise InputError(Problem("the table is empty", "begin with manifest<TAB>split", str(path)))
    (number, header), *filled = filled
    problems = _header_problems(header, lines[number - 1])
    parsed = [] if problems else [_parse_row(header, row, n, path) for n, row in filled]
    problems += [item for item in parsed if isinstance(item, Problem)]
    if not problems and not filled:
        problems.append(Problem("the table has no rows (it is empty)", "list the subjects"))
    if problems:
        raise InputError(*(replace(problem, file=str(path)) for problem in problems))
    return [item for item in parsed if isinstance(item, SubjectRow)]


def _split_line(line: str) -> list[str]:
    """Cells of one line, without empty ones at its end (spreadsheets add them)."""
    # One line at a time: an unbalanced quote cannot swallow the lines below it.
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter="\t"), [])]
    except csv.Error:  # a cell of more than 100 kB is no path
        cells = [shorten(line)]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _header_problems(header: list[str], line: str) -> list[Problem]:
    columns = ("manifest", "split")
    if len(header) == 1 and re.fullmatch(r"\s*manifest\s*[,; ]\s*split\s*", line):
        return [Problem("the columns are not parted by tabs", "save it as tab-separated text")]
    problems = [
        Problem(f"the column {name!r} is missing", "begin with the line manifest<TAB>split")
        for name in columns
        if name not in header
    ]
    problems += [
        Problem(f"the column {name!r} stands twice", "remove one")
        for name in dict.fromkeys(header)
        if header.count(name) > 1
    ]
    problems += [
        Problem(f"the column {name!r} is unknown", "remove it: the columns are manifest and split")
        for name in dict.fromkeys(header)
        if name not in columns
    ]
    return problems


def _parse_row(header: list[str], row: list[str], line: int, path: Path) -> SubjectRow | Problem:
    if len(row) != len(header):
        return Problem(
            f"line {line} and the header differ: {len(row)} and {len(header)} cells",
            "write one manifest and one split a line, with a tab between",
        )
    cells = dict(zip(header, row, strict=True))
    manifest, split = cells["manifest"], cells["split"]
    if not manifest or "\0" in manifest:
        return Problem(f"line {line} names no manifest", "write the path of one")
    if split not in SPLITS:
        close = difflib.get_close_matches(split.lower(), SPLITS, n=1)
        return Problem(
            f"line {line}: the split {split!r} is none of train, val, test",
            f"write {close[0]}" if close else "write one of them",
        )
    return SubjectRow(path.parent / manifest, split, line)


def stem_or_row(row: SubjectRow, index: int) -> str:
    """Give the stem of a row's subject, or ``row-0007`` (from index 6) without a usable id."""
    return _lenient(lambda: subject_stem(_raw(row)["subject_id"])) or f"row-{index + 1:04d}"


def subject_stems(rows: list[SubjectRow]) -> list[str]:
    """Give each row its stem; never raises.

    A manifest that stands twice has one stem. A second manifest with the id of the first has the
    stem of its row, so that both are ingested and the clash can be reported.
    """
    owners: dict[str, str] = {}
    stems = []
    for index, row in enumerate(rows):
        stem = stem_or_row(row, index)
        manifest = real_path(row.manifest)
        if owners.setdefault(stem, manifest) != manifest:
            stem = f"row-{index + 1:04d}"
        stems.append(stem)
    return stems


def input_files(row: SubjectRow) -> list[Path]:
    """List the files that a row's ingest reads, as far as they exist; never raises."""
    raw = _lenient(lambda: _raw(row)) or {}
    phases = raw.get("phases")
    names = [raw.get("pca_coefficients"), raw.get("fitted_reference_mesh")]
    if isinstance(phases, list):
        names += [phase.get("mesh") for phase in phases if isinstance(phase, dict)]
    paths = [row.manifest] + [
        row.manifest.parent / name for name in names if isinstance(name, str) and name
    ]
    return [path for path in dict.fromkeys(paths) if file_problem(path) is None]


def _raw(row: SubjectRow) -> dict[str, Any]:
    value = read_json(row.manifest)
    return value if isinstance(value, dict) else {}


def _lenient(read: Callable[[], Any]) -> Any:
    """Call it; None for whatever a broken file can cause."""
    try:
        return read()
    except (InputError, KeyError, TypeError, AttributeError, OSError, ValueError):
        return None
