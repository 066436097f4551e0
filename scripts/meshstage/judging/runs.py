"""The evaluations of some runs, read side by side, and the table of all runs."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from meshstage.config.subjects import SPLITS
from meshstage.config.sweeps import varied_in
from meshstage.errors import InputError, Problem
from meshstage.files import read_json
from meshstage.judging.columns import MESH_METRICS, POINT_METRICS, RMSE, Metric, with_unit
from meshstage.judging.out_of_fold import FOLDS
from meshstage.motion.baselines import TITLES

Table = tuple[list[str], list[list[str]]]


@dataclass(frozen=True)
class Run:
    """One run's evaluation, as it stands in its two files.

    Parameters
    ----------
    name : str
    summary : dict
    rows_path : Path
        The ``.csv`` file.
    """

    name: str
    summary: dict[str, Any]
    rows_path: Path

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """One per subject and phase; an empty string is a missing value.

        Raises
        ------
        InputError
            If the file is missing or holds something else.
        """
        try:
            with self.rows_path.open(encoding="utf-8", newline="") as stream:
                rows = list(csv.DictReader(stream))
            rows[0]["stage"]
        except (OSError, KeyError, IndexError, ValueError) as error:
            what = f"not the rows of an evaluation ({error})"
            raise InputError(Problem(what, "run evaluate.py", str(self.rows_path))) from None
        return rows

    @property
    def is_out_of_fold(self) -> bool:
        """Whether each subject was predicted by the model that has not seen it."""
        return FOLDS in self.summary

    @property
    def unit(self) -> str | None:
        """Unit of the target."""
        return self.summary["unit"]  # type: ignore[no-any-return]

    @property
    def baselines(self) -> list[str]:
        """Names of the baselines that it was compared with, in their order."""
        splits = [values["baselines"] for values in self.summary["splits"].values() if values]
        return list(dict.fromkeys(name for names in splits for name in names))


def read_evaluations(paths: Sequence[Path]) -> list[Run]:
    """Read evaluations of one cohort, which are to stand side by side.

    Parameters
    ----------
    paths : sequence of Path
        The ``.json`` files that `evaluate.py` wrote.

    Raises
    ------
    InputError
        If a file is missing or is not an evaluation, or if the units differ, or the subjects of
        evaluations of one kind (out of fold or not).
    """
    runs = []
    for path in paths:
        summary = read_summary(path)
        runs.append(Run(summary.get("run") or path.stem, summary, path.with_suffix(".csv")))
    first: dict[bool, tuple[Run, Path]] = {}
    for run, path in zip(runs, paths, strict=True):
        like, like_path = first.setdefault(run.is_out_of_fold, (run, path))
        for what, same, other in (
            ("in another unit", run.unit == runs[0].unit, paths[0]),
            ("on other subjects", _subject_ids(run) == _subject_ids(like), like_path),
        ):
            if not same:
                raise InputError(
                    Problem(
                        f"evaluated {what} than {other}",
                        "give the evaluations of one cohort",
                        str(path),
                    )
                )
    return runs


def _subject_ids(run: Run) -> set[str]:
    return {subject["subject_id"] for subject in run.summary["subjects"]}


def read_summary(path: Path) -> dict[str, Any]:
    """Read the ``.json`` file of an evaluation.

    Raises
    ------
    InputError
        If it is missing, or another JSON file.
    """
    summary = read_json(path)
    splits = summary.get("splits") if isinstance(summary, dict) else None
    is_evaluation = isinstance(splits, dict) and set(splits) == set(SPLITS)
    if not is_evaluation or not {"subjects", "unit"} <= set(summary):
        raise InputError(
            Problem("is not an evaluation", "name a .json file that evaluate.py wrote", str(path))
        )
    return summary  # type: ignore[no-any-return]


def present_splits(runs: Sequence[Run]) -> list[str]:
    """List the splits that at least one run has subjects in."""
    return [split for split in SPLITS if any(run.summary["splits"][split] for run in runs)]


def as_tsv(table: Table) -> str:
    """Write a table as tab-separated text."""
    header, body = table
    return "".join("\t".join(row) + "\n" for row in (header, *body))


def table_of_runs(runs: Sequence[Run], short: bool = False) -> Table:
    """Give header and cells of the table of all runs: one row per run and split.

    What a sweep varies has a column of its own. What a run is worth out of fold follows its splits.

    Parameters
    ----------
    runs : sequence of Run
    short : bool
        Only the RMSE, its interval, and the skill over each baseline.
    """
    unit = runs[0].unit
    baselines = list(dict.fromkeys(name for run in runs for name in run.baselines))
    metrics = [m for m in (*POINT_METRICS, *MESH_METRICS) if m.heading and not short]
    varied = list(dict.fromkeys(name for run in runs for name in varied_in(run.name)))
    header = ["run", *varied, "split", "subjects", _heading(RMSE, unit), "95 % interval"]
    header += [f"skill over {TITLES.get(name, name)}" for name in baselines]
    if not short:
        header += ["floor" + (f" ({unit})" if unit else ""), *(_heading(m, unit) for m in metrics)]
    body = []
    names = list(dict.fromkeys(run.name for run in runs))
    for run in sorted(runs, key=lambda run: (names.index(run.name), run.is_out_of_fold)):
        for split, title in SPLITS.items():
            values = run.summary["splits"][split]
            if values is None:
                continue
            rmse = values["metrics"][RMSE.column(unit)]
            low, high = rmse["low"], rmse["high"]
            row = [run.name, *(varied_in(run.name).get(name, "-") for name in varied)]
            row.append("out of fold" if run.is_out_of_fold else title)
            row += [str(values["n_subjects"]), _number(rmse["value"])]
            row.append("-" if low is None else f"{_number(low)} to {_number(high)}")
            row += [_number(values["baselines"].get(name, {}).get("skill")) for name in baselines]
            if not short:
                floor = values.get(with_unit("floor_rmse_by_modes", unit))
                row.append(_number(floor[-1] if floor else None))
                n = values["n_samples"]
                row += [_cell(values["metrics"].get(m.column(unit)), n) for m in metrics]
            body.append(row)
    return header, body


def _heading(metric: Metric, unit: str | None) -> str:
    shown = {"percent": "%"}.get(metric.unit, metric.unit_of(unit))
    return f"{metric.heading} ({shown})" if shown else metric.heading


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
