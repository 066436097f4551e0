"""The folder of a run in progress, and how it becomes a finished model."""

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshstage.checkpoint import load_checkpoint, save_checkpoint
from meshstage.errors import InputError, Problem
from meshstage.files import read_json, remove_temporaries, write_json
from meshstage.model_files import COMPLETE, LIVE, checkpoint_epochs, checkpoint_name

_log = logging.getLogger(__name__)
_KEEP = 2  # recovery checkpoints: the newest, and one more in case it turns out damaged


class RunFolder:
    """Where one run lives: ``live/`` while it trains, its own files when it is finished.

    Parameters
    ----------
    output : Path
        The model directory.
    tag : str
        File name tag of the network.
    """

    def __init__(self, output: Path, tag: str) -> None:
        self.output = output
        self.live = output / LIVE
        self.tag = tag

    def is_complete(self, settings: dict[str, Any]) -> bool:
        """Say whether a finished model with these settings and data stands here.

        Raises
        ------
        InputError
            If a finished model stands here that was trained otherwise, or is not whole.
        """
        if not (self.output / COMPLETE).exists():
            final = self.output / checkpoint_name(self.tag)
            if final.exists() and not self.live.exists():
                raise InputError(
                    Problem(
                        "a model stands here that this program did not finish",
                        todo="it is not overwritten: choose another output, or move it away",
                        file=str(final),
                    )
                )
            return False
        complete = read_json(self.output / COMPLETE)
        missing = [name for name in complete["files"] if not (self.output / name).exists()]
        differences = _differences(complete["settings"], settings, ("epochs", "rmse_log_interval"))
        if missing or differences:
            raise InputError(
                Problem(
                    "a finished model stands here"
                    + (f", but {', '.join(missing)} of it is missing" if missing else "")
                    + (f", trained otherwise: {'; '.join(differences)}" if differences else ""),
                    todo="it is not overwritten: use a new run id, resume it into a sibling "
                    "(`resume:` in the config, --resume-from), or delete the folder by hand",
                    file=str(self.output),
                )
            )
        # A kill between the record and the clean-up leaves the live folder.
        shutil.rmtree(self.live, ignore_errors=True)
        return True

    def open(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        """Start or go on: compare settings, and find the newest recovery checkpoint.

        Parameters
        ----------
        settings : dict
            ``fixed`` must be equal, ``epochs`` and ``rmse_log_interval`` may change within
            reason, everything else may change.

        Returns
        -------
        dict or None
            The payload to go on from, None if nothing is trained yet.

        Raises
        ------
        InputError
            If the run in progress was started with other settings or data.
        """
        self.live.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.live)
        remove_temporaries(self.output)
        record = self.live / "settings.json"
        newest = self._newest_recovery()
        if record.exists() and newest is not None:
            old = read_json(record)
            differences = _differences(old, settings) + self._lost_epochs(
                settings, newest["epoch"], newest["start_epoch"]
            )
            if differences:
                raise InputError(
                    Problem(
                        f"this run is in progress with other settings: {'; '.join(differences)}",
                        todo="set them back, rename this folder, or take another run id",
                        file=str(self.live),
                    )
                )
        write_json(record, settings)
        return newest

    def _lost_epochs(self, settings: dict[str, Any], epoch: int, start: int) -> list[str]:
        """Name what the new settings declare and training has passed without saving it."""
        if settings["epochs"] < epoch:
            return [f"epochs: {settings['epochs']} now, {epoch} are already trained"]
        declared = checkpoint_epochs(start, settings["epochs"], settings["rmse_log_interval"])
        for passed in (e for e in declared if e <= epoch):
            try:
                load_checkpoint(self._kept(passed))
            except InputError as error:
                return [f"the model of epoch {passed} is to be kept and is not here ({error})"]
        return []

    def _kept(self, epoch: int) -> Path:
        return self.live / checkpoint_name(self.tag, epoch)

    def keep(self, epoch: int, payload: dict[str, Any]) -> None:
        """Save one of the declared per-epoch models."""
        save_checkpoint(self._kept(epoch), payload)

    def save_recovery(self, payload: dict[str, Any]) -> None:
        """Save where training is, and drop all but the newest two."""
        name = f"recovery_{payload['epoch']:05d}_{payload['training_state']['done']:07d}.pt"
        save_checkpoint(self.live / name, payload)
        for old in self._recoveries()[_KEEP:]:
            old.unlink()

    def _recoveries(self) -> list[Path]:
        return sorted(self.live.glob("recovery_*.pt"), reverse=True)

    def _newest_recovery(self) -> dict[str, Any] | None:
        for path in self._recoveries():
            try:
                payload = load_checkpoint(path)
                if "training_state" not in payload:
                    raise InputError(Problem("not a checkpoint of this run", "", str(path)))
            except InputError as error:
                _log.warning("%s; taking the one before it", error)
                path.unlink()
            else:
                return payload
        return None

    def finish(self, settings: dict[str, Any], names: Iterable[str]) -> None:
        """Link the finished files into place, record that they are whole, remove ``live/``."""
        names = list(names)
        for name in names:
            temporary = self.output / f".meshstage-{name}"
            temporary.unlink(missing_ok=True)
            try:
                os.link(self.live / name, temporary)
            except OSError:  # a file system without hard links
                shutil.copyfile(self.live / name, temporary)
            temporary.replace(self.output / name)
        write_json(self.output / COMPLETE, {"settings": settings, "files": names})
        shutil.rmtree(self.live)


def _differences(old: dict[str, Any], new: dict[str, Any], also: tuple[str, ...] = ()) -> list[str]:
    """List fixed settings that differ, and others that are named, each old and new."""
    before = old["fixed"] | {key: old[key] for key in also}
    now = new["fixed"] | {key: new[key] for key in also}
    rows = [
        f"{key} was {before.get(key, 'not there')} and is {now.get(key, 'not there')}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]
    return rows if len(rows) <= 6 else [*rows[:6], f"and {len(rows) - 6} more"]
