"""ShapeWorks: a project whose rows name files of particles, carried onto one surface mesh.

A surface's points move with the particles by a smooth interpolation of their positions: radial
basis functions r (the biharmonic spline of space, which bends least) and a polynomial of degree 1.
It passes through all particles, and gives rotations, scales and shears of them back exactly, so
that it does not matter how a subject lies.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from meshstage.errors import InputError, Problem, at, collecting, raise_if_any
from meshstage.files import file_problem, read_json
from meshstage.preparation.names import MeshName, compiled_pattern, split_name
from meshstage.preparation.number_files import read_numbers
from meshstage.preparation.source import PhaseMesh, Reader, ReaderOptions

if TYPE_CHECKING:
    import pyvista as pv


class ShapeWorksOptions(ReaderOptions):
    """What a project of ShapeWorks does not say."""

    mean_mesh: Path = Field(description="surface mesh of the mean shape")
    mean_particles: Path | None = Field(
        None, description="particles of the mean shape; without it: the mean of world particles"
    )
    particles: Literal["local", "world"] = Field(
        "local", description="columns to read: local particles, or world (aligned by ShapeWorks)"
    )
    domain: str = Field("1", description="number or name of the domain, the columns' ending")
    names: str = Field(
        r"(?P<subject>.+)_(?P<phase>[^_]+)",
        description="regular expression of the names of rows: groups subject and phase or stage",
    )


def _find(source: Path, options: ShapeWorksOptions) -> list[PhaseMesh]:
    pattern = compiled_pattern(options.names)
    rows = _read_rows(source)
    column = f"{options.particles}_particles_{options.domain}"
    problems: list[Problem] = []
    found: list[tuple[MeshName, Path]] = []
    for number, row in enumerate(rows, 1):
        with collecting(problems):
            found.append(_mesh_of(row, number, column, pattern, source))
    for extra in (options.mean_mesh, options.mean_particles):
        if extra is not None and (problem := file_problem(extra)):
            problems.append(problem)
    mean: tuple[Path, ...]
    if options.mean_particles is not None:
        mean = (options.mean_particles,)
    else:
        with collecting(problems):
            worlds = f"world_particles_{options.domain}"
            mean = tuple(_file_of(row, n, worlds, source) for n, row in enumerate(rows, 1))
    raise_if_any(problems)
    return [
        PhaseMesh(
            *name,
            split=None,
            files=(path, source, options.mean_mesh, *mean),
            read=partial(_carry, path, options.mean_mesh, mean),
        )
        for name, path in found
    ]


def _read_rows(source: Path) -> list[dict[str, str]]:
    """Rows of the project's table, by name of the column."""
    rows: Any
    if source.suffix.lower() == ".xlsx":
        rows = _read_workbook(source)
    else:
        value = read_json(source)
        rows = value.get("data") if isinstance(value, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        what = "is no project of ShapeWorks: it has no list 'data' of shapes"
        raise InputError(
            Problem(what, "name a .swproj or .xlsx that ShapeWorks saved", str(source))
        )
    if not rows:
        raise InputError(Problem("has no shapes", "add them in ShapeWorks", str(source)))
    return rows


def _read_workbook(source: Path) -> list[dict[str, str]]:
    """Read the sheet ``data``, or the first."""
    if problem := file_problem(source):
        raise InputError(problem)
    try:
        import openpyxl
    except ImportError:
        what = "is read by openpyxl, which is not installed"
        todo = "pip install openpyxl, or save the project as .swproj"
        raise InputError(Problem(what, todo, str(source))) from None
    try:
        book = openpyxl.load_workbook(source, read_only=True, data_only=True)
        sheet = book["data"] if "data" in book.sheetnames else book.worksheets[0]
        cells = [["" if v is None else str(v) for v in row] for row in sheet.values]
    except Exception:  # of a damaged file: BadZipFile, KeyError, XML errors
        what = "cannot be read as a workbook, it is damaged or incomplete"
        raise InputError(Problem(what, "save the project again", str(source))) from None
    header, *rows = cells or [[]]
    return [dict(zip(header, row, strict=False)) for row in rows if any(row)]


def _mesh_of(
    row: dict[str, str], number: int, column: str, pattern: Any, source: Path
) -> tuple[MeshName, Path]:
    path = _file_of(row, number, column, source)
    text = str(row.get("name") or path.stem)
    name = split_name(pattern, text)
    if name is None:
        what = f"row {number}: the name {text!r} does not match the pattern {pattern.pattern!r}"
        raise InputError(Problem(what, "give another pattern by --names", str(source)))
    return name, path


def _file_of(row: dict[str, str], number: int, column: str, source: Path) -> Path:
    """Give the file of particles that a row names."""
    if not row.get(column):
        there = ", ".join(name for name in row if "particles" in name) or "none"
        what = f"row {number} has no {column}; its columns of particles: {there}"
        todo = "optimize the project in ShapeWorks, or give another --domain or --particles"
        raise InputError(Problem(what, todo, str(source)))
    path = source.parent / str(row[column])
    if problem := file_problem(path):
        raise InputError(Problem(f"row {number}: {problem.what}", problem.todo, str(path)))
    return path


def _carry(path: Path, mean_mesh: Path, mean: tuple[Path, ...]) -> "pv.PolyData":
    """Move the mean mesh with one subject's particles."""
    mesh, spline = _spline(mean_mesh, mean)
    moved = mesh.copy()
    with at(file=path):
        moved.points = spline(read_numbers(path, 3))
    return moved


Spline = Callable[[np.ndarray], np.ndarray]


@lru_cache(maxsize=1)
def _spline(mean_mesh: Path, mean: tuple[Path, ...]) -> tuple[Any, Spline]:
    """Read the mean shape; gives its mesh, and what turns particles into points of it."""
    from scipy.interpolate import RBFInterpolator

    from meshstage.meshes.reading import read_mesh

    mesh = read_mesh(mean_mesh)
    particles = _mean_particles(mean)
    points = np.asarray(mesh.points, dtype=np.float64)
    # Particles lie on the surface; a quarter leaves room for coarse ones.
    room = 0.25 * np.linalg.norm(np.ptp(points, axis=0))
    low, high = points.min(axis=0) - room, points.max(axis=0) + room
    if (particles < low).any() or (particles > high).any():
        what = "the particles of the mean shape do not lie where this mesh is"
        todo = "give the mesh and the particles of one mean shape, in one unit"
        raise InputError(Problem(what, todo, str(mean_mesh)))

    def spline(moved: np.ndarray) -> np.ndarray:
        if len(moved) != len(particles):
            what = f"has {len(moved)} particles, the mean shape {len(particles)}"
            raise InputError(Problem(what, "optimize all shapes together"))
        return RBFInterpolator(particles, moved, kernel="linear", degree=1)(points)

    return mesh, spline


def _mean_particles(files: tuple[Path, ...]) -> np.ndarray:
    shapes = [read_numbers(path, 3) for path in files]
    for path, shape in zip(files, shapes, strict=True):
        if len(shape) != len(shapes[0]):
            what = f"has {len(shape)} particles, {files[0]} has {len(shapes[0])}"
            raise InputError(Problem(what, "optimize all shapes together", str(path)))
    mean = np.mean(shapes, axis=0)
    what = ""
    if len(np.unique(mean, axis=0)) < len(mean):
        what = "two particles of the mean shape lie at one place (duplicates)"
    elif np.linalg.matrix_rank(mean - mean.mean(axis=0)) < 3:
        what = f"the {len(mean)} particles of the mean shape lie in one plane"
    if what:
        raise InputError(Problem(what, "optimize the shapes again", str(files[0])))
    return mean


READER = Reader(
    "shapeworks",
    "a project of ShapeWorks (.swproj or .xlsx), with a mean surface mesh",
    ShapeWorksOptions,
    _find,
)
