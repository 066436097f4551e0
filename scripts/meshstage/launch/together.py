"""Run several Python scripts one after the other in one job, which imports their libraries once."""

import importlib
import logging
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from itertools import groupby

from meshstage.errors import EXIT_CONTINUE_LATER
from meshstage.launch.plan import FORWARDED, describe_code, exit_code
from meshstage.launch.processes import end_with_parent, forwarding

_log = logging.getLogger(__name__)


def split_commands(words: Sequence[str], separator: str) -> list[list[str]]:
    """Split words at a separator.

    >>> split_commands(["a.py", "1", "--then", "b.py"], "--then")
    [['a.py', '1'], ['b.py']]
    """
    parts = groupby(words, lambda word: word == separator)
    return [list(part) for is_separator, part in parts if not is_separator]


def run_together(commands: Sequence[Sequence[str]], modules: Sequence[str]) -> int:
    """Run scripts one after the other, each in a fork of this process, which imports first.

    A script that fails does not stop those after it; a signal to leave does.

    Parameters
    ----------
    commands : sequence of sequences of str
        Each a script's path and its arguments.
    modules : sequence of str
        What to import before: they may start no threads.

    Returns
    -------
    int
        0, or that of `meshstage.launch.plan.exit_code` for all that failed.
    """
    for name in modules:
        importlib.import_module(name)
    forks = multiprocessing.get_context("fork")
    running: list[int] = []
    codes: list[int] = []
    with forwarding(lambda: running, FORWARDED) as received:
        for command in commands:
            if received:
                codes.append(EXIT_CONTINUE_LATER)
                break
            child = forks.Process(target=_become, args=(list(command), os.getpid()))
            child.start()
            running.append(child.pid or 0)
            child.join()
            running.clear()
            codes.append(child.exitcode or 0)
            if codes[-1]:
                _log.info("%s %s", " ".join(command), describe_code(codes[-1]))
    return exit_code(codes, received)


def _become(command: list[str], parent: int) -> None:
    """Run a script as if it were started by itself."""
    for number in FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    end_with_parent(parent)
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
