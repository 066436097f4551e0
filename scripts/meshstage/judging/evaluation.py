"""Judge a trained model: one row of metrics a subject and phase, and a summary of each split."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
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
from meshstage.judging.summary import Row, of_stage_mean, skill_column, summarise
from meshstage.meshes.cells import cell_fingerprint
from meshstage.motion.baselines import Baselines
from meshstage.motion.residuals import square_errors

if TYPE_CHECKING:
    from meshstage.prediction.predictor import Predictor


Values = dict[str, float | None]


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluation/{run}.csv`` and ``.json`` hold.

    Parameters
    ----------
    rows : list of dict
        One a subject and phase; every row has the same keys. None is a missing value.
    summary : dict
        Per split and per subject, strict JSON.
    """

    rows: list[Row]
    summary: dict[str, Any]


def evaluate_model(
    predictor: "Predictor",
    subjects: Sequence[Subject],
    baselines: Baselines | None = None,
    region: str | None = None,
    statistics_digest: str | None = None,
    template: Template | None = None,
) -> Evaluation:
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
    unit = "_mm" if is_displacement else ""
    shape = _Shape.of(predictor.mesh, _regions(predictor.mesh, region, template))
    rows: list[Row] = []
    floors: dict[str, np.ndarray] = {}
    for subject in subjects:
        split = split_of(subject.id, predictor.metadata)
        predicted = predictor.predict(subject.shape_scores, subject.stages)
        if not np.isfinite(predicted).all():
            raise InputError(
                Problem(
                    "the model predicts values that are not finite",
                    "train it again, or evaluate an earlier epoch (--epoch)",
                    subject=subject.id,
                )
            )
        others = baselines.predict(subject.shape_scores, subject.stages) if baselines else {}
        if baselines:
            floors[subject.id] = baselines.floor_square_errors(subject.targets)
        rows += _subject_rows(subject, split, predicted, others, floors, shape, unit)
    summary = summarise(rows, floors, unit, len(predictor.points))
    about = {
        "unit": unit.lstrip("_") or None,
        "target_array": predictor.target_array,
        "is_displacement": is_displacement,
        "region": region,
        "n_subjects": len(subjects),
        "n_samples": len(rows),
        "notes": notes(predictor.metadata, subjects, baselines),
    }
    return Evaluation(rows, {**about, **summary})


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


@dataclass(frozen=True)
class _Shape:
    """What the metrics need of the template's cells, worked out once."""

    mesh: pv.DataSet
    triangles: np.ndarray
    is_closed: bool
    corners: tuple[np.ndarray, np.ndarray] | None
    regions: dict[str, np.ndarray]

    @classmethod
    def of(cls, mesh: pv.DataSet, regions: dict[str, np.ndarray]) -> "_Shape":
        triangles = metrics.triangles_of(mesh)
        closed = metrics.is_closed(triangles)
        return cls(mesh, triangles, closed, metrics.corner_tetrahedra(mesh), regions)

    def weights(self, reference: np.ndarray) -> np.ndarray:
        """Area or volume at each point of a subject's reference, (n_points,)."""
        moved = self.mesh.copy(deep=False)
        moved.points = np.asarray(reference, np.float64)
        return metrics.point_weights(moved)


def _subject_rows(
    subject: Subject,
    split: str,
    predicted: np.ndarray,
    others: dict[str, np.ndarray],
    floors: dict[str, np.ndarray],
    shape: _Shape,
    unit: str,
) -> list[Row]:
    weights = shape.weights(subject.reference)
    rows = []
    for phase, stage in enumerate(subject.stages):
        truth, guess = np.asarray(subject.targets[phase]), predicted[phase]
        square = square_errors(guess, truth)
        error = metrics.rmse(square)
        row: Row = {
            "subject_id": subject.id,
            "split": split,
            "phase": phase,
            "stage": float(stage),
            f"rmse{unit}": error,
        }
        squares = {name: square_errors(baseline[phase], truth) for name, baseline in others.items()}
        for name in others:
            beaten = metrics.rmse(squares[name])
            row[f"rmse_{name}{unit}"] = beaten
            row[f"skill_{name}"] = metrics.skill(error, beaten)
        if subject.id in floors:
            row[f"rmse_floor{unit}"] = float(np.sqrt(floors[subject.id][phase, -1] / len(square)))
        row |= _length_columns(square, unit)
        where = (weights, shape.regions, unit)
        mine = _partial_rmse(guess, truth, square, *where)
        row |= mine
        if "stage_mean" in others:
            moved = others["stage_mean"][phase]
            mean = _partial_rmse(moved, truth, squares["stage_mean"], *where)
            row |= _partial_skills(mine, mean, unit)
        row |= _mesh_columns(subject, guess, truth, shape)
        rows.append(row)
    return rows


def _length_columns(square: np.ndarray, unit: str) -> Values:
    """Mean, 95th percentile and largest of the points' errors, from their squares."""
    length = np.sqrt(square)
    return {
        f"mean_error{unit}": float(length.mean()),
        f"p95_error{unit}": float(np.percentile(length, 95)),
        f"max_error{unit}": float(length.max()),
    }


def _partial_rmse(
    guess: np.ndarray,
    truth: np.ndarray,
    square: np.ndarray,
    weights: np.ndarray,
    regions: dict[str, np.ndarray],
    unit: str,
) -> Values:
    """RMSE by component, by weight and by region; ``square`` holds the points' squared errors."""
    n_target = truth.shape[1]
    names = "xyz" if n_target == 3 else [str(k) for k in range(n_target)]
    row: Values = {
        f"rmse_{name}{unit}": metrics.rmse(square_errors(guess[:, [k]], truth[:, [k]]))
        for k, name in enumerate(names)
    }
    total = weights.sum()
    row[f"weighted_rmse{unit}"] = float(np.sqrt(weights @ square / total)) if total > 0 else None
    for name, points in regions.items():
        row[f"rmse_{name}{unit}"] = metrics.rmse(square[points])
    return row


def _partial_skills(mine: Values, mean: Values, unit: str) -> Values:
    """Skill over the mean motion of each RMSE by component, weight or region."""
    row: Values = {}
    for column, beaten in mean.items():
        row[of_stage_mean(column, unit)] = beaten
        row[skill_column(column, unit)] = metrics.skill(mine[column], beaten)
    return row


MESH_COLUMNS = (
    "assd_mm",
    "hd95_mm",
    "volume_true_ml",
    "volume_predicted_ml",
    "volume_error_percent",
    "volume_absolute_error_percent",
    "inverted_cells",
    "inverted_cells_true",
)


def _mesh_columns(subject: Subject, guess: np.ndarray, truth: np.ndarray, shape: _Shape) -> Row:
    row: Row = dict.fromkeys(MESH_COLUMNS)
    if not subject.is_displacement:
        return row
    true_points, guessed_points = subject.reference + truth, subject.reference + guess
    distances = metrics.surface_distances(guessed_points, true_points, shape.triangles)
    if distances is not None:
        row["assd_mm"], row["hd95_mm"] = distances
    if shape.is_closed:
        # 1 ml = 1000 mm^3
        true = metrics.enclosed_volume(true_points, shape.triangles) / 1000
        guessed = metrics.enclosed_volume(guessed_points, shape.triangles) / 1000
        percent = 100 * (guessed - true) / true if true > 0 else None
        row["volume_true_ml"], row["volume_predicted_ml"] = true, guessed
        row["volume_error_percent"] = percent
        row["volume_absolute_error_percent"] = None if percent is None else abs(percent)
    if shape.corners is not None:
        for name, points in (("", guessed_points), ("_true", true_points)):
            row[f"inverted_cells{name}"] = metrics.count_inverted(
                points, subject.reference, shape.corners
            )
    return row


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
