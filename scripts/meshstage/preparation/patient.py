"""A new patient: a mesh in correspondence becomes scores, an alignment and a manifest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyvista as pv

from meshstage.cohort.alignment import ALIGNMENT, Align, write_alignment
from meshstage.cohort.names import SHAPE_MODEL, subject_stem
from meshstage.cohort.shape_model import ShapeModel, read_shape_model
from meshstage.errors import InputError, Problem
from meshstage.files import write_json
from meshstage.meshes.arrays import non_finite, point_array
from meshstage.meshes.cells import cell_fingerprint
from meshstage.meshes.reading import write_mesh
from meshstage.meshes.surface import POINT_IDS, extract_surface
from meshstage.models.directory import find_model
from meshstage.preparation.procrustes import transform_points
from meshstage.preparation.scoring import Scored, score_points

PARTIAL_NOISE_MM = 1.0
"""Standard deviation of a seen point's error, where nothing else is said: a voxel or so."""


@dataclass(frozen=True)
class ShapeSpace:
    """What the shape scores of a model stand for.

    Parameters
    ----------
    mesh : pyvista mesh
        The template.
    model : ShapeModel
    n_scores : int
        That the model takes: those of the first modes.
    """

    mesh: Any
    model: ShapeModel
    n_scores: int

    @property
    def mean(self) -> np.ndarray:
        """The mean shape, (n_points, 3) float64, mm."""
        return self.model.mean_points(np.asarray(self.mesh.points, np.float64))


def shape_space(mesh: Any, folder: Path, n_scores: int | None) -> ShapeSpace:
    """Read the shape model that lies beside a model's template.

    Parameters
    ----------
    mesh : pyvista mesh
        The template.
    folder : Path
    n_scores : int, optional
        That the model takes; by default one per mode.

    Raises
    ------
    InputError
        If there is no shape model, it does not fit the template, or has too few modes.
    """
    path = folder / SHAPE_MODEL
    if not path.exists():
        what = f"the model has no {SHAPE_MODEL}, so nothing says what its shape scores mean"
        raise InputError(Problem(what, "copy the one of its cohort there", str(folder)))
    model = read_shape_model(path, mesh.n_points)
    n_scores = model.n_modes if n_scores is None else n_scores
    if n_scores > model.n_modes:
        what = f"the model takes {n_scores} shape scores, its shape model has {model.n_modes} modes"
        raise InputError(Problem(what, "copy the shape model of its cohort there", str(path)))
    return ShapeSpace(mesh, model, n_scores)


def read_shape_space(model_directory: Path) -> ShapeSpace:
    """Find what the shape scores of a trained model stand for; loads no weights.

    Raises
    ------
    InputError
        If there is no model or no template, or as `shape_space`.
    """
    found = find_model(model_directory)
    mesh, folder = found.template()
    scores = found.metadata.get("pca_mean")
    return shape_space(mesh, folder, len(scores) if isinstance(scores, list) else None)


def corresponding_points(mesh: Any, template: Any) -> np.ndarray:
    """Give the points of a mesh that are those of a template.

    Parameters
    ----------
    mesh, template : pyvista mesh
        The mesh has the template's cells, or is the volume whose surface the template is.

    Returns
    -------
    (n_points, 3) float64 array, mm

    Raises
    ------
    InputError
        If the mesh has other points or cells, or points that are not finite.
    """
    ids = template.point_data.get(POINT_IDS)
    if ids is not None and isinstance(mesh, pv.UnstructuredGrid):
        surface = extract_surface(mesh)
        if np.array_equal(surface.point_data[POINT_IDS], ids):
            mesh = surface
    problem = non_finite(np.asarray(mesh.points), "the points")
    what = None
    if mesh.n_points != template.n_points:
        what = f"has {mesh.n_points} points, the model's template has {template.n_points}"
    elif cell_fingerprint(mesh) != cell_fingerprint(template):
        what = "has other cells than the model's template"
    if what:
        problem = Problem(what, "fit it with the template that the model was trained on")
    if problem:
        raise InputError(problem)
    return np.array(mesh.points, np.float64)


def score_mesh(
    space: ShapeSpace,
    mesh: Any,
    align: Align = "rigid",
    weights: np.ndarray | None = None,
    point_ids: np.ndarray | None = None,
    noise: float | None = None,
) -> Scored:
    """Find shape scores and alignment of a patient's mesh, see `score_points` for the formula.

    Parameters
    ----------
    space : ShapeSpace
    mesh : pyvista mesh
        In correspondence with the template: its points and cells, or some of its points.
    align : "none", "rigid" or "similarity"
        As the meshes of the model's cohort were brought together.
    weights : (mesh.n_points,) array, optional
        How much each point counts, 0 where nothing was seen.
    point_ids : (mesh.n_points,) integers, optional
        Of a mesh that is a part: the template's point, from 0, of each of its points.
    noise : float, mm, optional
        Standard deviation of the points' error. By default 0 for a whole mesh, which is
        projected, and 1 with weights or point ids.

    Raises
    ------
    InputError
        If the mesh is not in correspondence, mirrored, in another unit, or too small a part.
    """
    mean, modes = space.mean, space.model.modes(space.n_scores)
    if point_ids is None:
        points = corresponding_points(mesh, space.mesh)
    else:
        ids = _checked_ids(np.asarray(point_ids), mesh.n_points, len(mean))
        points, mean, modes = np.asarray(mesh.points, np.float64), mean[ids], modes[:, ids]
        if problem := non_finite(points, "the points"):
            raise InputError(problem)
    if noise is None:
        noise = 0.0 if weights is None and point_ids is None else PARTIAL_NOISE_MM
    return score_points(points, mean, modes, align, weights, noise)


def _checked_ids(ids: np.ndarray, n_ids: int, n_points: int) -> np.ndarray:
    what = None
    if ids.shape != (n_ids,) or ids.dtype.kind not in "iu":
        what = f"point ids are {ids.dtype} {ids.shape}, not one whole number per point ({n_ids})"
    elif n_ids and (ids.min() < 0 or ids.max() >= n_points):
        what = f"a point id is not within 0 and {n_points - 1}, the template's points"
    elif len(np.unique(ids)) < n_ids:
        what = "a point id stands twice"
    if what:
        raise InputError(Problem(what, "give the template's point, from 0, of each point"))
    return ids


def array_of(mesh: Any, name: str | None) -> np.ndarray | None:
    """Give a point array of one number per point by its name; None without a name.

    Raises
    ------
    InputError
        If there is none, or it has more components.
    """
    if name is None:
        return None
    if name not in mesh.point_data:
        raise InputError(Problem(f"has no point array {name!r}", "save it at the points"))
    values = point_array(mesh, name)
    if values.shape[1] != 1:
        what = f"the point array {name!r} has {values.shape[1]} numbers per point"
        raise InputError(Problem(what, "save one per point"))
    return values[:, 0]


def write_patient(
    output: Path, name: str, space: ShapeSpace, scored: Scored, align: Align, mesh: Any | None
) -> Path:
    """Write what predicting needs of a patient, in a folder of its own.

    Parameters
    ----------
    output : Path
    name : str
        The subject's id.
    space : ShapeSpace
    scored : Scored
    align : "none", "rigid" or "similarity"
    mesh : pyvista mesh, optional
        The patient's whole mesh, written in the template's space as the reference. Of a part
        there is none: predicting then moves the shape that the scores describe.

    Returns
    -------
    Path
        The manifest.
    """
    folder = output / subject_stem(name)
    manifest = {"subject_id": name, "pca_coefficients": "pca.json", "alignment": ALIGNMENT}
    write_json(folder / "pca.json", scored.shape_scores.tolist())
    write_alignment(folder / ALIGNMENT, align, {name: scored.matrix})
    if mesh is not None:
        reference = space.mesh.copy()
        reference.clear_data()
        reference.points = transform_points(scored.matrix, corresponding_points(mesh, space.mesh))
        suffix = ".vtp" if isinstance(reference, pv.PolyData) else ".vtu"
        manifest["fitted_reference_mesh"] = f"reference{suffix}"
        write_mesh(folder / f"reference{suffix}", reference)
    write_json(folder / "manifest.json", manifest)
    return folder / "manifest.json"
