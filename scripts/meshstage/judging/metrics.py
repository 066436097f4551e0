"""How far a prediction is from the truth: point errors, surfaces, volumes, inverted cells."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyvista as pv

from meshstage.errors import InputError, Problem

_MOST_REGIONS = 64

# Corners of the linear solid cells of VTK: a corner and its three neighbours, in the order that
# gives a positive determinant for a cell numbered as the VTK book draws it. A pyramid's tip has
# four neighbours; its base corners say all.
_CORNERS = {
    pv.CellType.TETRA: [(0, 1, 2, 3)],
    pv.CellType.PYRAMID: [(0, 1, 3, 4), (1, 2, 0, 4), (2, 3, 1, 4), (3, 0, 2, 4)],
    pv.CellType.WEDGE: [
        (0, 2, 1, 3),
        (1, 0, 2, 4),
        (2, 1, 0, 5),
        (3, 4, 5, 0),
        (4, 5, 3, 1),
        (5, 3, 4, 2),
    ],
    pv.CellType.HEXAHEDRON: [
        (0, 1, 3, 4),
        (1, 2, 0, 5),
        (2, 3, 1, 6),
        (3, 0, 2, 7),
        (4, 7, 5, 0),
        (5, 4, 6, 1),
        (6, 5, 7, 2),
        (7, 6, 4, 3),
    ],
    pv.CellType.VOXEL: [
        (0, 1, 2, 4),
        (1, 3, 0, 5),
        (2, 0, 3, 6),
        (3, 2, 1, 7),
        (4, 6, 5, 0),
        (5, 4, 7, 1),
        (6, 7, 4, 2),
        (7, 5, 6, 3),
    ],
}


def rmse(square: np.ndarray) -> float:
    """Root of the mean over points (and samples) of squared error lengths."""
    return float(np.sqrt(square.mean()))


def skill(error: float | None, baseline: float | None) -> float | None:
    """Give ``1 - error / baseline``: 1 perfect, 0 no better; None without a baseline to beat."""
    if error is None or baseline is None or baseline <= 0:
        return None
    return 1.0 - error / baseline


def weighted_percentile(values: np.ndarray, weights: np.ndarray, percent: float) -> float:
    """Least value that at least ``percent`` of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    # Weights that sum to rounding below the share must not push the index past the end.
    index = np.searchsorted(total, percent / 100 * total[-1] * (1 - 1e-12))
    return float(values[order][min(index, len(values) - 1)])


def point_weights(mesh: pv.DataSet) -> np.ndarray:
    """Share of the mesh's area (surface) or volume (solid) at each point.

    Returns
    -------
    (n_points,) array, mm^2 or mm^3
        Each cell of the highest dimension gives its size to its corners in equal parts.
    """
    solid = mesh.cast_to_unstructured_grid()
    sizes = solid.compute_cell_sizes(length=False, area=True, volume=True)
    volume, area = np.abs(sizes.cell_data["Volume"]), np.abs(sizes.cell_data["Area"])
    size = volume if volume.any() else area
    corners = np.diff(_offsets(solid))
    share = np.repeat(size / np.maximum(corners, 1), corners)
    return np.bincount(solid.cell_connectivity, weights=share, minlength=mesh.n_points)


def _offsets(grid: pv.UnstructuredGrid) -> np.ndarray:
    """Where each cell starts in the connectivity, (n_cells + 1,)."""
    return pv.convert_array(grid.GetCells().GetOffsetsArray())


def is_closed(triangles: np.ndarray) -> bool:
    """Tell whether each edge is used once in either direction: closed and oriented."""
    if not len(triangles):
        return False
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    forward, times = np.unique(edges, axis=0, return_counts=True)
    backward = np.unique(edges[:, ::-1], axis=0)
    return bool((times == 1).all()) and np.array_equal(forward, backward)


def enclosed_volume(points: np.ndarray, triangles: np.ndarray) -> float:
    """Volume within a closed surface, in the points' unit cubed (divergence theorem)."""
    a, b, c = (points[triangles[:, k]].astype(np.float64) for k in range(3))
    return float(abs(np.einsum("ij,ij->", a, np.cross(b, c))) / 6)


def corner_tetrahedra(mesh: pv.DataSet) -> tuple[np.ndarray, np.ndarray] | None:
    """Corners of a solid mesh's cells, each with its three neighbours.

    Returns
    -------
    corners : (n_corners, 4) array of int
    cell : (n_corners,) array of int
        Cell that the corner belongs to.
    None
        If the mesh has no solid cell, or one whose corners are not known here.
    """
    grid = mesh.cast_to_unstructured_grid()
    types = np.asarray(grid.celltypes)
    corners, cells = [], []
    for kind in np.unique(types):
        which = np.flatnonzero(types == kind)
        if pv.CellType(kind) in _CORNERS:
            first = _offsets(grid)[which]
            for corner in _CORNERS[pv.CellType(kind)]:
                corners.append(grid.cell_connectivity[first[:, None] + np.array(corner)])
                cells.append(which)
        elif grid.get_cell(int(which[0])).dimension == 3:
            return None
    return (np.concatenate(corners), np.concatenate(cells)) if corners else None


def count_inverted(
    points: np.ndarray, reference: np.ndarray, corners: tuple[np.ndarray, np.ndarray]
) -> int:
    """Count cells with a corner that is turned inside out, or flat, compared to the reference."""

    def orientation(at: np.ndarray) -> np.ndarray:
        x = np.asarray(at, np.float64)[corners[0]]
        return np.linalg.det(x[:, 1:] - x[:, :1])

    # The sign of the reference, and not "positive": some programs number cells the other way.
    turned = orientation(points) * np.sign(orientation(reference)) <= 0
    flat_before = orientation(reference) == 0
    return len(np.unique(corners[1][turned & ~flat_before]))


def surface_distances(
    first: np.ndarray, second: np.ndarray, triangles: np.ndarray
) -> tuple[float, float] | None:
    """Distances between two surfaces with the same triangles, sampled at their points.

    Parameters
    ----------
    first, second : (n_points, 3) array, mm
    triangles : (n_triangles, 3) array of int

    Returns
    -------
    assd_mm, hd95_mm : float
        Average symmetric surface distance, and the larger of the two directed 95th percentiles.
        Both weigh a point by its share of its surface's area, so that a fine patch of the mesh
        does not count more. None if a surface has no area.

    References
    ----------
    Yeghiazaryan and Voiculescu (2018), J Med Imaging 5(1):015006, for the two measures.
    """
    meshes = [
        pv.PolyData.from_regular_faces(np.asarray(p, float), triangles) for p in (first, second)
    ]
    weights = [point_weights(mesh) for mesh in meshes]
    if not all(w.sum() > 0 for w in weights):
        return None
    directed = []
    for source, target, weight in zip(meshes, meshes[::-1], weights, strict=True):
        used = weight > 0
        distance = _distance_to_surface(source.points[used], target)
        directed.append((distance, weight[used]))
    total = sum(float(w.sum()) for _, w in directed)
    assd = sum(float(d @ w) for d, w in directed) / total
    return assd, max(weighted_percentile(d, w, 95) for d, w in directed)


def _distance_to_surface(points: np.ndarray, surface: pv.PolyData) -> np.ndarray:
    found: Any = surface.find_closest_cell(points, return_closest_point=True)
    return np.linalg.norm(points - found[1], axis=1)


def bootstrap_interval(
    sums: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    n_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """95 % percentile interval of a statistic, resampling whole subjects.

    Parameters
    ----------
    sums : (n_subjects, n_sums) array
        Additive parts of the statistic per subject, such as squared error and points.
    statistic : function
        From (n_resamples, n_sums) totals to (n_resamples,) values.
    n_resamples, seed : int
        The same numbers give the same interval.

    Returns
    -------
    low, high : float
        None for fewer than two subjects, or where a resample has no finite value.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
    """
    n_subjects = len(sums)
    if n_subjects < 2:
        return None
    generator = np.random.default_rng(seed)
    times = generator.multinomial(n_subjects, np.full(n_subjects, 1 / n_subjects), n_resamples)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(times @ np.asarray(sums, np.float64))
    if not np.isfinite(values).all():
        return None
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def region_points(mesh: pv.DataSet, array: str) -> dict[str, np.ndarray]:
    """Points of each region that an array of the mesh names.

    Parameters
    ----------
    mesh : pyvista mesh
    array : str
        A point array, or a cell array (a region then has the corners of its cells), of whole
        numbers or text.

    Returns
    -------
    dict
        Label to the (n_in_region,) indices of its points, labels in order.

    Raises
    ------
    InputError
        If there is no such array, or it does not name regions.
    """
    on_points = array in mesh.point_data
    if not on_points and array not in mesh.cell_data:
        known = ", ".join([*mesh.point_data.keys(), *mesh.cell_data.keys()]) or "none"
        raise InputError(
            Problem(
                f"the template has no array {array!r} for regions (it has: {known})",
                "name one of its arrays",
            )
        )
    values = np.asarray(mesh.point_data[array] if on_points else mesh.cell_data[array])
    labels = np.unique(values)
    whole = values.dtype.kind in "iubUS" or np.array_equal(values, np.round(values))
    if values.ndim != 1 or not whole or len(labels) > _MOST_REGIONS:
        raise InputError(
            Problem(
                f"the array {array!r} does not name regions: {len(labels)} different values",
                f"use whole numbers or text, at most {_MOST_REGIONS} of them",
            )
        )
    named = {str(v if values.dtype.kind in "US" else int(v)): values == v for v in labels}
    if on_points:
        return {name: np.flatnonzero(inside) for name, inside in named.items()}
    return {name: corners_of(mesh, inside) for name, inside in named.items()}


def corners_of(mesh: pv.DataSet, cells: np.ndarray) -> np.ndarray:
    """Points that some cells have, (n_cells,) bool to their rising indices."""
    grid = mesh.cast_to_unstructured_grid()
    return np.unique(grid.cell_connectivity[np.repeat(cells, np.diff(_offsets(grid)))])
