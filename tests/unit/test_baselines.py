"""Baselines against cohorts whose motion has a closed form."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from judged import MadeSubject, made_statistics
from meshstage.errors import InputError
from meshstage.motion.baselines import Baselines, fit_baselines, read_baselines, write_baselines
from meshstage.motion.cycle import interpolation

TEMPLATE: Any = SimpleNamespace(fingerprint="cells")
EIGHTHS = np.arange(8) / 8
N_POINTS = 30


def rmse(error: np.ndarray) -> float:
    return float(np.sqrt((error.astype(float) ** 2).sum(axis=-1).mean()))


def moving_subjects(n_subjects: int, seed: int = 0, stages: np.ndarray = EIGHTHS) -> list[Any]:
    """Subjects that move in three modes: products of shape scores with a cycle's harmonics."""
    generator = np.random.default_rng(seed)
    fields = np.random.default_rng(99).normal(size=(3, N_POINTS, 3))
    subjects = []
    for index in range(n_subjects):
        a, b = scores = generator.normal(size=2)
        angle = 2 * np.pi * stages
        amounts = np.stack(
            [
                (3 + a) * (1 - np.cos(angle)),
                (1 - 0.5 * b) * np.sin(angle),
                0.4 * a * np.sin(2 * angle) + 0.3,
            ],
            axis=1,
        )
        targets = np.tensordot(amounts, fields, axes=1).astype(np.float32)
        subjects.append(MadeSubject(f"s{index}", stages, scores, targets))
    return subjects


def fit(subjects: list[Any]) -> Baselines:
    return fit_baselines(TEMPLATE, made_statistics(subjects), subjects)


def test_periodic_weights_go_round() -> None:
    known = np.array([0.0, 0.25, 0.5, 0.75])
    weights, gap = interpolation(known, np.array([0.25, 0.3, 0.875, 1.0]), "closed")
    expected = [[0, 1, 0, 0], [0, 0.8, 0.2, 0], [0.5, 0, 0, 0.5], [1, 0, 0, 0]]
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)  # stages have nine digits
    np.testing.assert_allclose(gap, [0, 0.25, 0.25, 0])


def test_periodic_weights_share_a_stage_that_stands_twice() -> None:
    # 0 and 1 are one place in the cycle; 0.1 + 0.2 and 0.3 are one number.
    known = np.array([1.0, 0.3, 0.0, 0.1 + 0.2])
    weights, _ = interpolation(known, np.array([0.0, 0.3, 0.65]), "closed")
    expected = [[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0.25, 0.25, 0.25, 0.25]]
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)


def test_periodic_weights_of_one_and_of_two_stages() -> None:
    weights, gap = interpolation(np.array([0.4]), np.array([0.4, 0.1]), "closed")
    np.testing.assert_allclose(weights, [[1], [1]])
    np.testing.assert_allclose(gap, [0, 1])
    weights, gap = interpolation(np.array([0.1, 0.2]), np.array([0.65]), "closed")
    np.testing.assert_allclose(weights, [[0.5, 0.5]], atol=1e-8)  # half of the long way round
    np.testing.assert_allclose(gap, [0.9])


def test_stage_mean_is_the_mean_at_a_stage_and_linear_between() -> None:
    subjects = moving_subjects(5)
    baselines = fit(subjects)
    mean = np.mean([s.targets for s in subjects], axis=0)
    halfway = (mean[7] + mean[0]) / 2
    predicted = baselines.predict(subjects[0].shape_scores, np.array([0.375, 15 / 16]))
    # float32 targets of up to 30: 2e-6 each.
    np.testing.assert_allclose(predicted["stage_mean"][0], mean[3], rtol=0, atol=1e-5)
    np.testing.assert_allclose(predicted["stage_mean"][1], halfway, rtol=0, atol=1e-5)
    assert not predicted["zero"].any()
    assert predicted["zero"].shape == (2, N_POINTS, 3)


def test_stage_mean_of_subjects_with_stages_of_their_own() -> None:
    """Every stage averages all subjects: not the one that happens to have a phase there."""
    fine = np.arange(16) / 16
    first, second = moving_subjects(2)
    constant = {"first": 1.0, "second": 3.0}
    first.stages, second.stages = fine, fine + 1 / 32
    first.targets = np.full((16, N_POINTS, 3), constant["first"], np.float32)
    second.targets = np.full((16, N_POINTS, 3), constant["second"], np.float32)
    predicted = fit([first, second]).predict(first.shape_scores, np.linspace(0, 1, 50))
    np.testing.assert_allclose(predicted["stage_mean"], 2.0, rtol=0, atol=1e-6)


def test_stage_mean_does_not_interpolate_over_most_of_a_cycle() -> None:
    """Two phases at 0 and 1/8 say nothing of the stages in between on the way round."""
    full, brief = moving_subjects(2)
    brief.stages, brief.targets = brief.stages[:2], brief.targets[:2]
    predicted = fit([full, brief]).predict(full.shape_scores, EIGHTHS)["stage_mean"]
    np.testing.assert_allclose(predicted[2:], full.targets[2:], rtol=0, atol=1e-5)
    both = (full.targets[:2] + brief.targets) / 2
    np.testing.assert_allclose(predicted[:2], both, rtol=0, atol=1e-5)


def test_many_different_stages_are_brought_to_an_even_grid() -> None:
    subjects = moving_subjects(10)
    for index, subject in enumerate(subjects):
        moved = moving_subjects(10, stages=(EIGHTHS + index / 97) % 1)[index]
        subject.stages, subject.targets = moved.stages, moved.targets
    baselines = fit(subjects)
    stages = baselines.models["stage_mean"].to_arrays()["stages"]
    assert len(stages) == 64
    even = moving_subjects(10, stages=stages)
    mean = np.mean([s.targets for s in even], axis=0)
    # The chord of a wave over an eighth of a cycle is off by (pi/8)^2/2 = 8 % of the wave, for
    # its second harmonic by 30 %, which has a tenth of the amplitude.
    predicted = baselines.predict(subjects[0].shape_scores, baselines.models["stage_mean"].stages)[
        "stage_mean"
    ]
    assert rmse(predicted - mean) < 0.1 * rmse(mean)


def test_ridge_finds_motion_that_follows_the_shape() -> None:
    *train, unseen = moving_subjects(13)
    baselines = fit(train)
    predicted = baselines.predict(unseen.shape_scores, unseen.stages)
    errors = {name: rmse(values - unseen.targets) for name, values in predicted.items()}
    # The motion is exactly in the span of the features; the smallest penalty, 1e-4 beside 96
    # samples of features of size 1, leaves some 1e-4 / 96 of it per mode: a thousandth is ample.
    assert baselines.about["ridge"]["penalty"] == 1e-4
    assert errors["ridge"] < 1e-3 * errors["zero"]
    assert errors["ridge"] < 1e-2 * errors["stage_mean"]


def test_penalty_is_chosen_over_subjects_and_not_over_samples() -> None:
    """Motion that the scores say nothing of: known samples of a subject must not help guess it."""
    subjects = moving_subjects(12, stages=np.arange(24) / 24)
    generator = np.random.default_rng(5)
    for subject in subjects:
        subject.shape_scores = generator.normal(size=20)  # enough to tell the subjects apart
        subject.targets = subject.targets * np.float32(generator.uniform(0.2, 2))
    # One of the least penalties would reproduce the known subjects by their scores.
    baselines = fit(subjects)
    assert baselines.about["ridge"]["penalty"] >= 1
    # And where shape says nothing, the ridge is the mean motion, for a new subject too.
    predicted = baselines.predict(generator.normal(size=20), EIGHTHS)
    difference = rmse(predicted["ridge"] - predicted["stage_mean"])
    assert difference < 0.1 * rmse(predicted["stage_mean"])


def test_one_training_subject_gives_all_baselines_and_says_so() -> None:
    (subject,) = moving_subjects(1)
    baselines = fit([subject])
    assert "one training subject" in baselines.about["ridge"]["note"]
    predicted = baselines.predict(subject.shape_scores, subject.stages)
    np.testing.assert_allclose(predicted["stage_mean"], subject.targets, atol=1e-5)
    # Its motion is made of two harmonics, which are not penalised: 1e-6 of a penalty of 1 beside
    # eight samples of mean square 1/2 is 2.5e-7.
    assert rmse(predicted["ridge"] - subject.targets) < 1e-6 * rmse(subject.targets)
    other = baselines.predict(subject.shape_scores + 5, subject.stages)
    np.testing.assert_array_equal(other["ridge"], predicted["ridge"])


def test_two_training_subjects_are_cross_validated_with_a_caution() -> None:
    note = fit(moving_subjects(2)).about["ridge"]["note"]
    assert "over 2 subjects" in note and "caution" in note


@pytest.mark.parametrize("stages", [np.array([0.0]), np.array([0.0, 0.5])])
def test_a_single_stage_or_no_motion_is_no_error(stages: np.ndarray) -> None:
    subjects = moving_subjects(3, stages=stages)
    assert np.isfinite(fit(subjects).predict(subjects[0].shape_scores, EIGHTHS)["ridge"]).all()
    for subject in subjects:
        subject.targets = np.zeros_like(subject.targets)
    baselines = fit(subjects)
    assert len(baselines.ridge.modes) == 0
    assert not baselines.predict(subjects[0].shape_scores, EIGHTHS)["ridge"].any()
    assert not baselines.floor_square_errors(subjects[0].targets).any()


def test_floor_is_the_tail_of_the_singular_values() -> None:
    generator = np.random.default_rng(1)
    subjects = moving_subjects(4)
    for subject in subjects:  # fuller than three modes
        subject.targets = subject.targets + generator.normal(size=subject.targets.shape) * 0.3
    baselines = fit(subjects)
    data = np.concatenate([s.targets.reshape(8, -1) for s in subjects]).astype(float)
    singular = np.linalg.svd(data - data.mean(axis=0), compute_uv=False)
    tails = [(singular[k:] ** 2).sum() for k in range(len(baselines.ridge.modes) + 1)]
    left = sum(baselines.floor_square_errors(s.targets).sum(axis=0) for s in subjects)
    np.testing.assert_allclose(left, tails, rtol=1e-9)
    ratio = baselines.about["explained_variance_ratio"]
    np.testing.assert_allclose(ratio, singular[: len(ratio)] ** 2 / tails[0], rtol=1e-9)


def test_floor_of_unseen_motion_is_what_the_modes_cannot_hold() -> None:
    *train, unseen = moving_subjects(6)
    left = fit(train).floor_square_errors(unseen.targets)
    # Three fields make all motion: three modes hold it to float32 rounding, two do not.
    assert (left[:, 3] < 1e-10 * left[:, 0]).all()
    assert left[:, 2].sum() > 1e-4 * left[:, 0].sum()


def test_rmse_of_train_and_val_stands_in_the_file() -> None:
    *train, unseen = moving_subjects(6)
    about = fit_baselines(TEMPLATE, made_statistics(train), train, [unseen]).about
    assert about["rmse"]["val"]["zero"] == pytest.approx(rmse(unseen.targets))
    assert unseen.id not in about["train_subjects"]
    mean = np.mean([s.targets for s in train], axis=0)
    expected = rmse(np.stack([s.targets - mean for s in train]))
    assert about["rmse"]["train"]["stage_mean"] == pytest.approx(expected, rel=1e-5)
    assert fit(train).about["rmse"]["val"] is None


def test_files_bring_back_the_same_baselines(tmp_path: Path) -> None:
    subjects = moving_subjects(3)
    baselines = fit(subjects)
    path = tmp_path / "baselines.json"
    write_baselines(path, baselines)
    again = read_baselines(path)
    scores = np.array([0.3, -2.0])
    for name, values in baselines.predict(scores, EIGHTHS).items():
        np.testing.assert_array_equal(again.predict(scores, EIGHTHS)[name], values)
    assert again.about["train_subjects"] == {s.id: s.hashes for s in subjects}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["baselines.json", "baselines.npz"]
    first = (tmp_path / "baselines.npz").read_bytes()
    write_baselines(path, baselines)
    assert (tmp_path / "baselines.npz").read_bytes() == first


def test_arrays_of_another_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    write_baselines(path, fit(moving_subjects(3)))
    write_baselines(tmp_path / "other.json", fit(moving_subjects(3, seed=1)))
    (tmp_path / "other.npz").replace(tmp_path / "baselines.npz")
    with pytest.raises(InputError, match=r"not the arrays that baselines\.json names"):
        read_baselines(path)
    (tmp_path / "baselines.npz").unlink()
    with pytest.raises(InputError, match=r"baselines\.npz: not a pair of baselines files"):
        read_baselines(path)


def test_what_cannot_be_fitted_is_a_sentence() -> None:
    with pytest.raises(InputError, match="no training subject"):
        fit_baselines(TEMPLATE, made_statistics(moving_subjects(1)), [])
    subjects = moving_subjects(2)
    statistics = made_statistics(subjects)
    subjects[1].shape_scores = np.zeros(5)
    with pytest.raises(InputError, match="s1: the number of shape scores is 5, but 2 in the stat"):
        fit_baselines(TEMPLATE, statistics, subjects)


def test_motion_that_does_not_come_back_is_named() -> None:
    """Stages 0 and 1 count as one place in the cycle; where they differ, people must know."""
    closed = moving_subjects(3, stages=np.array([0.0, 0.5, 1.0]))
    assert fit(closed).about["open_cycles"] == []
    opened = moving_subjects(3, stages=np.array([0.0, 0.5, 1.0]))
    opened[1].targets[2] += 0.05 * np.abs(opened[1].targets).max()
    statistics = made_statistics(opened)  # its target scale is 1
    assert fit_baselines(TEMPLATE, statistics, opened).about["open_cycles"] == ["s1"]
