"""When to save on the way, and when to leave: signals, a time budget, a recovery interval."""

import signal
import threading
import time
from types import FrameType, TracebackType

LEAVE, SAVE = 1, 2

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_LONGEST_UNSAVED_S = 600.0
_COST_SHARE = 0.01  # of the time may go into recovery checkpoints


class Watch:
    """Watch the clock and the signals of one rank; nothing is done inside a handler.

    Parameters
    ----------
    deadline : float, optional
        Of ``time.monotonic()``, seconds: training has left by then.
    recovery_interval : int, optional
        Epochs between recovery checkpoints; by default as often as costs under 1 % of the
        time. At least every 10 minutes in any case.
    """

    def __init__(self, deadline: float | None, recovery_interval: int | None) -> None:
        self._deadline = deadline
        self._interval = recovery_interval
        self._received: str | None = None
        self._slowest = 0.0
        self._save_cost = 0.0
        self._last_save = self._last_tick = time.monotonic()
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Watch":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = signal.Signals(number).name

    def tick(self) -> None:
        """Note that a step, or an evaluation, has ended."""
        now = time.monotonic()
        self._slowest = max(self._slowest, now - self._last_tick)
        self._last_tick = now

    def saved(self, seconds: float) -> None:
        """Note that a recovery checkpoint was written, and how long it took."""
        self._save_cost = max(self._save_cost, seconds)
        self._last_save = self._last_tick = time.monotonic()

    def flags(self) -> int:
        """Say what should happen before the next step: LEAVE, SAVE, both or 0."""
        now = time.monotonic()
        unsaved = now - self._last_save
        affordable = self._save_cost / _COST_SHARE if self._interval is None else float("inf")
        flags = SAVE if unsaved >= min(_LONGEST_UNSAVED_S, max(affordable, 1.0)) else 0
        # One more step as slow as the slowest, and a save, must still fit.
        if self._received or (
            self._deadline is not None and now + self._slowest + self._save_cost >= self._deadline
        ):
            flags |= LEAVE
        return flags

    def epoch_flags(self, epoch: int) -> int:
        """Say the same after an epoch, where a fixed interval counts too."""
        due = self._interval is not None and epoch % self._interval == 0
        return self.flags() | (SAVE if due else 0)

    @property
    def reason(self) -> str:
        """Why this rank wants to leave."""
        return self._received or "the time budget"
