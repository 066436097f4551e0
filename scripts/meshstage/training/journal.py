"""What a training tells while it runs: log lines, ``events.jsonl`` and TensorBoard scalars."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from torch.utils.tensorboard import SummaryWriter

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
        self._events = output / "events.jsonl"
        self._writer = (
            SummaryWriter(str(output / "tensorboard"), purge_step=first_epoch + 1)
            if active
            else None
        )

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer:
            self._writer.close()

    def event(self, name: str, **fields: Any) -> None:
        """Append one line of strict JSON: a name, the time and plain values."""
        if self._writer:
            line = {"event": name, "time": datetime.now(UTC).isoformat(timespec="seconds")}
            with self._events.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line | fields, allow_nan=False) + "\n")

    def epoch(
        self, epoch: int, epochs: int, seconds: float, values: dict[str, float | None]
    ) -> None:
        """Record one epoch's values (None: not computed) as an event and as scalars."""
        self.event("epoch", epoch=epoch, epochs=epochs, seconds=round(seconds, 4), **values)
        if self._writer:
            for name, value in values.items():
                if value is not None:
                    self._writer.add_scalar(name, value, epoch)

    def say(self, message: str, *arguments: object) -> None:
        """Log one line."""
        if self._writer:
            _log.info(message, *arguments)

    def warn(self, message: str, *arguments: object) -> None:
        """Log one warning."""
        if self._writer:
            _log.warning(message, *arguments)
