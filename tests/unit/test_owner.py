"""The lock of a run: who owns it, and when an owner is known to be gone."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshstage.errors import InputError
from meshstage.models import owner
from meshstage.models.owner import is_alive, owned, refuse_owned

SCRIPTS = Path(owner.__file__).parents[2]
# A process that owns a run until it is killed; needs neither torch nor physicsnemo.
HOLD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from meshstage.errors import InputError
from meshstage.models import owner
run, seconds, think = Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
is_alive = owner.is_alive
owner.is_alive = lambda found: (time.sleep(think), is_alive(found))[1]
print("ready", flush=True)
while think and not run.with_name("go").exists():
    pass
try:
    with owner.owned(run) as notice:
        print("owns", notice, flush=True)
        time.sleep(seconds)
except InputError as error:
    print("refused", error, flush=True)
"""


def start_holder(run: Path, seconds: float = 60, think: float = 0) -> subprocess.Popen[str]:
    """Start an owner; one that thinks for some time whether a lock's owner is gone waits to go."""
    command = [sys.executable, "-c", HOLD, str(SCRIPTS), str(run), str(seconds), str(think)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "ready\n"
    return holder


def lock(**changes):
    """Write what this very process would write, with changes."""
    return owner._this_process() | changes


@pytest.fixture
def run(tmp_path):
    return tmp_path / "model"


def write(run: Path, content: str) -> None:
    run.mkdir(exist_ok=True)
    (run / "owner.json").write_text(content)


def test_lock_is_there_while_owned_and_an_unused_folder_goes(run):
    refuse_owned(run)
    with owned(run) as notice:
        assert notice is None
        found = json.loads((run / "owner.json").read_text())
        assert (found["host"], found["pid"]) == (platform.node(), os.getpid())
    assert not run.exists()
    with owned(run):
        (run / "result").touch()
    assert [path.name for path in run.iterdir()] == ["result"]


def test_a_living_owner_is_named_and_left_alone(run, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    with owned(run):
        before = (run / "owner.json").read_text()
        with pytest.raises(InputError) as caught, owned(run):
            pass
        with pytest.raises(InputError) as at_once:
            refuse_owned(run)
        assert str(at_once.value) == str(caught.value)
        assert (run / "owner.json").read_text() == before
    text = str(caught.value)
    assert f"process {os.getpid()} on {platform.node()} (SLURM job 4711)" in text
    assert "owner.json" in text


@pytest.mark.spawn
def test_a_killed_owner_loses_the_run_with_a_notice(run):
    holder = start_holder(run)
    assert holder.stdout.readline().startswith("owns None")
    with pytest.raises(InputError, match=f"owned by process {holder.pid} "), owned(run):
        pass
    holder.kill()
    # Not waited for yet: a zombie keeps its number and owns nothing.
    deadline = time.monotonic() + 10
    while owner._start_ticks(holder.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    with owned(run) as notice:
        assert f"took the run over from process {holder.pid}" in notice
    holder.wait()


@pytest.mark.spawn
def test_of_starts_at_the_same_moment_one_owns(run):
    """All find the lock of a dead owner, and take a tenth of a second to see that it is dead."""
    write(run, json.dumps(lock(boot="another boot")))
    holders = [start_holder(run, think=0.1) for _ in range(4)]
    run.with_name("go").touch()
    said = [holder.stdout.readline().split()[0] for holder in holders]
    assert sorted(said) == ["owns"] + ["refused"] * 3
    for holder in holders:
        holder.send_signal(signal.SIGKILL)
        holder.wait()


@pytest.mark.parametrize(
    "change",
    [{"boot": "another boot"}, {"started": "17"}, {"pid": 2**22 + 1}],
    ids=["the machine was booted again", "the number is another process's", "no such process"],
)
def test_an_owner_of_this_host_that_is_gone(run, change):
    write(run, json.dumps(lock(**change)))
    refuse_owned(run)
    with owned(run) as notice:
        assert "which is gone" in notice


def test_a_lock_that_was_cut_short_names_nobody(run):
    for content in ("", '{"host": "elsew'):
        write(run, content)
        refuse_owned(run)
        with owned(run) as notice:
            assert notice is None


def test_another_host_without_a_job_cannot_be_asked():
    assert is_alive(lock(host="elsewhere", job=None)) is None


def test_this_job_on_another_host(tmp_path, monkeypatch):
    """Requeued, its first life is over; with the same count, it is another step that may live."""
    squeue = tmp_path / "squeue"
    words = "--noheader --jobs 4711 --states all --Format restartcnt"
    squeue.write_text(f'#!/bin/sh\n[ "$*" = "{words}" ] && echo "1   "\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert is_alive(lock(host="elsewhere", restart="0")) is False
    assert is_alive(lock(host="elsewhere", restart="1")) is None
    assert is_alive(lock(host="elsewhere", restart=None)) is None  # it could not be asked then
    squeue.unlink()  # SLURM does not answer: nothing is known
    for restart in (None, "0"):
        assert is_alive(lock(host="elsewhere", restart=restart)) is None


@pytest.mark.parametrize(
    ("answer", "alive"),
    [
        ("echo RUNNING", True),
        ("echo PENDING", True),
        ("echo COMPLETING", True),
        ("echo COMPLETED", False),
        ("echo TIMEOUT", False),
        ("true", False),  # SLURM has forgotten it
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", False),
        ("echo 'slurm_load_jobs error: Unable to contact controller' >&2; exit 1", None),
    ],
)
def test_squeue_says_whether_a_job_is_over(tmp_path, monkeypatch, answer, alive):
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\ncase \"$*\" in *'--jobs 12 '*) ;; *) exit 9;; esac\n{answer}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert is_alive(lock(host="elsewhere", job="12")) is alive


def test_without_squeue_a_job_is_not_known_to_be_over(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert is_alive(lock(host="elsewhere", job="12")) is None


def test_release_leaves_a_lock_that_is_somebody_elses(run):
    """Somebody deleted the lock by hand and started again: theirs must stay."""
    theirs = json.dumps(lock(pid=1, host="elsewhere"))
    with owned(run):
        write(run, theirs)
    assert (run / "owner.json").read_text() == theirs


def test_a_folder_renamed_under_way_does_not_hide_an_error(run):
    with pytest.raises(ZeroDivisionError), owned(run):
        run.rename(run.with_name("kept"))
        raise ZeroDivisionError
