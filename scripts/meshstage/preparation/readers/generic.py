"""Meshes as they lie in a folder, told apart by a pattern, or as a table lists them."""

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from meshstage.cohort.names import checked_id
from meshstage.config.tables import Row, read_table
from meshstage.errors import InputError, Problem, at, collecting, raise_if_any
from meshstage.files import file_problem, shorten
from meshstage.meshes.formats import format_of, listed_suffixes
from meshstage.preparation.names import compiled_pattern, split_name
from meshstage.preparation.source import PhaseMesh, Reader, ReaderOptions

if TYPE_CHECKING:
    import pyvista as pv

_log = logging.getLogger(__name__)

COLUMNS = {
    "subject": "the subject's id",
    "mesh": "a mesh file, relative to the table",
    "phase": "a label of the phase",
    "stage": "when the phase is, in the unit of `stage`",
    "period": "length of the subject's cycle, in seconds",
    "split": "`train`, `val` or `test`",
}
"""Of a table of meshes: subject, mesh, and phase or stage are required."""


class GenericOptions(ReaderOptions):
    """How names of files are understood."""

    pattern: str | None = Field(
        None,
        description="regular expression of the files' paths below the folder, with / between "
        "folders: groups subject and phase (or stage)",
    )


def _find(source: Path, options: GenericOptions) -> list[PhaseMesh]:
    if source.is_dir():
        return _of_folder(source, options.pattern)
    if options.pattern is not None:
        what = "is no folder, and only a folder's files have a pattern"
        raise InputError(Problem(what, "name the folder, or leave the pattern out", str(source)))
    return _of_table(source)


def _of_folder(folder: Path, pattern: str | None) -> list[PhaseMesh]:
    if pattern is None:
        what = "is a folder, and nothing says which file is whose"
        todo = r"give a pattern like (?P<subject>\w+)_(?P<phase>\d+)\.vtp, or name a table"
        raise InputError(Problem(what, todo, str(folder)))
    compiled, problems = compiled_pattern(pattern), list[Problem]()
    meshes, others = [], []
    for path in sorted(path for path in folder.rglob("*") if format_of(path) is not None):
        with collecting(problems), at(path):
            name = split_name(compiled, path.relative_to(folder).as_posix())
            if name is None:
                others.append(path.relative_to(folder).as_posix())
            else:
                meshes.append(PhaseMesh(*name, None, (path,), partial(_read, path)))
    if not meshes and not problems:
        what = f"holds no mesh ({listed_suffixes()})"
        if others:
            what = f"holds {len(others)} meshes, none of which matches the pattern {pattern!r}"
            what += f", the first is {others[0]}"
        todo = "mend the pattern: it must match the whole path below the folder"
        problems.append(Problem(what, todo, str(folder)))
    raise_if_any(problems)
    if others:
        names = shorten(", ".join(others))
        _log.info("%d meshes do not match the pattern and are left out: %s", len(others), names)
    return meshes


def _of_table(path: Path) -> list[PhaseMesh]:
    meshes, problems = [], list[Problem]()
    for row in read_table(path, tuple(COLUMNS), ("subject", "mesh")):
        with collecting(problems), at(f"{path}, line {row.line}", row.cells.get("subject")):
            meshes.append(_of_row(row, path.parent))
    raise_if_any(problems)
    return meshes


def _of_row(row: Row, folder: Path) -> PhaseMesh:
    cells = row.cells
    label = cells.get("phase", cells.get("stage"))
    missing = [name for name in ("subject", "mesh") if name not in cells]
    if label is None:
        missing.append("phase or stage")
    if missing or label is None:
        raise InputError(Problem(f"names no {', no '.join(missing)}", "fill in the cells"))
    for name, text in (("subject", cells["subject"]), ("phase", label)):
        try:
            checked_id(text)
        except ValueError as error:
            raise InputError(Problem(f"the {name} {text!r} {error}", "change it")) from None
    file = folder / cells["mesh"]
    if problem := file_problem(file):
        raise InputError(Problem(f"{problem.what}: {file}", problem.todo))
    return PhaseMesh(
        subject=cells["subject"],
        phase=label,
        stage=_number(cells, "stage"),
        split=cells.get("split"),
        files=(file,),
        read=partial(_read, file),
        period=_number(cells, "period"),
    )


def _number(cells: dict[str, str], name: str) -> float | None:
    if name not in cells:
        return None
    try:
        return float(cells[name])
    except ValueError:
        what = f"the {name} {cells[name]!r} is no number"
        raise InputError(Problem(what, "write a number")) from None


def _read(path: Path) -> "pv.DataSet":
    from meshstage.meshes.reading import read_mesh

    return read_mesh(path)


READER = Reader(
    "generic",
    "a folder of meshes whose names follow a pattern, or a table of them",
    GenericOptions,
    _find,
)
