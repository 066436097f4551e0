"""Mesh files of other people: one reader, whose errors are sentences, and one writer."""

import importlib
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyvista as pv
from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow

from meshstage.errors import InputError, Problem
from meshstage.files import atomic, file_problem, shorten
from meshstage.meshes.cells import cell_arrays
from meshstage.meshes.ply import read_ply
from meshstage.meshes.signatures import check_signature

POINT_IDS, CELL_IDS = "vtkOriginalPointIds", "vtkOriginalCellIds"

_READERS = {
    ".vtp": ("vtkIOXML", "vtkXMLPolyDataReader"),
    ".vtu": ("vtkIOXML", "vtkXMLUnstructuredGridReader"),
    ".pvtp": ("vtkIOXML", "vtkXMLPPolyDataReader"),
    ".pvtu": ("vtkIOXML", "vtkXMLPUnstructuredGridReader"),
    ".vtk": ("vtkIOLegacy", "vtkGenericDataObjectReader"),
    ".stl": ("vtkIOGeometry", "vtkSTLReader"),
    ".obj": ("vtkIOGeometry", "vtkOBJReader"),
}
_SUFFIXES = (*_READERS, ".ply")
_LEGACY_KINDS = ("Scalars", "Vectors", "Normals", "Tensors", "ColorScalars", "TCoords", "Fields")
_MESH_TYPES = (0, 4)  # VTK_POLY_DATA, VTK_UNSTRUCTURED_GRID


class MeshFile(NamedTuple):
    """A mesh as a file holds it, and what tells the file's bytes from others."""

    mesh: Any
    size_bytes: int
    crc32: int


def read_mesh(path: Path) -> Any:
    """Read a mesh file: ``.vtp .vtu .vtk .pvtp .pvtu .ply .stl .obj``.

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
    if problem := file_problem(path):
        raise InputError(problem)
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        what = f"is no mesh file by its ending {suffix!r}"
        raise _refuse(path, what, f"save it as one of {', '.join(_SUFFIXES)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _refuse(path, f"cannot be read ({error.strerror})", "check it") from None
    check_signature(path, suffix, data)
    mesh = read_ply(path, data) if suffix == ".ply" else _read_with_vtk(path, suffix, data)
    if mesh.n_points == 0:
        what = "reads as empty (0 points): it is truncated or nothing was saved"
        raise _refuse(path, what, "write the file again")
    _check_connectivity(mesh, path)
    # A cryptographic hash would take a tenth of the time of reading the mesh.
    return MeshFile(mesh, len(data), zlib.crc32(data))


def _refuse(path: Path, what: str, todo: str) -> InputError:
    return InputError(Problem(what=what, todo=todo, file=str(path)))


def _read_with_vtk(path: Path, suffix: str, data: bytes) -> Any:
    """Read with VTK's own reader; an error that VTK would only print is raised."""
    reader = _reader(suffix)
    before, window = vtkOutputWindow.GetInstance(), vtkStringOutputWindow()
    vtkOutputWindow.SetInstance(window)
    try:
        with pv.vtk_verbosity("off"):
            if suffix in (".vtp", ".vtu"):  # what has been looked at is what is read
                reader.ReadFromInputStringOn()
                reader.SetInputString(data)
            else:
                reader.SetFileName(str(path))
            reader.Update()
    finally:
        vtkOutputWindow.SetInstance(before)
    for message in _messages(window.GetOutput()):
        if re.search(r"error|fail|cannot", message, re.IGNORECASE):
            # VTK's pipeline repeats in terms of its own what the reader has said, or not said.
            reason = "" if "returned failure for request" in message else f" (VTK: {message})"
            what = f"cannot be read, it is damaged or incomplete{shorten(reason, 160)}"
            raise _refuse(path, what, "write the file again")
    result = reader.GetOutputDataObject(0)
    if result is None or result.GetDataObjectType() not in _MESH_TYPES:
        kind = "nothing that VTK knows" if result is None else result.GetClassName()
        what = f"holds {kind}, not a valid surface or unstructured grid"
        raise _refuse(path, what, "save it as .vtp or .vtu")
    return pv.wrap(result)


def _reader(suffix: str) -> Any:
    module, name = _READERS[suffix]
    reader = getattr(importlib.import_module(f"vtkmodules.{module}"), name)()
    if suffix == ".vtk":  # its reader takes the first array of each kind only, unless told to
        for kind in _LEGACY_KINDS:
            getattr(reader, f"ReadAll{kind}On")()
    return reader


def _messages(printed: str | bytes) -> list[str]:
    """Cut what VTK prints into its errors and warnings, without places in its source."""
    if isinstance(printed, bytes):  # it quotes something that is not UTF-8
        printed = printed.decode("utf-8", "replace")
    parts = re.split(r"(?:ERROR|Warning|Generic Warning): In \S+, line \d+\n", printed)
    # Ranges that VTK keeps beside an array with infinite values ("inf") it cannot read back.
    parts = [part for part in parts if "InformationKey" not in part]
    return [
        " ".join(re.sub(r"^\w+ \(0x\w+\): ", "", part).split()) for part in parts if part.strip()
    ]


def _check_connectivity(mesh: Any, path: Path) -> None:
    if isinstance(mesh, pv.PolyData):
        groups = [mesh.GetVerts(), mesh.GetLines(), mesh.GetPolys(), mesh.GetStrips()]
    else:
        groups = [mesh.GetCells()]
    for cells in groups:
        offsets, connectivity = cell_arrays(cells)
        if offsets[0] != 0 or offsets[-1] != len(connectivity) or (np.diff(offsets) < 0).any():
            raise _refuse(path, "is damaged: its cells overlap (invalid)", "write the file again")
        if len(connectivity):
            low, high = int(connectivity.min()), int(connectivity.max())
            if low < 0 or high >= mesh.n_points:
                worst = low if low < 0 else high
                what = f"is damaged: a cell names point {worst} of {mesh.n_points} (invalid)"
                raise _refuse(path, what, "write the file again")


def write_mesh(path: Path, mesh: Any) -> None:
    """Write a mesh atomically, in the format of the path's ending; precision is kept."""
    with atomic(path) as temporary:
        mesh.save(str(temporary))


def point_array(mesh: Any, name: str) -> np.ndarray:
    """Give one point array as (n_points, width), in its own type.

    Raises
    ------
    InputError
        If there is no such point array (it says where the name stands else, or what there is),
        or if it holds no numbers.
    """
    if name not in mesh.point_data:
        if name in mesh.cell_data:
            what, todo = f"has {name!r} as cell data, not as point data", "save it at the points"
        elif name in mesh.field_data:
            what, todo = f"has {name!r} as field data, not as point data", "save it at the points"
        else:
            there = ", ".join(map(repr, mesh.point_data.keys())) or "none"
            what = f"has no point array {name!r} (missing), it has: {shorten(there, 200)}"
            todo = "write the array, or name another as target_array"
        raise InputError(Problem(what=what, todo=todo))
    values = np.asarray(mesh.point_data[name])
    if values.dtype.kind not in "fiub":
        raise InputError(Problem(f"the point array {name!r} holds no numbers", "save numbers"))
    return values.reshape(mesh.n_points, -1)


def non_finite(values: np.ndarray, name: str) -> Problem | None:
    """Name the first NaN or infinity of (n_points, width) values; None if all are finite."""
    # A sum is finite if all its terms are: one pass, without a mask, for almost every array.
    with np.errstate(invalid="ignore", over="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return None
    bad = ~np.isfinite(values)
    if not bad.any():
        return None
    component = int(np.flatnonzero(bad.any(axis=0))[0])
    point = int(np.flatnonzero(bad[:, component])[0])
    value = values[point, component]
    kind = "NaN" if np.isnan(value) else ("-infinity" if value < 0 else "+infinity")
    return Problem(
        what=f"{name}: {int(bad.sum())} of {bad.size} values are not finite, "
        f"the first is {kind} at point {point}, component {component}",
        todo="mend or leave out this mesh",
    )


def extract_surface(mesh: Any) -> pv.PolyData:
    """Take the outer surface of a volume, with its arrays and the map to the volume's points.

    Returns
    -------
    pyvista.PolyData
        ``point_data["vtkOriginalPointIds"]`` holds the volume's point of each surface point.
        Arrays are those of the volume's points, and of the cells that the faces belong to.

    Raises
    ------
    InputError
        If there is no surface, or a surface point is not exactly one point of the volume.
    """
    bare = mesh.copy(deep=False)
    bare.clear_data()
    surface = bare.extract_surface(pass_pointid=True, pass_cellid=True, algorithm="dataset_surface")
    if surface.n_points == 0 or surface.n_cells == 0:
        raise InputError(Problem("has no surface to extract", "use the mesh itself"))
    ids = np.array(surface.point_data[POINT_IDS], dtype=np.int64)
    wanted = np.asarray(surface.points)
    # Of quadratic cells VTK 9.7.2 gives float32 points, and ids of other points: these are then
    # found by their place.
    points = np.asarray(mesh.points).astype(wanted.dtype)
    if not _maps(ids, points, wanted):
        ids = _find_points(points, wanted)
    if not _maps(ids, points, wanted):
        raise InputError(
            Problem(
                "its surface has points that are not points of the volume: the map is lost",
                "use the mesh itself, or one with linear cells and no points at one place",
            )
        )
    cells = np.array(surface.cell_data[CELL_IDS], dtype=np.int64)
    surface.clear_data()
    surface.points = np.asarray(mesh.points)[ids]
    for name in mesh.point_data:
        surface.point_data[name] = mesh.point_data[name][ids]
    for name in mesh.cell_data:
        surface.cell_data[name] = mesh.cell_data[name][cells]
    surface.point_data[POINT_IDS] = ids
    return surface


def _maps(ids: np.ndarray, points: np.ndarray, wanted: np.ndarray) -> bool:
    return (
        len(np.unique(ids)) == len(wanted)
        and ids.min() >= 0
        and np.array_equal(points[ids], wanted, equal_nan=True)
    )


def _find_points(points: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows of ``points`` that equal ``wanted`` bit for bit; -1 where there is none or several."""
    row_of: dict[bytes, int] = {}
    for index, point in enumerate(points):
        key = point.tobytes()
        row_of[key] = -1 if key in row_of else index
    return np.array([row_of.get(point.tobytes(), -1) for point in wanted], dtype=np.int64)
