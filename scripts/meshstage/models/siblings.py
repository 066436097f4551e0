"""Where a resumed run goes: a numbered directory beside the one that it came from."""

from itertools import count
from pathlib import Path

from meshstage.errors import InputError
from meshstage.models.names import sibling


def output_directory(output: Path, resume_from: Path | None, number: int | None) -> Path:
    """Give the directory to train in; makes it when the next free number is asked for.

    Parameters
    ----------
    output : Path
        The directory of the run, or of the run that its siblings are called after.
    resume_from : Path, optional
        Without it the run is no sibling.
    number : int, optional
        The very sibling to use; by default the next free one.

    Raises
    ------
    InputError
        If a number is given without a checkpoint to resume from, or is below 1.
    """
    if resume_from is None:
        if number is not None:
            raise InputError(f"--sibling {number} needs --resume-from FILE")
        return output
    if number is not None:
        if number < 1:
            raise InputError(f"--sibling is {number}, siblings are numbered from 1")
        return sibling(output, number)
    output.parent.mkdir(parents=True, exist_ok=True)
    for free in count(1):
        try:
            # Making the directory is what takes the number: two at once get two.
            sibling(output, free).mkdir()
        except FileExistsError:
            continue
        return sibling(output, free)
    raise AssertionError("unreachable: count() does not end")
