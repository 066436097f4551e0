"""One owner per run: a lock that names host, process and job, and that a dead owner loses."""

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from meshstage.errors import InputError, Problem
from meshstage.files import sync, writing
from meshstage.models.names import OWNER

_FINISHED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
_FINISHED |= {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}


def _this_process() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "boot": _boot(),
        "pid": os.getpid(),
        "started": _start_ticks(os.getpid()),
        "job": (job := os.environ.get("SLURM_JOB_ID")),
        "restart": job and _restarts(job),
    }


def _read(path: Path) -> str | None:
    """Read a file of the kernel; None where there is none (another system than Linux)."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _boot() -> str | None:
    return _read(Path("/proc/sys/kernel/random/boot_id"))


def _start_ticks(pid: int) -> str | None:
    """Start time of a process since boot: tells a process from a later one with its number."""
    stat = _read(Path(f"/proc/{pid}/stat"))
    if stat is None:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]  # 22nd field of proc(5); a zombie owns nothing


def _squeue(job: str, *options: str) -> subprocess.CompletedProcess[str] | None:
    """Ask SLURM about a job; None where there is no SLURM, or no answer."""
    command = ["squeue", "--noheader", "--jobs", job, "--states", "all", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _restarts(job: str) -> str | None:
    """How often a job was requeued; Snakemake takes SLURM's own variable away."""
    answer = _squeue(job, "--Format", "restartcnt")
    return answer.stdout.strip() or None if answer else None


def _job_is_running(job: str) -> bool | None:
    """Whether SLURM says that a job has not ended; None if it does not answer."""
    answer = _squeue(job, "--format", "%T")
    if answer is None:
        return None
    if answer.returncode:
        return False if "Invalid job id" in answer.stderr else None
    return not set(answer.stdout.split()) <= _FINISHED


def is_alive(owner: dict[str, Any]) -> bool | None:
    """Whether the process that a lock names still runs; None if that cannot be known here."""
    if owner["host"] == platform.node():
        return owner["boot"] == _boot() and _start_ticks(owner["pid"]) == owner["started"]
    if not owner["job"]:
        return None
    if owner["job"] == os.environ.get("SLURM_JOB_ID"):
        # Requeued, its first life is over; else it may be another step of this job.
        lives = {owner["restart"], _restarts(owner["job"])}
        return False if len(lives) == 2 and None not in lives else None
    return _job_is_running(owner["job"])


def _parse(text: str) -> dict[str, Any] | None:
    """Read a lock; one that its owner was killed in the middle of writing names nobody."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def read_owner(directory: Path) -> dict[str, Any] | None:
    """Read who owns a run's folder, living or not; None if nobody does."""
    return _parse(_read(directory / OWNER) or "")


def refuse_owned(directory: Path) -> None:
    """Say at once what ``owned`` would say, before anything that takes time.

    Raises
    ------
    InputError
        If another living process owns the run.
    """
    if owner := read_owner(directory):
        _refuse_living(owner, directory / OWNER)


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
    path, me = directory / OWNER, _this_process()
    with writing(path):
        directory.mkdir(parents=True, exist_ok=True)
        with _alone_with(path) as stream:
            owner = _parse(stream.read())
            if owner:
                _refuse_living(owner, path)
            stream.seek(0)
            stream.truncate()
            json.dump(me, stream)
            stream.flush()
            sync(stream.fileno())
    try:
        yield f"took the run over from {name_of(owner)}, which is gone" if owner else None
    finally:
        # Somebody may have renamed the folder; and a run that was refused leaves no empty one.
        with suppress(OSError):
            with _alone_with(path) as stream:
                if _parse(stream.read()) in (me, None):
                    path.unlink()
            directory.rmdir()


def name_of(owner: dict[str, Any]) -> str:
    """Name an owner for people: process, host and SLURM job."""
    job = f" (SLURM job {owner['job']})" if owner["job"] else ""
    return f"process {owner['pid']} on {owner['host']}{job}"


def _refuse_living(owner: dict[str, Any], path: Path) -> None:
    if is_alive(owner) is False:
        return
    raise InputError(
        Problem(
            f"this run is owned by {name_of(owner)}",
            todo="wait for it or end it; if it is certainly gone, delete this file",
            file=str(path),
        )
    )


@contextmanager
def _alone_with(path: Path) -> Iterator[TextIO]:
    """Open a file that nobody else holds open here at the same time."""
    while True:
        with path.open("a+", encoding="utf-8") as stream:
            # Some cluster file systems have no locks: then two starts within microseconds of
            # each other can meet.
            with suppress(OSError):
                fcntl.flock(stream, fcntl.LOCK_EX)
            if _is_at(path, stream):
                stream.seek(0)
                yield stream
                return


def _is_at(path: Path, stream: TextIO) -> bool:
    """Whether an open file still has its name: the last owner may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False
