"""When to save on the way, and when to leave: signals, a time budget, a recovery interval."""

import signal
import threading
import time
from types import FrameType, TracebackType

# Bits, which ranks join.
SAVE, _TERM, _USR1, _BUDGET = 1, 2, 4, 8
LEAVE = _TERM | _USR1 | _BUDGET
_SIGNALS = {signal.SIGTERM: _TERM, signal.SIGUSR1: _USR1}

_LONGEST_UNSAVED_S = 600.0
_COST_SHARE = 0.01  # of the time may go into recovery checkpoints

_received = 0


def note_signals() -> None:
    """Note SIGTERM and SIGUSR1 from now on, for a Watch to act on: nothing else is done then."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _note)


def _note(number: int, frame: FrameType | None) -> None:
    global _received
    _received |= _SIGNALS[signal.Signals(number)]


def reason(flags: int) -> str:
    """Say why ranks leave."""
    names = {_TERM: "SIGTERM", _USR1: "SIGUSR1", _BUDGET: "the time budget"}
    return " and ".join(name for bit, name in names.items() if flags & bit)


class Watch:
    """Watch the clock and the signals of one rank.

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
        self._slowest = 0.0
        self._save_cost = 0.0
        self._last_save = self._last_tick = time.monotonic()
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def __enter__(self) -> "Watch":
        note_signals()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _received
        _received = 0
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._previous.items():
                signal.signal(number, handler)

    def tick(self) -> None:
        """Note that a step has ended."""
        now = time.monotonic()
        self._slowest = max(self._slowest, now - self._last_tick)
        self._last_tick = now

    def saved(self, seconds: float) -> None:
        """Note that a recovery checkpoint was written, and how long it took."""
        self._save_cost = max(self._save_cost, seconds)
        self._last_save = self._last_tick = time.monotonic()

    def flags(self) -> int:
        """Say what should happen before the next step: SAVE, a part of LEAVE, both or 0."""
        now = time.monotonic()
        affordable = self._save_cost / _COST_SHARE if self._interval is None else float("inf")
        # Before the first save its cost is not known: a second of training can be lost.
        due = now - self._last_save >= min(_LONGEST_UNSAVED_S, max(affordable, 1.0))
        flags = _received | (SAVE if due else 0)
        # One more step as slow as the slowest, and a save, must still fit.
        if self._deadline and now + self._slowest + self._save_cost >= self._deadline:
            flags |= _BUDGET
        return flags

    def epoch_flags(self, epoch: int) -> int:
        """Say the same after an epoch, where a fixed interval counts too."""
        due = self._interval is not None and epoch % self._interval == 0
        return self.flags() | (SAVE if due else 0)
