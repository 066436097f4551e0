"""The atlas of Bai et al. (UK Digital Heart Project): mean mesh, modes and variances of a phase."""

import re
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from meshstage.errors import InputError, Problem, at
from meshstage.preparation.atlas import Atlas, AtlasOptions, atlas_model, synthetic_subjects
from meshstage.preparation.number_files import read_numbers
from meshstage.preparation.source import PhaseMesh, Reader

_MEAN = "_mean.vtk"


def load(source: Path, options: AtlasOptions) -> Atlas:
    """Read the atlas that a ``*_mean.vtk`` begins, or the one in a folder.

    Raises
    ------
    InputError
        If a file is missing, broken, or does not go with the others.
    """
    return _load(*_files(source))


@lru_cache(maxsize=1)
def _load(mean: Path, modes: Path, variances: Path) -> Atlas:
    from meshstage.meshes.reading import read_mesh

    mesh = read_mesh(mean)
    with at(file=modes):
        model = atlas_model(
            read_numbers(variances).ravel(),
            read_numbers(modes).T,
            np.asarray(mesh.points, dtype=np.float64).ravel(),
        )
    return Atlas(mesh, (_phase(mean),), model)


def _files(source: Path) -> tuple[Path, Path, Path]:
    if source.is_dir():
        source = _only(source, f"*{_MEAN}")
    if not source.name.endswith(_MEAN):
        what = "is no mean mesh of the atlas (*_mean.vtk)"
        raise InputError(Problem(what, "name LV_ED_mean.vtk or its like", str(source)))
    stem = source.name.removesuffix(_MEAN)
    modes = _only(source.parent, f"{stem}_pc_*_modes.csv*")
    return source, modes, _only(source.parent, f"{stem}_var_*_modes.csv*")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        what = f"should hold one file {pattern}, it holds {names}"
        raise InputError(Problem(what, "name the mean mesh, beside its files", str(folder)))
    return found[0]


def _phase(mean: Path) -> str:
    """Name the phase by the file: ``ED`` or ``ES``."""
    found = re.search(r"_(E[DS])_mean\.vtk$", mean.name)
    return found[1] if found else "mean"


def _find(source: Path, options: AtlasOptions) -> list[PhaseMesh]:
    files = _files(source)
    return synthetic_subjects(partial(_load, *files), (_phase(files[0]),), files, options)


READER = Reader(
    "uk-digital-heart",
    "synthetic subjects of the atlas of Bai et al. (*_mean.vtk), one phase",
    AtlasOptions,
    _find,
    stage_unit="index",
    atlas=load,
)
