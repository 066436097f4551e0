"""Start the ranks of a training on one node: none outlives the process that started it."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from meshstage.launch import plan
from meshstage.launch.plan import Shape

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PARENT = "MESHSTAGE_LAUNCHER_PID"


def local_environment(shape: Shape, started: float) -> dict[str, str]:
    """Environment for the ranks of this node; see ``plan.environment_additions``."""
    scratch = Path(tempfile.gettempdir()) / f"meshstage-{os.getuid()}"
    n_cpus = len(os.sched_getaffinity(0))
    return plan.environment_additions(os.environ, shape, started, n_cpus, scratch)


def become(command: list[str]) -> NoReturn:
    """Replace this process by a command: signals and exit codes need no forwarding."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], command)


def children_end_with_this() -> None:
    """Let the processes that ``become_child`` makes know whose children they are."""
    os.environ[_PARENT] = str(os.getpid())


def become_child(command: list[str], death_signal: signal.Signals) -> NoReturn:
    """Replace this process by one that gets a signal when its launcher dies, however it dies.

    A rank has a session of its own, so that killing the launcher's process group does not
    reach it; left behind, it would go on training and own the run.
    """
    end_with_parent(int(os.environ[_PARENT]), death_signal)
    become(command)


def end_with_parent(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Get a signal when a parent dies, whatever it dies of."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # it died before we asked to be told


def run_torchrun(arguments: list[str]) -> int:
    """Run one node's ranks with torchrun, in this process.

    Returns
    -------
    int
        The ranks' exit code, by ``plan.exit_code``; torchrun's program makes it 1.
    """
    # Before signals are caught: an import runs programs of its own, which are no ranks.
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    children_end_with_this()
    with forwarding(_children, plan.FORWARDED) as received:
        try:
            torchrun.run(torchrun.parse_args(arguments))
        except ChildFailedError as error:
            failures = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
            for failure in failures:  # a rank that was killed leaves no other word
                ending = plan.describe_code(failure.exitcode)
                _log.info("rank %d of this node %s", failure.local_rank, ending)
            return plan.exit_code([failure.exitcode for failure in failures], received)
        except SignalException as error:
            return 128 + error.sigval
    return 0


@contextmanager
def forwarding(
    processes: Callable[[], Iterable[int]], signals: Mapping[int, int]
) -> Iterator[set[int]]:
    """Pass signals on for as long as the block lasts; gives the set of those passed on.

    Parameters
    ----------
    processes : callable
        Gives the process numbers to pass them on to. Where there is none yet, nothing has
        been trained, and this process ends.
    signals : mapping
        Which signal is passed on as which.
    """
    received: set[int] = set()

    def forward(number: int, frame: FrameType | None) -> None:
        received.add(signals[number])
        targets = list(processes())
        if not targets:
            # An exception would be lost where Python ignores them, as in a destructor.
            os._exit(plan.exit_code([-signals[number]], received))
        for pid in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signals[number])

    previous = {number: signal.signal(number, forward) for number in signals}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _children() -> list[int]:
    """List this process's children; not every kernel lists them in ``/proc/PID/task``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found
