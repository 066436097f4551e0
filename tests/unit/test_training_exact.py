"""Training that is cut and goes on equals training in one go, bit for bit."""

import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from meshstage.errors import ContinueLater, InputError
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.training import leaving, loop
from meshstage.training.base import TrainPhysicsNeMoBase
from small_training import TrainSmall, make_mgn, make_mlp, run

MAKERS = {"small": TrainSmall, "mgn": make_mgn, "mlp": make_mlp}


def assert_equal_models(one: Path, other: Path, tag: str) -> None:
    """Weights and optimizer bit for bit, and the history byte for byte."""
    ours, theirs = (load_checkpoint(path / checkpoint_name(tag)) for path in (one, other))
    for key, value in ours["model_state_dict"].items():
        assert torch.equal(value, theirs["model_state_dict"][key]), key
    raw = [c["training_state"].get("raw_weights", {}) for c in (ours, theirs)]
    assert raw[0].keys() == raw[1].keys()
    assert all(torch.equal(value, raw[1][key]) for key, value in raw[0].items())
    moments = [c["training_state"]["optimizer"]["state"] for c in (ours, theirs)]
    for index, state in moments[0].items():
        assert all(torch.equal(v, moments[1][index][k]) for k, v in state.items()), index
    for name in ("losses.json", "validation_rmse.json", "validation_rmse.csv"):
        name = f"training_{name}"
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def straight(tiny_cohort, tmp_path_factory):
    """Train 10 epochs in one go, once a network; the last is no multiple of the interval."""
    done: dict[str, Path] = {}

    def train(network: str) -> Path:
        if network not in done:
            trainer = MAKERS[network]()
            trainer.rmse_log_interval = 3
            output = tmp_path_factory.mktemp("straight") / network
            run(trainer, tiny_cohort, output, epochs=10)
            done[network] = output
        return done[network]

    return train


def tag_of(network: str) -> str:
    return "mgn" if network == "mgn" else "mlp"


@pytest.mark.parametrize("network", MAKERS)
def test_four_epochs_and_six_more_are_ten(tiny_cohort, tmp_path, straight, network):
    parts = []
    for epochs in (4, 10):
        trainer = MAKERS[network]()
        trainer.rmse_log_interval = 3
        output = tmp_path / f"until_{epochs}"
        last = parts[-1] / checkpoint_name(tag_of(network)) if parts else None
        run(trainer, tiny_cohort, output, epochs=epochs, resume_from=last)
        parts.append(output)
    assert_equal_models(straight(network), parts[-1], tag_of(network))
    # A run that learned nothing would be equal too.
    losses = json.loads((straight(network) / "training_losses.json").read_text())
    assert len(losses) == 10 and losses[-1] < losses[0]


def test_going_on_from_a_kept_epoch_is_exact_too(tiny_cohort, tmp_path, straight):
    trainer = TrainSmall(rmse_log_interval=3)
    kept = straight("small") / checkpoint_name("mlp", 6)
    run(trainer, tiny_cohort, tmp_path / "on", epochs=10, resume_from=kept)
    assert_equal_models(straight("small"), tmp_path / "on", "mlp")
    assert sorted(p.name for p in (tmp_path / "on").glob("*epoch*")) == [
        checkpoint_name("mlp", 9),
        checkpoint_name("mlp", 10),
    ]


class Interrupting:
    """Sends this process a signal in chosen calls of the loss, or of an evaluation's forward."""

    def __init__(self, trainer: TrainPhysicsNeMoBase, steps=(), evaluations=()) -> None:
        self.n_steps = self.n_evaluations = 0
        compute_loss, forward_batch = trainer._compute_loss, trainer.forward_batch

        def loss(*arguments):
            self.n_steps += 1
            if self.n_steps in steps:
                os.kill(os.getpid(), signal.SIGTERM)
            return compute_loss(*arguments)

        def forward(*arguments):
            if not torch.is_grad_enabled():
                self.n_evaluations += 1
                if self.n_evaluations in evaluations:
                    os.kill(os.getpid(), signal.SIGUSR1)
            return forward_batch(*arguments)

        trainer._compute_loss, trainer.forward_batch = loss, forward  # type: ignore[method-assign]


def run_until_done(network, cohort, output, *interruptions, **settings) -> tuple[int, list[str]]:
    """Start again until the training is finished; give the steps done and why it left.

    The last of the interruptions serves for all further starts.
    """
    steps, reasons = 0, []
    while True:
        trainer = MAKERS[network]()
        trainer.rmse_log_interval = 3
        for name, value in settings.items():
            setattr(trainer, name, value)
        counting = Interrupting(trainer, **interruptions[min(len(reasons), len(interruptions) - 1)])
        try:
            run(trainer, cohort, output, epochs=10)
            return steps + counting.n_steps, reasons
        except ContinueLater as error:
            steps += counting.n_steps
            reasons.append(str(error))


# 15 samples in batches of 4 are 4 steps per epoch, 40 in all.
@pytest.mark.parametrize("network", ["small", "mgn"])
def test_leaving_at_any_step_is_exact_and_repeats_none(tiny_cohort, tmp_path, straight, network):
    """Each start lasts 7 steps: it leaves in, between and at the ends of epochs."""
    steps, reasons = run_until_done(network, tiny_cohort, tmp_path / "cut", {"steps": (7,)})
    assert_equal_models(straight(network), tmp_path / "cut", tag_of(network))
    assert (steps, len(reasons)) == (40, 5)
    assert all("leaving for SIGTERM" in reason for reason in reasons)
    assert "after epoch 1 and 12 samples of the next" in reasons[0]


def test_leaving_during_an_evaluation_is_exact(tiny_cohort, tmp_path, straight):
    """15 and 6 samples are 4 and 2 batches; the signal comes in the third, and it leaves then."""
    steps, reasons = run_until_done(
        "small", tiny_cohort, tmp_path / "cut", {"evaluations": (3,)}, {"evaluations": (5,)}, {}
    )
    assert_equal_models(straight("small"), tmp_path / "cut", "mlp")
    assert steps == 40
    assert ["after epoch 2 and 15 samples of the next" in reason for reason in reasons] == [
        True
    ] * 2


def test_saving_at_every_step_changes_nothing(tiny_cohort, tmp_path, straight, monkeypatch):
    monkeypatch.setattr(leaving.Watch, "flags", lambda self: leaving.SAVE)
    run(TrainSmall(rmse_log_interval=3), tiny_cohort, tmp_path / "saving", epochs=10)
    assert_equal_models(straight("small"), tmp_path / "saving", "mlp")


class Killed(BaseException):
    """What a test raises where a process would die: nothing may handle it."""


def test_a_kill_loses_no_more_than_since_the_last_recovery(
    tiny_cohort, tmp_path, straight, monkeypatch
):
    """Killed in step 5 of each start, with a recovery each epoch: one step more than an epoch."""
    steps = 0
    real_step = loop.Loop._train_step

    def step(self, plan):
        nonlocal steps
        steps += 1
        self.killed_after = getattr(self, "killed_after", 5) - 1
        if self.killed_after < 0:
            raise Killed
        return real_step(self, plan)

    monkeypatch.setattr(loop.Loop, "_train_step", step)
    monkeypatch.setattr(leaving, "_LONGEST_UNSAVED_S", 1e9)
    for start in range(10):
        trainer = TrainSmall(rmse_log_interval=3, recovery_interval=1)
        if start < 9:
            with pytest.raises(Killed):
                run(trainer, tiny_cohort, tmp_path / "killed", epochs=10)
        else:
            run(trainer, tiny_cohort, tmp_path / "killed", epochs=10)
    assert_equal_models(straight("small"), tmp_path / "killed", "mlp")
    # Every start but the last finishes one epoch, 4 steps, and loses one more and the killed one.
    assert steps == 40 + 9 * 2


def test_a_recovery_that_is_cut_in_half_costs_an_epoch(tiny_cohort, tmp_path, straight, caplog):
    trainer = TrainSmall(rmse_log_interval=3, recovery_interval=1)
    Interrupting(trainer, steps=(18,))
    output = tmp_path / "cut"
    with pytest.raises(ContinueLater):
        run(trainer, tiny_cohort, output, epochs=10)
    newest, before = sorted((output / "live").glob("recovery_*.pt"), reverse=True)
    assert (newest.name, before.name) == ("recovery_00004_0000008.pt", "recovery_00004_0000000.pt")
    newest.write_bytes(newest.read_bytes()[:1000])
    run(TrainSmall(rmse_log_interval=3), tiny_cohort, output, epochs=10)
    assert newest.name in caplog.text
    assert_equal_models(straight("small"), output, "mlp")


def test_a_damaged_kept_model_is_trained_again(tiny_cohort, tmp_path, straight, caplog):
    trainer = TrainSmall(rmse_log_interval=3)
    Interrupting(trainer, steps=(30,))
    output = tmp_path / "cut"
    with pytest.raises(ContinueLater):
        run(trainer, tiny_cohort, output, epochs=10)
    kept = output / "live" / checkpoint_name("mlp", 6)
    kept.write_bytes(b"")
    run(TrainSmall(rmse_log_interval=3), tiny_cohort, output, epochs=10)
    assert f"{kept}: the checkpoint is empty" in caplog.text
    assert_equal_models(straight("small"), output, "mlp")
    name = checkpoint_name("mlp", 6)
    ours, theirs = (load_checkpoint(path / name) for path in (output, straight("small")))
    assert torch.equal(ours["model_state_dict"]["0.weight"], theirs["model_state_dict"]["0.weight"])


def test_a_full_disk_is_a_sentence_and_the_next_start_goes_on(tiny_cohort, tmp_path, straight):
    """From epoch 6 on no file may grow beyond 1 kB: what was saved until then is whole."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(epoch, epochs):
        if epoch == 5:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    trainer = TrainSmall(rmse_log_interval=3, recovery_interval=1)
    trainer._on_epoch_start = fill
    output = tmp_path / "full"
    try:
        with pytest.raises(InputError, match=r"cannot be written .* free space"):
            run(trainer, tiny_cohort, output, epochs=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(output.rglob(".meshstage-*"))
    assert max((output / "live").glob("recovery_*")).name == "recovery_00005_0000000.pt"
    run(TrainSmall(rmse_log_interval=3), tiny_cohort, output, epochs=10)
    assert_equal_models(straight("small"), output, "mlp")


def test_a_finished_model_is_not_trained_again(tiny_cohort, tmp_path, straight, caplog):
    trainer = TrainSmall(rmse_log_interval=3)
    counting = Interrupting(trainer)
    output = straight("small")
    before = {path: path.read_bytes() for path in output.glob("*.*") if path.is_file()}
    caplog.set_level("INFO")
    model, losses, rmse = run(trainer, tiny_cohort, output, epochs=10)
    assert "complete, nothing to train" in caplog.text
    assert counting.n_steps == 0
    assert before == {path: path.read_bytes() for path in output.glob("*.*") if path.is_file()}
    final = load_checkpoint(output / checkpoint_name("mlp"))
    assert torch.equal(model[0].weight, final["model_state_dict"]["0.weight"])
    assert losses == final["training_state"]["losses"] and rmse[-1]["epoch"] == 10


def test_epochs_may_be_raised_under_way(tiny_cohort, tmp_path, straight):
    trainer = TrainSmall(rmse_log_interval=3)
    Interrupting(trainer, steps=(10,))
    with pytest.raises(ContinueLater):
        run(trainer, tiny_cohort, tmp_path / "raised", epochs=5)
    run(TrainSmall(rmse_log_interval=3), tiny_cohort, tmp_path / "raised", epochs=10)
    assert_equal_models(straight("small"), tmp_path / "raised", "mlp")


def test_training_alone_changes_nothing_of_the_random_numbers_of_evaluation(
    tiny_cohort, tmp_path, straight
):
    """Judging more often leaves the weights alone."""
    run(TrainSmall(rmse_log_interval=1), tiny_cohort, tmp_path / "often", epochs=10)
    ours, theirs = (
        load_checkpoint(path / checkpoint_name("mlp"))["model_state_dict"]
        for path in (tmp_path / "often", straight("small"))
    )
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
