"""Which of two runs is better, and how sure that is: paired differences over subjects."""

from dataclasses import dataclass

import numpy as np

from meshstage.config.subjects import SPLITS
from meshstage.errors import InputError, Problem
from meshstage.judging import metrics
from meshstage.judging.columns import RMSE, baseline_column
from meshstage.judging.runs import Run, present_splits

# Two evaluations of the same targets give the same errors of "no motion" but for the rounding of
# their text.
_SAME = 1e-6


@dataclass(frozen=True)
class Difference:
    """RMSE of one run less that of the other, over some subjects: below 0 the first is better.

    Parameters
    ----------
    first, second : float
        RMSE of each run, units of the target.
    value : float
        ``first - second``.
    low, high : float, optional
        95 % interval: subjects are resampled, both runs on the same ones. None for one subject.
    """

    first: float
    second: float
    value: float
    low: float | None
    high: float | None

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and self.low * self.high > 0


@dataclass(frozen=True)
class Comparison:
    """Two runs on the same subjects of one split.

    Parameters
    ----------
    names : (str, str)
    split : str
    unit : str, optional
        Of the target.
    overall : Difference
    by_subject : dict of str to (float, float)
        RMSE of either run.
    by_stage : dict of float to Difference
    """

    names: tuple[str, str]
    split: str
    unit: str | None
    overall: Difference
    by_subject: dict[str, tuple[float, float]]
    by_stage: dict[float, Difference]

    def sentence(self) -> str:
        """Say which run is better, if that is clear."""
        first, second = self.names
        difference, unit = self.overall, f" {self.unit}" if self.unit else ""
        better = sum(a < b for a, b in self.by_subject.values())
        counts = (
            f"{first} is better on {better} of {len(self.by_subject)} {SPLITS[self.split]} subjects"
        )
        values = f"{difference.first:.3g} against {difference.second:.3g}{unit}"
        if difference.low is None or difference.high is None:
            return f"{counts}: RMSE {values}; too few subjects for an interval"
        interval = (
            f"{difference.value:+.3g}{unit} ({difference.low:+.3g} to {difference.high:+.3g})"
        )
        winner = first if difference.value < 0 else second
        verdict = f"{winner} is better" if difference.is_clear else "the difference is not clear"
        return f"{counts}: RMSE {values}, {interval}: {verdict}"


def compare_runs(first: Run, second: Run, split: str | None = None) -> Comparison:
    """Compare two evaluations subject by subject.

    Parameters
    ----------
    first, second : Run
        Their subjects, stages and targets must be the same.
    split : str, optional
        train, val or test; the last of these that has subjects if it is not given.

    Raises
    ------
    InputError
        If units, subjects, stages or targets differ, or the split has no subjects.
    """
    if first.unit != second.unit:
        raise _differ(second, f"its unit is {second.unit}, that of {first.name} is {first.unit}")
    split = split or present_splits([first])[-1]
    ours, theirs = _errors(first, split), _errors(second, split)
    if not ours:
        raise InputError(f"no {SPLITS[split]} subject was evaluated; choose another split")
    if only := ours.keys() ^ theirs.keys():
        subject, stage = min(only)
        raise _differ(second, f"only one of them has stage {stage:g} of it", subject)
    for (subject, stage), (_, size) in ours.items():
        other = theirs[subject, stage][1]
        if size is not None and other is not None and abs(size - other) > _SAME * max(size, 1e-3):
            raise _differ(second, f"its targets at stage {stage:g} are not the same", subject)
    keys = list(ours)
    square = np.array([(ours[key][0] ** 2, theirs[key][0] ** 2, 1.0) for key in keys])
    by_subject = {
        subject: square[[key[0] == subject for key in keys]].sum(axis=0)
        for subject in dict.fromkeys(key[0] for key in keys)
    }
    by_stage = {
        stage: _difference(square[[key[1] == stage for key in keys]])
        for stage in sorted({key[1] for key in keys})
    }
    rmse = {subject: np.sqrt(sums[:2] / sums[2]) for subject, sums in by_subject.items()}
    return Comparison(
        (first.name, second.name),
        split,
        first.unit,
        _difference(np.stack(list(by_subject.values()))),
        {s: (float(a), float(b)) for s, (a, b) in rmse.items()},
        by_stage,
    )


def _errors(run: Run, split: str) -> dict[tuple[str, float], tuple[float, float | None]]:
    """RMSE at each stage of a split's subjects, and the size of the target there if it is known."""
    column, size = RMSE.column(run.unit), baseline_column("zero", run.unit)
    return {
        (row["subject_id"], float(row["stage"])): (
            float(row[column]),
            float(row[size]) if row.get(size) else None,
        )
        for row in run.rows
        if row["split"] == split
    }


def _difference(sums: np.ndarray) -> Difference:
    """Pool (n, 3) sums per subject: squared errors of either run, and samples."""

    def statistic(totals: np.ndarray) -> np.ndarray:
        first, second = np.sqrt(totals[:, :2] / totals[:, 2:]).T
        return np.asarray(first - second)

    first, second = np.sqrt(sums[:, :2].sum(axis=0) / sums[:, 2].sum())
    low, high = metrics.bootstrap_interval(sums, statistic) or (None, None)
    return Difference(float(first), float(second), float(first - second), low, high)


def _differ(run: Run, what: str, subject: str = "") -> InputError:
    todo = "compare evaluations of the same subjects and targets"
    return InputError(Problem(what, todo, str(run.rows_path), subject=subject))
