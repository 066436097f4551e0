"""What a sweep varies, and what it does to the error."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from meshstage.config.subjects import SPLITS
from meshstage.config.sweeps import varied_in
from meshstage.figures import style
from meshstage.judging.columns import RMSE
from meshstage.judging.runs import Run, present_splits


def plot_sweeps(runs: Sequence[Run]) -> Figure:
    """Plot held-out RMSE by each swept column: one panel per column, one line per other setting.

    Of the last split that has subjects, with its 95 % interval over subjects. Runs of no sweep are
    left out.
    """
    split, unit = present_splits(runs)[-1], runs[0].unit
    varied = {run.name: varied_in(run.name) for run in runs}
    columns = list(dict.fromkeys(column for found in varied.values() for column in found))
    figure, (axes,) = style.new_figure(
        1, len(columns), size=(1.5 + 4 * len(columns), 4), sharey=True
    )
    for axis, column in zip(axes, columns, strict=True):
        swept = [run for run in runs if column in varied[run.name]]
        values = list(dict.fromkeys(varied[run.name][column] for run in swept))
        lines: dict[str, list[Run]] = {}
        for run in swept:
            lines.setdefault(_others(run.name, column), []).append(run)
        for index, (name, line) in enumerate(lines.items()):
            places = [values.index(varied[run.name][column]) for run in line]
            errors = [run.summary["splits"][split]["metrics"][RMSE.column(unit)] for run in line]
            shown = np.array([error["value"] for error in errors], float)
            ends = np.array([[error["low"], error["high"]] for error in errors], float)
            axis.errorbar(
                np.array(places) + 0.04 * index,
                shown,
                np.abs(ends - shown[:, None]).T,
                capsize=3,
                label=name,
                **style.run_style(index),
            )
        axis.set_xticks(range(len(values)), values)
        axis.set_xlabel(column)
        axis.legend(fontsize=8)
    axes[0].set_ylabel(f"{style.label_rmse(unit)}, {SPLITS[split]} subjects")
    axes[0].set_ylim(bottom=0)
    return figure


def _others(name: str, column: str) -> str:
    """Give a run's name without one of the things that vary."""
    return name.replace(f".{column}={varied_in(name)[column]}", "")
