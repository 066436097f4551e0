"""The shape model that can stand beside a template: ``pca_model.json``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.errors import InputError, Problem, raise_if_any
from meshstage.files import read_json, write_json


@dataclass(frozen=True)
class ShapeModel:
    """Modes of shape: ``shape ~ template + sum_k score_k * sqrt(eigenvalue_k) * component_k``.

    Parameters
    ----------
    eigenvalues : (n_modes,) float64, mm^2
    components : (n_modes, 3 * n_points) float64
        Unit vectors, x0 y0 z0 x1 ...
    mean : (3 * n_points,) float64, mm, optional
    """

    eigenvalues: np.ndarray
    components: np.ndarray
    mean: np.ndarray | None = None

    @property
    def n_modes(self) -> int:
        """Number of modes."""
        return len(self.eigenvalues)

    def modes(self, n_scores: int) -> np.ndarray:
        """Give what one standard deviation of the first scores moves, (n, n_points, 3), mm."""
        components = self.components[:n_scores]
        scaled: np.ndarray = np.sqrt(self.eigenvalues[:n_scores])[:, None] * components
        return scaled.reshape(len(components), -1, 3)

    def mean_points(self, template_points: np.ndarray) -> np.ndarray:
        """Give the mean shape (n_points, 3), mm: the template's, unless the model has one."""
        return template_points if self.mean is None else self.mean.reshape(-1, 3)

    def points(self, scores: np.ndarray, template_points: np.ndarray) -> np.ndarray:
        """Reconstruct a shape (n_points, 3), mm; a score without a mode does not count."""
        n = min(len(scores), self.n_modes)
        mean: np.ndarray = self.mean_points(template_points)
        return mean + np.tensordot(scores[:n], self.modes(n), axes=1)


def read_shape_model(path: Path, n_points: int) -> ShapeModel:
    """Read ``{"eigenvalues": [K], "components": [K][3 n_points]}``, ``mean`` optional.

    Parameters
    ----------
    path : Path
    n_points : int
        Of the template, whose points the components move.

    Raises
    ------
    InputError
        With every problem: not strict JSON, a key missing, not numbers, lengths that do not fit
        each other or the template, a negative eigenvalue, components that are not unit vectors.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        what, todo = "the shape model is not an object", 'write {"eigenvalues": ...}'
        raise InputError(Problem(what, todo, str(path)))
    problems: list[Problem] = []
    eigenvalues = _numbers(value, "eigenvalues", 1, problems)
    components = _numbers(value, "components", 2, problems)
    mean = _numbers(value, "mean", 1, problems) if value.get("mean") is not None else None
    if eigenvalues is not None and (eigenvalues < 0).any():
        problems.append(Problem(f"an eigenvalue is negative ({eigenvalues.min():g})"))
    if eigenvalues is not None and components is not None and len(eigenvalues) != len(components):
        problems.append(
            Problem(f"there are {len(eigenvalues)} eigenvalues but {len(components)} components")
        )
    for name, array in (("components", components), ("mean", mean)):
        if array is not None and array.shape[-1] != 3 * n_points:
            numbers = array.shape[-1]
            own = f"{numbers // 3} points" if numbers % 3 == 0 else "no whole number of points"
            what = f"{name} have {numbers} numbers ({own}), the template has {n_points} points"
            problems.append(Problem(f"{what} and needs {3 * n_points}"))
    if components is not None:
        problems += _length_problems(components, eigenvalues)
    todo = "write the shape model of this template, or take it away"
    raise_if_any(replace(problem, todo=todo, file=str(path)) for problem in problems)
    assert eigenvalues is not None and components is not None, "problems have been raised"
    return ShapeModel(eigenvalues, components, mean)


def _numbers(value: dict[str, Any], key: str, ndim: int, problems: list[Problem]) -> Any:
    """Give an array of numbers with ``ndim`` axes; None, and a problem, if it is none."""
    if key not in value:
        problems.append(Problem(f"the key {key!r} is missing"))
        return None
    wanted = "a list of numbers" if ndim == 1 else "a list of lists of numbers, all equally long"
    rows = [value[key]] if ndim == 1 else value[key]
    shaped = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
    if not shaped or any(type(x) not in (int, float) for row in rows for x in row):
        problems.append(Problem(f"{key} is not {wanted}"))
        return None
    if not rows or not rows[0] or len({len(row) for row in rows}) > 1:
        problems.append(Problem(f"{key} is empty or not {wanted}"))
        return None
    return np.array(value[key], dtype=np.float64)


def _length_problems(components: np.ndarray, eigenvalues: np.ndarray | None) -> list[Problem]:
    lengths = np.linalg.norm(components, axis=1)
    # Files keep some 5 digits; a component of zeros belongs to a mode that does not move these
    # points (a surface of a volume), which its eigenvalue of 0 says too.
    wrong = np.abs(lengths - 1.0) > 1e-3
    if eigenvalues is not None and len(eigenvalues) == len(lengths):
        wrong &= ~((lengths == 0) & (eigenvalues == 0))
    return [
        Problem(f"component {mode} has length {lengths[mode]:g}, not 1")
        for mode in np.flatnonzero(wrong)
    ]


def write_shape_model(path: Path, model: ShapeModel) -> None:
    """Write a shape model as ``pca_model.json``."""
    value = {"eigenvalues": model.eigenvalues.tolist(), "components": model.components.tolist()}
    if model.mean is not None:
        value["mean"] = model.mean.tolist()
    write_json(path, value)


def restrict_shape_model(model: ShapeModel, point_ids: np.ndarray) -> ShapeModel:
    """Restrict a shape model to some of its points; scores keep their meaning.

    Parameters
    ----------
    model : ShapeModel
    point_ids : (n_kept,) int64

    Returns
    -------
    ShapeModel
        Components are unit vectors again, eigenvalues carry the square of what was cut off, so
        that ``sqrt(eigenvalue) * component`` is the same at the points that are kept.
    """
    kept = model.components.reshape(model.n_modes, -1, 3)[:, point_ids].reshape(model.n_modes, -1)
    lengths = np.linalg.norm(kept, axis=1)
    unit = kept / np.where(lengths > 0, lengths, 1.0)[:, None]
    mean = None if model.mean is None else model.mean.reshape(-1, 3)[point_ids].ravel()
    return ShapeModel(model.eigenvalues * lengths**2, unit, mean)
