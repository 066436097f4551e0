"""The table of subjects: which manifests, and which split each is in."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshstage.cohort.names import subject_stem
from meshstage.config.tables import Row, read_table
from meshstage.errors import InputError, Problem, at, collecting, raise_if_any
from meshstage.files import file_problem, read_json, real_path

SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Splits in order, and what they are called in tables and figures."""


COLUMNS = ("manifest", "split", "group")
"""Of the table of subjects; the first two are required."""


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
    group : str
        Subjects of one group are in one split and in one fold; empty for a subject alone.
    """

    manifest: Path
    split: str
    line: int
    group: str = ""


def read_subjects_table(path: Path) -> list[SubjectRow]:
    """Read the table of subjects: tab-separated, with the columns of `COLUMNS`.

    Returns
    -------
    list of SubjectRow
        In the table's order. Manifests need not exist: each is judged with its subject.

    Raises
    ------
    InputError
        With every line that is wrong: columns missing, unknown or twice, a split that is none,
        an empty cell, a group in two splits, no row at all.
    """
    rows, problems = [], list[Problem]()
    first: dict[str, SubjectRow] = {}
    for row in read_table(path, COLUMNS, COLUMNS[:2]):
        with collecting(problems), at(f"{path}, line {row.line}"):
            rows.append(_parse_row(row, path))
            if group := rows[-1].group:
                _check_group(rows[-1], first.setdefault(group, rows[-1]))
    raise_if_any(problems)
    return rows


def _parse_row(row: Row, path: Path) -> SubjectRow:
    manifest, split, group = (row.cells.get(name, "") for name in COLUMNS)
    if not manifest or "\0" in manifest:
        raise InputError(Problem("names no manifest", "write the path of one"))
    if split not in SPLITS:
        close = difflib.get_close_matches(split.lower(), SPLITS, n=1)
        raise InputError(
            Problem(
                f"the split is {split!r}, none of train, val, test",
                f"write {close[0]}" if close else "write one of them",
            )
        )
    return SubjectRow(path.parent / manifest, split, row.line, group)


def _check_group(row: SubjectRow, first: SubjectRow) -> None:
    if row.split != first.split:
        what = f"the group {row.group!r} is in {row.split}, but in line {first.line} in"
        raise InputError(Problem(f"{what} {first.split}", "give all subjects of a group one split"))


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
