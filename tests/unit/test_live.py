"""The folder of a run in progress: what it goes on from, what it refuses, how it ends."""

import copy
import errno
import os
from pathlib import Path

import pytest
import torch

from meshstage.errors import InputError
from meshstage.files import read_json, write_text
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.live import RunFolder
from shared_data import shared

SETTINGS = {
    "fixed": {"network": "n", "learning_rate": 0.1, "data of train subject a": "12ab"},
    "epochs": 10,
    "rmse_log_interval": 4,
}


def payload(epoch: int, done: int = 0, start: int = 0):
    return {
        "model_state_dict": {"w": torch.full((3,), float(epoch))},
        "epoch": epoch,
        "start_epoch": start,
        "training_state": {"done": done},
    }


def changed(**values):
    settings = copy.deepcopy(SETTINGS)
    settings["fixed"] |= values.pop("fixed", {})
    return settings | values


@pytest.fixture
def folder(tmp_path):
    """Leave a run as a kill after 9 epochs and 3 samples does: models of 4 and 8 are kept."""
    folder = RunFolder(tmp_path / "model", "mlp")
    assert folder.open(SETTINGS) is None
    for epoch in range(1, 10):
        if epoch % 4 == 0:
            folder.keep(epoch, payload(epoch))
        folder.save_recovery(payload(epoch))
    folder.save_recovery(payload(9, done=3))
    return folder


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


def position(found):
    return found and (found["epoch"], found["training_state"]["done"])


def test_the_newest_two_are_kept_and_the_newest_is_taken(folder):
    assert names(folder.live) == [
        "mlp_stage_model_epoch_00004.pt",
        "mlp_stage_model_epoch_00008.pt",
        "recovery_00009_0000000.pt",
        "recovery_00009_0000003.pt",
        "settings.json",
    ]
    assert position(folder.open(SETTINGS)) == (9, 3)


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.write_bytes(shared("data", "interop", "mlp", "mlp_stage_model.pt").read_bytes())


@pytest.mark.parametrize("damage", [half, empty, foreign])
def test_a_damaged_recovery_is_named_and_the_one_before_it_taken(folder, damage, caplog):
    damage(folder.live / "recovery_00009_0000003.pt")
    assert position(folder.open(SETTINGS)) == (9, 0)
    assert "recovery_00009_0000003.pt" in caplog.text
    # What is saved next is newer than what was set aside, and takes its place.
    folder.save_recovery(payload(9, done=2))
    assert position(folder.open(SETTINGS)) == (9, 2)


def test_without_a_good_recovery_a_kept_model_is_gone_on_from(folder, caplog):
    for path in folder.live.glob("recovery_*"):
        half(path)
    assert position(folder.open(SETTINGS)) == (8, 0)
    assert caplog.text.count("damaged_recovery") == 2


@pytest.mark.parametrize("damage", [half, empty, foreign])
def test_a_damaged_kept_model_is_trained_again(folder, damage, caplog):
    damage(folder.live / "mlp_stage_model_epoch_00008.pt")
    assert position(folder.open(SETTINGS)) == (4, 0)
    assert "mlp_stage_model_epoch_00008.pt" in caplog.text
    folder.save_recovery(payload(5))
    assert position(folder.open(SETTINGS)) == (5, 0)


def test_if_nothing_is_good_training_begins_anew(folder):
    for path in folder.live.glob("*.pt"):
        empty(path)
    assert folder.open(SETTINGS) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (changed(fixed={"learning_rate": 0.2}), ["learning_rate was 0.1 and is 0.2"]),
        (
            changed(fixed={"data of train subject a": "34cd", "data of val subject b": "56ef"}),
            [
                "data of train subject a was 12ab and is 34cd",
                "data of val subject b was not there and is 56ef",
            ],
        ),
        (changed(epochs=8), ["epochs was 10 and is 8", "9 are trained already"]),
        (
            changed(rmse_log_interval=3),
            ["rmse_log_interval was 4 and is 3", "the model of epoch 3 is not here"],
        ),
        # 9 was no declared epoch, so its model was not kept.
        (changed(epochs=9), ["epochs was 10 and is 9", "the model of epoch 9 is not here"]),
    ],
)
def test_what_may_not_change_is_told_old_and_new_and_nothing_is_touched(folder, settings, said):
    before = names(folder.live)
    with pytest.raises(InputError) as caught:
        folder.open(settings)
    for text in [*said, "rename this folder", "another run id", str(folder.live)]:
        assert text in str(caught.value)
    assert names(folder.live) == before
    assert read_json(folder.live / "settings.json") == SETTINGS


@pytest.mark.parametrize(
    "settings",
    [changed(epochs=30), changed(rmse_log_interval=8), changed(epochs=12, rmse_log_interval=2 * 4)],
)
def test_what_may_change_is_recorded(folder, settings):
    assert position(folder.open(settings)) == (9, 3)
    folder.save_recovery(payload(9, done=4))
    assert read_json(folder.live / "settings.json") == settings


def test_of_a_resumed_run_only_epochs_after_its_start_are_declared(tmp_path):
    folder = RunFolder(tmp_path / "model_1", "mlp")
    folder.open(SETTINGS)
    folder.save_recovery(payload(7, start=6))
    assert position(folder.open(SETTINGS)) == (7, 0)  # the model of 4 is its parent's
    folder.save_recovery(payload(9, start=6))
    with pytest.raises(InputError, match="the model of epoch 8 is not here"):
        folder.open(SETTINGS)


def test_settings_may_change_while_nothing_is_trained(tmp_path):
    folder = RunFolder(tmp_path / "model", "mlp")
    folder.open(SETTINGS)
    folder.open(changed(fixed={"learning_rate": 3.0}))
    assert not folder.output.exists()


def test_temporary_files_of_a_killed_writer_are_removed(folder):
    for where in (folder.live, folder.output):
        (where / ".meshstage-abc.pt").touch()
        (where / ".meshstage-folder").mkdir()
        (where / ".meshstage-folder/edges.pt").touch()
    folder.open(SETTINGS)
    assert not list(folder.output.rglob(".meshstage-*"))


FILES = ["mlp_stage_model.pt", "mlp_stage_model_epoch_00004.pt", "training_losses.json"]


def finish(folder: RunFolder) -> None:
    write_text(folder.live / "training_losses.json", "[1.0]")
    folder.keep(10, payload(10))
    (folder.live / "mlp_stage_model_epoch_00010.pt").rename(folder.live / "mlp_stage_model.pt")
    folder.finish(SETTINGS, FILES)


FINISHED = sorted([*FILES, "complete.json", "live"])
KEPT = sorted([*FILES, "settings.json"])


def test_the_finished_files_are_there_and_live_keeps_a_link_of_each(folder):
    finish(folder)
    assert names(folder.output) == FINISHED
    assert names(folder.live) == KEPT
    for name in FILES:
        assert (folder.output / name).samefile(folder.live / name)
    assert load_checkpoint(folder.output / "mlp_stage_model.pt")["epoch"] == 10
    assert folder.is_complete(SETTINGS)


def test_a_file_system_without_hard_links_gets_copies(folder, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    finish(folder)
    assert names(folder.output) == FINISHED
    (folder.output / "mlp_stage_model.pt").unlink()
    assert folder.is_complete(SETTINGS)
    assert load_checkpoint(folder.output / "mlp_stage_model.pt")["epoch"] == 10


def test_finished_files_that_were_deleted_are_restored(folder, caplog):
    """Snakemake deletes the outputs of a job that failed, also one that failed after its end."""
    finish(folder)
    before = {name: (folder.output / name).read_bytes() for name in FILES}
    for name in FILES:
        (folder.output / name).unlink()
    assert folder.is_complete(SETTINGS)
    assert "restoring 3 deleted files" in caplog.text
    assert {name: (folder.output / name).read_bytes() for name in FILES} == before
    assert names(folder.output) == FINISHED


def test_a_refused_start_restores_nothing(folder):
    finish(folder)
    (folder.output / "mlp_stage_model.pt").unlink()
    with pytest.raises(InputError, match="epochs was 10 and is 20"):
        folder.is_complete(changed(epochs=20))
    assert not (folder.output / "mlp_stage_model.pt").exists()
    assert names(folder.live) == KEPT


def test_a_run_whose_record_was_deleted_is_still_compared(folder):
    finish(folder)
    (folder.output / "complete.json").unlink()
    assert not folder.is_complete(SETTINGS)
    with pytest.raises(InputError, match=r"learning_rate was 0\.1 and is 0\.2"):
        folder.open(changed(fixed={"learning_rate": 0.2}))


def test_killed_between_links_and_record_the_run_is_still_in_progress(folder, monkeypatch):
    """The record is written last: until then the next start finds live/, and finishes again."""
    monkeypatch.setattr("meshstage.models.live.write_json", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        finish(folder)
    monkeypatch.undo()
    assert not folder.is_complete(SETTINGS)
    assert position(folder.open(SETTINGS)) == (9, 3)
    finish(folder)
    assert folder.is_complete(SETTINGS)


def test_killed_between_record_and_clean_up_it_is_complete(folder, monkeypatch):
    monkeypatch.setattr(RunFolder, "_tidy", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        finish(folder)
    monkeypatch.undo()
    assert folder.is_complete(SETTINGS)
    assert names(folder.live) == KEPT


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (changed(epochs=20), "epochs was 10 and is 20"),
        (changed(rmse_log_interval=5), "rmse_log_interval was 4 and is 5"),
        (changed(fixed={"learning_rate": 0.2}), "learning_rate was 0.1 and is 0.2"),
    ],
)
def test_a_finished_model_is_never_replaced(folder, settings, said):
    finish(folder)
    before = {name: (folder.output / name).read_bytes() for name in FILES}
    with pytest.raises(InputError) as caught:
        folder.is_complete(settings)
    for text in (said, "new run id", "resume", "delete the folder by hand", str(folder.output)):
        assert text in str(caught.value)
    assert before == {name: (folder.output / name).read_bytes() for name in FILES}
    assert names(folder.output) == FINISHED


def test_a_finished_model_with_a_file_missing_for_good_is_told(folder):
    finish(folder)
    for where in (folder.output, folder.live):
        (where / "training_losses.json").unlink()
    with pytest.raises(InputError, match=r"training_losses\.json of it is missing"):
        folder.is_complete(SETTINGS)


def test_a_model_of_another_program_is_not_overwritten(tmp_path):
    folder = RunFolder(tmp_path, "mlp")
    (tmp_path / "mlp_stage_model.pt").touch()
    with pytest.raises(InputError, match="did not finish"):
        folder.is_complete(SETTINGS)
