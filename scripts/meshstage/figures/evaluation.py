"""How good runs are: error by stage, error of each subject, and the page of all runs."""

from collections.abc import Sequence
from html import escape

import numpy as np
from matplotlib.figure import Figure

from meshstage.config.subjects import SPLITS
from meshstage.figures import style
from meshstage.judging.columns import FLOOR, RMSE, baseline_column, skill_column
from meshstage.judging.runs import Run, as_tsv, present_splits, table_of_runs
from meshstage.pages import html_page, html_row, html_table

_MOST_STAGES = 40
_MOST_SUBJECTS = 60
_LEAST_SKILL = -1.0  # lower skill is drawn here, so that it does not squeeze the rest


def rmse_by_stage(
    rows: Sequence[dict[str, str]], split: str, column: str
) -> tuple[np.ndarray, np.ndarray]:
    """Pool a column over a split's subjects at each stage.

    Returns
    -------
    stages : (n,) array
        Stages of the rows; the middles of even bins where there are more than 40.
    pooled : (n,) array
        Root mean square.
    """
    chosen = [row for row in rows if row["split"] == split and row.get(column)]
    stages = np.array([float(row["stage"]) for row in chosen])
    squares = np.array([float(row[column]) for row in chosen]) ** 2
    unique = np.unique(stages)
    if len(unique) > _MOST_STAGES:
        stages = (np.floor(stages * _MOST_STAGES).clip(0, _MOST_STAGES - 1) + 0.5) / _MOST_STAGES
        unique = np.unique(stages)
    pooled = [np.sqrt(squares[stages == stage].mean()) for stage in unique]
    return unique, np.array(pooled)


def plot_error_by_stage(runs: Sequence[Run]) -> Figure:
    """Plot RMSE, and under it skill over the mean motion, by stage: one column per split."""
    splits, unit = present_splits(runs), runs[0].unit
    figure, axes = style.new_figure(
        2,
        len(splits),
        size=(1.5 + 3.4 * len(splits), 6),
        sharex=True,
        sharey="row",
        height_ratios=(3, 2),
    )
    for (top, bottom), split in zip(axes.T, splits, strict=True):
        first = runs[0]
        for name in [*first.baselines, FLOOR]:
            column = baseline_column(name, unit)
            if column in first.rows[0]:
                line = rmse_by_stage(first.rows, split, column)
                top.plot(*line, **style.baseline_style(name), marker=".")
        for index, run in enumerate(runs):
            stages, error = rmse_by_stage(run.rows, split, RMSE.column(unit))
            top.plot(stages, error, label=run.name, **style.run_style(index))
            mean = baseline_column("stage_mean", unit)
            if mean in run.rows[0] and len(stages):
                _, beaten = rmse_by_stage(run.rows, split, mean)
                known = beaten > 0
                skill = (1 - error[known] / beaten[known]).clip(min=_LEAST_SKILL)
                bottom.plot(stages[known], skill, **style.run_style(index))
        count = (first.summary["splits"][split] or {"n_subjects": 0})["n_subjects"]
        top.set_title(f"{SPLITS[split]} ({count} subject{'' if count == 1 else 's'})")
        bottom.axhline(0, **style.baseline_style("stage_mean") | {"label": None})
        bottom.set_xlabel("stage")
    axes[0, 0].set_ylim(bottom=0)
    axes[1, 0].set_ylim(top=1)
    axes[0, 0].set_ylabel(style.label_rmse(unit))
    axes[1, 0].set_ylabel("skill over\nthe mean motion")
    style.legend_below(figure, axes[0, 0], n_columns=1 + len(splits))
    return figure


def plot_error_by_subject(runs: Sequence[Run]) -> Figure:
    """Plot each subject's RMSE and skill, one row per subject, the worst of each split on top.

    Of more than 60 subjects, the 60 worst are shown, and the title says so.
    """
    order = {split: k for k, split in enumerate(reversed(SPLITS))}
    column, skill_key = RMSE.column(runs[0].unit), skill_column("stage_mean")
    subjects = sorted(runs[0].summary["subjects"], key=lambda s: (order[s["split"]], -s[column]))
    shown = subjects
    if len(subjects) > _MOST_SUBJECTS:
        worst = sorted(subjects, key=lambda s: -s[column])[:_MOST_SUBJECTS]
        shown = [subject for subject in subjects if subject in worst]
    figure, axes = style.new_figure(
        1, 2, size=(9, 1.6 + 0.24 * len(shown)), sharey=True, width_ratios=(3, 2)
    )
    left, right = axes[0]
    places = np.arange(len(shown))
    for index, run in enumerate(runs):
        known = {s["subject_id"]: s for s in run.summary["subjects"]}
        look = {**style.run_style(index), "linestyle": "none"}
        for axis, key in ((left, column), (right, skill_key)):
            values = [known.get(s["subject_id"], {}).get(key) for s in shown]
            pairs = [(v, place) for v, place in zip(values, places, strict=True) if v is not None]
            if pairs:
                axis.plot(*zip(*pairs, strict=True), label=run.name, **look)
    for place, subject in zip(places, shown, strict=True):
        error, skill = subject[column], subject.get(skill_key)
        if skill is not None and skill < 1:
            left.plot(error / (1 - skill), place, "|", color="0.25", markersize=9, zorder=1)
    mean = style.baseline_style("stage_mean")
    left.plot([], [], "|", color="0.25", markersize=9, label=mean["label"])
    left.set_yticks(
        places, [f"{s['subject_id']} ({SPLITS[s['split']]})" for s in shown], fontsize=8
    )
    left.set_xlabel(style.label_rmse(runs[0].unit))
    left.set_xlim(left=0)
    left.invert_yaxis()
    right.axvline(0, **mean | {"label": None})
    right.set_xlabel("skill over the mean motion")
    if len(shown) < len(subjects):
        left.set_title(f"the {len(shown)} worst of {len(subjects)} subjects")
    style.legend_below(figure, left)
    return figure


_STYLE = """
th { max-width: 9em }
th:nth-child(n+3), td:nth-child(n+3) { text-align: right }
"""

_LEGEND = """<p>Skill is 1 &minus; RMSE / RMSE of the baseline: 1 is perfect, 0 is no better
than the baseline, below 0 is worse. The floor is the error of projecting the truth on the motion
modes of the training subjects: no method that moves meshes in these modes can be better.
A dash is a value that does not exist, or that some samples do not have.</p>"""


def tables_of_runs(runs: Sequence[Run]) -> tuple[str, str]:
    """Write the table of all runs: a page that needs nothing else, and tab-separated text."""
    header, body = table_of_runs(runs)
    notes = [f"{run.name}: {note}" for run in runs for note in run.summary.get("notes", [])]
    listed = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    table = html_table(header, map(html_row, body))
    page = html_page("All runs", f"{table}\n{_LEGEND}\n<ul>\n{listed}\n</ul>", _STYLE)
    return page, as_tsv((header, body))
