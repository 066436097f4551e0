"""When a training saves and leaves: a clock that the tests move, and real signals."""

import os
import signal

import pytest

from meshstage.training import leaving
from meshstage.training.leaving import LEAVE, SAVE, Watch, note_signals, reason


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(leaving, "time", clock)
    return clock


def test_recovery_costs_under_one_percent_of_the_time(clock):
    """A save of 0.3 s is due every 30 s, and one of 20 s is not put off beyond 10 minutes."""
    watch = Watch(None, None)
    for cost, every in ((0.3, 30.0), (20.0, 600.0)):
        clock.now += 2000
        assert watch.flags() == SAVE
        watch.saved(cost)
        clock.now += every - 0.001
        assert watch.flags() == 0
        clock.now += 0.002
        assert watch.flags() == SAVE


def test_a_fixed_interval_counts_epochs_and_still_saves_every_ten_minutes(clock):
    watch = Watch(None, 3)
    watch.saved(0.001)
    clock.now += 599
    assert [watch.epoch_flags(epoch) for epoch in (1, 2, 3, 4)] == [0, 0, SAVE, 0]
    assert watch.flags() == 0
    clock.now += 2
    assert watch.flags() == SAVE


def test_time_budget_leaves_room_for_the_slowest_step_and_a_save(clock):
    """Steps of 2 s, one of 7 s, a save of 3 s: 10 s before the deadline is the last moment."""
    watch = Watch(clock.now + 100, 10**6)
    watch.saved(3.0)
    for seconds in (2, 7, 2):
        clock.now += seconds
        watch.tick()
    clock.now = 1000 + 89.9
    assert not watch.flags() & LEAVE
    clock.now = 1000 + 90.1
    assert reason(watch.flags()) == "the time budget"


def test_a_save_does_not_count_as_a_slow_step(clock):
    watch = Watch(clock.now + 100, 10**6)
    clock.now += 50
    watch.saved(0.0)
    clock.now += 1
    watch.tick()
    assert not watch.flags() & LEAVE  # with 50 s as slowest step it would be


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_noted_and_acted_on_later(number):
    before = signal.getsignal(number)
    with Watch(None, None) as watch:
        assert watch.flags() == 0
        os.kill(os.getpid(), number)
        assert reason(watch.flags()) == number.name
    assert signal.getsignal(number) == before
    assert Watch(None, None).flags() == 0


def test_a_signal_before_training_is_not_lost():
    before = {number: signal.getsignal(number) for number in leaving._SIGNALS}
    try:
        note_signals()
        os.kill(os.getpid(), signal.SIGUSR1)
        with Watch(None, None) as watch:
            assert watch.flags() & LEAVE
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_reasons_of_several_ranks_are_joined():
    assert reason(leaving._TERM | leaving._BUDGET | SAVE) == "SIGTERM and the time budget"
