"""The records of a training beside its log lines."""

import json
import math
import resource

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from meshstage.models.journal import Journal


def events(folder):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def scalars(folder, name):
    accumulator = EventAccumulator(str(folder / "tensorboard"))
    accumulator.Reload()
    return [(point.step, point.value) for point in accumulator.Scalars(name)]


def test_events_are_strict_json_and_scalars_are_in_tensorboard(tmp_path):
    with Journal(tmp_path, True, 0) as journal:
        journal.event("start", epoch=0)
        journal.epoch(1, 3, 0.25, {"loss": 0.5, "val_rmse": None, "train_rmse": math.nan})
    start, epoch = events(tmp_path)
    assert (start["event"], start["epoch"]) == ("start", 0)
    assert {k: epoch[k] for k in ("event", "epoch", "epochs", "seconds")} == {
        "event": "epoch",
        "epoch": 1,
        "epochs": 3,
        "seconds": 0.25,
    }
    assert (epoch["loss"], epoch["val_rmse"], epoch["train_rmse"]) == (0.5, None, None)
    assert scalars(tmp_path, "loss") == [(1, 0.5)]


def test_tensorboard_shows_each_epoch_while_the_training_runs(tmp_path):
    with Journal(tmp_path, True, 0) as journal:
        for epoch in (1, 2):
            journal.epoch(epoch, 2, 0.1, {"loss": 1.0 / epoch})
            assert scalars(tmp_path, "loss")[-1] == (epoch, 1.0 / epoch)


def test_the_next_start_replaces_scalars_and_a_line_that_was_cut(tmp_path):
    with Journal(tmp_path, True, 0) as journal:
        for epoch in (1, 2, 3):
            journal.epoch(epoch, 3, 0.1, {"loss": float(epoch)})
    with (tmp_path / "events.jsonl").open("a") as stream:
        stream.write('{"event": "ep')
    with Journal(tmp_path, True, 1) as journal:
        journal.epoch(2, 3, 0.1, {"loss": 20.0})
    assert [(e["epoch"], e["loss"]) for e in events(tmp_path)] == [(1, 1), (2, 2), (3, 3), (2, 20)]
    assert scalars(tmp_path, "loss") == [(1, 1.0), (2, 20.0)]


def test_other_ranks_leave_nothing(tmp_path):
    with Journal(tmp_path, False, 0) as journal:
        journal.event("start")
        journal.epoch(1, 1, 0.1, {"loss": 1.0})
        journal.say("nothing")
        journal.warn("nothing")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_ends_no_training(tmp_path, caplog):
    """What fails here is told; a checkpoint that cannot be written is the error."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path, True, 0) as journal:
        journal.event("start")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, old[1]))
        try:
            journal.epoch(1, 1, 0.1, {"loss": 1.0})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert "the journal cannot be written" in caplog.text
