"""Point arrays of a mesh: found by name, and whether all values are finite."""

from typing import Any

import numpy as np

from meshstage.errors import InputError, Problem
from meshstage.files import shorten


def point_array(mesh: Any, name: str) -> np.ndarray:
    """Give one point array as (n_points, width), in its own type.

    Raises
    ------
    InputError
        If there is no such point array (it says where the name stands else, or what there is),
        if it holds no numbers, or if it has not one row per point.
    """
    if name not in mesh.point_data:
        if name in mesh.cell_data:
            what, todo = f"has {name!r} as cell data, not as point data", "save it at the points"
        elif name in mesh.field_data:
            what, todo = f"has {name!r} as field data, not as point data", "save it at the points"
        else:
            there = ", ".join(map(repr, mesh.point_data.keys())) or "none"
            what = f"has no point array {name!r} (missing), it has: {shorten(there, 200)}"
            todo = "write the array, or name another as target_array"
        raise InputError(Problem(what=what, todo=todo))
    values = np.asarray(mesh.point_data[name])
    if values.dtype.kind not in "fiub":
        raise InputError(Problem(f"the point array {name!r} holds no numbers", "save numbers"))
    if len(values) != mesh.n_points:
        what = f"the point array {name!r} has {len(values)} rows for {mesh.n_points} points"
        raise InputError(Problem(what, "save one row per point"))
    return values.reshape(mesh.n_points, -1)


def non_finite(values: np.ndarray, name: str) -> Problem | None:
    """Name the first NaN or infinity of (n_points, width) values; None if all are finite."""
    # A sum is finite if all its terms are: one pass, without a mask, for almost every array.
    with np.errstate(invalid="ignore", over="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return None
    bad = ~np.isfinite(values)
    if not bad.any():
        return None
    component = int(np.flatnonzero(bad.any(axis=0))[0])
    point = int(np.flatnonzero(bad[:, component])[0])
    value = values[point, component]
    kind = "NaN" if np.isnan(value) else ("-infinity" if value < 0 else "+infinity")
    return Problem(
        what=f"{name}: {int(bad.sum())} of {bad.size} values are not finite, "
        f"the first is {kind} at point {point}, component {component}",
        todo="mend or leave out this mesh",
    )
