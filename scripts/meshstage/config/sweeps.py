"""Sweeps: one row of the table of runs that stands for several, as in ``{64,128}``."""

import itertools
import re
from dataclasses import replace

from meshstage.config.tables import Row
from meshstage.errors import InputError, Problem

_SWEPT = re.compile(r"\{(.*)\}")
# What may end a run's name: not an underscore and a number, as a resumed run's does.
_VALUE = re.compile(r"(?!.*_[0-9]+$)[A-Za-z0-9._+-]+")
_NEXT = re.compile(r"\.(?=[a-z_]+=)")


def expand(row: Row, name: str, not_swept: str) -> list[Row]:
    """Give the rows that a row stands for: the product of its cells in braces.

    Parameters
    ----------
    row : Row
    name : str
        Column of the row's name. An expanded row is called ``{name}.{column}={value}...``, in the
        order of the table's columns; a row without braces stays as it is.
    not_swept : str
        Column whose braces mean something else.

    Raises
    ------
    InputError
        If a value cannot be part of a name: it is empty, or holds a space, a slash or the like.
    """
    swept = {
        column: [value.strip() for value in match[1].split(",")]
        for column, cell in row.cells.items()
        if column != not_swept and (match := _SWEPT.fullmatch(cell))
    }
    for column, values in swept.items():
        for value in values:
            if not _VALUE.fullmatch(value):
                what = (
                    f"{column} is {row.cells[column]!r}: {value!r} cannot be part of a run's name"
                )
                raise InputError(Problem(what, "write values between commas, as in {64,128}"))
    if not swept:
        return [row]
    rows = []
    for chosen in itertools.product(*swept.values()):
        varied = dict(zip(swept, chosen, strict=True))
        own = ".".join([row.cells[name], *(f"{column}={v}" for column, v in varied.items())])
        rows.append(replace(row, cells=row.cells | varied | {name: own}))
    return rows


def varied_in(run: str) -> dict[str, str]:
    """Give what an expanded run's name says: its swept columns and their values."""
    _, *pairs = _NEXT.split(run)
    return dict(pair.split("=", 1) for pair in pairs)
