"""From what a source says of its phases to stages from 0 to 1."""

import re
from collections.abc import Sequence

from meshstage.errors import InputError, Problem, collecting, raise_if_any
from meshstage.preparation.source import PhaseMesh


def phase_stages(meshes: Sequence[PhaseMesh], unit: str, period: float | None) -> list[float]:
    """Give the stage of each mesh.

    Parameters
    ----------
    meshes : sequence of PhaseMesh
        Of the whole cohort. A mesh without a stage has the number that its label is.
    unit : str
        ``percent``, ``fraction``, ``seconds``, or ``index``: the place of the phase among all
        phases of the cohort in their order, divided by their number; with a period, its number,
        counted from the cohort's first, divided by the period.
    period : float, optional
        Length of the cycle, where a mesh does not state its own.

    Raises
    ------
    InputError
        With every mesh whose stage is not known or not from 0 to 1.
    """
    if unit == "index" and period is None:
        keys = [_order(mesh) for mesh in meshes]
        ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
        return [ranks[key] / len(ranks) for key in keys]
    problems: list[Problem] = []
    numbers = []
    for mesh in meshes:
        with collecting(problems):
            numbers.append(_number(mesh, unit))
    raise_if_any(problems)
    first = min(numbers, default=0.0) if unit == "index" else 0.0
    stages = []
    for mesh, number in zip(meshes, numbers, strict=True):
        with collecting(problems):
            stages.append(_stage(mesh, number - first, unit, mesh.period or period))
    raise_if_any(problems)
    return stages


def stated_number(mesh: PhaseMesh) -> float | None:
    """Give the stage that a mesh states, or the number that its label is; None if neither."""
    if mesh.stage is not None:
        return mesh.stage
    # As people write numbers: float() takes "nan", "1_0" and "infinity" too.
    return float(mesh.phase) if re.fullmatch(r"\d+(\.\d+)?", mesh.phase) else None


def _order(mesh: PhaseMesh) -> tuple[tuple[float, str], ...]:
    """Sort numbers as numbers, inside of labels too: phase2 before phase10."""
    if mesh.stage is not None:
        return ((mesh.stage, ""),)
    pieces = re.split(r"(\d+)", mesh.phase)
    return tuple((float(p), "") if p.isdecimal() else (-1.0, p.lower()) for p in pieces if p)


def _number(mesh: PhaseMesh, unit: str) -> float:
    number = stated_number(mesh)
    if number is None:
        what = f"states no stage, and its phase {mesh.phase!r} is no number of {unit}"
        raise InputError(_at(mesh, what, "give the pattern or table a stage, or choose index"))
    return number


def _stage(mesh: PhaseMesh, number: float, unit: str, period: float | None) -> float:
    if unit == "seconds" and period is None:
        what = f"is at {number:g} s of a cycle whose length nothing says"
        raise InputError(_at(mesh, what, "give a period, or a column period"))
    length = {"percent": 100.0, "fraction": 1.0}.get(unit, period)
    assert length is not None, "index without a period has been ranked"
    stage = number / length
    if not 0 <= stage <= 1:
        what = f"its stage is {number:g} of {length:g} ({unit}), outside of the cycle"
        raise InputError(_at(mesh, what, "choose another unit, or give the period"))
    return stage + 0.0


def _at(mesh: PhaseMesh, what: str, todo: str) -> Problem:
    return Problem(what, todo, str(mesh.files[0]), mesh.subject, mesh.phase)
