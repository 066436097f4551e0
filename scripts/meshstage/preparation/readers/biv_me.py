"""biv-me: control points of a biventricular model per case and frame, subdivided to a surface."""

import re
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from meshstage.cohort.names import subject_stem
from meshstage.errors import InputError, Problem, raise_if_any
from meshstage.files import file_problem
from meshstage.preparation.number_files import read_numbers, read_triangles
from meshstage.preparation.source import PhaseMesh, Reader, ReaderOptions

if TYPE_CHECKING:
    import pyvista as pv

COLUMNS = ("x", "y", "z", "Frame")
_NAME = re.compile(r"(?P<case>.+)_model_frame_(?P<frame>\d+)\.txt")


class BivMeOptions(ReaderOptions):
    """The template of biv-me, which is in its repository."""

    subdivision: Path = Field(
        description="subdivision matrix: points of the surface x control points, .mat (variable S) "
        "or text"
    )
    triangles: Path = Field(description="triangles of the surface, points counted from 1")


def _find(source: Path, options: BivMeOptions) -> list[PhaseMesh]:
    if not source.is_dir():
        raise InputError(Problem("is no folder", "name the folder of the models", str(source)))
    template = (options.subdivision, options.triangles)
    raise_if_any(problem for path in template if (problem := file_problem(path)))
    meshes = []
    for path in sorted(source.rglob("*_model_frame_*.txt")):
        if name := _NAME.fullmatch(path.name):
            subject_stem(name["case"])  # refuses what cannot be a subject
            meshes.append(
                PhaseMesh(
                    subject=name["case"],
                    phase=name["frame"],
                    stage=float(name["frame"]),
                    split=None,
                    files=(path, *template),
                    read=partial(_read, path, *template),
                )
            )
    if not meshes:
        what = "holds no models of biv-me ({case}_model_frame_{NNN}.txt)"
        raise InputError(Problem(what, "name the folder of the models", str(source)))
    return meshes


def _read(path: Path, subdivision: Path, triangles: Path) -> "pv.PolyData":
    import pyvista as pv

    matrix, faces = _template(subdivision, triangles)
    # The column Frame is not looked at: biv-me counts the frames in the name.
    control_points = read_numbers(path, len(COLUMNS), COLUMNS)[:, :3]
    if len(control_points) != matrix.shape[1]:
        what = f"has {len(control_points)} control points, the subdivision matrix {matrix.shape[1]}"
        raise InputError(Problem(what, "fit the model again, or give its matrix", str(path)))
    return pv.PolyData.from_regular_faces(matrix @ control_points, faces)


@lru_cache(maxsize=1)
def _template(subdivision: Path, triangles: Path) -> tuple[Any, np.ndarray]:
    """Give the sparse matrix (n_points, n_control_points) and the triangles (n, 3), from 0."""
    from scipy.sparse import csr_array

    if subdivision.suffix.lower() == ".mat":
        matrix = csr_array(_read_matlab(subdivision))
    else:
        matrix = csr_array(read_numbers(subdivision))
    return matrix, read_triangles(triangles, matrix.shape[0])


def _read_matlab(path: Path) -> Any:
    from scipy.io import loadmat

    if problem := file_problem(path):
        raise InputError(problem)
    try:
        matrix = loadmat(path)["S"]
    except KeyError:
        raise InputError(Problem("has no variable S", "name the matrix", str(path))) from None
    except Exception:  # of a damaged file: MatReadError, zlib.error, ValueError
        what = "cannot be read as a MATLAB file, it is damaged or incomplete"
        raise InputError(Problem(what, "download it again", str(path))) from None
    return matrix


READER = Reader(
    "biv-me",
    "a folder of fitted models of biv-me (CASE_model_frame_NNN.txt)",
    BivMeOptions,
    _find,
    stage_unit="index",
)
