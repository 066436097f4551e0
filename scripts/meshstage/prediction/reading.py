"""Read back the meshes that were predicted of one subject: its shape at rest and how it moves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.errors import InputError, Problem, at
from meshstage.meshes.arrays import non_finite, point_array
from meshstage.meshes.reading import read_mesh

MOVED_BY = "moved_by"
"""Field data of a predicted mesh: the point array that moved its points from rest."""


@dataclass(frozen=True)
class Motion:
    """The predicted motion of one subject.

    Parameters
    ----------
    names : list of str
        Of the files, without their ending; in the order of the stages asked for.
    mesh : pyvista mesh
        At rest.
    displacements : (n_phases, n_points, 3) float64, mm
    """

    names: list[str]
    mesh: Any
    displacements: np.ndarray

    @property
    def points(self) -> np.ndarray:
        """Points at rest, (n_points, 3) float64, mm."""
        return np.asarray(self.mesh.points, np.float64)


def read_motion(folder: Path) -> Motion:
    """Read what `meshstage.prediction.writing.write_prediction` wrote of one subject.

    Parameters
    ----------
    folder : Path
        The subject's own, with the meshes by phase.

    Raises
    ------
    InputError
        If there are no predicted meshes, or their points do not move.
    """
    paths = sorted(folder.glob("phase_*_stage_*.vt[pu]"))
    if not paths:
        what = "holds no predicted meshes (phase_*_stage_*.vtp or .vtu)"
        todo = "give the folder of one subject below what predict.py wrote"
        raise InputError(Problem(what, todo, str(folder)))
    meshes: list[Any] = []
    displacements: list[np.ndarray] = []
    for path in paths:
        mesh = read_mesh(path)
        with at(path):
            if MOVED_BY not in mesh.field_data:
                what = f"has no field data {MOVED_BY!r}: its target is no displacement"
                raise InputError(Problem(what, "predict a model of displacements"))
            moved_by = point_array(mesh, str(mesh.field_data[MOVED_BY][0])).astype(np.float64)
            points = np.asarray(mesh.points, np.float64)
            problem = non_finite(moved_by, "the displacement") or non_finite(points, "the points")
            if problem:
                raise InputError(problem)
            if moved_by.shape != (meshes or [mesh])[0].points.shape:
                raise InputError(Problem("has other points than the first phase", "predict again"))
            meshes.append(mesh)
            displacements.append(moved_by)
    rest = meshes[0].copy()
    rest.clear_data()
    rest.points = np.asarray(meshes[0].points, np.float64) - displacements[0]
    return Motion([path.stem for path in paths], rest, np.stack(displacements))
