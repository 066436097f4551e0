"""Summaries of an evaluation: per split, with intervals over subjects, and per subject."""

from typing import Any

import numpy as np

from meshstage.config.subjects import SPLITS
from meshstage.judging import metrics
from meshstage.motion.baselines import TITLES

Row = dict[str, str | int | float | None]


def of_stage_mean(column: str, unit: str) -> str:
    """Column of the mean motion's error beside one of the model's.

    >>> of_stage_mean("rmse_x_mm", "_mm"), skill_column("rmse_x_mm", "_mm")
    ('rmse_x_stage_mean_mm', 'skill_x_stage_mean')
    """
    return f"{column.removesuffix(unit)}_stage_mean{unit}"


def skill_column(column: str, unit: str) -> str:
    """Column of the skill over the mean motion beside an RMSE by component, weight or region."""
    return "skill_" + of_stage_mean(column, unit).removesuffix(unit).replace("rmse_", "")


def summarise(
    rows: list[Row], floors: dict[str, np.ndarray], unit: str, n_points: int
) -> dict[str, Any]:
    """Summarise rows by split and by subject.

    Parameters
    ----------
    rows : list of dict
        One a subject and phase, all with the same keys.
    floors : dict
        Subject id to (n_phases, n_modes + 1) sums of squares, or empty.
    unit : str
        Ending of the columns in the target's unit: "_mm" or "".
    n_points : int
    """
    splits: dict[str, Any] = {}
    for split in SPLITS:
        chosen = [row for row in rows if row["split"] == split]
        splits[split] = _summarise_split(chosen, floors, unit, n_points) if chosen else None
    subjects = []
    for subject_id in dict.fromkeys(str(row["subject_id"]) for row in rows):
        chosen = [row for row in rows if row["subject_id"] == subject_id]
        subjects.append(
            {
                "subject_id": subject_id,
                "split": chosen[0]["split"],
                "n_samples": len(chosen),
                f"rmse{unit}": _pool(chosen, f"rmse{unit}"),
                **_skills(chosen, unit),
                **{f"{k}_error{unit}": _mean(chosen, f"{k}_error{unit}") for k in ("mean", "p95")},
                f"max_error{unit}": max(_floats(chosen, f"max_error{unit}")),
            }
        )
    return {"splits": splits, "subjects": subjects}


def _floats(rows: list[Row], column: str) -> list[float]:
    return [float(v) for row in rows if (v := row.get(column)) is not None]


def _mean(rows: list[Row], column: str) -> float:
    return float(np.mean(_floats(rows, column)))


def _pool(rows: list[Row], column: str) -> float:
    """Root of the mean square over samples: every sample has the same number of points."""
    return float(np.sqrt(np.mean(np.square(_floats(rows, column)))))


def _skills(rows: list[Row], unit: str) -> dict[str, float | None]:
    error = _pool(rows, f"rmse{unit}")
    return {
        f"skill_{name}": metrics.skill(error, _pool(rows, f"rmse_{name}{unit}"))
        for name in TITLES
        if f"rmse_{name}{unit}" in rows[0]
    }


def _summarise_split(
    rows: list[Row], floors: dict[str, np.ndarray], unit: str, n_points: int
) -> dict[str, Any]:
    ids = list(dict.fromkeys(row["subject_id"] for row in rows))
    member = np.array([ids.index(row["subject_id"]) for row in rows])
    result: dict[str, Any] = {"n_subjects": len(ids), "n_samples": len(rows)}
    result["metrics"] = {
        column: _summarise_column(rows, member, column) | _partial_skill(rows, column, unit)
        for column in rows[0]
        if column not in ("subject_id", "split", "phase", "stage")
        and not column.startswith(("skill_", "rmse_floor"))
        and column not in {f"rmse_{name}{unit}" for name in TITLES}
        and not column.endswith(f"_stage_mean{unit}")
    }
    result["baselines"] = {
        name: _summarise_baseline(rows, member, name, unit)
        for name in TITLES
        if f"rmse_{name}{unit}" in rows[0]
    }
    if floors:
        square = np.concatenate([floors[str(i)] for i in ids])
        by_modes = np.sqrt(square.sum(axis=0) / (len(rows) * n_points))
        result[f"floor_rmse_by_modes{unit}"] = by_modes.tolist()
    return result


def _summarise_column(rows: list[Row], member: np.ndarray, column: str) -> dict[str, Any]:
    """Value over the split with a 95 % interval; null, with the count, if a sample has none."""
    values = _floats(rows, column)
    missing = len(rows) - len(values)
    result: dict[str, Any] = {"value": None, "low": None, "high": None, "missing": missing}
    if missing:
        return result
    if column.startswith("max_error"):
        return {**result, "how": "largest", "value": max(values)}
    if column.startswith("inverted_cells"):
        return {**result, "how": "sum", "value": sum(values)}
    is_rms = column.startswith(("rmse", "weighted_rmse"))
    data = np.square(values) if is_rms else np.array(values)
    sums = _sums_by_subject(member, data, np.ones(len(rows)))

    def statistic(totals: np.ndarray) -> np.ndarray:
        mean = totals[:, 0] / totals[:, 1]
        return np.sqrt(mean) if is_rms else mean

    interval = metrics.bootstrap_interval(sums, statistic) or (None, None)
    value = float(statistic(sums.sum(axis=0, keepdims=True))[0])
    how = "root mean square" if is_rms else "mean"
    return {**result, "how": how, "value": value, "low": interval[0], "high": interval[1]}


def _partial_skill(rows: list[Row], column: str, unit: str) -> dict[str, float | None]:
    """Skill of an RMSE by component, weight or region; others stand with the baselines."""
    if skill_column(column, unit) not in rows[0]:
        return {}
    if len(_floats(rows, column)) < len(rows):
        return {"skill_stage_mean": None}
    mine, mean = (_pool(rows, c) for c in (column, of_stage_mean(column, unit)))
    return {"skill_stage_mean": metrics.skill(mine, mean)}


def _summarise_baseline(
    rows: list[Row], member: np.ndarray, name: str, unit: str
) -> dict[str, float | None]:
    mine, other = (np.square(_floats(rows, f"rmse{n}{unit}")) for n in ("", f"_{name}"))
    sums = _sums_by_subject(member, mine, other)
    interval = metrics.bootstrap_interval(
        sums, lambda totals: 1 - np.sqrt(totals[:, 0] / totals[:, 1])
    ) or (None, None)
    baseline = float(np.sqrt(other.mean()))
    return {
        f"rmse{unit}": baseline,
        "skill": metrics.skill(float(np.sqrt(mine.mean())), baseline),
        "skill_low": interval[0],
        "skill_high": interval[1],
    }


def _sums_by_subject(member: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(member, weights=column) for column in columns], axis=1)


def sentences(summary: dict[str, Any]) -> list[str]:
    """Say the result of each split in one line: RMSE, and skill over each baseline."""
    unit = f" {summary['unit']}" if summary["unit"] else ""
    column = f"rmse_{summary['unit']}" if summary["unit"] else "rmse"
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
