"""What a training records while it runs: log lines, ``events.jsonl`` and TensorBoard scalars."""

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from meshstage.models.names import EVENTS

_log = logging.getLogger(__name__)


class Journal:
    """Append to a run's records; silent on every rank but the first.

    Parameters
    ----------
    output : Path
        The model directory: ``events.jsonl`` and ``tensorboard/`` lie in it.
    active : bool
        False makes every call do nothing.
    first_epoch : int
        TensorBoard forgets scalars from here on, which an earlier start may have left.
    """

    def __init__(self, output: Path, active: bool, first_epoch: int) -> None:
        self._events = output / EVENTS
        self._writer: SummaryWriter | None = None
        if active:
            with _or_warn():
                self._drop_half_a_line()
                self._writer = SummaryWriter(
                    str(output / "tensorboard"), purge_step=first_epoch + 1
                )
        self._active = active

    def _drop_half_a_line(self) -> None:
        """Remove what a start that was killed, or a full disk, left of a line."""
        if self._events.exists():
            with self._events.open("r+b") as stream:
                stream.truncate(stream.read().rfind(b"\n") + 1)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer:
            with _or_warn():
                self._writer.close()

    def event(self, name: str, **fields: Any) -> None:
        """Append one line of strict JSON: a name, the time and plain values."""
        if self._active:
            line = {"event": name, "time": datetime.now(UTC).isoformat(timespec="seconds")}
            with _or_warn(), self._events.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line | fields, allow_nan=False) + "\n")

    def epoch(
        self, epoch: int, epochs: int, seconds: float, values: dict[str, float | None]
    ) -> None:
        """Record one epoch's values (None: not computed) as an event and as scalars."""
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in values.items()}
        self.event("epoch", epoch=epoch, epochs=epochs, seconds=round(seconds, 4), **finite)
        if self._writer:
            with _or_warn():
                for name, value in finite.items():
                    if value is not None:
                        self._writer.add_scalar(name, value, epoch)
                self._writer.flush()  # else up to two minutes late

    def say(self, message: str, *arguments: object) -> None:
        """Log one line."""
        if self._active:
            _log.info(message, *arguments)

    def warn(self, message: str, *arguments: object) -> None:
        """Log one warning."""
        if self._active:
            _log.warning(message, *arguments)


@contextmanager
def _or_warn() -> Iterator[None]:
    """Let no record end a training: a full disk is an error where a checkpoint is written."""
    try:
        yield
    except OSError as error:
        _log.warning("the journal cannot be written: %s", error)
