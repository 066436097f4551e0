"""Text files of numbers, as other programs write them: rows of equally many columns."""

import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from meshstage.errors import InputError, Problem
from meshstage.files import file_problem, read_text, shorten
from meshstage.meshes.arrays import non_finite


def read_numbers(
    path: Path, columns: int | None = None, header: Sequence[str] | None = None
) -> np.ndarray:
    """Read rows of numbers that are parted by spaces, tabs or commas.

    Parameters
    ----------
    path : Path
        Its ending ``.gz`` says that it is compressed.
    columns : int, optional
        How many numbers a row must have.
    header : sequence of str, optional
        The names that the first line must hold, parted by commas, in any case.

    Returns
    -------
    (n_rows, n_columns) float64 array
        All finite.

    Raises
    ------
    InputError
        If the file is missing, empty, cut off within a row, or holds anything else.
    """
    text = _unpacked(path) if path.suffix == ".gz" else read_text(path)
    if header is not None:
        first, _, text = text.partition("\n")
        if first.strip().lower() != ",".join(header).lower():
            what = (
                f"begins with {shorten(first.strip())!r}, not with the columns {','.join(header)}"
            )
            raise InputError(Problem(what, "name a file of this kind", str(path)))
    if not text.strip():
        raise InputError(Problem("holds no numbers", "write the file again", str(path)))
    try:
        values = np.loadtxt(io.StringIO(text.replace(",", " ")), ndmin=2)
    except ValueError as error:
        # Numpy goes on to say what its own caller could do.
        what = f"is no table of numbers, or cut off: {shorten(str(error).split(';')[0], 120)}"
        raise InputError(Problem(what, "write the file again", str(path))) from None
    if columns is not None and values.shape[1] != columns:
        what = f"has {values.shape[1]} numbers per row, not {columns}"
        raise InputError(Problem(what, "name a file of this kind", str(path)))
    if problem := non_finite(values, "its numbers"):
        raise InputError(problem.at(file=path))
    return values


def _unpacked(path: Path) -> str:
    if problem := file_problem(path):
        raise InputError(problem)
    try:
        return gzip.decompress(path.read_bytes()).decode("ascii")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        what = "cannot be unpacked as gzip: it is damaged or truncated"
        raise InputError(Problem(what, "copy or download it again", str(path))) from None


def read_triangles(path: Path, n_points: int) -> np.ndarray:
    """Read a list of triangles whose points are counted from 1.

    Returns
    -------
    (n_triangles, 3) int64 array
        Counted from 0.

    Raises
    ------
    InputError
        If it is no such list, or names points that do not exist.
    """
    values = read_numbers(path, 3)
    todo = "name the list that belongs to these points, counted from 1"
    if (values != np.rint(values)).any():
        raise InputError(Problem("holds numbers of points that are not whole", todo, str(path)))
    low, high = int(values.min()), int(values.max())
    if low < 1 or high > n_points:
        what = f"names points {low} to {high}, there are points 1 to {n_points}"
        raise InputError(Problem(what, todo, str(path)))
    return values.astype(np.int64) - 1
