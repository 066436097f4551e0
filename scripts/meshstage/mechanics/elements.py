"""The linear tetrahedra of a template, and whether a reference may be measured against."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyvista as pv

from meshstage.errors import InputError, Problem
from meshstage.meshes.cells import Cells

TETRAHEDRON = 10  # VTK's cell type

_SHOWN = 50  # ids in one sentence


@dataclass(frozen=True)
class Tetrahedra:
    """Elements of a mesh.

    Parameters
    ----------
    corners : (n_elements, 4) int64
        Points of each.
    cells : (n_elements,) int64
        The cell of the mesh that each is.
    """

    corners: np.ndarray
    cells: np.ndarray

    def reversed(self) -> "Tetrahedra":
        """Give the corners of all in the other order, which changes the sign of volumes."""
        return Tetrahedra(np.ascontiguousarray(self.corners[:, [0, 1, 3, 2]]), self.cells)


def find_tetrahedra(cells: Cells, path: Path) -> Tetrahedra:
    """Find the linear tetrahedra among the cells of a mesh.

    Parameters
    ----------
    cells : Cells
    path : Path
        The mesh, to name it in an error.

    Raises
    ------
    InputError
        If there is none.
    """
    which = np.flatnonzero(cells.types == TETRAHEDRON)
    if not len(which):
        raise InputError(
            Problem(
                "has no linear tetrahedron, so there is no tissue to strain",
                "use a volume mesh of tetrahedra, and not its surface",
                str(path),
            )
        )
    corners = cells.connectivity[cells.offsets[which][:, None] + np.arange(4)]
    return Tetrahedra(corners.astype(np.int64), which.astype(np.int64))


def six_volumes(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Six times the signed volumes: (n_points, 3) mm and (n_elements, 4) to (n_elements,) mm^3."""
    at = np.asarray(points, np.float64)[corners]
    return np.linalg.det(at[:, 1:] - at[:, :1])


def are_reversed(references: Sequence[np.ndarray], corners: np.ndarray) -> bool:
    """Say whether most elements of the references have negative volumes.

    Some programs number a tetrahedron's corners the other way round. That is a habit of a file,
    so it is the majority that tells it from single elements that are inside out.
    """
    signs = sum(int(np.sign(six_volumes(points, corners)).sum()) for points in references)
    return signs < 0


def bad_elements(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Find inverted and flat elements of a reference.

    Parameters
    ----------
    points : (n_points, 3) array, mm
    corners : (n_elements, 4) array of int
        With positive volumes where all is well.

    Returns
    -------
    (n_elements,) bool array
        Flat is what is no higher than the rounding of coordinates in a float32 file: 2^-24 of the
        largest in each of them, four times that along a height.
    """
    at = np.asarray(points, np.float64)[corners]
    pairs = at[:, [0, 0, 0, 1, 1, 2]] - at[:, [1, 2, 3, 2, 3, 3]]
    longest_squared = np.square(pairs).sum(axis=2).max(axis=1)
    rounding = 4 * 2.0**-24 * np.abs(points).max()
    # Six volumes are twice the base times the height, and twice the base is below longest^2.
    return six_volumes(points, corners) <= rounding * longest_squared


def describe_bad(bad: np.ndarray, cells: np.ndarray) -> str:
    """Say how many elements of a reference are bad, and which cells they are."""
    ids = cells[bad]
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return (
        f"{len(ids)} of {len(cells)} tetrahedra of the reference are inverted or flat: "
        f"cell {', '.join(map(str, ids[:_SHOWN]))}{more}"
    )


def shear_moduli(mesh: pv.DataSet, cells: np.ndarray, array: str) -> np.ndarray:
    """Take the shear modulus of each element from a cell array of the template.

    Parameters
    ----------
    mesh : pyvista mesh
        The template.
    cells : (n_elements,) array of int
        The cell that each element is.
    array : str

    Returns
    -------
    (n_elements,) float64 array, kPa

    Raises
    ------
    InputError
        If there is no such array, or an element's value is not finite and above 0.
    """
    if array not in mesh.cell_data:
        known = ", ".join(mesh.cell_data.keys()) or "none"
        raise InputError(
            f"the template has no cell array {array!r} for the shear modulus (it has: {known}); "
            "name one of its cell arrays, or none"
        )
    values = np.asarray(mesh.cell_data[array])
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise InputError(f"the cell array {array!r} does not hold one number a cell; give kPa")
    moduli = values[cells].astype(np.float64)
    wrong = ~(np.isfinite(moduli) & (moduli > 0))
    if wrong.any():
        raise InputError(
            f"the cell array {array!r} gives {int(wrong.sum())} tetrahedra a shear modulus that is "
            f"not finite and above 0 (the first: cell {cells[wrong][0]}, {moduli[wrong][0]:g}); "
            "give kPa"
        )
    return moduli
