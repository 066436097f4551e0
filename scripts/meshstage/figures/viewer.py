"""A page in 3-D, truth beside prediction, that a person turns by hand.

One HTML file: data, shaders and code are inside, nothing is fetched, no package is needed to make
it or to look at it. Points are rounded to 16 bits, a few thousandths of a millimetre.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyvista as pv

from meshstage.config.subjects import SPLITS
from meshstage.figures import style
from meshstage.figures.cases import Case
from meshstage.judging.metrics import rmse, skill
from meshstage.meshes.surface import triangles_of
from meshstage.motion.residuals import square_errors

_TEMPLATE = Path(__file__).with_name("viewer.html")
_LARGEST_INT16 = 32767


def viewer_page(
    mesh: pv.DataSet,
    cases: Sequence[Case],
    unit: str | None,
    stage_means: Sequence[np.ndarray] | None = None,
) -> str:
    """Make the page.

    Parameters
    ----------
    mesh : pyvista mesh
        The template.
    cases : sequence of Case
        A choice on the page.
    unit : str, optional
        Of the target.
    stage_means : sequence of (n_phases, n_points, n_target) arrays, optional
        The mean motion at each case's stages: gives the skill of each.

    Returns
    -------
    str
        HTML.
    """
    # Phases in the order of their stages, so that "play" goes round the cycle once.
    orders = [np.argsort(case.subject.stages, kind="stable") for case in cases]
    centre, radius, reach = _frame(cases)
    motion = max(float(c.size(p, False).max()) for c in cases for p in range(len(c.predicted)))
    error = max(float(c.error(p).max()) for c in cases for p in range(len(c.predicted)))
    largest = max(
        float(np.abs(values).max()) for c in cases for values in (c.subject.targets, c.predicted)
    )
    point_step, target_step = reach / _LARGEST_INT16, (largest or 1.0) / _LARGEST_INT16
    means: list[np.ndarray | None] = list(stage_means or [])
    means += [None] * (len(cases) - len(means))
    data = {
        "unit": unit,
        "target_array": cases[0].subject.target_array,
        "moves": cases[0].subject.is_displacement,
        "n_points": mesh.n_points,
        "n_target": cases[0].predicted.shape[2],
        "centre": centre.tolist(),
        "radius": radius,
        "point_step": point_step,
        "target_step": target_step,
        "largest_motion": motion or 1.0,
        "largest_error": error or 1.0,
        "triangles": _base64(triangles_of(mesh).astype("<u4")),
        "motion_map": _base64(_colours(style.MOTION_MAP)),
        "error_map": _base64(_colours(style.ERROR_MAP)),
        "cases": [
            _case(case, order, mean, centre, point_step, target_step)
            for case, order, mean in zip(cases, orders, means, strict=True)
        ],
    }
    # "</" would end the script element wherever it stood, in a subject's name for one.
    text = json.dumps(data, allow_nan=False).replace("</", "<\\/")
    return _TEMPLATE.read_text(encoding="utf-8").replace("@DATA@", text)


def _frame(cases: Sequence[Case]) -> tuple[np.ndarray, float, float]:
    """Centre, radius of all that is shown, and largest distance of a reference along an axis."""
    shown = [
        c.points(p, side) for c in cases for p in range(len(c.predicted)) for side in (False, True)
    ]
    low = np.min([points.min(axis=0) for points in shown], axis=0)
    high = np.max([points.max(axis=0) for points in shown], axis=0)
    centre = (low + high) / 2
    radius = float(np.linalg.norm(high - low) / 2) or 1.0
    reach = max(float(np.abs(case.subject.reference - centre).max()) for case in cases)
    return centre, radius, reach or 1.0


def _case(
    case: Case,
    order: np.ndarray,
    mean: np.ndarray | None,
    centre: np.ndarray,
    point_step: float,
    target_step: float,
) -> dict[str, Any]:
    truth, predicted = np.asarray(case.subject.targets)[order], case.predicted[order]
    errors = [rmse(square_errors(p, t)) for p, t in zip(predicted, truth, strict=True)]
    beaten: list[float | None] = [None] * len(errors)
    if mean is not None:
        beaten = [rmse(square_errors(m, t)) for m, t in zip(mean[order], truth, strict=True)]
    return {
        "title": f"{case.label}: {case.subject.id} ({SPLITS[case.split]})",
        "stages": case.subject.stages[order].tolist(),
        "shown": int(np.flatnonzero(order == case.worst_phase())[0]),
        "rmse": errors,
        "skill": [skill(error, base) for error, base in zip(errors, beaten, strict=True)],
        "reference": _int16(case.subject.reference - centre, point_step),
        "truth": _int16(truth, target_step),
        "predicted": _int16(predicted, target_step),
    }


def _int16(values: np.ndarray, step: float) -> str:
    return _base64(np.rint(np.asarray(values, float) / step).astype("<i2"))


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _colours(name: str) -> np.ndarray:
    return (matplotlib.colormaps[name](np.linspace(0, 1, 256))[:, :3] * 255).round().astype("u1")
