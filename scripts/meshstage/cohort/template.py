"""The template: the mesh that all subjects share, its graph and its shape model."""

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyvista as pv
from pydantic import BaseModel, ConfigDict

from meshstage.cohort.names import EDGE_FEATURES, EDGE_INDEX, SHAPE_MODEL
from meshstage.cohort.shape_model import (
    ShapeModel,
    read_shape_model,
    restrict_shape_model,
    write_shape_model,
)
from meshstage.errors import InputError, Problem, at, collecting, raise_if_any
from meshstage.files import atomic, read_record, write_json
from meshstage.meshes.arrays import non_finite
from meshstage.meshes.cells import Cells, canonical_cells, mesh_edges
from meshstage.meshes.formats import template_name
from meshstage.meshes.reading import read_mesh, write_mesh
from meshstage.meshes.surface import POINT_IDS, extract_surface

Edges = Literal["cells", "triangulated"]

TEMPLATE_JSON = "template.json"


class SurfaceRecord(BaseModel):
    """The volume whose surface the template is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source_n_points: int
    source_fingerprint: str


class TemplateRecord(BaseModel):
    """What ``template.json`` holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: str
    n_points: int
    n_cells: int
    fingerprint: str
    edges: Edges
    n_edges: int
    n_isolated_points: int
    surface: SurfaceRecord | None
    warnings: list[str]


@dataclass(frozen=True)
class Surface:
    """The volume whose surface the template is.

    Parameters
    ----------
    source_n_points : int
        Of the volume.
    source_fingerprint : str
        Of the volume's cells.
    point_ids : (n_points,) int64
        The volume's point of each point of the template.
    """

    source_n_points: int
    source_fingerprint: str
    point_ids: np.ndarray


@dataclass(frozen=True)
class Template:
    """The mesh whose points are the nodes of the network.

    Parameters
    ----------
    directory : Path
        Where it is kept (the mesh's own folder, for one that is not).
    mesh_path : Path
    points : (n_points, 3) float64, mm
    cells : Cells
    fingerprint : str
        Of the cells, in the template's own order.
    source : str
        The file that the user named.
    edges : "cells" or "triangulated"
    pairs : (n_edges, 2) int64
        Undirected edges, ``i < j``.
    surface : Surface, optional
        For the surface of a volume.
    shape_model : ShapeModel, optional
    warnings : list of str
    """

    directory: Path
    mesh_path: Path
    points: np.ndarray
    cells: Cells
    fingerprint: str
    source: str
    edges: Edges
    pairs: np.ndarray
    surface: Surface | None = None
    shape_model: ShapeModel | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def n_points(self) -> int:
        """Number of points."""
        return len(self.points)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.cells.n_cells

    @property
    def n_isolated_points(self) -> int:
        """Number of points without an edge."""
        return self.n_points - len(np.unique(self.pairs))

    @property
    def n_pieces(self) -> int:
        """Number of sets of points that edges join, isolated points not counted."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        weights = np.ones(len(self.pairs), dtype=bool)
        graph = coo_array((weights, self.pairs.T), shape=(self.n_points, self.n_points))
        return int(connected_components(graph, directed=False)[0]) - self.n_isolated_points

    @property
    def n_places(self) -> int:
        """Number of different positions of the points."""
        return len(np.unique(self.points, axis=0))

    @cached_property
    def diagonal(self) -> float:
        """Diagonal of the bounding box, mm."""
        return float(np.linalg.norm(np.ptp(self.points, axis=0)))

    @cached_property
    def sketch(self) -> np.ndarray:
        """Weights that sum values at the points up in two numbers, (2, n_points) float64.

        Sums of two sets of values differ by about the RMS difference of the values: rounding in
        another encoding stays small in them, other values do not.
        """
        squares = np.arange(self.n_points, dtype=np.float64) ** 2 % 1e6
        return np.cos(np.outer([1.1, 2.3], squares)) / np.sqrt(self.n_points)

    @cached_property
    def edge_index(self) -> np.ndarray:
        """Edges in both directions, sorted by first then second point, (2, n_edges) int64."""
        both = np.concatenate([self.pairs, self.pairs[:, ::-1]])
        return np.ascontiguousarray(both[np.lexsort((both[:, 1], both[:, 0]))].T)

    @cached_property
    def edge_features(self) -> np.ndarray:
        """Row of edge (i, j): ``x_j - x_i`` and its length, (n_edges, 4) float32, mm."""
        start, end = self.edge_index
        difference = self.points[end] - self.points[start]  # float64: exact far from the origin
        length = np.linalg.norm(difference, axis=1, keepdims=True)
        return np.concatenate([difference, length], axis=1).astype(np.float32)

    def mesh(self) -> Any:
        """Read the template's mesh (pyvista)."""
        return read_mesh(self.mesh_path)


class Prepared(NamedTuple):
    """A template that is not yet written: its mesh, and what is wrong with its shape model."""

    template: Template
    mesh: Any
    problems: list[Problem]


def prepare_template(mesh_path: Path, surface: bool = False, edges: Edges = "cells") -> Prepared:
    """Read a template as a user brings it, without writing anything.

    Parameters
    ----------
    mesh_path : Path
        A ``pca_model.json`` beside it is its shape model.
    surface : bool
        Use the surface of a volume mesh as the template; nothing changes for a surface mesh.
    edges : "cells" or "triangulated"

    Returns
    -------
    Prepared
        Without a shape model if that one has problems: meshes can be judged all the same.

    Raises
    ------
    InputError
        If the mesh cannot be read, has values that are not finite, or all points lie at one
        place.
    """
    with at(file=mesh_path):
        return _prepare(mesh_path, surface, edges)


def _prepare(mesh_path: Path, surface: bool, edges: Edges) -> Prepared:
    mesh = read_mesh(mesh_path)
    if problem := non_finite(np.asarray(mesh.points), "points"):
        raise InputError(problem)
    if not np.ptp(np.asarray(mesh.points, dtype=np.float64), axis=0).any():
        raise InputError(Problem("all points of the template lie at one place", "use a mesh"))
    model_path = mesh_path.parent / SHAPE_MODEL
    model, problems = None, list[Problem]()
    if os.path.lexists(model_path):
        with collecting(problems):
            model = read_shape_model(model_path, mesh.n_points)
    volume = None
    if surface and isinstance(mesh, pv.UnstructuredGrid):
        outside = extract_surface(mesh)
        ids = np.asarray(outside.point_data[POINT_IDS], dtype=np.int64)
        volume = Surface(mesh.n_points, canonical_cells(mesh).fingerprint(), ids)
        model = model and restrict_shape_model(model, ids)
        mesh = outside
    cells = canonical_cells(mesh)
    template = Template(
        directory=mesh_path.parent,
        mesh_path=mesh_path,
        points=np.array(mesh.points, dtype=np.float64),
        cells=cells,
        fingerprint=cells.fingerprint(),
        source=str(mesh_path),
        edges=edges,
        pairs=mesh_edges(mesh, triangulated=edges == "triangulated"),
        surface=volume,
        shape_model=model,
    )
    template.warnings.extend(_warnings(template))
    return Prepared(template, mesh, problems)


def _warnings(template: Template) -> list[str]:
    found = []
    if not len(template.pairs):
        return ["the template has no edge: every point is isolated, only an MLP can use it"]
    if template.n_isolated_points:
        n, total = template.n_isolated_points, template.n_points
        found.append(f"{n} of {total} points are isolated (no edge joins them to another point)")
    n_pieces, n_places = template.n_pieces, template.n_places
    pieces = f"the edges leave {n_pieces} separate piece{'s' if n_pieces > 1 else ''}"
    if n_places < template.n_points:
        found.append(
            f"some points coincide ({template.n_points} points at {n_places} places) and {pieces}: "
            "a mesh of unmerged triangles looks so"
        )
    elif n_pieces > 1:
        found.append(f"{pieces}: a graph network passes nothing from one to another")
    return found


def build_template(
    mesh_path: Path, output: Path, surface: bool = False, edges: Edges = "cells"
) -> Template:
    """Read a template as a user brings it and write what training needs of it.

    Parameters
    ----------
    mesh_path : Path
        A ``pca_model.json`` beside it is its shape model.
    output : Path
        Folder: mesh, shape model, edge tensors and ``template.json`` are written there.
    surface : bool
        Use the surface of a volume mesh; its shape model is restricted to the surface.
    edges : "cells" or "triangulated"
        Edges are the sides of the cells, or of the triangles that the cells are cut into.

    Raises
    ------
    InputError
        As `prepare_template`, or if the shape model has problems; nothing is written then.
    """
    template, mesh, problems = prepare_template(mesh_path, surface, edges)
    raise_if_any(problems)
    copy = output / template_name(mesh_path, surface)
    if copy.suffix == ".vtu" and isinstance(mesh, pv.PolyData):
        mesh = mesh.cast_to_unstructured_grid()
    return write_template(template, mesh, copy)


def write_template(template: Template, mesh: Any, path: Path) -> Template:
    """Write a template's mesh to a path, and all else of it beside; gives what was written."""
    output = path.parent
    write_mesh(path, mesh)
    if template.shape_model:
        write_shape_model(output / SHAPE_MODEL, template.shape_model)
    _write_edges(output, template)
    record = TemplateRecord(
        source=template.source,
        n_points=template.n_points,
        n_cells=template.n_cells,
        fingerprint=template.fingerprint,
        edges=template.edges,
        n_edges=len(template.pairs),
        n_isolated_points=template.n_isolated_points,
        surface=_surface_record(template.surface),
        warnings=template.warnings,
    )
    write_json(output / TEMPLATE_JSON, record.model_dump())
    return replace(template, directory=output, mesh_path=path)


def _surface_record(surface: Surface | None) -> SurfaceRecord | None:
    if surface is None:
        return None
    return SurfaceRecord(
        source_n_points=surface.source_n_points, source_fingerprint=surface.source_fingerprint
    )


def _write_edges(output: Path, template: Template) -> None:
    import torch

    for name, array in (
        (EDGE_INDEX, template.edge_index),
        (EDGE_FEATURES, template.edge_features),
    ):
        # Into a stream: torch writes a file's name into its archive, and this one is temporary.
        with atomic(output / name) as temporary, temporary.open("wb") as stream:
            torch.save(torch.from_numpy(array), stream)


def load_template(directory: Path) -> Template:
    """Load what `build_template` wrote.

    Raises
    ------
    InputError
        If a file is missing, or the mesh is not the one that ``template.json`` describes.
    """
    path = directory / TEMPLATE_JSON
    record = read_record(path, TemplateRecord, "build the template again")
    mesh_path = next(directory.glob("pca_mean_template.vt[pu]"), directory / "pca_mean_template")
    mesh = read_mesh(mesh_path)
    cells = canonical_cells(mesh)
    if (cells.fingerprint(), mesh.n_points) != (record.fingerprint, record.n_points):
        what = f"has other cells than {TEMPLATE_JSON} says"
        raise InputError(Problem(what, "build the template again", str(mesh_path)))
    model_path = directory / SHAPE_MODEL
    surface = None
    if volume := record.surface:
        ids = np.array(mesh.point_data[POINT_IDS], dtype=np.int64)
        surface = Surface(volume.source_n_points, volume.source_fingerprint, ids)
    return Template(
        directory=directory,
        mesh_path=mesh_path,
        points=np.array(mesh.points, dtype=np.float64),
        cells=cells,
        fingerprint=record.fingerprint,
        source=record.source,
        edges=record.edges,
        pairs=mesh_edges(mesh, triangulated=record.edges == "triangulated"),
        surface=surface,
        shape_model=read_shape_model(model_path, mesh.n_points) if model_path.exists() else None,
        warnings=record.warnings,
    )
