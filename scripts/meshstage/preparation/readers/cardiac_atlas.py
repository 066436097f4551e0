"""Atlases of the Cardiac Atlas Project: mean and modes of both phases in one HDF5 file."""

from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from pydantic import Field

from meshstage.errors import InputError, Problem, at, raise_if_any
from meshstage.files import file_problem
from meshstage.preparation.atlas import Atlas, AtlasOptions, atlas_model, synthetic_subjects
from meshstage.preparation.number_files import read_triangles
from meshstage.preparation.source import PhaseMesh, Reader

PHASES = ("ED", "ES")  # end-diastole, end-systole: the order in the file
ARRAYS = ("MU", "COEFF", "LATENT")  # mean, modes, variances


class CardiacAtlasOptions(AtlasOptions):
    """The file holds points, and no cells."""

    triangles: Path = Field(description="triangles of the surface, points counted from 1")


def load(source: Path, options: CardiacAtlasOptions) -> Atlas:
    """Read ``/MU``, ``/COEFF`` and ``/LATENT``.

    Raises
    ------
    InputError
        If h5py or a file is missing, broken, or does not go with the others.
    """
    return _load(source, options.triangles)


@lru_cache(maxsize=1)
def _load(source: Path, triangles: Path) -> Atlas:
    import pyvista as pv

    with at(file=source):
        if problem := file_problem(source):
            raise InputError(problem)
        mean, modes, variances = _read(source)
        # MATLAB's columns are rows of HDF5; other programs write the modes as they think of them.
        if modes.shape[-1] != len(mean):
            modes = modes.T
        model = atlas_model(variances, modes, mean)
        if len(mean) % (3 * len(PHASES)):
            what = f"/MU holds {len(mean)} numbers, which are no points of two phases"
            raise InputError(Problem(what, "name an atlas of both phases"))
    points = mean.reshape(len(PHASES), -1, 3)[0]
    mesh = pv.PolyData.from_regular_faces(points, read_triangles(triangles, len(points)))
    return Atlas(mesh, PHASES, model)


def _read(source: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    try:
        import h5py
    except ImportError:
        what = "is read by h5py, which is not installed"
        raise InputError(Problem(what, "pip install h5py")) from None
    try:
        with h5py.File(source) as file:
            held = {name: np.array(file[name], np.float64) for name in ARRAYS if name in file}
    except (OSError, TypeError, ValueError):
        what = "cannot be read as HDF5, it is damaged or incomplete"
        raise InputError(Problem(what, "download it again")) from None
    if missing := [f"/{name}" for name in ARRAYS if name not in held]:
        what = f"has no {', '.join(missing)}"
        raise InputError(Problem(what, "name an atlas of the Cardiac Atlas Project"))
    return held["MU"].ravel(), np.atleast_2d(held["COEFF"]), held["LATENT"].ravel()


def _find(source: Path, options: CardiacAtlasOptions) -> list[PhaseMesh]:
    files = (source, options.triangles)
    raise_if_any(problem for path in files if (problem := file_problem(path)))
    return synthetic_subjects(partial(_load, *files), PHASES, files, options)


READER = Reader(
    "cardiac-atlas",
    "synthetic subjects of an atlas of the Cardiac Atlas Project (.h5), ED and ES",
    CardiacAtlasOptions,
    _find,
    stage_unit="index",
    atlas=load,
)
