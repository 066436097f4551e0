"""The table of measures: predicted beside true, one row per subject, stage, quantity and region."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meshstage.cohort.subject import Subject, differences
from meshstage.errors import InputError, Problem, at, raise_if_any
from meshstage.files import write_text
from meshstage.judging.measures import QUANTITIES, Cavity, at_rest, measure
from meshstage.meshes.arrays import non_finite


class MeasureRow(NamedTuple):
    """One row of ``measures.csv``, in the order of its columns."""

    subject: str
    stage: float
    quantity: str
    region: str
    unit: str
    true: float
    predicted: float


MEASURE_COLUMNS = {
    "subject": "the subject's id",
    "stage": "from 0 to 1",
    "quantity": ", ".join(f"`{quantity.name}`" for quantity in QUANTITIES),
    "region": "`{array}_{value}`, or empty: the whole cavity",
    "unit": "of both numbers; empty of a stretch",
    "true": "of the subject's own meshes",
    "predicted": "of the predicted ones",
}


def measure_subjects(
    cavity: Cavity, subjects: Sequence[Subject], predict: Callable[[Subject], np.ndarray]
) -> list[MeasureRow]:
    """Measure truth and prediction of subjects at their own stages.

    Parameters
    ----------
    cavity : Cavity
    subjects : sequence of Subject
    predict : function
        From a subject to its predicted targets, (n_phases, n_points, 3).

    Raises
    ------
    InputError
        If a target is no displacement, so that it moves no mesh, a subject does not fit the
        template, a prediction is not finite, or the cavity encloses nothing.
    """
    units = {quantity.name: quantity.unit for quantity in QUANTITIES}
    rows = []
    for subject in subjects:
        with at(subject.directory, subject.id):
            if not subject.is_displacement:
                what = f"the target {subject.target_array!r} is no displacement: it moves no mesh"
                raise InputError(Problem(what, "measure subjects whose target moves them"))
            raise_if_any(
                differences(subject, "the template", "ingest it again", n_points=cavity.n_points)
            )
            reference, answers = np.asarray(subject.reference, np.float64), predict(subject)
            if problem := non_finite(answers.reshape(len(answers), -1), "the prediction"):
                raise InputError(problem)
            rest = at_rest(cavity, reference)
            moved = zip(subject.stages.tolist(), subject.targets, answers, strict=True)
            for stage, target, predicted in moved:
                true = measure(cavity, rest, reference + target)
                found = measure(cavity, rest, reference + predicted)
                for (name, region, value), (_, _, other) in zip(true, found, strict=True):
                    rows.append(
                        MeasureRow(subject.id, stage, name, region, units[name], value, other)
                    )
    return rows


def write_measures(path: Path, rows: Iterable[MeasureRow]) -> None:
    """Write ``measures.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(MEASURE_COLUMNS)
    writer.writerows([*row[:5], f"{row.true:.7g}", f"{row.predicted:.7g}"] for row in rows)
    write_text(path, text.getvalue())


def read_measures(path: Path) -> list[MeasureRow]:
    """Read what `write_measures` wrote.

    Raises
    ------
    InputError
        If it is no such table.
    """
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        return [
            MeasureRow(
                line["subject"], float(line["stage"]), line["quantity"], line["region"],
                line["unit"], float(line["true"]), float(line["predicted"]),
            )
            for line in lines
        ]  # fmt: skip
    except (OSError, KeyError, TypeError, ValueError):
        raise InputError(
            Problem("is no table of measures", "make it with measure.py", str(path))
        ) from None
