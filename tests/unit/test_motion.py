"""Motion models against closed forms: cycles, modes of cycles, Gaussian processes."""

from typing import Any

import numpy as np
import pytest

from judged import MadeSubject, made_statistics
from meshstage.cohort import demo
from meshstage.motion.cycle import encode, interpolation
from meshstage.motion.gaussian_process import GaussianProcess, Kernel, _leave_one_out
from meshstage.motion.modes import CycleModes
from meshstage.motion.stage_mean import StageMean

EIGHTHS = np.arange(8) / 8
N_POINTS = 12
FIELDS = np.random.default_rng(99).normal(size=(2, N_POINTS, 3))


def amounts(scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
    """How much of both fields: zero at stage 0, and linear in the first two scores."""
    beat, turn = 1 - np.cos(2 * np.pi * stages), np.sin(2 * np.pi * stages)
    return np.stack([(4 + scores[0]) * beat, (1 + 0.5 * scores[1]) * turn], axis=1)


def subjects(n: int, stages: np.ndarray = EIGHTHS) -> list[Any]:
    made = []
    for index in range(n):
        scores = np.random.default_rng([3, index]).normal(size=2)
        targets = np.tensordot(amounts(scores, stages), FIELDS, axes=1).astype(np.float32)
        made.append(MadeSubject(f"s{index}", stages, scores, targets))
    return made


def rmse(error: np.ndarray) -> float:
    return float(np.sqrt((error.astype(float) ** 2).sum(axis=-1).mean()))


def fit(train: list[Any], cycle: str = "closed") -> GaussianProcess:
    return GaussianProcess.fit(train, made_statistics(train), cycle)


@pytest.mark.parametrize(
    ("cycle", "stages"),
    [("closed", np.arange(16) / 16), ("open", (np.arange(16) + 0.5) / 16)],
)
def test_encoded_stages_are_orthogonal(cycle: str, stages: np.ndarray) -> None:
    """Discrete Fourier and cosine transforms: half of the samples' number on the diagonal."""
    encoded = encode(stages, 3, cycle)
    assert encoded.shape == (16, 6)
    np.testing.assert_allclose(encoded.T @ encoded, 8 * np.eye(6), rtol=0, atol=1e-12)


def test_ends_of_a_cycle_are_one_if_it_is_closed_and_two_if_open() -> None:
    ends = np.array([0.0, 1.0])
    first, last = encode(ends, 2, "closed")
    np.testing.assert_allclose(first, last, rtol=0, atol=1e-14)
    first, last = encode(ends, 2, "open")
    np.testing.assert_allclose(last, [-1, 1, -1, 1], rtol=0, atol=1e-14)
    np.testing.assert_allclose(first, 1)


def test_open_interpolation_does_not_go_round() -> None:
    known = np.array([0.8, 0.2, 0.4])
    weights, gap = interpolation(known, np.array([0.0, 0.2, 0.3, 0.7, 1.0]), "open")
    # Columns as in known: the last stage first.
    expected = [[0, 1, 0], [0, 1, 0], [0, 0.5, 0.5], [0.75, 0, 0.25], [1, 0, 0]]
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(gap, [0.2, 0, 0.2, 0.4, 0.2], rtol=0, atol=1e-9)


def test_stage_mean_of_an_open_cycle_keeps_both_ends() -> None:
    (subject,) = subjects(1, np.array([0.0, 0.25, 0.5, 0.75, 1.0]))
    subject.targets = np.broadcast_to(
        subject.stages.astype(np.float32)[:, None, None], (5, N_POINTS, 3)
    )
    mean = StageMean.fit([subject], made_statistics([subject]), "open")
    predicted = mean.predict(subject.shape_scores, np.array([0.0, 0.6, 1.0]))
    np.testing.assert_allclose(predicted[:, 0, 0], [0, 0.6, 1], rtol=0, atol=1e-6)


def test_cycle_modes_hold_the_space_that_made_the_cycles() -> None:
    train = subjects(6)
    modes, coefficients = CycleModes.fit(train, "closed")
    assert len(modes.modes) == 2  # two scores move two cycles
    for subject, own in zip(train, coefficients, strict=True):
        # float32 targets of up to some 30 mm are rounded to 2e-6.
        np.testing.assert_allclose(
            modes.motion(own, subject.stages), subject.targets, rtol=0, atol=2e-5
        )


def test_gaps_are_filled_by_the_modes_of_the_others() -> None:
    *train, brief = subjects(7)
    full = brief.targets
    brief.stages, brief.targets = brief.stages[1:4], brief.targets[1:4]
    modes, coefficients = CycleModes.fit([*train, brief], "closed")
    filled = modes.motion(coefficients[-1], EIGHTHS)
    # A penalty of 1e-4 of the first mode's variance beside the part of the modes that three of
    # eight stages show, above a tenth: some 1e-3 of how far this subject is from the mean.
    mean = modes.motion(np.zeros(2), EIGHTHS)
    assert rmse(filled - full) < 0.02 * rmse(full - mean)


def test_motion_that_is_linear_in_the_scores_is_found_exactly() -> None:
    *train, unseen = subjects(12)
    process = fit(train)
    error = rmse(process.predict(unseen.shape_scores, EIGHTHS) - unseen.targets)
    mean = rmse(process.modes.motion(np.zeros(2), EIGHTHS) - unseen.targets)
    assert process.took in ("gp", "ridge")
    # The noise of the kernel, at least 1e-6 of a mode's variance, is what keeps it from zero.
    assert error < 0.02 * mean


def test_scores_that_say_nothing_leave_the_mean_or_nearly_so() -> None:
    """Motion that does not follow the scores: on average over cohorts it stays near the mean.

    Nothing is to be learned: the best prediction is the mean. One cohort of ten may well look as
    if there were something, so the bound is on the mean of four: 1.1, a tenth of the spread,
    where a linear fit of ten subjects on two scores would cost sqrt(1 + 2 / 7) = 1.13.
    """
    parts = []
    for seed in range(4):
        made = subjects(40)
        draw = np.random.default_rng([8, seed])
        order = draw.permutation(40)
        for subject, scores in zip(made, draw.normal(size=(40, 2)), strict=True):
            subject.shape_scores = scores
        train, test = ([made[i] for i in part] for part in (order[:10], order[10:]))
        process = fit(train)
        mean = process.modes.motion(np.zeros(len(process.scale)), EIGHTHS)
        own = np.stack([process.predict(s.shape_scores, EIGHTHS) - s.targets for s in test])
        parts.append(rmse(own) / rmse(np.stack([mean - s.targets for s in test])))
    assert np.mean(parts) < 1.1


def test_leaving_one_out_is_what_fitting_without_it_gives() -> None:
    """The closed form beside scikit-learn's ridge, fitted anew without each subject."""
    from sklearn.linear_model import Ridge

    draw = np.random.default_rng(4)
    x, y = draw.normal(size=(7, 8)), draw.normal(size=(7, 1))  # more scores than subjects
    y -= y.mean(axis=0)
    kernel = Kernel(np.array([0.8]), np.array([0.0]), np.array([0.2]), np.ones((1, 8)))
    errors, _ = _leave_one_out(kernel, x, y)
    for i in range(7):
        rest = np.arange(7) != i
        # The penalty is noise beside the variance of a slope; the intercept is free in both.
        ridge = Ridge(alpha=0.2 / 0.8).fit(x[rest], y[rest, 0])
        # The kernel's own 1e-10 on the diagonal, against noise of 0.2.
        assert errors[i, 0] == pytest.approx(y[i, 0] - ridge.predict(x[i : i + 1])[0], abs=1e-8)


def test_two_gappy_subjects_do_not_invent_motion() -> None:
    """A subject known at two stages beside a whole one: the rest is the whole one's motion."""
    whole, brief = subjects(2)
    brief.stages, brief.targets = brief.stages[:2], brief.targets[:2]
    process = fit([whole, brief])
    mean = StageMean.fit([whole, brief], made_statistics([whole, brief]), "closed")
    predicted = process.predict(np.zeros(2), EIGHTHS)
    # float32 targets of up to 30 mm.
    expected = mean.predict(np.zeros(2), EIGHTHS)
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(predicted[2:], whole.targets[2:], rtol=0, atol=2e-5)


def test_two_subjects_give_the_mean_and_say_why() -> None:
    train = subjects(2)
    process = fit(train)
    assert process.about()["took"] == "mean"
    assert "too few subjects" in process.about()["why"]
    mean = np.mean([s.targets for s in train], axis=0)
    predicted = process.predict(np.array([5.0, 5.0]), EIGHTHS)
    np.testing.assert_allclose(predicted, mean, rtol=0, atol=2e-5)


def test_deviation_grows_away_from_the_training_scores_and_is_zero_where_nobody_moves() -> None:
    process = fit(subjects(12))
    near, far = (process.deviation(np.array([x, x]), EIGHTHS) for x in (0.0, 8.0))
    assert near.shape == (8, N_POINTS)
    assert (far[1:] > near[1:]).all()
    for scores in ([0.0, 0.0], [3.0, -3.0]):
        # Nobody moves at stage 0, and cosines and sines of float32 are off by 1e-7 of 10 mm.
        at_rest = process.predict(np.array(scores), np.array([0.0, 1.0]))
        np.testing.assert_allclose(at_rest, 0, rtol=0, atol=1e-6)
        assert process.deviation(np.array(scores), np.array([0.0])).max() < 1e-6


def test_arrays_bring_back_the_same_process() -> None:
    process = fit(subjects(5))
    again = GaussianProcess.from_arrays(process.to_arrays())
    scores = np.array([0.3, -1.2])
    np.testing.assert_array_equal(again.predict(scores, EIGHTHS), process.predict(scores, EIGHTHS))
    np.testing.assert_array_equal(
        again.deviation(scores, EIGHTHS), process.deviation(scores, EIGHTHS)
    )
    assert again.about() == process.about()


def test_the_documented_formula_is_what_is_predicted() -> None:
    """What another framework computes from the arrays of the file, written out anew."""
    process = fit(subjects(6))
    arrays, alpha, scores = process.to_arrays(), process.alpha, np.array([0.4, 0.9])
    x = (scores - arrays["pca_mean"]) / arrays["pca_scale"]
    coefficients = []
    for m, scale in enumerate(arrays["scale"]):
        total = 0.0
        for other, weight in zip(arrays["train_scores"], alpha[m], strict=True):
            square = (((x - other) / arrays["length"][m]) ** 2).sum()
            total += weight * (
                arrays["linear"][m] * (x @ other) + arrays["rbf"][m] * np.exp(-square / 2)
            )
        coefficients.append(scale * arrays["shrink"] * total)
    cycle = arrays["cycle_mean"] + np.tensordot(coefficients, arrays["cycle_modes"], 1)
    motion = (cycle @ arrays["cycle_fields"]).reshape(8, N_POINTS, 3)
    # float32 of up to 30 mm.
    np.testing.assert_allclose(process.predict(scores, EIGHTHS), motion, rtol=0, atol=1e-5)


def test_demo_motion_is_learned_better_than_by_a_straight_line() -> None:
    wall = demo.build_wall(3)
    model = demo.shape_model(wall)
    train = [demo.make_subject(wall, model, 5, index, 8) for index in range(16)]
    test = [demo.make_subject(wall, model, 5, index, 8) for index in range(100, 110)]
    process = fit(train)
    mean = StageMean.fit(train, made_statistics(train), "closed")
    errors = [
        rmse(np.stack([m.predict(s.shape_scores, s.stages) - s.targets for s in test]))
        for m in (mean, process)
    ]
    assert process.took == "gp"
    assert errors[1] < 0.5 * errors[0]
