"""The table of metrics: what a row says is what evaluation, summary, runs' table and docs show."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from judged import MadePredictor, MadeSubject, made_predictor, made_statistics
from meshstage.judging import columns, evaluation, runs
from meshstage.judging.columns import MESH_METRICS, POINT_METRICS, RMSE, Metric
from meshstage.judging.evaluation import Evaluation, evaluate_model
from meshstage.judging.runs import Run, table_of_runs
from meshstage.meshes.cells import cell_fingerprint
from meshstage.motion.baselines import Baselines, fit_baselines

DOCS = Path(__file__).resolve().parents[2] / "docs" / "files.md"
STAGES = np.array([0.0, 0.25, 0.5])


@pytest.fixture(scope="module")
def mesh() -> pv.UnstructuredGrid:
    box = pv.ImageData(dimensions=(3, 2, 2)).cast_to_unstructured_grid()
    box.cell_data["half"] = np.array([1, 2])
    return box


@pytest.fixture(scope="module")
def subjects(mesh: pv.UnstructuredGrid) -> list[Any]:
    """Two subjects that shift along x by 1 and 2 mm times the stage."""
    reference = np.asarray(mesh.points, np.float64)
    along = np.zeros((3, mesh.n_points, 3), np.float32)
    along[:, :, 0] = STAGES[:, None]
    scores = np.array([[0.0, 1.0], [1.0, 1.0]])
    return [MadeSubject(f"s{k}", STAGES, scores[k], (k + 1) * along, reference) for k in range(2)]


@pytest.fixture(scope="module")
def predictor(mesh: pv.UnstructuredGrid, subjects: list[Any]) -> MadePredictor:
    """Wrong along y by 1, 2, 3 mm at the phases of s0 and by 4 mm at those of s1."""
    sizes = np.array([[1, 2, 3], [4, 4, 4]], np.float32)
    errors = [
        np.zeros_like(s.targets) + size[:, None, None] * np.float32([0, 1, 0])
        for s, size in zip(subjects, sizes, strict=True)
    ]
    return made_predictor(mesh, subjects, errors, train_subject_ids=["s0", "s1"])


@pytest.fixture(scope="module")
def baselines(mesh: pv.UnstructuredGrid, subjects: list[Any]) -> Baselines:
    class Template:
        fingerprint = cell_fingerprint(mesh)

    template: Any = Template
    return fit_baselines(template, made_statistics(subjects), subjects)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        # Largest errors along y: 1, 2, 3, 4, 4, 4 mm.
        ("largest", 4.0),
        ("sum", 18.0),
        ("mean", 3.0),
        ("root mean square", np.sqrt(62 / 6)),
    ],
)
def test_a_new_metric_is_one_row(
    predictor: Any, subjects: list[Any], monkeypatch: Any, pooling: Any, expected: float
) -> None:
    """Its name begins as others do, and says nothing of how it is pooled: the row does."""
    new = Metric(
        "max_distance",
        "mm",
        pooling,
        "largest distance along y",
        lambda s: float(np.abs(s.predicted_points - s.true_points)[:, 1].max()),
        heading="largest distance",
    )
    for module in (columns, evaluation, runs):
        monkeypatch.setattr(module, "MESH_METRICS", (*MESH_METRICS, new), raising=False)
    done = evaluate_model(predictor, subjects)
    assert [row["max_distance_mm"] for row in done.rows] == pytest.approx([1, 2, 3, 4, 4, 4])
    found = done.summary["splits"]["train"]["metrics"]["max_distance_mm"]
    assert found["how"] == pooling and found["value"] == pytest.approx(expected)
    # Only a mean has an interval over subjects: the subjects' own means are its bounds.
    has_interval = pooling in ("mean", "root mean square")
    assert (found["low"] is not None) == has_interval
    if pooling == "mean":
        assert (found["low"], found["high"]) == pytest.approx((2, 4))
    header, body = table_of_runs([Run("one", done.summary, Path())])
    assert header[-1] == "largest distance (mm)"
    assert body[0][-1] == f"{int(expected) if pooling == 'sum' else expected:.3g}"


def test_a_new_baseline_needs_no_change_in_judging(
    predictor: Any, subjects: list[Any], baselines: Baselines, monkeypatch: Any
) -> None:
    plain = Baselines.predict

    def predict(self: Baselines, scores: np.ndarray, stages: np.ndarray) -> dict[str, np.ndarray]:
        found = plain(self, scores, stages)
        return {"doubled": 2 * found["ridge"], **found}

    monkeypatch.setattr(Baselines, "predict", predict)
    done = evaluate_model(predictor, subjects, baselines)
    assert list(done.summary["splits"]["train"]["baselines"]) == [
        "doubled", "zero", "stage_mean", "ridge", "gp",
    ]  # fmt: skip
    assert list(done.rows[0])[4:7] == ["rmse_mm", "rmse_doubled_mm", "skill_doubled"]
    row = done.rows[2]
    ridge = predict(baselines, subjects[0].shape_scores, STAGES)["ridge"][2, :, 0]
    # The truth is a shift by 0.5 mm along x; the model is off by 3 mm.
    doubled = np.sqrt(np.mean((2 * ridge.astype(float) - 0.5) ** 2))
    assert row["rmse_doubled_mm"] == pytest.approx(doubled, rel=1e-6)
    assert row["skill_doubled"] == pytest.approx(1 - 3 / doubled, rel=1e-6)
    assert table_of_runs([Run("one", done.summary, Path())])[0][5] == "skill over doubled"


def documented() -> dict[str, list[str]]:
    """Cells of the table of columns in the docs, by the names in its first cell."""
    text = DOCS.read_text(encoding="utf-8").split("### The columns of an evaluation")[1]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: row[1:] for row in cells for name in re.findall(r"`([^`]+)`", row[0])}


def test_docs_tell_of_every_metric_what_the_table_says() -> None:
    rows = documented()
    for metric in (RMSE, *POINT_METRICS, *MESH_METRICS):
        name = metric.column("mm", "{%s}" % metric.per if metric.per else "")  # noqa: UP031
        unit = metric.unit_of("mm")
        assert rows[name] == ["%" if unit == "percent" else unit, metric.pooling, metric.about]


def test_docs_list_every_column_of_an_evaluation(
    predictor: Any, subjects: list[Any], baselines: Baselines
) -> None:
    done = evaluate_model(predictor, subjects, baselines, region="half")
    labels = {
        "baseline": list(baselines.predict(subjects[0].shape_scores, STAGES)),
        "component": ["x", "y", "z"],
        "region": ["half_1", "half_2"],
    }
    expected = []
    for name in documented():
        kind = next((kind for kind in labels if f"{{{kind}}}" in name), None)
        expected += [name.format(**{kind: k}) for k in labels[kind]] if kind else [name]
    assert sorted(expected) == sorted(done.rows[0])


def test_each_column_stands_once() -> None:
    names = [m.name for m in (RMSE, *POINT_METRICS, *MESH_METRICS) if not m.per]
    assert len(names) == len(set(names))


def test_summaries_of_some_subjects_are_of_those_alone(predictor: Any, subjects: list[Any]) -> None:
    both = evaluate_model(predictor, subjects).summary["subjects"]
    for k, subject in enumerate(subjects):
        alone: Evaluation = evaluate_model(predictor, [replace(subject)])
        assert alone.summary["subjects"] == [both[k]]
