"""Evaluation: rows, summaries, what is missing, and what must not be compared."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from judged import MadePredictor, MadeSubject, made_predictor, made_statistics
from meshstage.errors import InputError
from meshstage.judging.evaluation import evaluate_model, write_evaluation
from meshstage.judging.summary import sentences
from meshstage.meshes.cells import cell_fingerprint
from meshstage.motion.baselines import fit_baselines

STAGES = np.array([0.0, 0.25, 0.5, 0.75])


def box() -> pv.UnstructuredGrid:
    """Two hexahedra, 2 x 1 x 1 mm, with a region each."""
    mesh = pv.ImageData(dimensions=(3, 2, 2)).cast_to_unstructured_grid()
    mesh.cell_data["half"] = np.array([1, 2])
    return mesh


def made_subjects(mesh: pv.DataSet, n_subjects: int = 4) -> list[Any]:
    """Subjects that shift along x by (3 + subject) sin(2 pi stage) mm."""
    subjects = []
    for index in range(n_subjects):
        targets = np.zeros((4, mesh.n_points, 3), np.float32)
        targets[:, :, 0] = ((3 + index) * np.sin(2 * np.pi * STAGES))[:, None]
        subjects.append(
            MadeSubject(
                f"s{index}",
                STAGES,
                np.array([float(index), 1.0]),
                targets,
                np.asarray(mesh.points, np.float64),
            )
        )
    return subjects


def constant_errors(subjects: list[Any], *sizes: float) -> list[np.ndarray]:
    """Give each subject an error along y, the same everywhere, mm."""
    return [
        np.zeros_like(s.targets) + np.array([0, size, 0], np.float32)
        for s, size in zip(subjects, sizes, strict=True)
    ]


def fitted(mesh: pv.DataSet, subjects: list[Any]) -> Any:
    class Template:
        fingerprint = cell_fingerprint(mesh)

    return fit_baselines(Template, made_statistics(subjects), subjects)  # type: ignore[arg-type]


def made_case(**metadata: Any) -> tuple[pv.DataSet, list[Any], MadePredictor]:
    mesh = box()
    subjects = made_subjects(mesh)
    split = {"train_subject_ids": ["s0", "s1"], "val_subject_ids": ["s2"]}
    errors = constant_errors(subjects, 1, 2, 3, 4)
    return mesh, subjects, made_predictor(mesh, subjects, errors, **(split | metadata))


def test_rows_hold_the_errors_of_every_subject_and_phase() -> None:
    mesh, subjects, predictor = made_case()
    baselines = fitted(mesh, subjects[:2])
    evaluation = evaluate_model(predictor, subjects, baselines)
    assert len(evaluation.rows) == 16 and predictor.calls == 4  # one forward per subject
    assert len({tuple(row) for row in evaluation.rows}) == 1  # the same columns
    row = evaluation.rows[4 * 2 + 1]
    assert (row["subject_id"], row["split"], row["phase"], row["stage"]) == ("s2", "val", 1, 0.25)
    # Subject 2 is shifted by 5 mm; the error is 3 mm along y; the mean of subjects 0 and 1 is
    # 3.5 mm. float32 numbers of this size are right to 5e-7.
    expected = {
        "rmse_mm": 3,
        "mean_error_mm": 3,
        "p95_error_mm": 3,
        "max_error_mm": 3,
        "weighted_rmse_mm": 3,
        "rmse_x_mm": 0,
        "rmse_y_mm": 3,
        "rmse_z_mm": 0,
        "rmse_zero_mm": 5,
        "skill_zero": 1 - 3 / 5,
        "rmse_stage_mean_mm": 1.5,
        "skill_stage_mean": 1 - 3 / 1.5,
        "volume_true_ml": 0.002,
        "volume_predicted_ml": 0.002,
        "volume_error_percent": 0,
        "inverted_cells": 0,
        "inverted_cells_true": 0,
        # The mean motion is off along x alone.
        "rmse_x_stage_mean_mm": 1.5,
        "skill_x_stage_mean": 1,
        "rmse_y_stage_mean_mm": 0,
        "weighted_rmse_stage_mean_mm": 1.5,
        "skill_weighted_stage_mean": 1 - 3 / 1.5,
    }
    assert row["skill_y_stage_mean"] is None  # it is exact there
    for column, value in expected.items():
        assert row[column] == pytest.approx(value, abs=2e-5), column
    ridge = baselines.predict(subjects[2].shape_scores, STAGES)["ridge"][1, :, 0]
    assert row["rmse_ridge_mm"] == pytest.approx(np.sqrt(np.mean((ridge - 5) ** 2)), rel=1e-5)
    # One mode, a shift along x, holds all motion.
    assert row["rmse_floor_mm"] == pytest.approx(0, abs=1e-6)


def test_a_baseline_without_error_gives_no_skill() -> None:
    mesh, subjects, predictor = made_case()
    row = evaluate_model(predictor, subjects, fitted(mesh, subjects[:2])).rows[0]
    assert row["stage"] == 0 and row["rmse_zero_mm"] == 0
    assert row["skill_zero"] is None


def test_surface_distance_volume_and_cells_of_a_stretched_prediction() -> None:
    mesh, subjects, _ = made_case()
    (subject,) = subjects[:1]
    x = mesh.points[:, 0]
    stretch = np.zeros_like(subject.targets)
    stretch[0, x == 2, 0] = 1.0  # the end face moves out by 1 mm: 3 mm^3 instead of 2
    stretch[1, x == 2, 0] = -1.5  # the end face moves past the middle: one cell inverts
    predictor = made_predictor(mesh, [subject], [stretch])
    longer, inverted = evaluate_model(predictor, [subject]).rows[:2]
    assert longer["volume_error_percent"] == pytest.approx(50)
    assert longer["inverted_cells"] == 0
    assert inverted["inverted_cells"] == 1
    assert inverted["inverted_cells_true"] == 0
    assert inverted["volume_error_percent"] == pytest.approx(-75, abs=1e-4)
    # Only the four points of the moved end are off the true box, by 1 mm. Of the longer box's
    # 14 mm^2 they hold the end face (1) and half of the four sides beside it (2 each): 5. The
    # true box's own points, 10 mm^2, all lie on the longer box.
    assert longer["hd95_mm"] == pytest.approx(1)
    assert longer["assd_mm"] == pytest.approx(5 / 24)


def test_regions_have_columns_of_their_own() -> None:
    mesh, subjects, _ = made_case()
    (subject,) = subjects[:1]
    error = np.zeros_like(subject.targets)
    error[:, mesh.points[:, 0] == 2, 2] = 4.0
    predictor = made_predictor(mesh, [subject], [error])
    row = evaluate_model(predictor, [subject], region="half").rows[0]
    assert row["rmse_half_1_mm"] == 0
    assert row["rmse_half_2_mm"] == pytest.approx(4 / np.sqrt(2))  # half of its points


def test_regions_may_be_younger_than_the_model() -> None:
    mesh, subjects, predictor = made_case()
    newer = mesh.copy()
    newer.cell_data["side"] = np.array(["left", "right"])

    class Template:
        fingerprint = cell_fingerprint(newer)
        directory = Path("template")

        @staticmethod
        def mesh() -> pv.DataSet:
            return newer

    template: Any = Template
    evaluation = evaluate_model(
        predictor, subjects, fitted(mesh, subjects[:2]), region="side", template=template
    )
    row = evaluation.rows[4 * 2 + 1]
    assert row["rmse_side_left_mm"] == pytest.approx(3)
    assert row["skill_side_left_stage_mean"] == pytest.approx(1 - 3 / 1.5)
    validation = evaluation.summary["splits"]["val"]["metrics"]
    # Over all four phases 3 mm, against 1.5 mm at two of them.
    expected = pytest.approx(1 - 3 / (1.5 / np.sqrt(2)))
    assert validation["rmse_side_left_mm"]["skill_stage_mean"] == expected
    Template.fingerprint = "another"
    with pytest.raises(InputError, match=r"template: is not the template that the model was"):
        evaluate_model(predictor, subjects, region="side", template=template)


def test_summary_pools_points_and_resamples_subjects() -> None:
    mesh, subjects, predictor = made_case()
    summary = evaluate_model(predictor, subjects, fitted(mesh, subjects[:2])).summary
    train = summary["splits"]["train"]
    assert (train["n_subjects"], train["n_samples"]) == (2, 8)
    rmse = train["metrics"]["rmse_mm"]
    # Errors of 1 and 2 mm: the root of the mean square, between both subjects' own.
    assert rmse["value"] == pytest.approx(np.sqrt(2.5))
    assert (rmse["low"], rmse["high"], rmse["missing"]) == (pytest.approx(1), pytest.approx(2), 0)
    assert train["metrics"]["max_error_mm"]["value"] == pytest.approx(2)
    zero = train["baselines"]["zero"]
    # Shifts of 3 and 4 mm times a sine of mean square 1/2: a mean square of 25/4.
    assert zero["rmse_mm"] == pytest.approx(2.5)
    assert zero["skill"] == pytest.approx(1 - np.sqrt(2.5) / 2.5)
    assert zero["skill_low"] == pytest.approx(1 - 2 / np.sqrt(8))
    assert zero["skill_high"] == pytest.approx(1 - 1 / np.sqrt(4.5))
    val = summary["splits"]["val"]
    assert val["metrics"]["rmse_mm"]["value"] == pytest.approx(3)
    assert val["metrics"]["rmse_mm"]["low"] is None  # one subject has no interval
    assert summary["splits"]["test"]["n_subjects"] == 1
    assert [s["rmse_mm"] for s in summary["subjects"]] == pytest.approx([1, 2, 3, 4])
    lines = sentences(summary)
    assert lines[1].startswith("val (1 subject): RMSE 3 mm; skill over zero 0.15")


def test_no_validation_subject_leaves_null() -> None:
    _, subjects, predictor = made_case(val_subject_ids=[])
    summary = evaluate_model(predictor, subjects[:2]).summary
    assert summary["splits"]["val"] is None and summary["splits"]["test"] is None
    assert sentences(summary)[1] == "val: no subject"


def test_targets_that_are_no_displacement_have_no_unit_and_no_mesh_metrics() -> None:
    _, subjects, predictor = made_case()
    for subject in subjects:
        subject.is_displacement = False
    evaluation = evaluate_model(predictor, subjects)
    row = evaluation.rows[0]
    assert row["rmse"] == pytest.approx(1) and "rmse_mm" not in row
    assert row["assd_mm"] is None and row["volume_error_percent"] is None
    assd = evaluation.summary["splits"]["train"]["metrics"]["assd_mm"]
    assert assd == {"value": None, "low": None, "high": None, "missing": 8}
    assert any("not a displacement" in note for note in evaluation.summary["notes"])


def test_one_missing_value_is_counted_and_takes_the_mean_with_it() -> None:
    """A mean over the samples that happen to have a value would be of other samples."""
    mesh, subjects, predictor = made_case()
    answer = predictor.answers[subjects[0].shape_scores.tobytes()]
    answer[2] = -mesh.points  # all points at the origin: no surface, no distance
    metrics = evaluate_model(predictor, subjects).summary["splits"]["train"]["metrics"]
    assert metrics["assd_mm"]["missing"] == 1 and metrics["assd_mm"]["value"] is None
    assert metrics["rmse_mm"]["missing"] == 0 and metrics["rmse_mm"]["value"] > 0
    assert metrics["inverted_cells"]["value"] == 2


def test_open_surface_has_no_volume() -> None:
    plane = pv.Plane(i_resolution=2, j_resolution=2).triangulate()
    subjects = made_subjects(plane, 1)
    predictor = made_predictor(plane, subjects, constant_errors(subjects, 0.5))
    row = evaluate_model(predictor, subjects).rows[0]
    assert row["volume_true_ml"] is None and row["inverted_cells"] is None
    assert row["assd_mm"] is not None


def test_files_are_strict_and_say_what_is_missing(tmp_path: Path) -> None:
    mesh, subjects, predictor = made_case()
    evaluation = evaluate_model(predictor, subjects, fitted(mesh, subjects[:2]))
    beside = write_evaluation(tmp_path / "mgn.csv", evaluation)
    assert beside == tmp_path / "mgn.json"

    def refuse(token: str) -> float:
        raise AssertionError(token)

    assert json.loads(beside.read_text(), parse_constant=refuse) == evaluation.summary
    with (tmp_path / "mgn.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 16 and rows[0]["skill_zero"] == ""
    assert float(rows[9]["rmse_mm"]) == pytest.approx(3)


@pytest.mark.parametrize(
    ("hashes", "message"),
    [
        ({"template": "other"}, "the template's cells changed since the model was trained"),
        ({"statistics": "other"}, r"stats\.json changed since the model was trained"),
        (
            {"subjects": {"s1": {"targets": "other"}}},
            r"subject s1: its targets changed since the model was trained",
        ),
    ],
)
def test_changed_data_are_named(hashes: dict[str, Any], message: str) -> None:
    _, subjects, predictor = made_case(data_hashes=hashes)
    with pytest.raises(InputError, match=message):
        evaluate_model(predictor, subjects, statistics_digest="digest")


def test_unchanged_data_pass() -> None:
    mesh, subjects, _ = made_case()
    hashes = {
        "template": cell_fingerprint(mesh),
        "statistics": "digest",
        "subjects": {s.id: s.hashes for s in subjects[:3]},
    }
    _, _, predictor = made_case(data_hashes=hashes)
    notes = evaluate_model(predictor, subjects, statistics_digest="digest").summary["notes"]
    assert not any("which data" in note for note in notes)


def test_baselines_of_other_data_are_refused() -> None:
    mesh, subjects, predictor = made_case()
    baselines = fitted(mesh, subjects[:2])
    subjects[0].hashes = {"targets": "new"}
    with pytest.raises(InputError, match="subject s0: changed since the baselines were fitted"):
        evaluate_model(predictor, subjects, baselines)
    baselines.about["template_fingerprint"] = "other"
    with pytest.raises(InputError, match="the baselines were fitted on another template"):
        evaluate_model(predictor, subjects, baselines)


def test_baselines_of_other_training_subjects_are_noted() -> None:
    mesh, subjects, predictor = made_case()
    notes = evaluate_model(predictor, subjects, fitted(mesh, subjects[:3])).summary["notes"]
    assert "the baselines were fitted on other training subjects than the model" in notes


def test_what_does_not_fit_the_model_is_a_sentence() -> None:
    _, subjects, predictor = made_case()
    predictor.n_pca = 7
    with pytest.raises(InputError, match="s0: the number of shape scores is 2, but 7 in the model"):
        evaluate_model(predictor, subjects)
    _, subjects, predictor = made_case()
    predictor.answers[subjects[3].shape_scores.tobytes()][0, 0, 0] = np.nan
    with pytest.raises(InputError, match=r"subject s3: the model predicts values .* not finite"):
        evaluate_model(predictor, subjects)
    with pytest.raises(InputError, match="no subject"):
        evaluate_model(predictor, [])
