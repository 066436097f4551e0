"""Names of meshes, taken apart into subject, phase and stage by a pattern of the user's."""

import re
from typing import NamedTuple

from meshstage.cohort.names import checked_id
from meshstage.errors import InputError, Problem
from meshstage.files import shorten


class MeshName(NamedTuple):
    """What a name says of a mesh; `stage` is None if the pattern has no such group."""

    subject: str
    phase: str
    stage: float | None


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with the groups ``subject`` and ``phase`` or ``stage``.

    Raises
    ------
    InputError
        If it is no regular expression, or lacks these groups.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        what = f"the pattern {pattern!r} is no regular expression ({error})"
        raise InputError(Problem(what, "mend it")) from None
    groups = set(compiled.groupindex)
    if "subject" not in groups or not groups & {"phase", "stage"}:
        what = f"the pattern {pattern!r} lacks the groups subject and phase (or stage)"
        raise InputError(Problem(what, r"write it like (?P<subject>\w+)_(?P<phase>\d+)"))
    return compiled


def split_name(pattern: re.Pattern[str], name: str) -> MeshName | None:
    """Take a whole name apart; None if the pattern does not match all of it.

    Raises
    ------
    InputError
        If the subject or phase cannot be part of a file name, or the stage is no number.
    """
    found = pattern.fullmatch(name)
    if found is None:
        return None
    groups = {key: value for key, value in found.groupdict().items() if value is not None}
    subject, stage = groups.get("subject", ""), groups.get("stage")
    phase = groups.get("phase", stage or "")
    for label, text in (("subject", subject), ("phase", phase)):
        try:
            checked_id(text)
        except ValueError as error:
            what = f"the {label} {shorten(text)!r} of {shorten(name)!r} {error}"
            raise InputError(Problem(what, "change the pattern or the name")) from None
    try:
        return MeshName(subject, phase, None if stage is None else float(stage))
    except ValueError:
        what = f"the stage {shorten(str(stage))!r} of {shorten(name)!r} is no number"
        raise InputError(Problem(what, "change the pattern or the name")) from None
