"""Judge a trained model: one row of metrics per subject and phase, and a summary of each split."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyvista as pv

from meshstage.cohort.subject import Subject
from meshstage.cohort.template import Template
from meshstage.errors import InputError, Problem, raise_if_any
from meshstage.files import write_json, write_text
from meshstage.judging import metrics
from meshstage.judging.checks import changed_data, notes, split_of, unfit_baselines, unfit_subject
from meshstage.judging.columns import (
    FLOOR,
    KEYS,
    MESH_METRICS,
    POINT_METRICS,
    RMSE,
    Column,
    Sample,
    Shape,
    baseline_column,
    columns_of,
    skill_column,
)
from meshstage.judging.summary import Row, summarise
from meshstage.meshes.cells import cell_fingerprint
from meshstage.motion.baselines import Baselines

if TYPE_CHECKING:
    from meshstage.prediction.predictor import Predictor


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluation/{run}.csv`` and ``.json`` hold.

    Parameters
    ----------
    rows : list of dict
        One per subject and phase; every row has the same keys. None is a missing value.
    summary : dict
        Per split and per subject, strict JSON.
    """

    rows: list[Row]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """A model's errors, before they are summarised.

    Parameters
    ----------
    rows : list of dict
        As in `Evaluation`.
    columns : list of Column
        The metrics among their keys.
    baselines : list of str
    floors : dict
        Subject id to (n_phases, n_modes + 1) sums of squares; empty without baselines.
    n_points : int
    about : dict
        What the summary begins with: unit, target, counts, notes.
    """

    rows: list[Row]
    columns: list[Column]
    baselines: list[str]
    floors: dict[str, np.ndarray]
    n_points: int
    about: dict[str, Any]

    def evaluation(self) -> Evaluation:
        """Summarise."""
        unit = self.about["unit"]
        summary = summarise(
            self.rows, self.columns, self.baselines, self.floors, unit, self.n_points
        )
        return Evaluation(self.rows, {**self.about, **summary})


def evaluate_model(
    predictor: "Predictor",
    subjects: Sequence[Subject],
    baselines: Baselines | None = None,
    region: str | None = None,
    statistics_digest: str | None = None,
    template: Template | None = None,
) -> Evaluation:
    """Judge a model and summarise, see `judge_model`."""
    return judge_model(
        predictor, subjects, baselines, region, statistics_digest, template
    ).evaluation()


def judge_model(
    predictor: "Predictor",
    subjects: Sequence[Subject],
    baselines: Baselines | None = None,
    region: str | None = None,
    statistics_digest: str | None = None,
    template: Template | None = None,
) -> Judged:
    """Compare a model's predictions with the truth of ingested subjects.

    Parameters
    ----------
    predictor : Predictor
        Its metadata says which subjects it was trained on and validated with: all others are
        test subjects.
    subjects : sequence of Subject
    baselines : Baselines, optional
        Gives every RMSE its skill.
    region : str, optional
        Point or cell array of the template whose values name regions.
    statistics_digest : str, optional
        ``Statistics.digest()`` of today's ``stats.json``, to be compared with the model's.
    template : Template, optional
        Where regions are read: an array may be younger than the model, whose own copy of the
        template serves otherwise.

    Raises
    ------
    InputError
        If the data changed since the model was trained, a subject does not fit the model, or
        the model predicts something that is not finite.
    """
    if not subjects:
        raise InputError("no subject to evaluate; give at least one")
    raise_if_any(changed_data(predictor, subjects, statistics_digest))
    if baselines is not None:
        raise_if_any(unfit_baselines(baselines, predictor, subjects))
    raise_if_any(problem for s in subjects for problem in unfit_subject(s, predictor))
    is_displacement = all(subject.is_displacement for subject in subjects)
    unit = "mm" if is_displacement else None
    shape = Shape.of(predictor.mesh, _regions(predictor.mesh, region, template))
    points, meshes = (
        columns_of(table, unit, predictor.n_target, shape.regions)
        for table in (POINT_METRICS, MESH_METRICS)
    )
    rows: list[Row] = []
    floors: dict[str, np.ndarray] = {}
    names: list[str] = []
    for subject in subjects:
        split = split_of(subject.id, predictor.metadata)
        weights = shape.weights(subject.reference)
        targets, predicted = subject.targets, _predict(predictor, subject)
        others = baselines.predict(subject.shape_scores, subject.stages) if baselines else {}
        names = list(others)
        if baselines:
            floors[subject.id] = baselines.floor_square_errors(targets)
        for phase, stage in enumerate(subject.stages):
            truth = np.asarray(targets[phase])
            sample = Sample(shape, subject.reference, weights, truth, predicted[phase])
            beside = {n: replace(sample, predicted=values[phase]) for n, values in others.items()}
            keys = (subject.id, split, phase, float(stage))
            row: Row = dict(zip(KEYS, keys, strict=True)) | _rmse(sample, beside, unit)
            if baselines:
                left = floors[subject.id][phase, -1] / len(truth)
                row[baseline_column(FLOOR, unit)] = float(np.sqrt(left))
            row |= {column.name: column.value(sample) for column in points}
            if "stage_mean" in beside:
                row |= _skills(row, beside["stage_mean"], points)
            moves = subject.is_displacement
            row |= {column.name: column.value(sample) if moves else None for column in meshes}
            rows.append(row)
    rmse = columns_of([RMSE], unit, predictor.n_target, ())
    about = {
        "unit": unit,
        "target_array": predictor.target_array,
        "is_displacement": is_displacement,
        "region": region,
        "n_subjects": len(subjects),
        "n_samples": len(rows),
        "notes": notes(predictor.metadata, subjects, baselines),
    }
    columns = [*rmse, *points, *meshes]
    return Judged(rows, columns, names, floors, len(predictor.points), about)


def _predict(predictor: "Predictor", subject: Subject) -> np.ndarray:
    predicted = predictor.predict(subject.shape_scores, subject.stages)
    if not np.isfinite(predicted).all():
        raise InputError(
            Problem(
                "the model predicts values that are not finite",
                "train it again, or evaluate an earlier epoch (--epoch)",
                subject=subject.id,
            )
        )
    return predicted


def _rmse(sample: Sample, others: Mapping[str, Sample], unit: str | None) -> Row:
    """RMSE of the model, and of each baseline with the skill over it."""
    error = RMSE.compute(sample)
    row: Row = {RMSE.column(unit): error}
    for name, baseline in others.items():
        beaten = RMSE.compute(baseline)
        row[baseline_column(name, unit)] = beaten
        row[skill_column(name)] = metrics.skill(error, beaten)
    return row


def _skills(row: Row, mean: Sample, columns: Sequence[Column]) -> Row:
    """Errors of the mean motion by component, weight and region, and the skill over each."""
    beside: Row = {}
    for column in columns:
        if column.skill:
            beaten = column.value(mean)
            beside[column.of_mean] = beaten
            beside[column.skill] = metrics.skill(row[column.name], beaten)
    return beside


def _regions(
    mesh: pv.DataSet, array: str | None, template: Template | None
) -> dict[str, np.ndarray]:
    """Points of each region, by ``{array}_{label}``; none if no array is named."""
    if array is None:
        return {}
    if template is not None:
        if template.fingerprint != cell_fingerprint(mesh):
            what = "is not the template that the model was trained on"
            raise InputError(Problem(what, "name that one", str(template.directory)))
        mesh = template.mesh()
    return {f"{array}_{label}": p for label, p in metrics.region_points(mesh, array).items()}


def write_evaluation(path: Path, evaluation: Evaluation) -> Path:
    """Write the rows to ``path`` (.csv) and the summary beside it (.json), whose path it gives."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(evaluation.rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {k: f"{v:.9g}" if isinstance(v, float) else v for k, v in row.items()}
        for row in evaluation.rows
    )
    write_text(path, stream.getvalue())
    beside = path.with_suffix(".json")
    write_json(beside, evaluation.summary)
    return beside
