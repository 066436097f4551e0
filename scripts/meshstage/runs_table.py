"""The table of all runs: what each model's errors are, in one look."""

from collections.abc import Sequence
from typing import Any

HEADER = ("run", "train RMSE", "held-out RMSE", "skill over the mean motion")


def runs_table(summaries: Sequence[dict[str, Any]]) -> str:
    """Lay out evaluations as plain text, one row a run.

    Parameters
    ----------
    summaries : sequence of dict
        What `evaluate.py` writes as JSON, one a run.

    Returns
    -------
    str
        RMSE in the target's unit; held out are test subjects, or validation subjects where there
        are none; ``-`` where nothing was held out.
    """
    rows = [HEADER, *map(_row, summaries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(summary: dict[str, Any]) -> tuple[str, ...]:
    splits = summary["splits"]
    held_out = splits["test"] or splits["val"]
    skill = held_out and held_out["baselines"].get("stage_mean", {}).get("skill")
    return (
        summary["run"],
        _rmse(splits["train"], summary["unit"]),
        _rmse(held_out, summary["unit"]),
        "-" if skill is None else f"{skill:.2f}",
    )


def _rmse(split: dict[str, Any] | None, unit: str) -> str:
    if split is None:
        return "-"
    value = split["metrics"][f"rmse_{unit}" if unit else "rmse"]["value"]
    return f"{value:.3f} {unit}".rstrip()
