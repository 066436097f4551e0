"""What cardiologists read of a moving mesh: volumes, and stretch along and around the long axis."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyvista as pv

from meshstage.errors import InputError, Problem
from meshstage.judging.metrics import corners_of, is_closed
from meshstage.meshes.surface import triangles_of

# Where the surface faces along the axis, as at an apex, there is no direction around it.
_LEAST_SINE = 0.1
_MM3_PER_ML = 1000.0


class Quantity(NamedTuple):
    """One number of a shape: what it is called, its unit, and whether it is given by region."""

    name: str
    unit: str
    by_region: bool = False


QUANTITIES = (
    Quantity("cavity_volume", "ml"),
    Quantity("ejected_fraction", "%"),
    Quantity("wall_volume", "ml"),
    Quantity("longitudinal_stretch", "", by_region=True),
    Quantity("circumferential_stretch", "", by_region=True),
)


@dataclass(frozen=True)
class Cavity:
    """The part of a template's surface that encloses a cavity, open where valves are.

    Parameters
    ----------
    triangles : (n_triangles, 3) int64
        Of the template's points, all turned the same way.
    rims : tuple of (n_on_rim,) int64 arrays
        Points of each open rim, in order against the triangles' sense; the longest first.
    wall : (n, 3) or (n, 4) int64, optional
        The wall: triangles that close it, or its tetrahedra.
    regions : mapping of str to (n_points,) bool
        Which points are in a region.
    n_points : int
        Of the template.
    """

    triangles: np.ndarray
    rims: tuple[np.ndarray, ...]
    wall: np.ndarray | None
    regions: Mapping[str, np.ndarray]
    n_points: int = 0

    @cached_property
    def triangles_of_regions(self) -> dict[str, np.ndarray]:
        """Triangles with all corners in a region, by its name; "" is all of them."""
        inside = {name: points[self.triangles].all(axis=1) for name, points in self.regions.items()}
        everywhere = np.ones(len(self.triangles), bool)
        return {"": everywhere, **{name: which for name, which in inside.items() if which.any()}}


def points_where(mesh: pv.DataSet, array: str, value: float) -> np.ndarray:
    """Tell which points have a value of a point array, or a corner in such a cell, (n_points,).

    Raises
    ------
    InputError
        If there is no such array of numbers, or no point with that value.
    """
    for data in (mesh.point_data, mesh.cell_data):
        if array in data and np.asarray(data[array]).ndim == 1:
            has = np.asarray(data[array]) == value
            break
    else:
        known = ", ".join([*mesh.point_data.keys(), *mesh.cell_data.keys()]) or "none"
        what = f"the template has no array {array!r} of one number each (it has: {known})"
        raise InputError(Problem(what, "name one of its arrays"))
    if not has.any():
        raise InputError(Problem(f"no {array} of the template is {value:g}", "give another value"))
    if array in mesh.point_data:
        return has
    found = np.zeros(mesh.n_points, bool)
    found[corners_of(mesh, has)] = True
    return found


def cavity_of(mesh: pv.DataSet, inner: np.ndarray, regions: Mapping[str, np.ndarray]) -> Cavity:
    """Find the cavity's surface on a template.

    Parameters
    ----------
    mesh : pyvista mesh
        The template, a surface or tetrahedra.
    inner : (n_points,) bool
        Points on the cavity's surface.
    regions : mapping of str to (n_points,) bool

    Raises
    ------
    InputError
        If no triangle of the surface has all corners there, its triangles are not turned alike,
        two of its parts meet in one point, or nothing encloses a volume.
    """
    surface = triangles_of(mesh)
    triangles = surface[inner[surface].all(axis=1)]
    if not len(triangles):
        what = "no triangle of the template's surface has all corners in the cavity's region"
        raise InputError(Problem(what, "name the array and value of the cavity's surface"))
    wall = None
    if isinstance(mesh, pv.UnstructuredGrid) and (mesh.celltypes == pv.CellType.TETRA).all():
        wall = np.asarray(mesh.cell_connectivity, np.int64).reshape(-1, 4)
    elif is_closed(surface):
        wall = surface
    return Cavity(triangles, _rims(triangles), wall, regions, mesh.n_points)


def _rims(triangles: np.ndarray) -> tuple[np.ndarray, ...]:
    """Follow the edges that one triangle has, backwards: so that caps are turned as triangles are.

    A cap is a fan from the middle of its rim.
    """
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    directed = set(map(tuple, edges.tolist()))
    if len(directed) < len(edges):
        what = "triangles of the cavity's surface are not turned alike, or three share an edge"
        raise InputError(Problem(what, "orient the template's triangles alike"))
    following: dict[int, int] = {}
    for a, b in directed:
        if (b, a) not in directed:
            if b in following:
                what = f"two rims of the cavity's surface meet at point {b} of the template"
                raise InputError(Problem(what, "widen the region, or leave single triangles out"))
            following[b] = a
    rims = []
    while following:
        start, rim = next(iter(following)), list[int]()
        point = start
        while point in following:
            rim.append(point)
            point = following.pop(point)
        if point != start:
            what = "triangles of the cavity's surface are not turned alike"
            raise InputError(Problem(what, "orient the template's triangles alike"))
        rims.append(np.array(rim))
    return tuple(sorted(rims, key=lambda rim: (-len(rim), rim.min())))


def volume(triangles: np.ndarray, points: np.ndarray) -> float:
    """Volume within a closed surface, mm³, by the divergence theorem; positive turned outwards."""
    a, b, c = (points[triangles[:, k]] for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def cavity_volume(cavity: Cavity, points: np.ndarray) -> float:
    """Volume that the cavity's surface and flat caps on its rims enclose, mm³.

    Negative where triangles are turned inwards, as those on the inner side of a wall are: a shape
    that is turned inside out has the other sign.

    Parameters
    ----------
    cavity : Cavity
    points : (n_points, 3) array, mm
    """
    middles = [points[rim].mean(axis=0) for rim in cavity.rims]
    caps = []
    for number, rim in enumerate(cavity.rims):
        tip = np.full(len(rim), len(points) + number)
        caps.append(np.stack([tip, rim, np.roll(rim, -1)], axis=1))
    everything = np.concatenate([points, *(m[None] for m in middles)])
    return volume(np.concatenate([cavity.triangles, *caps]), everything)


def wall_volume(cavity: Cavity, points: np.ndarray) -> float | None:
    """Volume of the wall, mm³; None if the template is no closed surface and no tetrahedra."""
    wall = cavity.wall
    if wall is None:
        return None
    if wall.shape[1] == 3:
        return abs(volume(wall, points))
    corners = points[wall]
    return float(np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])).sum() / 6)


class Directions(NamedTuple):
    """Local directions on the cavity's surface of one reference, and what they are measured by.

    Parameters
    ----------
    longitudinal, circumferential : (n_triangles, 3) array
        Unit vectors in the triangles' planes.
    areas : (n_triangles,) array, mm²
        0 where there is no direction around the axis.
    inverse : (n_triangles, 2, 3) array
        Pseudo-inverse of the two edges from each triangle's first corner.
    """

    longitudinal: np.ndarray
    circumferential: np.ndarray
    areas: np.ndarray
    inverse: np.ndarray


def directions(cavity: Cavity, reference: np.ndarray) -> Directions:
    """Lay out directions on a reference.

    The long axis goes from the middle of the surface, by area, to the middle of the longest rim.
    Around it is ``axis x normal``, along it the direction in the surface that is perpendicular to
    that.

    The surface must have a rim: a closed one has no base.
    """
    edges = _edges(cavity.triangles, reference)
    normals = np.cross(edges[:, :, 0], edges[:, :, 1])
    doubled = np.linalg.norm(normals, axis=1)
    normals /= np.maximum(doubled, 1e-300)[:, None]
    middle = np.average(reference[cavity.triangles].mean(axis=1), axis=0, weights=doubled)
    axis = reference[cavity.rims[0]].mean(axis=0) - middle
    axis /= np.linalg.norm(axis)
    around = np.cross(axis, normals)
    sine = np.linalg.norm(around, axis=1)
    around /= np.maximum(sine, 1e-300)[:, None]
    areas = np.where(sine > _LEAST_SINE, doubled / 2, 0.0)
    return Directions(np.cross(normals, around), around, areas, np.linalg.pinv(edges))


def _edges(triangles: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Give two edges of each triangle as columns, (n_triangles, 3, 2)."""
    corners = points[triangles]
    edges: np.ndarray = np.moveaxis(corners[:, 1:] - corners[:, :1], 1, 2)
    return edges


def stretches(cavity: Cavity, laid: Directions, points: np.ndarray) -> dict[str, tuple[float, ...]]:
    """Mean stretch along and around the axis by region, weighted by area at rest.

    With ``F`` the deformation gradient of a triangle in its plane and ``d`` a unit vector at rest,
    the stretch is ``|F d|``: 1 is no change, 0.8 shorter by a fifth.

    Returns
    -------
    dict
        Region ("" is all) to (longitudinal, circumferential).
    """
    gradients = _edges(cavity.triangles, points) @ laid.inverse
    along, around = (
        np.linalg.norm(np.einsum("nij,nj->ni", gradients, d), axis=1)
        for d in (laid.longitudinal, laid.circumferential)
    )
    found = {}
    for name, which in cavity.triangles_of_regions.items():
        areas = laid.areas * which
        if areas.sum() > 0:
            found[name] = tuple(float(areas @ s / areas.sum()) for s in (along, around))
    return found


class Rest(NamedTuple):
    """What is measured of a reference once: its cavity's signed volume, mm³, and directions."""

    volume: float
    directions: Directions | None


def at_rest(cavity: Cavity, reference: np.ndarray) -> Rest:
    """Measure a reference, (n_points, 3) mm; a closed surface has no directions.

    Raises
    ------
    InputError
        If the cavity encloses no volume there.
    """
    rest = cavity_volume(cavity, reference)
    # A closed form of a flat shape is 0 but for rounding.
    if abs(rest) <= 1e-9 * float(np.ptp(reference, axis=0).max()) ** 3:
        what = "the cavity's surface encloses no volume on the subject's reference"
        raise InputError(Problem(what, "name the array and value of a surface that bulges"))
    return Rest(rest, directions(cavity, reference) if cavity.rims else None)


def measure(cavity: Cavity, rest: Rest, points: np.ndarray) -> Iterator[tuple[str, str, float]]:
    """Measure a moved shape.

    Parameters
    ----------
    cavity : Cavity
    rest : Rest
        Of its reference.
    points : (n_points, 3) array, mm

    Yields
    ------
    quantity : str
        A name of `QUANTITIES`. The ejected fraction is ``100 (1 - V / V_reference)``. A closed
        surface has no stretches.
    region : str
    value : float
    """
    now = cavity_volume(cavity, points)
    yield "cavity_volume", "", now * np.sign(rest.volume) / _MM3_PER_ML
    yield "ejected_fraction", "", 100 * (1 - now / rest.volume)
    wall = wall_volume(cavity, points)
    if wall is not None:
        yield "wall_volume", "", wall / _MM3_PER_ML
    if rest.directions is None:
        return  # nothing tells base from apex
    for region, found in stretches(cavity, rest.directions, points).items():
        yield "longitudinal_stretch", region, found[0]
        yield "circumferential_stretch", region, found[1]
