"""Synthetic subjects: where their scores lie, whose motion they have, and that runs stay exact."""

import numpy as np
import pytest
import torch
from test_training_exact import Interrupting, assert_equal_models

from meshstage.config.runs import read_runs
from meshstage.errors import ContinueLater, InputError
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.motion.baselines import MODELS
from meshstage.training.motion_tensors import MOTION_TENSORS
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.teacher import TaughtDataset, draw_scores, fit_teacher
from small_training import TrainSmall, make_mlp, run

TAUGHT = {"teacher": "gp", "synthetic_subjects": 3}


@pytest.fixture(scope="module")
def real(tiny_cohort) -> PhaseSampleDataset:
    return PhaseSampleDataset(tiny_cohort.subjects["train"])


@pytest.fixture(scope="module")
def taught(real, tiny_cohort) -> TaughtDataset:
    tensors = fit_teacher("gp", real, tiny_cohort.statistics, "closed")
    return TaughtDataset(real, MOTION_TENSORS["gp"](tensors, "closed"), 7, seed=3)


# ---------------------------------------------------------------- scores


def distances(scores: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Mahalanobis distances by the formula."""
    inverse = np.linalg.pinv(np.cov(given, rowvar=False))
    left = scores - given.mean(axis=0)
    return np.sqrt(np.einsum("ni,ij,nj->n", left, inverse, left))


def test_scores_are_normal_within_the_training_ellipsoid():
    given = np.random.default_rng(0).standard_normal((200, 2)) @ [[2.0, 0.0], [1.5, 0.5]] + [3, -1]
    drawn = draw_scores(given, 4000, seed=1)
    assert distances(drawn, given).max() <= distances(given, given).max() * (1 + 1e-9)
    # 200 normal points reach far, so that little is cut off: the mean of 4,000 draws is off by
    # 1/63 of a deviation, 4 times that is allowed; so is a deviation, by 1/89.
    spread = given.std(axis=0, ddof=1)
    np.testing.assert_allclose(drawn.mean(axis=0), given.mean(axis=0), atol=4 / 63 * spread.max())
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=4 / 89 + 0.01)
    correlation = np.corrcoef(given, rowvar=False)[0, 1]
    assert np.corrcoef(drawn, rowvar=False)[0, 1] == pytest.approx(correlation, abs=0.03)


def test_more_subjects_change_none_before_and_another_seed_all():
    given = np.random.default_rng(0).standard_normal((6, 3))
    few = draw_scores(given, 4, seed=1)
    np.testing.assert_array_equal(draw_scores(given, 9, seed=1)[:4], few)
    assert not np.isclose(draw_scores(given, 4, seed=2), few).any()


def test_draws_of_fewer_subjects_than_scores_stay_in_their_span():
    """Two subjects differ along a line, and no draw is further along it than they are."""
    given = np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    drawn = draw_scores(given, 50, seed=0)
    along = (drawn[:, 0] - drawn[:, 2]) / 2
    np.testing.assert_allclose(drawn, [1.0, 1.0, 1.0] + along[:, None] * [1.0, 0.0, -1.0])
    assert 0.1 < np.abs(along).max() <= 1 + 1e-9


def test_subjects_that_are_alike_give_their_own_scores():
    given = np.array([[0.5, -1.0]] * 3)
    np.testing.assert_array_equal(draw_scores(given, 5, seed=0), given[[0] * 5])


# ---------------------------------------------------------------- samples


def test_synthetic_targets_are_what_the_teacher_predicts(taught, real, tiny_cohort):
    model = MODELS["gp"][1].fit(real.subjects, tiny_cohort.statistics, "closed")
    made = list(range(len(real), len(taught)))
    targets = taught.targets(made).numpy()
    # The tensors compute in float64 as the model does, and targets are float32: 6e-8 of some mm.
    for index, target in zip(made, targets, strict=True):
        expected = model.predict(taught.shape_scores[index], taught.stages[index : index + 1])[0]
        np.testing.assert_allclose(target, expected, atol=1e-5)
    assert np.abs(targets).max() > 0.1


def test_real_samples_come_first_and_are_unchanged(taught, real):
    assert taught.subject_ids[: len(real)] == real.subject_ids
    mixed = [len(real) + 2, 1, len(real), 0]
    batch = taught.targets(mixed)
    assert torch.equal(batch[[1, 3]], real.targets([1, 0]))
    assert torch.equal(batch[[0]], taught.targets(mixed[:1]))


def test_synthetic_subjects_have_the_stages_of_real_ones_in_turn(taught, real):
    def stages(dataset, name):
        return dataset.stages[np.array(dataset.subject_ids) == name].tolist()

    for number in range(7):
        own = real.subjects[number % len(real.subjects)]
        assert stages(taught, f"synthetic-{number + 1}") == list(own.stages)


# ---------------------------------------------------------------- training


def test_a_cut_training_and_one_in_one_go_are_equal(tiny_cohort, tmp_path, monkeypatch):
    """The teacher is fitted once: the recovery checkpoint holds it."""
    settings = {"rmse_log_interval": 3, "score_noise": 0.2, **TAUGHT}
    run(TrainSmall(**settings), tiny_cohort, tmp_path / "straight", epochs=6)
    trainer = TrainSmall(**settings)
    Interrupting(trainer, steps=(9,))
    with pytest.raises(ContinueLater):
        run(trainer, tiny_cohort, tmp_path / "cut", epochs=6)
    monkeypatch.setattr("meshstage.training.base.fit_teacher", None)
    run(TrainSmall(**settings), tiny_cohort, tmp_path / "cut", epochs=6)
    assert_equal_models(tmp_path / "straight", tmp_path / "cut", "mlp")


def test_steps_see_synthetic_samples_and_errors_only_real_ones(tiny_cohort, tmp_path):
    trainer = TrainSmall(batch_size=4, **TAUGHT)
    seen, real_loss = [], trainer._compute_loss

    def loss(*arguments):
        seen.extend(arguments[-1].tolist())
        return real_loss(*arguments)

    trainer._compute_loss = loss  # type: ignore[method-assign]
    model, _, log = run(trainer, tiny_cohort, tmp_path / "taught", epochs=1)
    subjects = tiny_cohort.subjects["train"]
    numbers = [len(subject.stages) for subject in subjects]
    assert sorted(seen) == list(range(sum(numbers) + sum(numbers[:3])))

    model.eval()
    square, n = 0.0, 0
    with torch.no_grad():
        for subject in subjects:
            scores = np.tile(subject.shape_scores, (len(subject.stages), 1))
            pca, stage = trainer.inputs.samples(scores, subject.stages)
            moved = trainer.forward_batch(model, pca, stage).double().numpy()
            error = moved * tiny_cohort.statistics.target_scale - subject.targets
            square, n = square + (error**2).sum(), n + error.shape[0] * error.shape[1]
    # Predictions are float32.
    assert log[-1]["train_rmse"] == pytest.approx(np.sqrt(square / n), rel=1e-5)


def test_a_taught_network_is_the_plain_one_in_the_shared_format(tiny_cohort, tmp_path):
    trainer = make_mlp()
    trainer.teacher, trainer.synthetic_subjects = "gp", 4
    run(trainer, tiny_cohort, tmp_path / "taught", epochs=1)
    plain = load_checkpoint(tmp_path / "taught" / checkpoint_name("mlp"))
    run(make_mlp(), tiny_cohort, tmp_path / "plain", epochs=1)
    assert plain.keys() == load_checkpoint(tmp_path / "plain" / checkpoint_name("mlp")).keys()


# ---------------------------------------------------------------- contradictions


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("gp\t\t", "teacher is gp without synthetic_subjects"),
        ("\t5\t", "synthetic_subjects is 5, and no teacher knows their motion"),
        ("gp\t5\tstrain_energy", "no mesh at rest, which the loss strain_energy needs"),
    ],
)
def test_settings_that_contradict_are_one_sentence(tmp_path, tiny_cohort, cells, words):
    table = tmp_path / "runs.tsv"
    table.write_text(f"run\tnetwork\tteacher\tsynthetic_subjects\tlosses\na\tmlp\t{cells}\n")
    with pytest.raises(InputError, match=words):
        read_runs(table)
    names = ("teacher", "synthetic_subjects", "losses")
    given = dict(zip(names, cells.split("\t"), strict=True))
    trainer = TrainSmall()
    if given["teacher"]:
        trainer.teacher = given["teacher"]
    trainer.synthetic_subjects = int(given["synthetic_subjects"] or 0)
    if given["losses"]:
        trainer.set_losses((given["losses"],))
    with pytest.raises(InputError, match=words):
        run(trainer, tiny_cohort, tmp_path / "model", epochs=1)
