"""Mesh files: one reader, whose errors are sentences, and one writer."""

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyvista as pv

from meshstage.errors import InputError, at
from meshstage.files import atomic, file_problem
from meshstage.meshes.array_names import readable_in_xml, restore_array_names
from meshstage.meshes.cells import cell_arrays
from meshstage.meshes.formats import format_of, listed_suffixes
from meshstage.meshes.signatures import refusal
from meshstage.meshes.space import keep_space


class MeshFile(NamedTuple):
    """A mesh as a file holds it, and what tells the file's bytes from others."""

    mesh: Any
    size_bytes: int
    crc32: int


def read_mesh(path: Path) -> Any:
    """Read a mesh file of any format in `meshstage.meshes.formats`.

    Returns
    -------
    pyvista.PolyData or pyvista.UnstructuredGrid
        With at least one point; every cell names points that exist. Points may be NaN.

    Raises
    ------
    InputError
        If the file is missing, of another kind, truncated or damaged, reads as empty, or holds
        something else than a surface or an unstructured grid.
    """
    return read_mesh_file(path).mesh


def read_mesh_file(path: Path) -> MeshFile:
    """Read a mesh file as `read_mesh` does, and tell its bytes from others."""
    with at(file=path):
        if problem := file_problem(path):
            raise InputError(problem)
        row = format_of(path)
        if row is None:
            what = f"is no mesh file by its ending {path.suffix.lower()!r}"
            raise refusal(what, f"save it as one of {listed_suffixes()}")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise refusal(f"cannot be read ({error.strerror})", "check it") from None
        mesh = row.read(path, data)
        if mesh.n_points == 0:
            raise refusal("reads as empty (0 points): it is truncated or nothing was saved")
        _check_connectivity(mesh)
    restore_array_names(mesh)
    keep_space(mesh, data)
    # A cryptographic hash would take a tenth of the time of reading the mesh.
    return MeshFile(mesh, len(data), zlib.crc32(data))


def _check_connectivity(mesh: Any) -> None:
    if isinstance(mesh, pv.PolyData):
        groups = [mesh.GetVerts(), mesh.GetLines(), mesh.GetPolys(), mesh.GetStrips()]
    else:
        groups = [mesh.GetCells()]
    for cells in groups:
        offsets, connectivity = cell_arrays(cells)
        if offsets[0] != 0 or offsets[-1] != len(connectivity) or (np.diff(offsets) < 0).any():
            raise refusal("is damaged: its cells overlap (invalid)")
        if len(connectivity):
            low, high = int(connectivity.min()), int(connectivity.max())
            if low < 0 or high >= mesh.n_points:
                worst = low if low < 0 else high
                raise refusal(
                    f"is damaged: a cell names point {worst} of {mesh.n_points} (invalid)"
                )


def write_mesh(path: Path, mesh: Any) -> None:
    """Write a mesh atomically, in the format of the path's ending.

    Precision is kept, and so are names of arrays, whatever characters they hold. Arrays whose
    length is not the number of points or cells are left out: no reader takes them.
    """
    if path.suffix in (".vtp", ".vtu"):
        mesh = readable_in_xml(mesh)
    with atomic(path) as temporary:
        mesh.save(str(temporary))
