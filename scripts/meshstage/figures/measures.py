"""Volumes and stretches of subjects over their cycles, predicted beside true."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from meshstage.figures import style
from meshstage.judging.measures import QUANTITIES
from meshstage.judging.measuring import MeasureRow

_MOST_CURVES = 4


def plot_measures(rows: Sequence[MeasureRow]) -> Figure:
    """Plot each quantity of the whole cavity: curves by stage, and predicted against true.

    Curves are those of the four subjects whose cavity volumes are predicted worst; points are
    all subjects and stages.
    """
    whole = [row for row in rows if not row.region]
    by_name = {q.name: [row for row in whole if row.quantity == q.name] for q in QUANTITIES}
    shown = [quantity for quantity in QUANTITIES if by_name[quantity.name]]
    worst = _worst(by_name[shown[0].name])[:_MOST_CURVES]
    figure, axes = style.new_figure(len(shown), 2, size=(10, 2.8 * len(shown)))
    for (left, right), quantity in zip(axes, shown, strict=True):
        found = by_name[quantity.name]
        title = quantity.name.replace("_", " ")
        label = f"{title} [{quantity.unit}]" if quantity.unit else title
        for index, subject in enumerate(worst):
            own = sorted((row for row in found if row.subject == subject), key=lambda r: r.stage)
            stages = [row.stage for row in own]
            colour = style.COLOURS[index]
            left.plot(stages, [row.true for row in own], color=colour, label=subject)
            left.plot(stages, [row.predicted for row in own], color=colour, linestyle="--")
        left.set(xlabel="stage", ylabel=label, title="true (solid) and predicted (dashed)")
        true, predicted = (np.array([getattr(r, n) for r in found]) for n in ("true", "predicted"))
        ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
        right.plot(ends, ends, color="0.5", linewidth=1)
        right.plot(true, predicted, ".", color=style.COLOURS[0])
        error = float(np.sqrt(np.mean((predicted - true) ** 2)))
        right.set(xlabel=f"true {label}", ylabel="predicted", title=f"RMSE {error:.3g}")
    axes[0][0].legend(fontsize=8)
    return figure


def _worst(rows: Sequence[MeasureRow]) -> list[str]:
    """Give subjects by their mean squared error, the largest first."""
    squares: dict[str, list[float]] = {}
    for row in rows:
        squares.setdefault(row.subject, []).append((row.predicted - row.true) ** 2)
    mean: Mapping[str, float] = {name: float(np.mean(found)) for name, found in squares.items()}
    return sorted(mean, key=lambda name: (-mean[name], name))
