"""The table of all runs: what each model's errors are, in one look."""

from collections.abc import Iterator, Sequence
from typing import Any

from meshstage.config.subjects import SPLITS

HEADER = ("run", "subjects", "RMSE", "skill over the mean motion", "skill over the ridge")


def runs_table(summaries: Sequence[dict[str, Any]]) -> str:
    """Lay out evaluations as plain text, one row a run and split.

    Parameters
    ----------
    summaries : sequence of dict
        What `evaluate.py` writes as JSON, one a run.

    Returns
    -------
    str
        RMSE in the target's unit; ``-`` where a baseline is exact, or was not given.
    """
    rows = [HEADER, *(row for summary in summaries for row in _rows(summary))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _rows(summary: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    unit = summary["unit"]
    for split, title in SPLITS.items():
        if values := summary["splits"][split]:
            rmse = values["metrics"][f"rmse_{unit}" if unit else "rmse"]["value"]
            skills = (values["baselines"].get(n, {}).get("skill") for n in ("stage_mean", "ridge"))
            yield (
                summary["run"],
                f"{values['n_subjects']} {title}",
                f"{rmse:.3f} {unit or ''}".rstrip(),
                *("-" if skill is None else f"{skill:.2f}" for skill in skills),
            )
