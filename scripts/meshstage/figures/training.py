"""How a training went: loss and RMSE against epoch, beside the baselines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from meshstage.config.subjects import SPLITS
from meshstage.figures import style
from meshstage.judging.columns import RMSE


def plot_training(
    losses: Sequence[float],
    rmse_log: Sequence[dict[str, Any]],
    best_epoch: int | None = None,
    summary: dict[str, Any] | None = None,
    title: str = "",
) -> Figure:
    """Plot loss and RMSE against epoch.

    Parameters
    ----------
    losses : sequence of float
        One per epoch, from epoch 1.
    rmse_log : sequence of dict
        ``epoch``, ``train_rmse``, ``val_rmse`` (or None).
    best_epoch : int, optional
    summary : dict, optional
        An evaluation's summary: gives the unit, the baselines as lines, and the axis of skill.
    title : str

    Returns
    -------
    Figure
    """
    figure, axes = style.new_figure(1, 2, size=(10, 4.4))
    left, right = axes[0]
    epochs = np.arange(1, len(losses) + 1)
    left.plot(epochs, losses, color=style.COLOURS[0], label="training loss")
    left.set(yscale="log", xlabel="epoch", ylabel="loss (scaled targets)", title=title or None)
    for kind in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
        kind(LogFormatter())  # matplotlib's own choice for this axis writes formulas
    left.legend(frameon=False)
    for index, (key, label) in enumerate((("train_rmse", "train"), ("val_rmse", "validation"))):
        points = [(e["epoch"], e[key]) for e in rmse_log if e.get(key) is not None]
        if points:
            right.plot(*zip(*points, strict=True), label=label, **style.run_style(index))
    unit = summary["unit"] if summary else None
    right.set(xlabel="epoch", ylabel=style.label_rmse(unit))
    split = _draw_baselines(right, summary) if summary else None
    if best_epoch is not None:
        right.axvline(best_epoch, color="0.6", linewidth=1)
        right.annotate(
            f"best epoch {best_epoch}",
            (best_epoch, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            rotation=90,
            fontsize=8,
        )
    right.set_ylim(bottom=0)
    right.set_title(f"baselines of the {SPLITS[split]} subjects" if split else None)
    style.legend_below(figure, right, n_columns=5)
    return figure


def _draw_baselines(axes: Axes, summary: dict[str, Any]) -> str | None:
    """Draw the baselines of the validation split, else of train, and give the split's name."""
    name = next((s for s in ("val", "train") if summary["splits"].get(s)), None)
    baselines = summary["splits"][name]["baselines"] if name else {}
    column = RMSE.column(summary["unit"])
    for key, values in baselines.items():
        look = style.baseline_style(key)
        axes.axhline(values[column], **look | {"label": f"{look['label']} ({values[column]:.2f})"})
    mean = baselines.get("stage_mean", {}).get(column)
    if mean:

        def skill(rmse: Any) -> Any:
            return 1 - rmse / mean

        def rmse_of(skill: Any) -> Any:
            return (1 - skill) * mean

        side = axes.secondary_yaxis("right", functions=(skill, rmse_of))
        side.set_ylabel("skill over the mean motion")
    return name if baselines else None
