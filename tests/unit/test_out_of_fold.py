"""What folds say together, against the errors that it is made of."""

from dataclasses import replace

import numpy as np
import pytest
import pyvista as pv

from judged import MadeSubject, made_predictor
from meshstage.errors import InputError
from meshstage.figures.folds import plot_learning_curve, plot_out_of_fold
from meshstage.judging.evaluation import Judged, judge_model, write_evaluation
from meshstage.judging.out_of_fold import held_out, join_folds
from meshstage.judging.runs import Run, read_evaluations, table_of_runs

MESH = pv.Icosphere(radius=10, nsub=1)
ERRORS = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 4.0}  # mm, of each coordinate x


def made_subjects() -> list[MadeSubject]:
    rng = np.random.default_rng(0)
    return [
        MadeSubject(
            name,
            np.array([0.2, 0.7]),
            rng.normal(size=2),
            rng.normal(size=(2, MESH.n_points, 3)).astype(np.float32),
            np.asarray(MESH.points, float),
        )
        for name in ERRORS
    ]


def judged(subjects: list[MadeSubject], unseen: str) -> Judged:
    """Judge a fold whose model is off by each subject's error in x."""
    errors = [np.array([ERRORS[s.id], 0, 0]) for s in subjects]
    seen = [s.id for s in subjects if s.id not in unseen]
    predictor = made_predictor(MESH, subjects, errors, train_subject_ids=seen)
    return judge_model(predictor, held_out(subjects, predictor.metadata))


@pytest.fixture(scope="module")
def subjects() -> list[MadeSubject]:
    return made_subjects()


def test_each_subject_comes_from_the_fold_that_held_it_out(subjects):
    evaluation = join_folds([judged(subjects, "bd"), judged(subjects, "ac")], subjects)
    assert [(row["subject_id"], row["fold"]) for row in evaluation.rows[::2]] == [
        ("a", 2), ("b", 1), ("c", 2), ("d", 1),
    ]  # fmt: skip
    assert {row["split"] for row in evaluation.rows} == {"test"}
    summary = evaluation.summary
    assert (summary["folds"], summary["n_subjects"], summary["n_samples"]) == (2, 4, 8)
    by_subject = {s["subject_id"]: s["rmse_mm"] for s in summary["subjects"]}
    # Targets are float32: an error of one millimetre is one to 1e-6 of their size.
    assert by_subject == pytest.approx(ERRORS, rel=1e-5)
    rmse = summary["splits"]["test"]["metrics"]["rmse_mm"]
    # Root of the mean of 1, 4, 4, 16.
    assert rmse["value"] == pytest.approx(2.5, rel=1e-5)
    assert rmse["low"] < 2.5 < rmse["high"]
    assert summary["splits"]["train"] is None and summary["splits"]["val"] is None


@pytest.mark.parametrize(
    ("unseen", "words"),
    [(("bd", "acd"), "held out in 2 folds, 1, 2"), (("b", "ac"), "held out in no fold")],
)
def test_a_subject_that_two_folds_or_none_hold_out_is_one_sentence(subjects, unseen, words):
    with pytest.raises(InputError, match=f"d.*{words}"):
        join_folds([judged(subjects, names) for names in unseen], subjects)


def test_a_model_that_has_seen_everybody_is_no_fold_s(subjects):
    with pytest.raises(InputError, match="has seen all subjects"):
        judged(subjects, "")


def test_floors_of_folds_with_fewer_modes_go_on_as_they_end(subjects):
    """With one mode the first fold leaves 8 mm^2 per sample, with two the second leaves 2."""
    n = MESH.n_points
    first, second = judged(subjects, "bd"), judged(subjects, "ac")
    first = replace(first, floors={i: np.full((2, 2), 8.0 * n) for i in "bd"})
    floor = np.tile([10.0 * n, 4.0 * n, 2.0 * n], (2, 1))
    second = replace(second, floors=dict.fromkeys("ac", floor))
    by_modes = join_folds([first, second], subjects).summary["splits"]["test"]
    assert by_modes["floor_rmse_by_modes_mm"] == pytest.approx(np.sqrt([9.0, 6.0, 5.0]))


# ---------------------------------------------------------------- beside other evaluations


@pytest.fixture(scope="module")
def written(subjects, tmp_path_factory):
    """Write an evaluation of all and one out of fold, of two runs."""
    folder = tmp_path_factory.mktemp("evaluation")
    folds = [judged(subjects, "bd"), judged(subjects, "ac")]
    errors = [np.array([3.0, 0, 0])] * 5
    everybody = [*subjects, replace(subjects[0], id="t", shape_scores=np.zeros(2))]
    predictor = made_predictor(MESH, everybody, errors, train_subject_ids=list("abcd"))
    whole = judge_model(predictor, everybody)
    paths = []
    for run in ("one", "two"):
        for each, name in ((whole.evaluation(), run), (join_folds(folds, subjects), f"{run}.oof")):
            named = replace(each, summary={"run": run, **each.summary})
            paths.append(write_evaluation(folder / f"{name}.csv", named))
    return paths


def test_the_table_of_runs_has_a_row_out_of_fold_after_the_splits(written):
    runs = read_evaluations([*written[1::2], *written[::2]])
    _, body = table_of_runs(runs, short=True)
    assert [row[:4] for row in body] == [
        ["one", "train", "4", "3"],
        ["one", "test", "1", "3"],
        ["one", "out of fold", "4", "2.5"],
        ["two", "train", "4", "3"],
        ["two", "test", "1", "3"],
        ["two", "out of fold", "4", "2.5"],
    ]


def test_the_figure_shows_every_subject_the_worst_on_top(written):
    figure = plot_out_of_fold([run for run in read_evaluations(written) if run.is_out_of_fold])
    (axis,) = figure.axes
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels[:2] == ["all subjects (4)", "d"] and labels[-1] == "a"
    lines = [container.lines[0].get_xdata() for container in axis.containers]
    assert len(lines) == 2
    np.testing.assert_allclose(lines[0], [2.5, 4, 2, 2, 1], rtol=1e-5)


def part(run: str, n_train: int, rmse: float) -> Run:
    metrics = {"rmse_mm": {"value": rmse, "low": rmse - 1, "high": rmse + 1}}
    beaten = {"zero": {"rmse_mm": 9.0}, "ridge": {"rmse_mm": 2 * rmse}}
    test = {"n_subjects": 3, "metrics": metrics, "baselines": beaten}
    splits = {"train": test | {"n_subjects": n_train}, "val": None, "test": test}
    return Run(run, {"unit": "mm", "splits": splits, "subjects": []}, MESH)


def test_the_learning_curve_goes_by_training_subjects_and_has_the_baselines():
    runs = [part(name, n, 20 / n) for name in ("one", "two") for n in (20, 5, 10)]
    (axis,) = plot_learning_curve(runs).axes
    first = axis.containers[0].lines[0]
    np.testing.assert_allclose(first.get_xdata(), [5, 10, 20])
    np.testing.assert_allclose(first.get_ydata(), [4, 2, 1])
    ridge = next(line for line in axis.lines if "ridge" in str(line.get_label()))
    np.testing.assert_allclose(ridge.get_ydata(), [8, 4, 2])
    assert axis.get_ylabel() == "RMSE (mm), test subjects"
