"""Shape models of other people: written as a template with its modes, or drawn from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from meshstage.cohort.names import SHAPE_MODEL
from meshstage.cohort.shape_model import ShapeModel, restrict_shape_model, write_shape_model
from meshstage.errors import InputError, Problem
from meshstage.meshes.arrays import non_finite
from meshstage.preparation.source import PhaseMesh, ReaderOptions

if TYPE_CHECKING:
    import pyvista as pv


@dataclass(frozen=True)
class Atlas:
    """A shape model of one or more phases, whose points stand one phase after the other.

    Parameters
    ----------
    mesh : pyvista.PolyData
        The mean shape of the first phase, n_points.
    phases : tuple of str
    model : ShapeModel
        Of ``n_phases * n_points`` points, with a mean.
    """

    mesh: "pv.PolyData"
    phases: tuple[str, ...]
    model: ShapeModel

    def phase_mesh(self, phase: str, scores: np.ndarray) -> "pv.PolyData":
        """Give the mesh of one phase for scores in standard deviations, (n_scores,)."""
        assert self.model.mean is not None, "an atlas has a mean"
        spread = np.sqrt(self.model.eigenvalues[: len(scores)])
        shape = self.model.mean + (scores * spread) @ self.model.components[: len(scores)]
        moved = self.mesh.copy()
        moved.points = shape.reshape(len(self.phases), -1, 3)[self.phases.index(phase)]
        return moved

    def phase_model(self, phase: str, modes: int | None) -> ShapeModel:
        """Give the first modes as they move one phase; scores keep their meaning."""
        n_points = self.mesh.n_points
        first = ShapeModel(
            self.model.eigenvalues[:modes], self.model.components[:modes], self.model.mean
        )
        return restrict_shape_model(
            first, np.arange(n_points) + n_points * self.phases.index(phase)
        )


def atlas_model(eigenvalues: np.ndarray, components: np.ndarray, mean: np.ndarray) -> ShapeModel:
    """Check the numbers of an atlas.

    Parameters
    ----------
    eigenvalues : (n_modes,) float64, mm^2
    components : (n_modes, n_numbers) float64
        Unit vectors but for the rounding of a text file.
    mean : (n_numbers,) float64, mm

    Raises
    ------
    InputError
        If counts differ, numbers are not finite, or components are no unit vectors.
    """
    todo = "name the files of one atlas, whole"
    if components.shape != (len(eigenvalues), len(mean)):
        n_modes, length = components.shape
        what = (
            f"there are {len(eigenvalues)} variances and a mean of {len(mean)} numbers, but "
            f"{n_modes} modes of {length} numbers"
        )
        raise InputError(Problem(what, todo))
    for name, values in (("variances", eigenvalues), ("modes", components), ("mean", mean)):
        if problem := non_finite(values.reshape(len(values), -1), name):
            raise InputError(problem)
    if (eigenvalues < 0).any():
        raise InputError(Problem(f"a variance is negative ({eigenvalues.min():g})", todo))
    lengths = np.linalg.norm(components, axis=1)
    worst = int(np.abs(lengths - 1).argmax())
    if abs(lengths[worst] - 1) > 0.1:
        raise InputError(Problem(f"mode {worst} has length {lengths[worst]:g}, not 1", todo))
    # What rounding cut off goes to the variance: the product moves points as the files say.
    return restrict_shape_model(
        ShapeModel(eigenvalues, components, mean), np.arange(len(mean) // 3)
    )


def write_atlas(atlas: Atlas, phase: str, modes: int | None, folder: Path) -> Path:
    """Write ``pca_mean.vtp`` and ``pca_model.json`` of one phase; gives the mesh's path."""
    from meshstage.meshes.reading import write_mesh

    model = atlas.phase_model(phase, _checked_modes(atlas, modes))
    write_shape_model(folder / SHAPE_MODEL, model)
    path = folder / "pca_mean.vtp"
    write_mesh(path, atlas.phase_mesh(phase, np.zeros(0)))
    return path


class AtlasOptions(ReaderOptions):
    """How synthetic subjects are drawn."""

    subjects: int = Field(100, ge=1, description="synthetic subjects to draw")
    score_seed: int = Field(0, ge=0, description="seed of their shape scores")
    atlas_modes: int | None = Field(
        None, ge=1, description="the first modes only (without it: all of the atlas)"
    )


def synthetic_subjects(
    load: Callable[[], Atlas],
    phases: tuple[str, ...],
    files: tuple[Path, ...],
    options: AtlasOptions,
) -> list[PhaseMesh]:
    """List subjects whose scores are drawn from a standard normal distribution.

    A subject's scores depend on the seed and its number alone; stages are the index of the phase.
    """
    return [
        PhaseMesh(
            subject=f"synthetic_{number:05d}",
            phase=phase,
            stage=float(index),
            split=None,
            files=files,
            read=partial(_draw, load, phase, number, options),
        )
        for number in range(options.subjects)
        for index, phase in enumerate(phases)
    ]


def _draw(
    load: Callable[[], Atlas], phase: str, number: int, options: AtlasOptions
) -> "pv.PolyData":
    atlas = load()
    n_modes = _checked_modes(atlas, options.atlas_modes) or atlas.model.n_modes
    rng = np.random.default_rng([options.score_seed, number])
    return atlas.phase_mesh(phase, rng.standard_normal(n_modes))


def _checked_modes(atlas: Atlas, modes: int | None) -> int | None:
    if modes is not None and modes > atlas.model.n_modes:
        what = f"{modes} modes are asked for, the atlas has {atlas.model.n_modes}"
        raise InputError(Problem(what, "ask for fewer modes"))
    return modes
