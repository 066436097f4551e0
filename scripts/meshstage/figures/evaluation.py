"""How good runs are: error against stage, error of each subject, and a table of all runs."""

import csv
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from meshstage.config.subjects import SPLITS
from meshstage.errors import InputError, Problem
from meshstage.figures import style
from meshstage.files import read_json

_MOST_STAGES = 40
_MOST_SUBJECTS = 60
_LEAST_SKILL = -1.0  # further down it says only "bad"; drawn there, it does not squeeze the rest


@dataclass(frozen=True)
class Run:
    """One run's evaluation, as it stands in its two files.

    Parameters
    ----------
    name : str
    summary : dict
    rows : list of dict of str
        One a subject and phase; an empty string is a missing value.
    """

    name: str
    summary: dict[str, Any]
    rows: list[dict[str, str]]

    @property
    def rmse_column(self) -> str:
        """Name of the RMSE's column."""
        return f"rmse_{self.summary['unit']}" if self.summary["unit"] else "rmse"

    def baseline_column(self, name: str) -> str:
        """Name of the column of a baseline's RMSE."""
        return self.rmse_column.replace("rmse", f"rmse_{name}", 1)


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read evaluations that are to stand side by side.

    Raises
    ------
    InputError
        If one cannot be read, or they are in different units.
    """
    runs = [read_run(path) for path in paths]
    for run, path in zip(runs, paths, strict=True):
        if run.summary["unit"] != runs[0].summary["unit"]:
            raise InputError(
                Problem("evaluated in another unit", "plot runs of one cohort", str(path))
            )
    return runs


def read_run(summary_path: Path) -> Run:
    """Read an evaluation: the ``.json`` file and the ``.csv`` file beside it.

    Raises
    ------
    InputError
        If one is missing, or not an evaluation.
    """
    summary = read_json(summary_path)
    rows_path = summary_path.with_suffix(".csv")
    try:
        with rows_path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        name = summary.get("run") or summary_path.stem
        summary["splits"], summary["unit"], rows[0]["stage"]
    except (OSError, KeyError, IndexError, AttributeError) as error:
        raise InputError(
            Problem(f"not an evaluation ({error})", "run evaluate.py", str(rows_path))
        ) from None
    return Run(name, summary, rows)


def present_splits(runs: Sequence[Run]) -> list[str]:
    """List the splits that at least one run has subjects in."""
    return [split for split in SPLITS if any(run.summary["splits"].get(split) for run in runs)]


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
    """Plot RMSE, and under it skill over the mean motion, against stage, a column a split."""
    splits = present_splits(runs)
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
        for name, look in style.BASELINES.items():
            column = first.baseline_column(name)
            if column in first.rows[0]:
                top.plot(*rmse_by_stage(first.rows, split, column), **look, marker=".")
        floor = first.baseline_column("floor")
        if floor in first.rows[0]:
            top.plot(*rmse_by_stage(first.rows, split, floor), **style.FLOOR, marker=".")
        for index, run in enumerate(runs):
            stages, error = rmse_by_stage(run.rows, split, run.rmse_column)
            top.plot(stages, error, label=run.name, **style.run_style(index))
            mean = run.baseline_column("stage_mean")
            if mean in run.rows[0] and len(stages):
                _, beaten = rmse_by_stage(run.rows, split, mean)
                known = beaten > 0
                skill = (1 - error[known] / beaten[known]).clip(min=_LEAST_SKILL)
                bottom.plot(stages[known], skill, **style.run_style(index))
        count = (first.summary["splits"].get(split) or {"n_subjects": 0})["n_subjects"]
        top.set_title(f"{SPLITS[split]} ({count} subject{'' if count == 1 else 's'})")
        bottom.axhline(0, **{**style.BASELINES["stage_mean"], "label": None})
        bottom.set_xlabel("stage")
    axes[0, 0].set_ylim(bottom=0)
    axes[1, 0].set_ylim(top=1)
    axes[0, 0].set_ylabel(style.label_rmse(runs[0].summary["unit"]))
    axes[1, 0].set_ylabel("skill over\nthe mean motion")
    style.legend_below(figure, axes[0, 0], n_columns=1 + len(splits))
    return figure


def plot_error_by_subject(runs: Sequence[Run]) -> Figure:
    """Plot each subject's RMSE and skill, a row a subject, worst of a split on top.

    Of more than 60 subjects, the 60 worst are shown, and the title says so.
    """
    order = {split: k for k, split in enumerate(reversed(SPLITS))}
    column = runs[0].rmse_column
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
        for axis, key in ((left, run.rmse_column), (right, "skill_stage_mean")):
            values = [known.get(s["subject_id"], {}).get(key) for s in shown]
            pairs = [(v, place) for v, place in zip(values, places, strict=True) if v is not None]
            if pairs:
                axis.plot(*zip(*pairs, strict=True), label=run.name, **look)
    for place, subject in zip(places, shown, strict=True):
        error, skill = subject[column], subject.get("skill_stage_mean")
        if skill is not None and skill < 1:
            left.plot(error / (1 - skill), place, "|", color="0.25", markersize=9, zorder=1)
    left.plot([], [], "|", color="0.25", markersize=9, label=style.BASELINES["stage_mean"]["label"])
    left.set_yticks(
        places, [f"{s['subject_id']} ({SPLITS[s['split']]})" for s in shown], fontsize=8
    )
    left.set_xlabel(style.label_rmse(runs[0].summary["unit"]))
    left.set_xlim(left=0)
    left.invert_yaxis()
    right.axvline(0, **{**style.BASELINES["stage_mean"], "label": None})
    right.set_xlabel("skill over the mean motion")
    if len(shown) < len(subjects):
        left.set_title(f"the {len(shown)} worst of {len(subjects)} subjects")
    style.legend_below(figure, left)
    return figure


def table_of_runs(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Give header and cells of the table of all runs: one row a run and split."""
    unit = runs[0].summary["unit"]
    ending, shown_unit = (f"_{unit}", f" ({unit})") if unit else ("", "")
    columns = [
        (f"rmse{ending}", f"RMSE{shown_unit}"),
        (f"p95_error{ending}", f"95th percentile{shown_unit}"),
        (f"max_error{ending}", f"largest error{shown_unit}"),
        ("assd_mm", "ASSD (mm)"),
        ("hd95_mm", "HD95 (mm)"),
        ("volume_absolute_error_percent", "volume error (%)"),
        ("inverted_cells", "inverted cells"),
    ]
    header = ["run", "split", "subjects", columns[0][1], "95 % interval"]
    header += [f"skill over {look['label']}" for look in style.BASELINES.values()]
    header += [f"floor{shown_unit}", *(title for _, title in columns[1:])]
    body = []
    for run in runs:
        for split, title in SPLITS.items():
            values = run.summary["splits"].get(split)
            if values is None:
                continue
            rmse = values["metrics"][columns[0][0]]
            row = [run.name, title, str(values["n_subjects"]), _number(rmse["value"])]
            low, high = rmse["low"], rmse["high"]
            row.append("-" if low is None else f"{_number(low)} to {_number(high)}")
            for name in style.BASELINES:
                row.append(_number(values["baselines"].get(name, {}).get("skill")))
            floor = values.get(f"floor_rmse_by_modes{ending}")
            row.append(_number(floor[-1] if floor else None))
            n = values["n_samples"]
            row += [_cell(values["metrics"].get(key), n) for key, _ in columns[1:]]
            body.append(row)
    return header, body


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def _cell(metric: dict[str, Any] | None, n_samples: int) -> str:
    """Show a value, or how many samples have none if others have one."""
    if metric is None or metric["missing"] == n_samples:
        return "-"
    if metric["value"] is None:
        return f"- ({metric['missing']} of {n_samples} missing)" if metric["missing"] else "-"
    whole = float(metric["value"]).is_integer() and metric.get("how") == "sum"
    return _number(int(metric["value"]) if whole else metric["value"])


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>All runs</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #111; background: #fff }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .35em .7em; text-align: right; border-bottom: 1px solid #ddd }}
th {{ vertical-align: bottom; border-bottom: 2px solid #111; max-width: 9em }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left }}
</style></head><body>
<table><thead><tr>{header}</tr></thead>
<tbody>
{body}
</tbody></table>
<p>Skill is 1 &minus; RMSE / RMSE of the baseline: 1 is perfect, 0 is no better than the baseline,
below 0 is worse. The floor is what the motion modes of the training subjects cannot hold.
A dash is a value that does not exist, or that some samples do not have.</p>
<ul>
{notes}
</ul>
</body></html>
"""


def table_as_html(runs: Sequence[Run]) -> str:
    """Write the table of all runs, and what to know of it, as a page that needs nothing else."""
    header, body = table_of_runs(runs)
    rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in body]
    notes = [(run.name, note) for run in runs for note in run.summary.get("notes", [])]
    return _PAGE.format(
        header="".join(f"<th>{html.escape(cell)}</th>" for cell in header),
        body="\n".join(f"<tr>{row}</tr>" for row in rows),
        notes="\n".join(f"<li>{html.escape(f'{name}: {note}')}</li>" for name, note in notes),
    )


def table_as_tsv(runs: Sequence[Run]) -> str:
    """Write the table of all runs as tab-separated text."""
    header, body = table_of_runs(runs)
    return "".join("\t".join(row) + "\n" for row in (header, *body))
