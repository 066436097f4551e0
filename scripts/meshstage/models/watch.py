"""How far a run is, from its files alone: also on a login node while the job runs elsewhere."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from meshstage.errors import InputError, Problem
from meshstage.files import read_json
from meshstage.models.names import COMPLETE, EVENTS
from meshstage.models.owner import is_alive, name_of, read_owner

_RECENT_EPOCHS = 20
_SILENT = timedelta(minutes=10)
_FINISHED, _TRAINING = "finished", "training"
_LEFT, _STOPPED = "left, to be continued", "stopped, not finished"


@dataclass(frozen=True)
class Status:
    """How far a run is, and whether it goes on.

    Parameters
    ----------
    name : str
    state : str
        "finished"; "left, to be continued", if it saved and left by itself; "stopped, not
        finished", if the process that owned it is gone, or nobody owns it; otherwise "training",
        or "silent" if nothing was written for ten minutes and for ten epochs' time (before the
        first epoch has ended, for a day).
    epoch, epochs : int
        Last finished epoch, and how many there will be.
    loss : float, optional
        Of the last epoch that has one.
    rmse : dict
        "train" and "val" to the newest value (epoch, RMSE), where there is one.
    best : (epoch, RMSE), optional
        Least validation RMSE so far.
    skill : dict
        "train" and "val" to the skill over the mean motion, where baselines are known.
    skipped : int
        Steps that were skipped for a loss that was not finite.
    seconds_left : float, optional
    since : timedelta
        Time since the last event.
    elsewhere : str, optional
        The owner, where this machine cannot know whether it still runs.
    """

    name: str
    state: str
    epoch: int
    epochs: int
    loss: float | None
    rmse: dict[str, tuple[int, float]]
    best: tuple[int, float] | None
    skill: dict[str, float] = field(default_factory=dict)
    skipped: int = 0
    seconds_left: float | None = None
    since: timedelta = timedelta(0)
    elsewhere: str | None = None


def read_status(model: Path, now: datetime | None = None) -> Status:
    """Read how far a run is.

    Parameters
    ----------
    model : Path
        The run's folder, ``results/{cohort}/models/{run}``. Baselines are looked for at their
        place in the same results.
    now : datetime, optional
        Instead of the clock, with a time zone.

    Raises
    ------
    InputError
        If there is no record of a training.
    """
    events = read_events(model)
    if not any("epochs" in event for event in events):
        raise InputError(
            Problem("no training has started here", "name a run's folder", str(model / EVENTS))
        )
    epochs = _kept_epochs(events)
    newest = [e["epoch"] for e in events if e["event"] in ("start", "epoch")][-1]
    total = [event["epochs"] for event in events if "epochs" in event][-1]
    losses = [event["loss"] for event in epochs if event.get("loss") is not None]
    rmse, best = _rmse(epochs)
    since = (now or datetime.now(UTC)) - datetime.fromisoformat(events[-1]["time"])
    pace = _seconds_an_epoch(events)
    owner = read_owner(model)
    alive = is_alive(owner) if owner else False
    finished = (model / COMPLETE).exists()
    left = None if pace is None or finished else pace * max(0, total - newest)
    return Status(
        name=model.name,
        state=_state(events, finished, owner, alive, since, pace),
        epoch=newest,
        epochs=total,
        loss=losses[-1] if losses else None,
        rmse=rmse,
        best=best,
        skill=_skill(model, rmse),
        skipped=sum(event["event"] == "skip" for event in events),
        seconds_left=left,
        since=since,
        elsewhere=name_of(owner) if owner and alive is None and not finished else None,
    )


def read_events(model: Path) -> list[dict[str, Any]]:
    """Read a run's events; a last line that is still being written is left out.

    Raises
    ------
    InputError
        If there is no such file, or a whole line is not an event.
    """
    path = model / EVENTS
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise InputError(
            Problem(f"there is no {EVENTS} here", "name a run's folder", str(model))
        ) from None
    lines = text.split("\n")[:-1]
    try:
        events = [json.loads(line) for line in lines]
        for event in events:
            event["event"], datetime.fromisoformat(event["time"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            Problem(f"a line is not an event ({error})", "it is damaged", str(path))
        ) from None
    return events


def _kept_epochs(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop the epochs that were lost when a run started again from an earlier one."""
    kept: list[dict[str, Any]] = []
    for event in events:
        if event["event"] == "start":
            kept = [e for e in kept if e["epoch"] <= event.get("epoch", 0)]
        elif event["event"] == "epoch":
            kept.append(event)
    return kept


def _rmse(
    epochs: Sequence[dict[str, Any]],
) -> tuple[dict[str, tuple[int, float]], tuple[int, float] | None]:
    known = {
        split: [(e["epoch"], e[key]) for e in epochs if e.get(key) is not None]
        for split, key in (("train", "train_rmse"), ("val", "val_rmse"))
    }
    newest = {split: pairs[-1] for split, pairs in known.items() if pairs}
    return newest, min(known["val"], key=lambda pair: pair[1]) if known["val"] else None


def _seconds_an_epoch(events: Sequence[dict[str, Any]]) -> float | None:
    """Take the median time from epoch to epoch since the last start: with evaluation, saving."""
    last_start = max((k for k, e in enumerate(events) if e["event"] == "start"), default=0)
    epochs = [e for e in events[last_start:] if e["event"] == "epoch"][-_RECENT_EPOCHS - 1 :]
    if len(epochs) < 2:
        return float(epochs[0]["seconds"]) if epochs and "seconds" in epochs[0] else None
    times = [datetime.fromisoformat(e["time"]) for e in epochs]
    passed = (times[-1] - times[0]).total_seconds() / (len(epochs) - 1)
    # Time stamps are whole seconds; epochs of less are known better by their own clock.
    own = statistics.median(e.get("seconds", passed) for e in epochs)
    return max(passed, own) if passed < 1 else passed


def _state(
    events: Sequence[dict[str, Any]],
    finished: bool,
    owner: dict[str, Any] | None,
    alive: bool | None,
    since: timedelta,
    pace: float | None,
) -> str:
    if finished:
        return _FINISHED
    if alive is False:
        # Whoever leaves by itself gives the run up.
        left = events[-1]["event"] == "leave" and owner is None
        return _LEFT if left else _STOPPED
    patience = max(_SILENT, timedelta(seconds=10 * pace)) if pace else timedelta(days=1)
    return "silent" if since > patience else _TRAINING


def _skill(model: Path, rmse: dict[str, tuple[int, float]]) -> dict[str, float]:
    path = model.absolute().parent.parent / "baselines.json"
    if not path.exists():
        return {}
    baselines = read_json(path).get("rmse") or {}
    means = {split: (baselines.get(split) or {}).get("stage_mean") for split in rmse}
    return {split: 1 - rmse[split][1] / mean for split, mean in means.items() if mean}


def describe(status: Status) -> str:
    """Say how far a run is, in one line."""
    state = status.state
    if state in (_LEFT, _STOPPED):
        state += ": the same command goes on"
    if status.elsewhere is not None:
        state += f" by {status.elsewhere}, which cannot be asked from here"
    parts = [f"{status.name}: {state}"]
    if status.epochs:  # what is fitted at once has none
        parts.append(f"epoch {status.epoch}/{status.epochs}")
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4g}")
    for split, (epoch, value) in status.rmse.items():
        text = f"{split} RMSE {value:.4g}"
        if split in status.skill:
            text += f", skill {status.skill[split]:.2f}"
        parts.append(f"{text} (epoch {epoch})")
    if status.best is not None:
        parts.append(f"best epoch {status.best[0]}")
    if status.skipped:
        parts.append(f"{status.skipped} steps skipped (loss not finite)")
    if status.state == _TRAINING and status.seconds_left is not None:
        parts.append(f"{_duration(status.seconds_left)} left")
    if status.state != _FINISHED:
        parts.append(f"last sign of life {_duration(status.since.total_seconds())} ago")
    return "; ".join(parts)


def _duration(seconds: float) -> str:
    seconds = max(0, round(seconds))
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
