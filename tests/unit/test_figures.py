"""Figures: what they draw is what was measured, and nothing is blank."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv
from PIL import Image

from judged import MadeSubject, made_predictor, made_statistics
from meshstage.errors import InputError
from meshstage.figures.cases import Case, choose_subjects, read_cases, read_prediction
from meshstage.figures.evaluation import (
    plot_error_by_stage,
    plot_error_by_subject,
    rmse_by_stage,
    tables_of_runs,
)
from meshstage.figures.meshes import Scene, animate, plot_cases
from meshstage.figures.records import read_training
from meshstage.figures.style import save_figure
from meshstage.figures.training import plot_training
from meshstage.files import write_json
from meshstage.judging.evaluation import Evaluation, evaluate_model, write_evaluation
from meshstage.judging.runs import as_tsv, read_evaluations, table_of_runs
from meshstage.meshes.cells import cell_fingerprint
from meshstage.meshes.reading import write_mesh
from meshstage.motion.baselines import fit_baselines

STAGES = np.array([0.0, 0.25, 0.5, 0.75])


@pytest.fixture(scope="module")
def mesh() -> pv.PolyData:
    return pv.Icosphere(radius=20, nsub=1)


@pytest.fixture(scope="module")
def subjects(mesh: pv.PolyData) -> list[Any]:
    """Spheres that swell by (2 + subject) sin^2(pi stage) mm."""
    unit = np.asarray(mesh.points, float) / 20
    made = []
    for index in range(5):
        amount = (2 + index) * np.sin(np.pi * STAGES) ** 2
        targets = (amount[:, None, None] * unit).astype(np.float32)
        scores = np.array([float(index), index % 2])
        made.append(MadeSubject(f"s{index}", STAGES, scores, targets, 20 * unit))
    return made


@pytest.fixture(scope="module")
def errors(subjects: list[Any]) -> list[np.ndarray]:
    """Errors along x of 0.1, 0.2, ... mm at all points and phases."""
    return [
        np.zeros_like(s.targets) + np.array([0.1 * (k + 1), 0, 0], np.float32)
        for k, s in enumerate(subjects)
    ]


@pytest.fixture(scope="module")
def evaluations(
    mesh: pv.PolyData,
    subjects: list[Any],
    errors: list[np.ndarray],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Path]:
    """Two runs; the second is twice as wrong. s0 and s1 train, s2 validates, s3, s4 test."""

    class Template:
        fingerprint = cell_fingerprint(mesh)

    template: Any = Template
    baselines = fit_baselines(template, made_statistics(subjects[:2]), subjects[:2])
    folder = tmp_path_factory.mktemp("evaluation")
    paths = []
    for name, factor in (("good", 1), ("bad", 2)):
        predictor = made_predictor(
            mesh,
            subjects,
            [factor * e for e in errors],
            train_subject_ids=["s0", "s1"],
            val_subject_ids=["s2"],
        )
        done = evaluate_model(predictor, subjects, baselines)  # type: ignore[arg-type]
        evaluation = Evaluation(done.rows, {"run": name, **done.summary})
        paths.append(write_evaluation(folder / f"{name}.csv", evaluation))
    return paths


def lines_of(axes: Any) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_xydata()) for line in axes.get_lines()}


def is_blank(picture: Any) -> bool:
    return bool(np.ptp(np.asarray(picture)[..., :3].reshape(-1, 3), axis=0).max() < 10)


def test_rmse_by_stage_pools_subjects() -> None:
    rows = [
        {"split": "val", "stage": "0.5", "rmse_mm": "3"},
        {"split": "val", "stage": "0.5", "rmse_mm": "4"},
        {"split": "val", "stage": "0", "rmse_mm": "1"},
        {"split": "train", "stage": "0", "rmse_mm": "9"},
        {"split": "val", "stage": "0", "rmse_mm": ""},
    ]
    stages, pooled = rmse_by_stage(rows, "val", "rmse_mm")
    assert stages.tolist() == [0, 0.5]
    assert pooled == pytest.approx([1, np.sqrt(12.5)])


def test_many_stages_are_pooled_in_even_bins() -> None:
    rows = [{"split": "val", "stage": f"{k / 400}", "rmse": f"{k // 10}"} for k in range(400)]
    stages, pooled = rmse_by_stage(rows, "val", "rmse")
    assert stages == pytest.approx((np.arange(40) + 0.5) / 40)
    assert pooled == pytest.approx(np.arange(40))


def test_error_by_stage_draws_runs_and_baselines(evaluations: list[Path]) -> None:
    runs = read_evaluations(evaluations)
    figure = plot_error_by_stage(runs)
    assert [axes.get_title() for axes in figure.axes[:3]] == [
        "train (2 subjects)",
        "validation (1 subject)",
        "test (2 subjects)",
    ]
    test, skill = lines_of(figure.axes[2]), figure.axes[5].get_lines()
    pooled = np.sqrt((0.4**2 + 0.5**2) / 2)
    np.testing.assert_allclose(test["good"], [(s, pooled) for s in STAGES], rtol=1e-5)
    np.testing.assert_allclose(test["bad"][:, 1], 2 * pooled, rtol=1e-5)
    # Subjects 3 and 4 swell by 5 and 6 mm, those that the mean was fitted on by 2 and 3.
    swelling = np.sin(np.pi * STAGES) ** 2
    np.testing.assert_allclose(
        test["no motion"][:, 1], np.sqrt(30.5) * swelling, rtol=1e-5, atol=1e-6
    )
    away = np.sqrt((2.5**2 + 3.5**2) / 2) * swelling
    np.testing.assert_allclose(test["mean motion at the stage"][:, 1], away, rtol=1e-5, atol=1e-6)
    # At stage 0 the mean is right: there is nothing to beat, and no skill.
    np.testing.assert_allclose(skill[0].get_xydata()[:, 0], STAGES[1:])
    np.testing.assert_allclose(skill[0].get_ydata(), 1 - pooled / away[1:], rtol=1e-4)


def test_error_by_subject_has_every_subject_once(evaluations: list[Path]) -> None:
    figure = plot_error_by_subject(read_evaluations(evaluations))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["s4 (test)", "s3 (test)", "s2 (validation)", "s1 (train)", "s0 (train)"]
    good = lines_of(figure.axes[0])["good"]
    np.testing.assert_allclose(good[:, 0], [0.5, 0.4, 0.3, 0.2, 0.1], rtol=1e-5)


def test_table_of_runs_shows_values_and_what_is_missing(evaluations: list[Path]) -> None:
    runs = read_evaluations(evaluations)
    values = runs[1].summary["splits"]["test"]["metrics"]["assd_mm"]
    values |= {"value": None, "missing": 3}
    runs[1].summary["notes"].append("a <b> & c")
    runs[0] = replace(runs[0], name="<b>good")
    header, body = table_of_runs(runs)
    assert len(body) == 6 and all(len(row) == len(header) for row in body)
    last = dict(zip(header, body[-1], strict=True))
    assert (last["run"], last["split"], last["subjects"]) == ("bad", "test", "2")
    assert last["RMSE (mm)"] == f"{2 * np.sqrt((0.4**2 + 0.5**2) / 2):.3g}"
    assert last["95 % interval"] == "0.8 to 1"
    assert last["ASSD (mm)"] == "- (3 of 8 missing)"
    assert last["inverted cells"] == "-"  # a surface has no solid cells: nothing is missing
    page, text = tables_of_runs(runs)
    assert text == as_tsv(table_of_runs(runs))
    assert "bad: a &lt;b&gt; &amp; c" in page
    assert "&lt;b&gt;good" in page and "<b>" not in page
    assert "http" not in page  # nothing is fetched
    lines = as_tsv(table_of_runs(runs)).splitlines()
    assert [line.split("\t") for line in lines] == [header, *body]


def test_runs_in_different_units_do_not_stand_side_by_side(
    evaluations: list[Path], tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    run = read_evaluations(evaluations[:1])[0]
    write_json(other, run.summary | {"unit": None})
    (tmp_path / "other.csv").write_bytes(evaluations[0].with_suffix(".csv").read_bytes())
    with pytest.raises(InputError, match=r"other\.json: evaluated in another unit"):
        read_evaluations([evaluations[0], other])
    with pytest.raises(InputError, match=r"missing\.json: the file does not exist"):
        read_evaluations([tmp_path / "missing.json"])


LOG = [
    {"epoch": 2, "train_rmse": 2.0, "val_rmse": 3.0},
    {"epoch": 4, "train_rmse": 1.0, "val_rmse": 2.0},
]


def test_training_curve_stands_beside_the_baselines(evaluations: list[Path]) -> None:
    summary = read_evaluations(evaluations)[0].summary
    figure = plot_training([4.0, 3.0, 2.0, 1.0], LOG, best_epoch=4, summary=summary)
    left, right = figure.axes
    np.testing.assert_allclose(lines_of(left)["training loss"], [(1, 4), (2, 3), (3, 2), (4, 1)])
    lines = lines_of(right)
    np.testing.assert_allclose(lines["train"], [(2, 2), (4, 1)])
    np.testing.assert_allclose(lines["validation"], [(2, 3), (4, 2)])
    # The validation subject swells by 4 sin^2 mm, whose mean square over the stages is 3/8 of
    # 16; the mean of the training subjects, 2.5 mm, is 1.5 mm off.
    root = np.sqrt(3 / 8)
    assert f"no motion ({4 * root:.2f})" in lines
    mean = lines[f"mean motion at the stage ({1.5 * root:.2f})"]
    np.testing.assert_allclose(mean[:, 1], 1.5 * root, rtol=1e-6)


def test_training_without_validation_and_without_evaluation() -> None:
    log = [entry | {"val_rmse": None} for entry in LOG]
    lines = lines_of(plot_training([1.0], log).axes[1])
    assert set(lines) == {"train"}
    assert lines_of(plot_training([1.0], []).axes[1]) == {}


def test_training_records_of_a_run_in_progress_are_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no training_losses\.json here or in live/"):
        read_training(tmp_path)
    write_json(tmp_path / "live" / "training_losses.json", [2.0, 1.0])
    assert read_training(tmp_path) == ([2.0, 1.0], [], None)


def test_same_figure_same_bytes(evaluations: list[Path], tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        save_figure(tmp_path / name, plot_error_by_subject(read_evaluations(evaluations)))
    for kind in ("png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert not is_blank(Image.open(tmp_path / "a.png"))


def make_cases(subjects: list[Any], errors: list[np.ndarray]) -> list[Case]:
    return [
        Case(label, subjects[k], "test", subjects[k].targets + errors[k], 0.1 * (k + 1), 0.5)
        for label, k in (("best", 2), ("worst", 4))
    ]


def test_best_median_and_worst_are_chosen_among_held_out_subjects() -> None:
    def summary(*entries: tuple[str, str, float]) -> dict[str, Any]:
        names = ("subject_id", "split", "rmse_mm")
        subjects = [dict(zip(names, e, strict=True)) for e in entries]
        return {"unit": "mm", "subjects": subjects}

    def chosen(*entries: tuple[str, str, float]) -> list[tuple[str, str]]:
        return [(label, s["subject_id"]) for label, s in choose_subjects(summary(*entries))]

    train = ("t", "train", 0.0)
    a, b, c, d = (("a", "val", 4), ("b", "test", 2), ("c", "test", 3), ("d", "test", 1))
    assert chosen(train, a, b, c, d) == [("best", "d"), ("median", "b"), ("worst", "a")]
    assert chosen(train, a, b) == [("best", "b"), ("worst", "a")]
    assert chosen(train, a) == [("only", "a")]
    assert chosen(train) == [("only", "t")]


def test_predictions_are_read_by_stage(
    mesh: pv.PolyData, subjects: list[Any], tmp_path: Path
) -> None:
    subject = subjects[1]
    folder = tmp_path / subject.stem
    entries = []
    for k in (2, 0, 3, 1):  # in another order than the subject's
        moved = mesh.copy()
        moved.point_data["displacement"] = subject.targets[k] + np.float32(k)
        moved.points = subject.reference + moved.point_data["displacement"]
        write_mesh(folder / f"{k}.vtp", moved)
        entries.append(f'<DataSet timestep="{STAGES[k]}" file="{k}.vtp"/>')
    collection = folder / f"{subject.stem}.pvd"
    collection.write_text(f"<VTKFile><Collection>{''.join(entries)}</Collection></VTKFile>")
    predicted = read_prediction(folder, subject)
    expected = subject.targets + np.arange(4, dtype=np.float32)[:, None, None]
    np.testing.assert_array_equal(predicted, expected)

    moved.points[:, 0] += 5.0  # the displacement of another space
    write_mesh(folder / "1.vtp", moved)
    with pytest.raises(InputError, match=r"1\.vtp, subject s1: its points are not the subject's"):
        read_prediction(folder, subject)

    collection.write_text(f"<VTKFile><Collection>{entries[0]}</Collection></VTKFile>")
    with pytest.raises(InputError, match=r"s1\.pvd, subject s1: no prediction at stage 0;"):
        read_prediction(folder, subject)
    collection.write_text("<VTKFile>")
    with pytest.raises(InputError, match=r"s1\.pvd, subject s1: cannot be read"):
        read_prediction(folder, subject)
    summary = {
        "unit": "mm",
        "subjects": [{"subject_id": "s9", "split": "test", "rmse_mm": 1.0}],
    }
    with pytest.raises(InputError, match="subject s9: it was evaluated, but is not among"):
        read_cases(summary, subjects, tmp_path)


def test_worst_phase_is_the_one_with_the_largest_error(subjects: list[Any]) -> None:
    error = np.zeros_like(subjects[0].targets)
    error[2, 0, 0] = 1
    case = Case("only", subjects[0], "test", subjects[0].targets + error, 1.0, None)
    assert case.worst_phase() == 2
    assert case.error(2)[0] == pytest.approx(1) and not case.error(1).any()


def test_scene_looks_from_one_place_and_colours_by_value(mesh: pv.PolyData) -> None:
    points = np.asarray(mesh.points, float)
    scene = Scene(mesh, 2 * points)
    still = scene.render(points, np.zeros(len(points)), 1.0, "cividis")
    up = scene.render(points + np.array([0, 0, 10]), np.zeros(len(points)), 1.0, "cividis")
    bright = scene.render(points, np.ones(len(points)), 1.0, "cividis")

    def rows(picture: np.ndarray) -> np.ndarray:
        return np.flatnonzero((picture.astype(int).sum(axis=2) < 740).any(axis=1))

    assert not is_blank(still)
    # Up by a quarter of the 40 mm of the sphere: rows are counted from the top, and its own size
    # in pixels gives the scale. The view from above shortens the way a little.
    high = np.ptp(rows(still))
    assert -0.3 * high < rows(up).mean() - rows(still).mean() < -0.15 * high
    # cividis goes from dark blue to yellow.
    middle = slice(200, 220)
    assert bright[middle, middle, 0].mean() > still[middle, middle, 0].mean() + 60


def test_points_without_cells_are_shown(mesh: pv.PolyData) -> None:
    cloud = pv.PolyData(np.asarray(mesh.points))
    picture = Scene(cloud, cloud.points).render(cloud.points, np.ones(42), 1.0, "cividis")
    assert not is_blank(picture)


def test_picture_and_animation_of_the_cases(
    mesh: pv.PolyData, subjects: list[Any], errors: list[np.ndarray], tmp_path: Path
) -> None:
    halves = [replace(s, stages=s.stages[::2], targets=s.targets[::2]) for s in subjects]
    cases = make_cases(halves, [error[::2] for error in errors])
    figure = plot_cases(mesh, cases, "mm")
    assert [a.get_title() for a in figure.axes[:3]] == ["truth", "prediction", "error"]
    assert "best: s2 (test)\nRMSE of all stages 0.3 mm" in figure.axes[0].get_ylabel()
    save_figure(tmp_path / "meshes.png", figure)
    assert not is_blank(Image.open(tmp_path / "meshes.png"))
    _, data = animate(mesh, cases[0], "mm")
    with Image.open(io.BytesIO(data)) as animation:
        assert animation.n_frames == 2 and animation.info["loop"] == 0
        first = np.asarray(animation.convert("RGB")).astype(int)
        animation.seek(1)
        assert np.abs(np.asarray(animation.convert("RGB")) - first).max() > 50


def test_targets_that_are_no_displacement_move_nothing(subjects: list[Any]) -> None:
    subject = MadeSubject(
        "p", STAGES, np.zeros(2), np.ones((4, 42, 1), np.float32), subjects[0].reference, False
    )
    case = Case("only", subject, "test", np.zeros((4, 42, 1)), 1.0, None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(case.points(1, predicted=False), subject.reference)
    np.testing.assert_array_equal(case.size(1, predicted=False), np.ones(42))
