"""Summaries of an evaluation: per split, with intervals over subjects, and per subject."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshstage.config.subjects import SPLITS
from meshstage.judging import metrics
from meshstage.judging.columns import (
    POINT_METRICS,
    RMSE,
    Column,
    Pooling,
    baseline_column,
    skill_column,
    with_unit,
)

Row = dict[str, Any]


def summarise(
    rows: Sequence[Row],
    columns: Sequence[Column],
    baselines: Sequence[str],
    floors: Mapping[str, np.ndarray],
    unit: str | None,
    n_points: int,
) -> dict[str, Any]:
    """Summarise rows by split and by subject.

    Parameters
    ----------
    rows : sequence of dict
        One per subject and phase, all with the same keys.
    columns : sequence of Column
        The metrics among the keys.
    baselines : sequence of str
        Names of the baselines that the rows hold.
    floors : mapping
        Subject id to (n_phases, n_modes + 1) sums of squares, or empty.
    unit : str, optional
        Of the target.
    n_points : int
    """
    splits: dict[str, Any] = {}
    for split in SPLITS:
        chosen = [row for row in rows if row["split"] == split]
        splits[split] = (
            _summarise_split(chosen, columns, baselines, floors, unit, n_points) if chosen else None
        )
    of_points = [c for c in columns if c.metric in POINT_METRICS and not c.skill]
    subjects = []
    for subject_id in dict.fromkeys(str(row["subject_id"]) for row in rows):
        chosen = [row for row in rows if row["subject_id"] == subject_id]
        error = _pooled(chosen, RMSE.column(unit), RMSE.pooling)
        beaten = {n: _pooled(chosen, baseline_column(n, unit), RMSE.pooling) for n in baselines}
        subjects.append(
            {
                "subject_id": subject_id,
                "split": chosen[0]["split"],
                "n_samples": len(chosen),
                RMSE.column(unit): error,
                **{skill_column(n): metrics.skill(error, other) for n, other in beaten.items()},
                **{c.name: _pooled(chosen, c.name, c.metric.pooling) for c in of_points},
            }
        )
    return {"splits": splits, "subjects": subjects}


def _floats(rows: Sequence[Row], column: str) -> list[float]:
    return [float(v) for row in rows if (v := row[column]) is not None]


def _pooled(rows: Sequence[Row], column: str, pooling: Pooling) -> float | None:
    """Pool a column over samples; None if one of them has no value.

    A mean over the samples that happen to have a value would be of other samples. A root of the
    mean square over samples is one over points: every sample has the same number of points.
    """
    values = _floats(rows, column)
    if len(values) < len(rows):
        return None
    match pooling:
        case "root mean square":
            return float(np.sqrt(np.mean(np.square(values))))
        case "mean":
            return float(np.mean(values))
        case "largest":
            return max(values)
        case "sum":
            return sum(values)


def _summarise_split(
    rows: Sequence[Row],
    columns: Sequence[Column],
    baselines: Sequence[str],
    floors: Mapping[str, np.ndarray],
    unit: str | None,
    n_points: int,
) -> dict[str, Any]:
    ids = list(dict.fromkeys(row["subject_id"] for row in rows))
    member = np.array([ids.index(row["subject_id"]) for row in rows])
    result: dict[str, Any] = {"n_subjects": len(ids), "n_samples": len(rows)}
    result["metrics"] = {
        column.name: _summarise_column(rows, member, column) | _skill_over_mean(rows, column)
        for column in columns
    }
    result["baselines"] = {
        name: _summarise_baseline(rows, member, name, unit) for name in baselines
    }
    if floors:
        square = np.concatenate([floors[str(i)] for i in ids])
        by_modes = np.sqrt(square.sum(axis=0) / (len(rows) * n_points))
        result[with_unit("floor_rmse_by_modes", unit)] = by_modes.tolist()
    return result


def _summarise_column(rows: Sequence[Row], member: np.ndarray, column: Column) -> dict[str, Any]:
    """Value over the split with a 95 % interval; null, with the count, if a sample has none."""
    pooling = column.metric.pooling
    values = _floats(rows, column.name)
    missing = len(rows) - len(values)
    result: dict[str, Any] = {"value": None, "low": None, "high": None, "missing": missing}
    if missing:
        return result
    result |= {"how": pooling}
    if pooling in ("largest", "sum"):
        return result | {"value": _pooled(rows, column.name, pooling)}
    is_rms = pooling == "root mean square"
    data = np.square(values) if is_rms else np.array(values)
    sums = _sums_by_subject(member, data, np.ones(len(rows)))

    def statistic(totals: np.ndarray) -> np.ndarray:
        mean = totals[:, 0] / totals[:, 1]
        return np.sqrt(mean) if is_rms else mean

    low, high = metrics.bootstrap_interval(sums, statistic) or (None, None)
    value = float(statistic(sums.sum(axis=0, keepdims=True))[0])
    return result | {"value": value, "low": low, "high": high}


def _skill_over_mean(rows: Sequence[Row], column: Column) -> dict[str, float | None]:
    """Skill over the mean motion, of the metrics that are computed for it as well."""
    if column.skill not in rows[0]:
        return {}
    mine, mean = (
        _pooled(rows, name, column.metric.pooling) for name in (column.name, column.of_mean)
    )
    return {"skill_stage_mean": metrics.skill(mine, mean)}


def _summarise_baseline(
    rows: Sequence[Row], member: np.ndarray, name: str, unit: str | None
) -> dict[str, float | None]:
    mine, other = (
        np.square(_floats(rows, column))
        for column in (RMSE.column(unit), baseline_column(name, unit))
    )
    sums = _sums_by_subject(member, mine, other)
    interval = metrics.bootstrap_interval(
        sums, lambda totals: 1 - np.sqrt(totals[:, 0] / totals[:, 1])
    ) or (None, None)
    baseline = float(np.sqrt(other.mean()))
    return {
        RMSE.column(unit): baseline,
        "skill": metrics.skill(float(np.sqrt(mine.mean())), baseline),
        "skill_low": interval[0],
        "skill_high": interval[1],
    }


def _sums_by_subject(member: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(member, weights=column) for column in columns], axis=1)


def sentences(summary: dict[str, Any]) -> list[str]:
    """Say the result of each split in one line: RMSE, and skill over each baseline."""
    unit = f" {summary['unit']}" if summary["unit"] else ""
    column = RMSE.column(summary["unit"])
    lines = []
    for name, split in summary["splits"].items():
        if split is None:
            lines.append(f"{name}: no subject")
            continue
        skills = ", ".join(
            f"{baseline} {values['skill']:.2f}"
            for baseline, values in split["baselines"].items()
            if values["skill"] is not None
        )
        value = split["metrics"][column]["value"]
        count = split["n_subjects"]
        lines.append(
            f"{name} ({count} subject{'' if count == 1 else 's'}): RMSE {value:.4g}{unit}"
            + (f"; skill over {skills}" if skills else "")
        )
    return lines
