"""Schedule, weight decay, score noise and averaged weights: closed forms, and exact resuming."""

import math

import numpy as np
import pytest
import torch
from test_training_exact import Interrupting, assert_equal_models, run_until_done, tag_of
from torch import nn

from meshstage.errors import ContinueLater
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.training import loop
from meshstage.training.average import WeightAverage
from meshstage.training.plan import epoch_noise, epoch_order
from meshstage.training.schedule import WARM_UP, rate_at
from meshstage.training.step import make_optimizer, optimizer_step
from small_training import TrainSmall, run

ALL = {"schedule": "cosine", "weight_decay": 0.1, "score_noise": 0.3, "ema": 0.9}
FINAL = checkpoint_name("mlp")


# ---------------------------------------------------------------- schedule


@pytest.mark.parametrize(
    ("done", "rate"),
    [
        (0, 0),
        (WARM_UP / 2, 1 / 2),
        (WARM_UP, 1),
        (WARM_UP + (1 - WARM_UP) / 4, (2 + math.sqrt(2)) / 4),  # (1 + cos 45 degrees) / 2
        ((1 + WARM_UP) / 2, 1 / 2),
        (1, 0),
    ],
)
def test_a_cosine_rises_and_falls(done, rate):
    """To a few roundings of numbers up to 1."""
    assert rate_at("cosine", done) == pytest.approx(rate, abs=1e-15)
    assert rate_at("constant", done) == 1


@pytest.fixture
def rates(monkeypatch):
    """Collect the learning rate of each step."""
    seen: list[float] = []
    real = loop.optimizer_step

    def step(optimizer, parameters, clip_norm):
        seen.extend(group["lr"] for group in optimizer.param_groups)
        return real(optimizer, parameters, clip_norm)

    monkeypatch.setattr(loop, "optimizer_step", step)
    return seen


def cosine(epochs: int, peak: float) -> list[float]:
    """Rates of 15 samples in batches of 4: the middles of an epoch's steps, in samples."""
    places = [(15 * epoch + m) / (15 * epochs) for epoch in range(epochs) for m in (2, 6, 10, 13.5)]
    return [
        peak * (p / 0.05 if p < 0.05 else 0.5 + 0.5 * math.cos(math.pi * (p - 0.05) / 0.95))
        for p in places
    ]


def test_rates_of_a_run_in_one_go_interrupted_and_raised(tiny_cohort, tmp_path, rates):
    trainer = TrainSmall(schedule="cosine", learning_rate=0.01)
    run(trainer, tiny_cohort, tmp_path / "straight", epochs=3)
    assert rates == pytest.approx(cosine(3, 0.01), rel=1e-12)  # roundings
    straight = list(rates)

    rates.clear()
    trainer = TrainSmall(schedule="cosine", learning_rate=0.01)
    Interrupting(trainer, steps=(6,))
    with pytest.raises(ContinueLater):
        run(trainer, tiny_cohort, tmp_path / "cut", epochs=3)
    assert rates == straight[:6]
    # Epochs as they were: the same rates; raised: those of the longer run at this place.
    run(TrainSmall(schedule="cosine", learning_rate=0.01), tiny_cohort, tmp_path / "cut", epochs=5)
    assert rates[6:] == pytest.approx(cosine(5, 0.01)[6:], rel=1e-12)

    # A finished run that is resumed has a curve of its own, over its own two epochs.
    rates.clear()
    trainer = TrainSmall(schedule="cosine", learning_rate=0.02)
    last = tmp_path / "straight" / FINAL
    run(trainer, tiny_cohort, tmp_path / "on", epochs=5, resume_from=last)
    assert rates == pytest.approx(cosine(2, 0.02), rel=1e-12)

    rates.clear()
    run(TrainSmall(learning_rate=0.02), tiny_cohort, tmp_path / "constant", epochs=1)
    assert rates == [0.02] * 4


# ---------------------------------------------------------------- weight decay


def test_weight_decay_shrinks_a_weight_without_gradient():
    """By 1 - 0.1 * 0.3 per step; a step that is skipped shrinks nothing."""
    weight = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = make_optimizer([weight], 0.1, 0.3)
    for gradient in (0.0, torch.nan, 0.0):
        weight.grad = torch.full_like(weight, gradient)
        optimizer_step(optimizer, [weight], 1.0)
    expected = torch.tensor([0.97**2, -2 * 0.97**2], dtype=torch.float64)
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-15, atol=0)


# ---------------------------------------------------------------- score noise


class Seeing(TrainSmall):
    """Collects the scores that each sample is trained and judged with."""

    def forward_batch(self, model, pca, stage):
        self._pca = pca
        if not torch.is_grad_enabled():
            self._judged.append(pca)
        return super().forward_batch(model, pca, stage)

    def _compute_loss(self, pred, tgt, batch_len, target_scale, indices):
        self._trained[-1] |= dict(zip(indices.tolist(), self._pca, strict=False))
        return super()._compute_loss(pred, tgt, batch_len, target_scale, indices)

    def _on_epoch_start(self, epoch, epochs):
        self._trained.append({})

    def train(self, *arguments, **more):
        self._trained, self._judged = [], []
        return super().train(*arguments, **more)


def test_score_noise_is_of_the_sample_and_never_judged(tiny_cohort, tmp_path):
    trained, judged = [], []
    for batch in (4, 7):
        trainer = Seeing(score_noise=0.5, batch_size=batch, precision="fp64")
        run(trainer, tiny_cohort, tmp_path / f"batch_{batch}", epochs=8)
        trained.append(trainer._trained)
        judged.append(torch.cat(trainer._judged))
    assert [sorted(epoch) for epoch in trained[0]] == [list(range(15))] * 8
    for ours, theirs in zip(*trained, strict=True):
        assert all(torch.equal(scores, theirs[index]) for index, scores in ours.items())

    subjects, statistics = tiny_cohort.subjects, tiny_cohort.statistics
    clean = np.concatenate(
        [
            np.tile(statistics.normalise_scores(subject.shape_scores), (len(subject.stages), 1))
            for subject in subjects["train"]
        ]
    )
    scale = np.array(statistics.pca_scale)
    noise = np.array([(epoch[i].numpy() - clean[i]) * scale for epoch in trained[0] for i in epoch])
    assert len(np.unique(noise)) == noise.size == 8 * 15 * 2
    # Of 240 normal numbers with deviation 0.5 the mean has the deviation 0.5 / sqrt(240) = 0.032,
    # their deviation 0.5 / sqrt(480) = 0.023. Four of them; the seed is fixed.
    assert abs(noise.mean()) < 0.13 and abs(noise.std() - 0.5) < 0.09
    seen = {tuple(row) for row in torch.cat(judged).tolist()}
    wanted = {
        tuple(statistics.normalise_scores(s.shape_scores).tolist())
        for s in (*subjects["train"], *subjects["val"])
    }
    # float32 statistics or float64 ones, the same numbers: no noise at all.
    np.testing.assert_allclose(sorted(seen), sorted(wanted), rtol=1e-6)


def test_noise_of_a_sample_does_not_depend_on_how_many_follow():
    np.testing.assert_array_equal(epoch_noise(3, 7, 5, 2), epoch_noise(3, 7, 9, 2)[:5])
    assert not np.array_equal(epoch_noise(3, 7, 5, 2), epoch_noise(3, 8, 5, 2))
    assert not np.array_equal(epoch_noise(3, 7, 5, 2), epoch_noise(4, 7, 5, 2))


# ---------------------------------------------------------------- averaged weights


def average_of(weights: list[float], decay: float, skipped: tuple[int, ...] = ()) -> float:
    """Average one weight that has these values after its steps; it begins at 1000."""
    network = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(network.weight, 1000.0)
    average = WeightAverage(network, decay)
    for step, weight in enumerate(weights):
        nn.init.constant_(network.weight, weight)
        average.update(torch.tensor(step in skipped))
    return float(average.network.weight)


def test_an_average_is_the_weighted_mean_of_the_weights_after_each_step():
    """Roundings of the start, 1000, stay: some 1e-13."""
    assert average_of([3.0] * 5, 0.9) == pytest.approx(3, abs=1e-12)
    assert average_of([3.0, 5.0], 0.75) == pytest.approx((0.75 * 3 + 5) / 1.75, abs=1e-12)
    three = (0.25 * 3 + 0.5 * 5 + 4) / 1.75
    assert average_of([3.0, 5.0, 4.0], 0.5) == pytest.approx(three, abs=1e-12)
    # The value of a skipped step is not taken, nor does it make the others older.
    assert average_of([3.0, 9.0, 5.0], 0.75, (1,)) == average_of([3.0, 5.0], 0.75)
    assert average_of([9.0], 0.75, (0,)) == 1000


def test_an_average_shares_the_buffers_and_leaves_the_network_alone():
    network = nn.BatchNorm1d(2)
    average = WeightAverage(network, 0.9)
    assert average.network.running_mean is network.running_mean
    assert network.weight.requires_grad and not average.network.weight.requires_grad
    assert average.network.weight is not network.weight


def test_averaged_weights_are_judged_kept_and_returned(tiny_cohort, tmp_path, monkeypatch):
    steps: list[dict[str, torch.Tensor]] = []
    real = loop.Loop._train_step

    def step(self, plan):
        loss = real(self, plan)
        steps.append({k: v.clone() for k, v in self.network.state_dict().items()})
        return loss

    monkeypatch.setattr(loop.Loop, "_train_step", step)
    trainer = TrainSmall(ema=0.8, learning_rate=0.01, precision="fp64")
    model, _, rmse = run(trainer, tiny_cohort, tmp_path / "model", epochs=4)
    payload = load_checkpoint(tmp_path / "model" / FINAL)
    factors = [0.8 ** (len(steps) - 1 - k) for k in range(len(steps))]
    assert len(steps) == 16
    for name, value in payload["model_state_dict"].items():
        mean = sum(f * step[name] for f, step in zip(factors, steps, strict=True)) / sum(factors)
        # Roundings of float64 in 16 steps.
        torch.testing.assert_close(value, mean, rtol=0, atol=1e-13)
        assert torch.equal(value, model.state_dict()[name])
        assert torch.equal(payload["training_state"]["raw_weights"][name], steps[-1][name])
        assert not torch.equal(value, steps[-1][name])

    # The RMSE of the averaged network, by hand.
    statistics, template = tiny_cohort.statistics, tiny_cohort.template
    coordinates = statistics.normalise_coordinates(template.points)
    squares, n_samples = 0.0, 0
    for subject in tiny_cohort.subjects["val"]:
        scores = statistics.normalise_scores(subject.shape_scores)
        for stage, target in zip(subject.stages, subject.targets, strict=True):
            shared = np.tile([*scores, stage], (len(coordinates), 1))
            rows = torch.from_numpy(np.hstack([coordinates, shared])).double()
            predicted = model(rows).detach().numpy() * statistics.target_scale
            squares += np.square(predicted - target).sum()
            n_samples += 1
    by_hand = math.sqrt(squares / (n_samples * len(coordinates)))
    # Targets and statistics are float32 in training: some 1e-7.
    assert rmse[-1]["val_rmse"] == pytest.approx(by_hand, rel=1e-6)


def test_averaging_changes_no_training_and_can_be_switched_off(tiny_cohort, tmp_path):
    run(TrainSmall(), tiny_cohort, tmp_path / "plain", epochs=6)
    run(TrainSmall(ema=0.9), tiny_cohort, tmp_path / "averaged", epochs=4)
    kept = tmp_path / "averaged" / FINAL
    run(TrainSmall(), tiny_cohort, tmp_path / "on", epochs=6, resume_from=kept)
    plain, on = (load_checkpoint(tmp_path / name / FINAL) for name in ("plain", "on"))
    for name, value in plain["model_state_dict"].items():
        assert torch.equal(value, on["model_state_dict"][name]), name
    assert "raw_weights" not in plain["training_state"].keys() | on["training_state"].keys()


def test_averaging_that_begins_in_a_resumed_run_forgets_what_was_before(tiny_cohort, tmp_path):
    """With a decay of almost 0 only the newest weights count."""
    run(TrainSmall(), tiny_cohort, tmp_path / "plain", epochs=2)
    kept = tmp_path / "plain" / FINAL
    run(TrainSmall(ema=1e-30), tiny_cohort, tmp_path / "on", epochs=4, resume_from=kept)
    payload = load_checkpoint(tmp_path / "on" / FINAL)
    for name, value in payload["training_state"]["raw_weights"].items():
        # average + (weight - average) * 1 rounds: two units in the last place of float32.
        torch.testing.assert_close(payload["model_state_dict"][name], value, rtol=0, atol=3e-7)


# ---------------------------------------------------------------- all of them, resumed


@pytest.mark.parametrize("network", ["small", "mlp"])
def test_ten_epochs_cut_anywhere_are_ten_in_one_go(tiny_cohort, tmp_path, network):
    """With all four. Each start lasts 7 steps of 40."""
    _, none = run_until_done(network, tiny_cohort, tmp_path / "straight", {}, **ALL)
    steps, left = run_until_done(network, tiny_cohort, tmp_path / "cut", {"steps": (7,)}, **ALL)
    assert (steps, len(none), len(left)) == (40, 0, 5)
    assert_equal_models(tmp_path / "straight", tmp_path / "cut", tag_of(network))
    state = load_checkpoint(tmp_path / "cut" / checkpoint_name(tag_of(network)))["training_state"]
    assert state["losses"][-1] < state["losses"][0]


def test_four_epochs_and_six_more_are_ten(tiny_cohort, tmp_path):
    """As a resumed run, whose rate is constant: a cosine has a curve per run."""
    settings = ALL | {"schedule": "constant"}
    run(TrainSmall(**settings), tiny_cohort, tmp_path / "straight", epochs=10)
    run(TrainSmall(**settings), tiny_cohort, tmp_path / "four", epochs=4)
    last = tmp_path / "four" / FINAL
    run(TrainSmall(**settings), tiny_cohort, tmp_path / "more", epochs=10, resume_from=last)
    assert_equal_models(tmp_path / "straight", tmp_path / "more", "mlp")


def test_order_and_noise_are_different_streams():
    """A draw that is shared would tie the noise to the order."""
    order = np.random.default_rng([42, 1]).standard_normal((6, 2))
    assert not np.array_equal(order, epoch_noise(42, 1, 6, 2))
    assert sorted(epoch_order(42, 1, 6)) == list(range(6))
