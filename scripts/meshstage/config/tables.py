"""One reader for the tables that people write, in an editor or a spreadsheet."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshstage.errors import InputError, Problem
from meshstage.files import read_text, shorten


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Parameters
    ----------
    line : int
        Line of the file, from 1; blank lines count.
    cells : dict of str to str
        By column, without surrounding spaces; empty cells are left out.
    """

    line: int
    cells: dict[str, str]


def read_table(path: Path, columns: Sequence[str], required: Sequence[str]) -> list[Row]:
    """Read a tab-separated table; blank lines and empty cells at the end of a line do not matter.

    Parameters
    ----------
    path : Path
    columns : sequence of str
        That the table may have, in any order.
    required : sequence of str
        That it must have; a row may still leave such a cell empty.

    Raises
    ------
    InputError
        With every column that is missing, unknown or stands twice, and every row with more cells
        than columns; or if there are no rows.
    """
    lines = re.split(r"\r\n|\n|\r", read_text(path))
    filled = [(number, row) for number, line in enumerate(lines, 1) if (row := _split(line))]
    begin = "<TAB>".join(required)
    if not filled:
        raise InputError(Problem("the table is empty", f"begin with {begin}", str(path)))
    (number, header), *rows = filled
    if len(header) == 1 and re.search("[,; ]", lines[number - 1].strip()):
        raise InputError(
            Problem("the columns are not parted by tabs", "save as tab-separated text", str(path))
        )
    problems = [
        *(f"the column {name!r} is missing; begin with {begin}" for name in required
          if name not in header),
        *(f"the column {name!r} stands twice; remove one" for name in dict.fromkeys(header)
          if header.count(name) > 1),
        *(f"the column {name!r} is unknown; the columns are {', '.join(columns)}"
          for name in dict.fromkeys(header) if name not in columns),
        *(f"line {line} has {len(cells)} cells, more cells than columns; remove what is too much"
          for line, cells in rows if len(cells) > len(header)),
    ]  # fmt: skip
    if not problems and not rows:
        problems.append("the table has no rows (it is empty); add one")
    if problems:
        raise InputError(*(Problem(text, file=str(path)) for text in problems))
    return [
        Row(line, {name: cell for name, cell in zip(header, cells, strict=False) if cell})
        for line, cells in rows
    ]


def _split(line: str) -> list[str]:
    """Cells of one line, without empty ones at its end (spreadsheets add them)."""
    # One line at a time: an unbalanced quote cannot swallow the lines below it.
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter="\t"), [])]
    except csv.Error:  # a cell of more than 100 kB
        cells = [shorten(line)]
    while cells and not cells[-1]:
        cells.pop()
    return cells
