"""What goes wrong because of an input: problems, each with a place and a remedy."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

Severity = Literal["error", "warning"]

EXIT_BAD_INPUT = 2
EXIT_CONTINUE_LATER = 75  # EX_TEMPFAIL of sysexits.h: run the same command again


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one input.

    Parameters
    ----------
    what : str
        What is wrong: a clause with the offending value in it, without a full stop.
    todo : str
        What the user can do about it, a clause in the imperative.
    file : str, optional
        The file that it concerns, as a path that the user can open.
    subject : str, optional
        The subject's id, or the name of its manifest's folder if the id is not usable.
    phase : str, optional
        ``"2 (stage 0.4)"``: index in the manifest, from 0, and stage where it is known.
    severity : "error" or "warning"
        An error ends the job; a warning is counted and shown.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for the JSON files that hold problems

    what: str
    todo: str = ""
    file: str | None = None
    subject: str | None = None
    phase: str | None = None
    severity: Severity = "error"

    def at(
        self, file: object = None, subject: str | None = None, phase: str | None = None
    ) -> "Problem":
        """Give the problem a place; what it says of its place itself stays."""
        return replace(
            self,
            file=self.file or (None if file is None else str(file)),
            subject=self.subject or subject,
            phase=self.phase or phase,
        )

    def sentence(self) -> str:
        """Say where (file, subject, phase), what is wrong and what to do, as one sentence."""
        where = ", ".join(
            part
            for part in (
                self.file,
                self.subject and f"subject {self.subject}",
                self.phase and f"phase {self.phase}",
            )
            if part
        )
        text = (f"{where}: " if where else "") + self.what + (f"; {self.todo}" if self.todo else "")
        return one_line(text)


def one_line(text: str) -> str:
    r"""Escape what would break a line or a terminal (a line feed is shown as ``\n``)."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


class InputError(ValueError):
    """Input that cannot be used; scripts print its sentence and exit with code 2.

    Parameters
    ----------
    *problems : Problem or str
        At least one. Reading functions collect all that they find in one input, so that a
        caller that lists problems sees each of them.
    table : str
        Lines to print below the sentence.
    """

    def __init__(self, *problems: Problem | str, table: str = "") -> None:
        assert problems, "an InputError needs at least one problem"
        self.problems = [Problem(what=p) if isinstance(p, str) else p for p in problems]
        self.table = table
        more = len(self.problems) - 1
        super().__init__(
            self.problems[0].sentence()
            + (f" (and {more} more problem{'s' if more > 1 else ''})" if more else "")
            + (f"\n{table}" if table else "")
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the problems themselves: an error travels from one rank to the others."""
        return partial(InputError, table=self.table), tuple(self.problems)


class ContinueLater(Exception):
    """Training left before its end, with everything saved; scripts exit with code 75."""


@contextmanager
def at(file: object = None, subject: str | None = None, phase: str | None = None) -> Iterator[None]:
    """Add file, subject and phase to problems of an `InputError` that do not name their own."""
    try:
        yield
    except InputError as error:
        placed = (problem.at(file, subject, phase) for problem in error.problems)
        raise InputError(*placed, table=error.table) from error


@contextmanager
def collecting(problems: list[Problem]) -> Iterator[None]:
    """Append the problems of an `InputError` to a list, and go on after the block."""
    try:
        yield
    except InputError as error:
        problems += error.problems


def raise_if_any(problems: Iterable[Problem]) -> None:
    """Raise one InputError with all problems that are errors; warnings pass."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise InputError(*errors)
