"""Where a resumed run goes: a numbered directory beside the one that it came from."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from meshstage.errors import InputError
from meshstage.models.names import EVENTS, sibling


@contextmanager
def output_directory(output: Path, resume_from: Path | None, number: int | None) -> Iterator[Path]:
    """Give the directory to train in; makes it when the next free number is asked for.

    Parameters
    ----------
    output : Path
        The directory of the run, or of the run that its siblings are called after.
    resume_from : Path, optional
        Without it the run is no sibling.
    number : int, optional
        The very sibling to use; by default the next free one, which is removed again if the run
        is refused.

    Raises
    ------
    InputError
        If a number is given without a checkpoint to resume from, or is below 1.
    """
    if resume_from is None and number is not None:
        raise InputError(f"--sibling {number} needs --resume-from FILE")
    if resume_from is None:
        yield output
    elif number is None:
        directory = _next_free(output)
        try:
            yield directory
        except InputError:
            if not (directory / EVENTS).exists():  # no training has begun there
                shutil.rmtree(directory)
            raise
    elif number < 1:
        raise InputError(f"--sibling is {number}, siblings are numbered from 1")
    else:
        yield sibling(output, number)


def _next_free(output: Path) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        try:
            # Making the directory is what takes the number: two at once get two.
            sibling(output, number).mkdir()
        except FileExistsError:
            continue
        return sibling(output, number)
    raise AssertionError("unreachable: count() does not end")
