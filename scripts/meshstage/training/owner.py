"""One owner a run: a lock that names host, process and job, and that a dead owner loses."""

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from meshstage.errors import InputError, Problem

_FINISHED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
_FINISHED |= {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}


def _this_process() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "pid": os.getpid(),
        "started": _start_ticks(os.getpid()),
        "job": os.environ.get("SLURM_JOB_ID"),
    }


def _start_ticks(pid: int) -> str | None:
    """Start time of a process since boot: tells a process from a later one with its number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]  # 22nd field of proc(5); a zombie owns nothing


def _job_is_over(job: str) -> bool:
    """Whether SLURM says that a job has ended; False where it cannot be asked."""
    try:
        answer = subprocess.run(
            ["squeue", "--noheader", "--jobs", job, "--states", "all", "--format", "%T"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if answer.returncode:
        return "Invalid job id" in answer.stderr
    return set(answer.stdout.split()) <= _FINISHED


def is_gone(owner: dict[str, Any]) -> bool:
    """Whether the process that a lock names has certainly ended."""
    me = _this_process()
    if owner["host"] == me["host"]:
        return owner["boot"] != me["boot"] or _start_ticks(owner["pid"]) != owner["started"]
    if owner["job"]:
        # The same job on another host was requeued: its first life is over.
        return owner["job"] == me["job"] or _job_is_over(owner["job"])
    return False


def _parse(text: str) -> dict[str, Any] | None:
    """Read a lock; one that its owner was killed in the middle of writing names nobody."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


@contextmanager
def owned(directory: Path) -> Iterator[str | None]:
    """Own a run's folder for as long as the block lasts.

    Yields
    ------
    str or None
        A notice, if the lock was taken over from an owner that is gone.

    Raises
    ------
    InputError
        If another living process owns the run; it names host, process and job.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "owner.json"
    with _exclusive(path) as stream:
        owner = _parse(stream.read())
        if owner and not is_gone(owner):
            raise InputError(
                Problem(
                    f"this run is owned by process {owner['pid']} on {owner['host']}"
                    + (f" (SLURM job {owner['job']})" if owner["job"] else ""),
                    todo="wait for it or end it; if it is certainly gone, delete this file",
                    file=str(path),
                )
            )
        stream.seek(0)
        stream.truncate()
        json.dump(_this_process(), stream)
        stream.flush()
        os.fsync(stream.fileno())
    try:
        yield (
            f"took the run over from process {owner['pid']} on {owner['host']}, which is gone"
            if (owner)
            else None
        )
    finally:
        with _exclusive(path):
            path.unlink()
        # A run that was refused leaves no empty folder.
        with suppress(OSError):
            directory.rmdir()


@contextmanager
def _exclusive(path: Path) -> Iterator[Any]:
    """Open a file that nobody else holds open here at the same time."""
    while True:
        with path.open("a+", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            # The last owner may have removed the file between our open and our lock.
            if path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                stream.seek(0)
                yield stream
                return
