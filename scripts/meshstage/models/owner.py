"""One owner a run: a lock that names host, process and job, and that a dead owner loses."""

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
from meshstage.files import writing

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


def _job_is_over(job: str) -> bool:
    """Whether SLURM says that a job has ended; False where it cannot be asked."""
    answer = _squeue(job, "--format", "%T")
    if answer is None:
        return False
    if answer.returncode:
        return "Invalid job id" in answer.stderr
    return set(answer.stdout.split()) <= _FINISHED


def is_gone(owner: dict[str, Any]) -> bool:
    """Whether the process that a lock names has certainly ended."""
    if owner["host"] == platform.node():
        return owner["boot"] != _boot() or _start_ticks(owner["pid"]) != owner["started"]
    if not owner["job"]:
        return False
    if owner["job"] == os.environ.get("SLURM_JOB_ID"):
        # Requeued, its first life is over; else it may be another step of this job.
        lives = {owner["restart"], _restarts(owner["job"])}
        return len(lives) == 2 and None not in lives
    return _job_is_over(owner["job"])


def _parse(text: str) -> dict[str, Any] | None:
    """Read a lock; one that its owner was killed in the middle of writing names nobody."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def refuse_owned(directory: Path) -> None:
    """Say at once what ``owned`` would say, before anything that takes time.

    Raises
    ------
    InputError
        If another living process owns the run.
    """
    path = directory / "owner.json"
    owner = _parse(_read(path) or "")
    if owner and not is_gone(owner):
        raise InputError(_owned_by(owner, path))


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
    path, me = directory / "owner.json", _this_process()
    with writing(path):
        directory.mkdir(parents=True, exist_ok=True)
        with _alone_with(path) as stream:
            owner = _parse(stream.read())
            if owner and not is_gone(owner):
                raise InputError(_owned_by(owner, path))
            stream.seek(0)
            stream.truncate()
            json.dump(me, stream)
            stream.flush()
            os.fsync(stream.fileno())
    try:
        yield f"took the run over from {_name(owner)}, which is gone" if owner else None
    finally:
        # Somebody may have renamed the folder; and a run that was refused leaves no empty one.
        with suppress(OSError):
            with _alone_with(path) as stream:
                if _parse(stream.read()) in (me, None):
                    path.unlink()
            directory.rmdir()


def _name(owner: dict[str, Any]) -> str:
    job = f" (SLURM job {owner['job']})" if owner["job"] else ""
    return f"process {owner['pid']} on {owner['host']}{job}"


def _owned_by(owner: dict[str, Any], path: Path) -> Problem:
    return Problem(
        f"this run is owned by {_name(owner)}",
        todo="wait for it or end it; if it is certainly gone, delete this file",
        file=str(path),
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
