"""Motion between and around the vertices of a mesh: smooth, and gone far from the organ."""

from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator

from meshstage.errors import InputError
from meshstage.meshes.surface import extract_surface

MAX_CENTRES = 2000
"""Vertices that the interpolation goes through: the equations of more take minutes."""


def default_decay(points: np.ndarray, displacements: np.ndarray) -> float:
    """Choose the distance over which motion fades, mm.

    Three times the largest displacement: the weight falls by at most 1.5 per decay, so that
    fading changes the displacement by at most half a millimetre per millimetre, and nothing
    folds where the organ does not. At least a tenth of the organ's diagonal.

    Parameters
    ----------
    points : (n_points, 3) array, mm
    displacements : (n_phases, n_points, 3) array, mm
    """
    largest = np.linalg.norm(displacements, axis=2).max()
    return float(max(3.0 * largest, np.linalg.norm(np.ptp(points, axis=0)) / 10.0))


def spread_points(points: np.ndarray, most: int) -> np.ndarray:
    """Choose points that cover all others evenly: each next one is the farthest from those chosen.

    Parameters
    ----------
    points : (n_points, 3) array
    most : int

    Returns
    -------
    (n_chosen,) int64 array
        Of one place one point only, also where there are fewer places than ``most``.
    """
    distance = np.full(len(points), np.inf)
    chosen = [0]
    while len(chosen) < most:
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
        farthest = int(distance.argmax())
        if distance[farthest] <= 1e-6 * np.ptp(points):
            break
        chosen.append(farthest)
    return np.array(chosen)


def fit_motion(points: np.ndarray, displacements: np.ndarray) -> tuple[RBFInterpolator, float]:
    """Interpolate displacements by cubic radial basis functions and a linear trend.

    Parameters
    ----------
    points : (n_points, 3) array, mm
    displacements : (n_phases, n_points, 3) array, mm

    Returns
    -------
    motion : RBFInterpolator
        From positions (n, 3) to displacements (n, 3 * n_phases), phase by phase; exact at the
        centres, and everywhere where a displacement is affine.
    spacing : float
        Mean distance of a centre from the next one, mm.

    Raises
    ------
    InputError
        If all points lie in a plane.
    """
    from scipy.spatial import KDTree

    centres = spread_points(points, MAX_CENTRES)
    values = np.moveaxis(displacements[:, centres], 0, 1).reshape(len(centres), -1)
    try:
        motion = RBFInterpolator(points[centres], values, kernel="cubic", degree=1)
    except (np.linalg.LinAlgError, ValueError):
        raise InputError(
            "the vertices lie in one plane, so nothing says how the space around them moves; "
            "give a mesh that has a depth"
        ) from None
    nearest, _ = KDTree(points[centres]).query(points[centres], k=2)
    return motion, float(nearest[:, 1].mean())


def fade(positions: np.ndarray, mesh: Any, decay: float) -> np.ndarray:
    """Weigh positions: 1 on the organ and inside of it, 0 from ``decay`` on, smooth between.

    Parameters
    ----------
    positions : (n, 3) array, mm
    mesh : pyvista mesh
        The organ at rest. Only a closed surface, or a volume, has an inside.
    decay : float, mm

    Returns
    -------
    (n,) float64 array
        ``t^2 (3 - 2 t)`` with ``t = 1 - distance / decay``.

    Raises
    ------
    InputError
        If the mesh has no surface.
    """
    import pyvista as pv

    surface = mesh if isinstance(mesh, pv.PolyData) else extract_surface(mesh)
    surface = surface.triangulate().clean()
    if not surface.n_faces:
        raise InputError("the mesh has no triangles, so no surface; give a surface or volume")
    cloud = pv.PolyData(positions)
    cloud.compute_implicit_distance(surface, inplace=True)
    distance = np.abs(cloud.point_data["implicit_distance"])
    if not surface.n_open_edges:
        inside = cloud.select_interior_points(surface, method="cell_locator")
        distance[np.asarray(inside.point_data["selected_points"]) > 0] = 0.0
    t = np.clip(1.0 - distance / decay, 0.0, 1.0)
    weights: np.ndarray = t**2 * (3.0 - 2.0 * t)
    return weights
