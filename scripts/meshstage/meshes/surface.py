"""The outer surface of a volume mesh, and which of the volume's points it has."""

from typing import Any

import numpy as np
import pyvista as pv

from meshstage.errors import InputError, Problem

POINT_IDS, CELL_IDS = "vtkOriginalPointIds", "vtkOriginalCellIds"


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
    for source, rows, target in (
        (mesh.point_data, ids, surface.point_data),
        (mesh.cell_data, cells, surface.cell_data),
    ):
        for name in source:
            if len(source[name]) == source.valid_array_len:  # legacy files hold others too
                target[name] = source[name][rows]
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


def triangles_of(mesh: pv.DataSet) -> np.ndarray:
    """Triangles of the mesh's surface, (n_triangles, 3), numbered by the mesh's own points.

    None at all if the mesh has no surface whose points are its own (lines, quadratic cells).
    """
    none = np.empty((0, 3), np.int64)
    if isinstance(mesh, pv.PolyData):
        surface, ids = mesh, np.arange(mesh.n_points)
    else:
        try:
            surface = extract_surface(mesh)
        except InputError:
            return none
        ids = np.asarray(surface.point_data[POINT_IDS])
    triangulated = surface.triangulate()
    return ids[triangulated.regular_faces] if triangulated.GetNumberOfPolys() else none
