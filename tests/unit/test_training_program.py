"""A training as a process: signals, kills, a second start, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from test_training_exact import assert_equal_models
from torch import Tensor

import train_command
from meshstage.config.networks import NETWORKS
from meshstage.training import leaving
from small_training import TrainSmall, arguments, run

pytestmark = pytest.mark.spawn
EPOCHS = 30


def start(cohort, output: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments(cohort, output, f"--epochs={EPOCHS}", *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def notes_signals(process: subprocess.Popen[str]) -> bool:
    """Whether a process has a handler for SIGUSR1, by proc(5)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGUSR1 - 1) & 1)


def events(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "events.jsonl").open()]


def n_steps(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_life_with_signals_and_a_kill(tiny_cohort, tmp_path):
    """One run of 120 steps through five starts, compared with one in one go."""
    output, steps = tmp_path / "model", tmp_path / "steps"
    slow = {"STEP_SECONDS": "0.05", "TELL_STEPS": str(steps)}

    # It would take 4 minutes: it is still there when the second has imported everything.
    first = start(tiny_cohort, output, **slow | {"STEP_SECONDS": "2"})
    wait_until(lambda: n_steps(steps) >= 2, first)
    second = start(tiny_cohort, output)
    said, _ = second.communicate(timeout=200)
    assert second.returncode == 2
    assert f"error: {output / 'owner.json'}: this run is owned by process {first.pid} on" in said
    assert "Traceback" not in said
    sent = time.time()
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate(timeout=60)
    assert (first.returncode, "leaving for SIGTERM" in said) == (75, True), said
    # A step of 2 s and a save, on a machine that may be busy.
    left = datetime.fromisoformat(events(output)[-1]["time"]).timestamp()
    assert left - sent < 8

    before = n_steps(steps)
    third = start(tiny_cohort, output, **slow)
    wait_until(lambda: n_steps(steps) >= before + 2, third)
    third.kill()
    third.communicate()

    # The signal comes while it imports, and there is no time: answered before the first step.
    fourth, before = start(tiny_cohort, output, "--time-budget=0.0001", **slow), n_steps(steps)
    wait_until(lambda: notes_signals(fourth), fourth)
    fourth.send_signal(signal.SIGUSR1)
    said, _ = fourth.communicate(timeout=200)
    assert fourth.returncode == 75 and "leaving for SIGUSR1 and the time budget" in said, said
    assert f"took the run over from process {third.pid}" in said
    assert n_steps(steps) == before

    fifth = start(tiny_cohort, output, "--time-budget=0")
    said, _ = fifth.communicate(timeout=200)
    assert fifth.returncode == 0, said
    assert not list(output.glob("traceback*")) and not (output / "owner.json").exists()
    run(TrainSmall(), tiny_cohort, tmp_path / "straight", epochs=EPOCHS)
    assert_equal_models(tmp_path / "straight", output, "mlp")
    reasons = [event["reason"] for event in events(output) if event["event"] == "leave"]
    assert reasons == ["SIGTERM", "SIGUSR1 and the time budget"]

    again = start(tiny_cohort, output)
    said, _ = again.communicate(timeout=200)
    assert (again.returncode, "complete, nothing to train" in said) == (0, True)
    other = start(tiny_cohort, output, "--epochs=31")
    said, _ = other.communicate(timeout=200)
    assert other.returncode == 2
    assert said.count("\n") == 1 and "epochs was 30 and is 31" in said
    assert_equal_models(tmp_path / "straight", output, "mlp")


def test_the_longest_time_between_saves_is_ten_minutes():
    """Of the issue: by default, and with any interval."""
    assert leaving._LONGEST_UNSAVED_S == 600
    assert leaving._COST_SHARE == 0.01


def test_out_of_gpu_memory_says_what_to_lower(tiny_cohort, tmp_path, monkeypatch, capsys):
    def full(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(TrainSmall, "_compute_loss", full)
    monkeypatch.setattr(sys, "argv", arguments(tiny_cohort, tmp_path / "m", "--batch-size=6"))
    with pytest.raises(SystemExit) as left:
        train_command.run("small", NETWORKS["mlp"], TrainSmall)
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "error: out of GPU memory with batch size 6: lower --batch-size" in said
    assert "--num-processor-checkpoint-segments" in said and "Traceback" not in said
