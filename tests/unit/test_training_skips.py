"""Steps that are not finite are skipped, counted and named; too many end the training."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from judged import MadeSubject, made_statistics
from meshstage.errors import InputError
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.training.plan import epoch_order
from meshstage.training.step import make_optimizer, optimizer_step
from small_training import TrainSmall, run

BAD = 7  # the sample that is not finite: subject b, phase 2


class Cohort:
    """12 subjects of 5 phases on the tiny template, made up: 60 samples."""

    def __init__(self, tiny_cohort) -> None:
        generator = np.random.default_rng(3)
        self.template = tiny_cohort.template
        n_points = self.template.n_points
        train = [
            MadeSubject(
                id=name,
                stages=np.linspace(0, 1, 5),
                shape_scores=generator.standard_normal(2),
                targets=generator.standard_normal((5, n_points, 3)).astype(np.float32),
            )
            for name in "abcdefghijkl"
        ]
        self.subjects = {"train": train, "val": train[-1:]}
        self.statistics = made_statistics(train)


@pytest.fixture
def cohort(tiny_cohort):
    return Cohort(tiny_cohort)


class _InfiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.inf


class TrainBad(TrainSmall):
    """Loss or gradient of one sample is made infinite."""

    what = "nothing"

    def _compute_loss(self, *arguments):
        loss = super()._compute_loss(*arguments)
        if BAD in arguments[-1]:
            if self.what == "loss":
                return loss + torch.inf
            if self.what == "gradient":
                return _InfiniteGradient.apply(loss)
        return loss


def reference_weights(cohort, epochs: int) -> dict[str, torch.Tensor]:
    """Train by hand, one sample per step, without ever taking the bad sample."""
    trainer = TrainSmall()
    torch.manual_seed(trainer.seed)
    model = trainer.build_model(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=trainer.learning_rate)
    statistics = cohort.statistics
    coordinates = torch.from_numpy(cohort.template.points).float()
    samples = [(s, phase) for s in cohort.subjects["train"] for phase in range(5)]
    for epoch in range(1, epochs + 1):
        for index in epoch_order(trainer.seed, epoch, len(samples)):
            subject, phase = samples[index]
            if index == BAD:
                continue
            scores = torch.from_numpy(statistics.normalise_scores(subject.shape_scores)).float()
            sample = torch.cat([scores, torch.tensor([subject.stages[phase]]).float()])
            inputs = torch.cat([coordinates, sample.expand(len(coordinates), -1)], dim=1)
            loss = nn.functional.mse_loss(model(inputs), torch.from_numpy(subject.targets[phase]))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), trainer.grad_clip_norm)
            optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("what", ["target", "loss", "gradient"])
def test_a_bad_sample_is_skipped_as_if_it_were_not_there(cohort, tmp_path, caplog, what):
    trainer = TrainBad(batch_size=1, what=what, rmse_log_interval=1)
    if what == "target":
        cohort.subjects["train"][1].targets[2, 5, 1] = np.nan
    _, losses, rmse = run(trainer, cohort, tmp_path / "m", epochs=2)

    payload = load_checkpoint(tmp_path / "m" / checkpoint_name("mlp"))
    for key, value in reference_weights(cohort, epochs=2).items():
        # Some 120 Adam steps of 1e-3 in float32, fused or not: 1e-5 is a hundredth of one step.
        torch.testing.assert_close(payload["model_state_dict"][key], value, rtol=0, atol=1e-5)
    assert np.isfinite(losses).all()
    assert payload["training_state"]["skipped_steps"] == 2
    metadata = json.loads((tmp_path / "m" / "mlp_stage_model_metadata.json").read_text())
    assert metadata["skipped_steps"] == 2
    # Named in the log and in the events, once an epoch.
    assert caplog.text.count("skipped, not finite: subject b, phase 2 (stage 0.5)") == 2
    events = [json.loads(line) for line in (tmp_path / "m" / "events.jsonl").open()]
    assert [e["samples"] for e in events if e["event"] == "skip"] == [
        "subject b, phase 2 (stage 0.5)"
    ] * 2
    # An error that contains NaN is no number.
    assert all((entry["train_rmse"] is None) == (what == "target") for entry in rmse)
    assert all(entry["val_rmse"] > 0 for entry in rmse)


def test_of_a_batch_only_the_sample_at_fault_is_named(cohort, tmp_path, caplog):
    """15 steps of 4 samples; the step with the NaN names one, that with the inf loss all four."""
    cohort.subjects["train"][1].targets[2, 5, 1] = np.nan
    run(TrainBad(batch_size=4), cohort, tmp_path / "target", epochs=1)
    assert "not finite: subject b, phase 2 (stage 0.5)" in caplog.messages[-1]
    assert caplog.messages[-1].count("subject") == 1
    cohort.subjects["train"][1].targets[2, 5, 1] = 0
    run(TrainBad(batch_size=4, what="loss"), cohort, tmp_path / "loss", epochs=1)
    assert caplog.messages[-1].count("subject") == 4


@pytest.mark.parametrize(("fraction", "passes"), [(0.1, True), (0.099, False)])
def test_too_many_skipped_steps_end_the_training(cohort, tmp_path, fraction, passes):
    """6 of 60 steps, one sample each: a tenth is allowed, more is not."""
    for subject in cohort.subjects["train"][:6]:
        subject.targets[0, 0, 0] = np.inf
    trainer = TrainSmall(batch_size=1, max_skipped_fraction=fraction)
    if passes:
        run(trainer, cohort, tmp_path / "m", epochs=1)
    else:
        with pytest.raises(InputError, match="6 of 60 steps of epoch 1 had no finite"):
            run(trainer, cohort, tmp_path / "m", epochs=1)


def test_an_epoch_without_a_finite_step_is_an_error_whatever_is_allowed(cohort, tmp_path):
    for subject in cohort.subjects["train"]:
        subject.targets[:] = np.nan
    # With an interval in epochs no recovery is due within one, however slow the machine.
    trainer = TrainSmall(max_skipped_fraction=1.0, recovery_interval=1)
    with pytest.raises(InputError, match=r"15 of 15 steps of epoch 1 .*subject .,"):
        run(trainer, cohort, tmp_path / "m", epochs=1)
    assert not list((tmp_path / "m").rglob("*.pt"))


def test_a_skipped_step_moves_neither_weights_nor_moments():
    """Also the step count, on which Adam's bias correction depends."""
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = make_optimizer([parameter], 0.1)
    states = []
    for gradient in ([1.0, 1.0], [1.0, torch.inf], [torch.nan, 1.0], [1.0, 1.0]):
        parameter.grad = torch.tensor(gradient)
        skipped = optimizer_step(optimizer, [parameter], 1e9)
        state = optimizer.state[parameter]
        values = (parameter.detach(), state["exp_avg"], state["exp_avg_sq"], state["step"])
        states.append((bool(skipped), [value.clone() for value in values]))
    assert [skipped for skipped, _ in states] == [False, True, True, False]
    first, second, third, fourth = (values for _, values in states)
    assert all(map(torch.equal, first, second)) and all(map(torch.equal, first, third))
    assert not torch.equal(first[0], fourth[0]) and fourth[3] == 2


def test_weights_that_are_not_finite_are_never_saved(cohort, tmp_path):
    """Adam with a step of 1e38 overflows in a few steps, with finite losses on the way."""
    trainer = TrainSmall(learning_rate=3e38, batch_size=1, max_skipped_fraction=1.0)
    with pytest.raises(InputError, match=r"not finite|no finite"):
        run(trainer, cohort, tmp_path / "m", epochs=3)
    for path in (tmp_path / "m").rglob("*.pt"):
        state = load_checkpoint(path)["model_state_dict"]
        assert all(torch.isfinite(value).all() for value in state.values())
