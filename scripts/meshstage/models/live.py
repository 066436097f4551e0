"""The folder of a run in progress, and how it becomes a finished model that is not lost.

Whoever runs the training may delete the finished files: Snakemake does, if the process dies while
it exits, or if another declared file is missing. ``live/`` is declared by no rule, so it keeps a
second name (a hard link, which takes no space) of every finished file, and of the settings.
"""

import logging
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshstage.errors import InputError, Problem
from meshstage.files import atomic, read_json, remove_temporaries, write_json
from meshstage.models.checkpoint import load_checkpoint, save_checkpoint
from meshstage.models.names import COMPLETE, LIVE, checkpoint_epochs, checkpoint_name

_log = logging.getLogger(__name__)
_KEEP = 2  # recovery checkpoints: the newest, and one more in case it turns out damaged
_SETTINGS = "settings.json"
_RECOVERY = re.compile(r"recovery_(\d+)_(\d+)\.pt")


class RunFolder:
    """Where one run lives: in ``live/`` while it trains, in its output folder once finished.

    Parameters
    ----------
    output : Path
        The model directory.
    tag : str
        File name tag of the network.
    defaults : dict, optional
        Meaning of fixed settings that an older record does not have.
    """

    def __init__(self, output: Path, tag: str, defaults: dict[str, Any] | None = None) -> None:
        self.output = output
        self.live = output / LIVE
        self.tag = tag
        self._defaults = defaults or {}
        self._unrecorded: dict[str, Any] | None = None

    # ------------------------------------------------------------------ what stands there

    def is_complete(self, settings: dict[str, Any]) -> bool:
        """Say whether a finished model with these settings and data is here.

        Finished files that were deleted since are restored from ``live/``.

        Raises
        ------
        InputError
            If the finished model here was trained with other settings or data, or if one of its
            files is missing in ``live/`` too.
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
        deleted = [name for name in complete["files"] if not (self.output / name).exists()]
        missing = [name for name in deleted if not (self.live / name).exists()]
        differences = self._differences(
            complete["settings"], settings, ("epochs", "rmse_log_interval")
        )
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
        if deleted:
            _log.warning("restoring %d deleted files of %s", len(deleted), self.output)
        for name in deleted:
            self._link(name)
        self._tidy(complete["files"])  # a kill may have come between the record and this
        return True

    def open(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        """Start or go on: find the newest checkpoint that is good, and compare settings.

        Nothing is written: the settings are recorded with the first checkpoint, so that a run
        that is refused later on leaves nothing behind.

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
        for folder in (self.live, self.output):
            remove_temporaries(folder)
        record = self.live / _SETTINGS
        newest = self._newest_good()
        if record.exists() and newest is not None:
            old = read_json(record)
            differences = self._differences(old, settings) + self._lost_epochs(
                old, settings, newest
            )
            if differences:
                raise InputError(
                    Problem(
                        f"this run is in progress with other settings: {'; '.join(differences)}",
                        todo="set them back, rename this folder, or take another run id",
                        file=str(self.live),
                    )
                )
        self._unrecorded = settings
        return newest

    def _lost_epochs(
        self, old: dict[str, Any], new: dict[str, Any], newest: dict[str, Any]
    ) -> list[str]:
        """Name what the new settings declare and training has passed without keeping it."""
        epoch, names = newest["epoch"], ("epochs", "rmse_log_interval")
        declared = checkpoint_epochs(newest["start_epoch"], *(new[name] for name in names))
        lost = [e for e in declared if e <= epoch and not self._kept(e).exists()]
        if new["epochs"] < epoch:
            why = f"{epoch} are trained already"
        elif lost:
            why = f"the model of epoch {lost[0]} is not here"
        else:
            return []
        changed = [name for name in names if old[name] != new[name]]
        return [*(f"{name} was {old[name]} and is {new[name]}" for name in changed), why]

    def _differences(
        self, old: dict[str, Any], new: dict[str, Any], also: tuple[str, ...] = ()
    ) -> list[str]:
        """List fixed settings that differ, and others that are named, each old and new."""
        now = new["fixed"] | {key: new[key] for key in also}
        known = {key: value for key, value in self._defaults.items() if key in now}
        before = known | old["fixed"] | {key: old[key] for key in also}
        rows = [
            f"{key} was {before.get(key, 'not there')} and is {now.get(key, 'not there')}"
            for key in sorted({*before, *now})
            if before.get(key) != now.get(key)
        ]
        return rows if len(rows) <= 6 else [*rows[:6], f"and {len(rows) - 6} more"]

    # ------------------------------------------------------------------ checkpoints

    def _kept(self, epoch: int) -> Path:
        return self.live / checkpoint_name(self.tag, epoch)

    def keep(self, epoch: int, payload: dict[str, Any]) -> None:
        """Save one of the declared per-epoch models."""
        self._save(self._kept(epoch), payload)

    def save_recovery(self, payload: dict[str, Any]) -> None:
        """Save where training is, and drop all but the newest two."""
        name = f"recovery_{payload['epoch']:05d}_{payload['training_state']['done']:07d}.pt"
        self._save(self.live / name, payload)
        for _, old in self._recoveries()[_KEEP:]:
            old.unlink()

    def _save(self, path: Path, payload: dict[str, Any]) -> None:
        if self._unrecorded is not None:
            write_json(self.live / _SETTINGS, self._unrecorded)
            self._unrecorded = None
        save_checkpoint(path, payload)

    def _recoveries(self) -> list[tuple[tuple[int, int], Path]]:
        """Find recovery checkpoints, the newest first, each with its epoch and samples."""
        found = ((_RECOVERY.fullmatch(p.name), p) for p in self.live.glob("recovery_*.pt"))
        return sorted(
            (((int(match[1]), int(match[2])), path) for match, path in found if match), reverse=True
        )

    def _kept_epochs(self) -> list[tuple[tuple[int, int], Path]]:
        """Find the kept models, the newest first: they can be gone on from too."""
        paths = self.live.glob(checkpoint_name(self.tag).replace(".pt", "_epoch_*.pt"))
        return sorted((((int(p.stem.rpartition("_")[2]), 0), p) for p in paths), reverse=True)

    def _newest_good(self) -> dict[str, Any] | None:
        """Load the newest checkpoint that verifies, and before which no kept model is damaged.

        A damaged kept model is trained again: what comes after it is dropped.
        """
        damaged = [position for position, path in self._kept_epochs() if not self._load(path)]
        limit = min(damaged, default=(1 << 62, 0))
        for position, path in self._recoveries():
            if position >= limit:
                path.unlink()
        for _, path in sorted([*self._recoveries(), *self._kept_epochs()], reverse=True):
            payload = self._load(path)
            if payload and (payload["epoch"], payload["training_state"]["done"]) < limit:
                return payload
        return None

    def _load(self, path: Path) -> dict[str, Any] | None:
        """Load a checkpoint of this run; a damaged or foreign one is set aside, and named."""
        try:
            payload = load_checkpoint(path)
            if "training_state" not in payload:
                raise InputError(Problem("not a checkpoint of this run", file=str(path)))
        except InputError as error:
            aside = path.with_name(f"damaged_{path.name}")
            _log.warning("%s (now %s); going on from the one before it", error, aside.name)
            path.replace(aside)
            return None
        return payload

    # ------------------------------------------------------------------ the end

    def finish(self, settings: dict[str, Any], names: Iterable[str]) -> None:
        """Link the finished files into place and record that they are whole.

        ``live/`` keeps the other link of each, and the settings; the rest of it is removed.
        """
        names = list(names)
        for name in names:
            self._link(name)
        write_json(self.output / COMPLETE, {"settings": settings, "files": names})
        self._tidy(names)

    def _link(self, name: str) -> None:
        """Give a file of ``live/`` a second name among the finished ones."""
        with atomic(self.output / name) as temporary:
            temporary.unlink()
            try:
                os.link(self.live / name, temporary)
            except OSError:  # a file system without hard links
                shutil.copyfile(self.live / name, temporary)

    def _tidy(self, finished: Iterable[str]) -> None:
        """Remove from ``live/`` what a finished run no longer needs."""
        kept = {*finished, _SETTINGS}
        for path in self.live.glob("*"):
            if path.is_file() and path.name not in kept:
                path.unlink()
