"""What all subjects say: the error of each out of fold, and what more subjects would bring."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from meshstage.config.subjects import SPLITS
from meshstage.figures import style
from meshstage.judging.columns import RMSE
from meshstage.judging.runs import Run, present_splits

_MOST_SUBJECTS = 60
_ALL = "all subjects"


def plot_out_of_fold(runs: Sequence[Run]) -> Figure:
    """Plot the RMSE of each subject by models that have not seen it, the worst on top.

    A bar spans the RMSE of nine tenths of the subject's phases. The first row is all subjects
    together, with the 95 % interval over subjects. Of more than 60 subjects, the 60 worst are
    shown, and the title says so.
    """
    unit = runs[0].unit
    column = RMSE.column(unit)
    worst = sorted(runs[0].summary["subjects"], key=lambda subject: -subject[column])
    shown = [subject["subject_id"] for subject in worst[:_MOST_SUBJECTS]]
    figure, ((axis,),) = style.new_figure(size=(8, 1.8 + 0.24 * (1 + len(shown))))
    places = np.arange(1 + len(shown))
    for index, run in enumerate(runs):
        of_all = run.summary["splits"]["test"]["metrics"][column]
        known = {subject["subject_id"]: subject[column] for subject in run.summary["subjects"]}
        values = np.array([of_all["value"], *(known[name] for name in shown)])
        ends = [_ends(of_all), *(_range(run, name, column) for name in shown)]
        axis.errorbar(
            values,
            places + 0.6 * ((index + 0.5) / len(runs) - 0.5),
            xerr=np.abs(np.array(ends) - values[:, None]).T,
            label=run.name,
            elinewidth=1,
            **style.run_style(index) | {"linestyle": "none"},
        )
    axis.axhline(0.5, color="0.6", linewidth=0.8)
    axis.set_yticks(places, [f"{_ALL} ({len(worst)})", *shown], fontsize=8)
    axis.set_ylim(len(shown) + 0.6, -0.6)
    axis.set_xlim(left=0)
    axis.set_xlabel(f"{style.label_rmse(unit)}, out of fold")
    if len(shown) < len(worst):
        axis.set_title(f"the {len(shown)} worst of {len(worst)} subjects")
    style.legend_below(figure, axis)
    return figure


def _range(run: Run, subject_id: str, column: str) -> tuple[float, float]:
    rows = [float(row[column]) for row in run.rows if row["subject_id"] == subject_id]
    low, high = np.percentile(rows, [5, 95])
    return float(low), float(high)


def _ends(metric: dict[str, Any]) -> tuple[float, float]:
    """Interval of a metric; the value itself where there is none."""
    low, high = metric["low"], metric["high"]
    return (metric["value"],) * 2 if low is None else (low, high)


def plot_learning_curve(runs: Sequence[Run]) -> Figure:
    """Plot held-out RMSE by the number of training subjects, one line per run.

    Of the last split that has subjects, with 95 % intervals over them. Grey lines are the
    baselines, fitted on the same subjects.
    """
    split, unit = present_splits(runs)[-1], runs[0].unit
    column = RMSE.column(unit)
    names = list(dict.fromkeys(run.name for run in runs))
    figure, ((axis,),) = style.new_figure(size=(7, 4.8))
    for index, name in enumerate(names):
        line = sorted((run for run in runs if run.name == name), key=_n_train)
        metrics = [run.summary["splits"][split]["metrics"][column] for run in line]
        values = np.array([metric["value"] for metric in metrics])
        ends = np.array([_ends(metric) for metric in metrics])
        # A little aside, so that intervals of several runs do not hide each other.
        places = np.array([_n_train(run) for run in line]) * 1.015**index
        axis.errorbar(
            places,
            values,
            np.abs(ends - values[:, None]).T,
            capsize=3,
            label=name,
            **style.run_style(index),
        )
    line = sorted((run for run in runs if run.name == names[0]), key=_n_train)
    for name in line[0].baselines:
        if name == "zero":  # whatever it is fitted on, and far off
            continue
        errors = [run.summary["splits"][split]["baselines"][name][column] for run in line]
        axis.plot([_n_train(run) for run in line], errors, **style.baseline_style(name))
    sizes = sorted({_n_train(run) for run in runs})
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("training subjects")
    axis.set_ylabel(f"{style.label_rmse(unit)}, {SPLITS[split]} subjects")
    style.legend_below(figure, axis, n_columns=3)
    return figure


def _n_train(run: Run) -> int:
    return int(run.summary["splits"]["train"]["n_subjects"])
