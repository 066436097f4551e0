"""How far a run is, from its files alone."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from meshstage.errors import InputError
from meshstage.files import write_json
from meshstage.models import owner
from meshstage.models.watch import describe, read_events, read_status

START = datetime(2026, 1, 2, 3, 0, 0, tzinfo=UTC)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "heart" / "models" / "mgn"
    folder.mkdir(parents=True)
    own(folder)
    return folder


def own(model: Path, **changes: Any) -> None:
    """Let this process own the run, or one that is like it but for the changes."""
    write_json(model / "owner.json", owner._this_process() | changes)


def append(model: Path, name: str, at: float, **fields: Any) -> None:
    event = {"event": name, "time": (START + timedelta(seconds=at)).isoformat(), **fields}
    with (model / "events.jsonl").open("a") as stream:
        stream.write(json.dumps(event) + "\n")


def train(model: Path, first: int, last: int, at: float = 0, pace: float = 30) -> None:
    append(model, "start", at, epoch=first - 1, epochs=100)
    for step, epoch in enumerate(range(first, last + 1), 1):
        rmse = {"train_rmse": 10 / epoch, "val_rmse": 12 / epoch} if epoch % 5 == 0 else {}
        append(
            model,
            "epoch",
            at + pace * step,
            epoch=epoch,
            epochs=100,
            seconds=pace - 2,
            loss=1 / epoch,
            **rmse,
        )


def test_a_run_in_training(model: Path) -> None:
    train(model, 1, 12)
    baselines = {"rmse": {"train": {"stage_mean": 4.0}, "val": {"stage_mean": 3.0}}}
    write_json(model.parent.parent / "baselines.json", baselines)
    status = read_status(model, now=START + timedelta(seconds=367))
    assert (status.state, status.epoch, status.epochs) == ("training", 12, 100)
    assert status.loss == pytest.approx(1 / 12)
    assert status.rmse == {"train": (10, 1.0), "val": (10, 1.2)}
    assert status.best == (10, 1.2)
    assert status.skill == pytest.approx({"train": 0.75, "val": 0.6})
    assert status.seconds_left == 88 * 30
    assert describe(status) == (
        "mgn: training; epoch 12/100; loss 0.08333; train RMSE 1, skill 0.75 (epoch 10); "
        "val RMSE 1.2, skill 0.60 (epoch 10); best epoch 10; 44 min 0 s left; "
        "last sign of life 7 s ago"
    )


def test_without_baselines_and_validation(model: Path) -> None:
    append(model, "start", 0, epoch=0, epochs=4)
    append(model, "epoch", 5, epoch=1, epochs=4, seconds=5, loss=None, train_rmse=2.0)
    status = read_status(model, now=START + timedelta(seconds=6))
    assert status.skill == {} and status.best is None and status.loss is None
    assert status.seconds_left == 15
    assert "train RMSE 2 (epoch 1); 15 s left" in describe(status)


def test_a_run_that_was_killed_goes_on_from_an_earlier_epoch(model: Path) -> None:
    train(model, 1, 17)
    train(model, 13, 14, at=90_000, pace=60)  # the next day, on a slower machine
    append(model, "skip", 90_121, epoch=15, step=3)
    status = read_status(model, now=START + timedelta(seconds=90_125))
    # The pace is the new one; the night in between is not a long epoch.
    assert status.seconds_left == pytest.approx((100 - status.epoch) * 60)
    assert status.skipped == 1 and "1 steps skipped" in describe(status)
    assert status.state == "training"
    # Epochs 13 to 17 of the first start are lost, with the RMSE of 15.
    assert status.epoch == 14 and status.rmse["val"] == (10, 1.2)


def test_leaving_finishing_and_silence(model: Path) -> None:
    train(model, 1, 12)
    later = START + timedelta(seconds=360) + timedelta(minutes=11)
    assert read_status(model, now=later).state == "silent"
    assert read_status(model, now=later - timedelta(minutes=2)).state == "training"
    append(model, "leave", 361, epoch=12, samples=5, reason="time budget")
    (model / "owner.json").unlink()
    status = read_status(model, now=later)
    assert status.state == "left, to be continued"
    assert "left, to be continued: the same command goes on; epoch 12/100" in describe(status)
    append(model, "end", 400, epoch=100)
    write_json(model / "complete.json", {})
    status = read_status(model, now=later)
    assert status.state == "finished" and status.seconds_left is None
    assert "ago" not in describe(status)


def test_a_process_that_was_killed_is_not_training(model: Path) -> None:
    """Eight seconds after ``kill -9``: the lock is there, and its process is not."""
    train(model, 1, 12)
    own(model, started="17")  # the number is another process's by now
    status = read_status(model, now=START + timedelta(seconds=368))
    assert status.state == "stopped, not finished"
    assert describe(status).startswith(
        "mgn: stopped, not finished: the same command goes on; epoch 12/100; "
    )
    assert " left;" not in describe(status)
    # It is training again as soon as somebody owns it, also before it has told anything.
    own(model)
    assert read_status(model, now=START + timedelta(seconds=368)).state == "training"


def test_a_run_that_failed_has_no_owner(model: Path) -> None:
    train(model, 1, 12)
    (model / "owner.json").unlink()
    assert read_status(model).state == "stopped, not finished"


def test_an_owner_on_another_host_is_named(model: Path) -> None:
    """Without a SLURM job nobody here can say whether it still runs."""
    train(model, 1, 12)
    own(model, host="node7", pid=12, job=None)
    status = read_status(model, now=START + timedelta(seconds=368))
    assert status.state == "training"
    assert describe(status).startswith(
        "mgn: training by process 12 on node7, which cannot be asked from here; epoch 12/100; "
    )


def test_a_slow_run_is_not_silent_within_an_epoch(model: Path) -> None:
    append(model, "start", 0, epoch=0, epochs=10)
    for epoch in (1, 2):
        append(model, "epoch", 3600 * epoch, epoch=epoch, epochs=10, seconds=3600, loss=1.0)
    assert read_status(model, now=START + timedelta(hours=10)).state == "training"
    assert read_status(model, now=START + timedelta(hours=13)).state == "silent"


def test_a_first_epoch_may_take_hours(model: Path) -> None:
    append(model, "start", 0, epoch=0, epochs=10)
    assert read_status(model, now=START + timedelta(hours=5)).state == "training"
    assert read_status(model, now=START + timedelta(hours=25)).state == "silent"


def test_a_line_that_is_being_written_is_left_out(model: Path) -> None:
    train(model, 1, 3)
    with (model / "events.jsonl").open("a") as stream:
        stream.write('{"event": "epo')
    assert read_status(model).epoch == 3
    with (model / "events.jsonl").open("a") as stream:
        stream.write("\n")
    with pytest.raises(InputError, match=r"events\.jsonl: a line is not an event"):
        read_events(model)


def test_a_folder_without_a_run_is_a_sentence(model: Path) -> None:
    with pytest.raises(InputError, match=r"mgn: there is no events\.jsonl here"):
        read_status(model)
    (model / "events.jsonl").write_text("")
    with pytest.raises(InputError, match="no training has started here"):
        read_status(model)
