"""Cells of a mesh, whatever it is held as: one canonical form, its fingerprint, its edges."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyvista as pv

from meshstage.errors import InputError, Problem
from meshstage.files import sha256

VERTEX, POLY_VERTEX, LINE, POLY_LINE, TRIANGLE, STRIP, POLYGON = range(1, 8)
QUAD = 9
QUADRATIC_EDGE, CUBIC_LINE, QUADRATIC_POLYGON, POLYHEDRON = 21, 35, 36, 42


@dataclass(frozen=True)
class Cells:
    """Cells in VTK's order, in one form for ``.vtp`` and ``.vtu``.

    Parameters
    ----------
    types : (n_cells,) uint8
        VTK's cell types; a polygon of 3 points is a triangle and one of 4 a quad, a polyline of
        2 a line, a polyvertex of 1 a vertex, a strip of 3 a triangle.
    offsets : (n_cells + 1,) int64
    connectivity : (offsets[-1],) int64
    face_offsets, face_connectivity : int64
        All faces of all polyhedra, in order; empty without polyhedra.
    """

    types: np.ndarray
    offsets: np.ndarray
    connectivity: np.ndarray
    face_offsets: np.ndarray
    face_connectivity: np.ndarray

    def same_as(self, other: "Cells") -> bool:
        """Say whether both are the same cells in the same order."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("connectivity", "types", "offsets", "face_connectivity", "face_offsets")
        )

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.types)

    def fingerprint(self) -> str:
        """Hash of all five arrays."""
        return sha256(
            self.types,
            self.offsets,
            self.connectivity,
            self.face_offsets,
            self.face_connectivity,
        )


def canonical_cells(mesh: pv.DataSet) -> Cells:
    """Give the cells of a mesh in the canonical form."""
    faces = cell_arrays(None)
    if isinstance(mesh, pv.PolyData):
        groups = [
            (POLY_VERTEX, mesh.GetVerts()),
            (POLY_LINE, mesh.GetLines()),
            (POLYGON, mesh.GetPolys()),
            (STRIP, mesh.GetStrips()),
        ]
        parts = [(kind, *cell_arrays(cells)) for kind, cells in groups if cells.GetNumberOfCells()]
        types = np.repeat(
            np.array([kind for kind, _, _ in parts], dtype=np.uint8),
            [len(offsets) - 1 for _, offsets, _ in parts],
        )
        offsets, connectivity = _joined([(offsets, points) for _, offsets, points in parts])
    else:
        types = np.array(mesh.celltypes, dtype=np.uint8)
        offsets, connectivity = cell_arrays(mesh.GetCells())
        if (types == POLYHEDRON).any():
            faces = cell_arrays(mesh.GetPolyhedronFaces())
    sizes = np.diff(offsets)
    for general, size, special in (
        (POLY_VERTEX, 1, VERTEX),
        (POLY_LINE, 2, LINE),
        (POLYGON, 3, TRIANGLE),
        (POLYGON, 4, QUAD),
        (STRIP, 3, TRIANGLE),
    ):
        types[(types == general) & (sizes == size)] = special
    return Cells(types, offsets, connectivity, *faces)


def cell_arrays(cells: Any) -> tuple[np.ndarray, np.ndarray]:
    """Give offsets and connectivity of a ``vtkCellArray``, int64; views where they are that."""
    if cells is None or cells.GetNumberOfCells() == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    arrays = (cells.GetOffsetsArray(), cells.GetConnectivityArray())
    offsets, connectivity = (np.asarray(pv.convert_array(array)) for array in arrays)
    return offsets.astype(np.int64, copy=False), connectivity.astype(np.int64, copy=False)


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    sizes = [np.diff(offsets) for offsets, _ in parts]
    none = np.zeros(0, dtype=np.int64)
    return (
        np.concatenate([[0], np.cumsum(np.concatenate([none, *sizes]))]).astype(np.int64),
        np.concatenate([none, *(connectivity for _, connectivity in parts)]),
    )


def cell_fingerprint(mesh: pv.DataSet) -> str:
    """Hash the cells of a mesh: the same for the same cells in order, ``.vtp`` or ``.vtu``."""
    return canonical_cells(mesh).fingerprint()


def mesh_edges(mesh: pv.DataSet, triangulated: bool = False) -> np.ndarray:
    """List the undirected edges of a mesh, from its cells.

    Parameters
    ----------
    mesh : pyvista.PolyData or pyvista.UnstructuredGrid
    triangulated : bool
        Cut polygons, quads and strips into triangles first, which adds their diagonals.

    Returns
    -------
    (n_edges, 2) int64 array
        ``i < j`` in each row, rows sorted and unique.

    Raises
    ------
    InputError
        If the mesh has cells of a type whose edges are not known (Lagrange, Bezier).

    Notes
    -----
    Linear cells give their sides (a polygon no diagonal, a strip all sides of its triangles).
    Quadratic and cubic cells give each side as the chain corner - node on the side - corner,
    never corner - corner. A node in the middle of a face is joined to the nodes in the middle of
    that face's sides, a node in the middle of a volume to the nodes in the middle of its faces.
    """
    if triangulated:
        mesh = _triangulated(mesh)
    cells = canonical_cells(mesh)
    pairs = [_ring_pairs(cells.face_offsets, cells.face_connectivity)]
    sizes = np.diff(cells.offsets)
    for cell_type in np.unique(cells.types):
        chosen = cells.types == cell_type
        offsets = np.concatenate([[0], np.cumsum(sizes[chosen])])
        connectivity = cells.connectivity[np.repeat(chosen, sizes)]
        pairs.append(_edges_of_type(int(cell_type), offsets, connectivity))
    edges = np.sort(np.concatenate(pairs), axis=1)
    return np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)


def _edges_of_type(cell_type: int, offsets: np.ndarray, connectivity: np.ndarray) -> np.ndarray:
    """Edges, with doubles, of cells that are all of one type."""
    if cell_type in (0, VERTEX, POLY_VERTEX, POLYHEDRON):  # a polyhedron's are on its faces
        return np.zeros((0, 2), dtype=np.int64)
    if cell_type == POLY_LINE:
        return _step_pairs(offsets, connectivity, 1)
    if cell_type == STRIP:
        return np.concatenate(
            [_step_pairs(offsets, connectivity, 1), _step_pairs(offsets, connectivity, 2)]
        )
    if cell_type == POLYGON:
        return _ring_pairs(offsets, connectivity)
    if cell_type == QUADRATIC_POLYGON:  # all corners, then all nodes on sides
        return _quadratic_polygon_pairs(offsets, connectivity)
    table = local_edges(cell_type)
    size = offsets[1] - offsets[0]
    return connectivity.reshape(-1, size)[:, table].reshape(-1, 2)


def _step_pairs(offsets: np.ndarray, connectivity: np.ndarray, step: int) -> np.ndarray:
    """Pairs of each point and the one ``step`` later in the same cell."""
    cell = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    inside = cell[step:] == cell[:-step]
    return np.stack([connectivity[:-step][inside], connectivity[step:][inside]], axis=1)


def _ring_pairs(offsets: np.ndarray, connectivity: np.ndarray) -> np.ndarray:
    """Sides of closed rings: each point and the next one, the last and the first."""
    offsets = offsets[np.concatenate([[True], np.diff(offsets) > 0])]
    following = np.arange(1, len(connectivity) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    return np.stack([connectivity, connectivity[following]], axis=1)


def _quadratic_polygon_pairs(offsets: np.ndarray, connectivity: np.ndarray) -> np.ndarray:
    rings = [connectivity[start:end].reshape(2, -1).T.ravel() for start, end in pairwise(offsets)]
    return _ring_pairs(offsets, np.concatenate(rings))


@lru_cache
def local_edges(cell_type: int) -> np.ndarray:
    """Edges of one cell of a fixed size, as pairs of local point numbers, (n, 2) int64.

    Built from VTK's own tables of the cell's sides and faces.
    """
    from vtkmodules.vtkCommonDataModel import vtkGenericCell

    cell = vtkGenericCell()
    cell.SetCellType(cell_type)
    n_points = cell.GetNumberOfPoints()
    if cell.GetCellType() != cell_type or n_points == 0 or cell_type > POLYHEDRON:
        raise InputError(
            Problem(
                what=f"cells of VTK type {cell_type} have no edges that are known here",
                todo="save the mesh with linear or quadratic cells",
            )
        )
    for index in range(n_points):
        cell.GetPointIds().SetId(index, index)
    if cell.GetCellDimension() == 1:
        pairs = _chain(_points_of(cell))
    else:
        sides = [_points_of(cell.GetEdge(k)) for k in range(cell.GetNumberOfEdges())]
        pairs = [pair for side in sides for pair in _chain(side)]
        pairs += _middle_pairs(cell, sides)
    return np.array(pairs, dtype=np.int64)


def _points_of(cell: Any) -> list[int]:
    ids = cell.GetPointIds()
    return [ids.GetId(k) for k in range(ids.GetNumberOfIds())]


def _chain(line: list[int]) -> list[tuple[int, int]]:
    """Turn VTK's order of a line (both ends, then the nodes between) into consecutive pairs."""
    ordered = [line[0], *line[2:], line[1]]
    return list(pairwise(ordered))


def _middle_pairs(cell: Any, sides: list[list[int]]) -> list[tuple[int, int]]:
    """Join a face's middle node to its sides' nodes, a volume's to its faces' middle nodes."""
    on_sides = {point for side in sides for point in side}
    side_nodes = {point for side in sides for point in side[2:]}
    if cell.GetCellDimension() == 2:
        faces = [_points_of(cell)]
    else:
        faces = [_points_of(cell.GetFace(k)) for k in range(cell.GetNumberOfFaces())]
    pairs, face_nodes = [], set()
    for face in faces:
        for middle in set(face) - on_sides:
            face_nodes.add(middle)
            pairs += [(middle, node) for node in face if node in side_nodes]
    inside = set(_points_of(cell)) - on_sides - face_nodes
    return pairs + [(middle, node) for middle in inside for node in sorted(face_nodes)]


def _triangulated(mesh: pv.DataSet) -> pv.DataSet:
    """Cut the polygons of a surface into triangles; a volume stays as it is."""
    from vtkmodules.vtkFiltersCore import vtkTriangleFilter

    if isinstance(mesh, pv.UnstructuredGrid):
        cells = canonical_cells(mesh)
        if not np.isin(cells.types, (TRIANGLE, POLYGON, QUAD)).all():
            return mesh
        sizes = np.diff(cells.offsets)
        faces = np.insert(cells.connectivity, cells.offsets[:-1], sizes)
        mesh = pv.PolyData(np.asarray(mesh.points), faces=faces)
    cutter = vtkTriangleFilter()
    cutter.SetInputData(mesh)
    cutter.PassVertsOn()
    cutter.PassLinesOn()
    cutter.Update()
    return pv.wrap(cutter.GetOutput())
