"""Data that stand under two subjects: the same file, the same bytes, the same numbers."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshstage.errors import Problem
from meshstage.examine import PhaseRecord, SubjectRecord
from meshstage.subjects_table import SubjectRow
from meshstage.template import Template

Pair = tuple[int, int]


@dataclass(frozen=True)
class Entry:
    """One subject of the cohort: its row of the table, if there is one, and its record."""

    row: SubjectRow | None
    record: SubjectRecord

    @property
    def split(self) -> str | None:
        """Split of the row."""
        return self.row.split if self.row else None

    @property
    def named(self) -> str:
        """Subject and split, for people."""
        return self.record.label + (f" ({self.split})" if self.split else "")


def shared_phases(entries: Sequence[Entry], template: Template) -> Iterator[Problem]:
    """Find phases that two subjects share, by file, by bytes, or by points and targets.

    An error if the two are in different splits (what is evaluated was trained on), or if all
    phases of one are the other's (one subject under two names); else a warning.

    Parameters
    ----------
    entries : sequence of Entry
        Of different manifests.
    template : Template
        Its size says which differences rounding can explain.
    """
    phases = [(n, phase) for n, entry in enumerate(entries) for phase in entry.record.phases]
    found: dict[Pair, dict[int, tuple[PhaseRecord, PhaseRecord, str]]] = defaultdict(dict)
    for how, pairs in (
        ("are the same file", _equal(phases, lambda p: str(Path(p.mesh).resolve()))),
        ("are byte for byte the same file", _equal(phases, lambda p: p.sha256)),
        ("hold the same points and targets", _alike(phases, template)),
    ):
        for (n, one), (m, other) in pairs:
            if n != m:
                (n, one), (m, other) = sorted([(n, one), (m, other)], key=lambda item: item[0])
                found[n, m].setdefault(other.index, (one, other, how))
    for (n, m), shared in sorted(found.items()):
        yield _problem(entries[n], entries[m], list(shared.values()))


def _problem(
    first: Entry, second: Entry, shared: list[tuple[PhaseRecord, PhaseRecord, str]]
) -> Problem:
    one, other, how = shared[0]
    total = len(second.record.phases)
    whole = len(shared) == min(total, len(first.record.phases))
    leak = first.split != second.split
    what = (
        f"{len(shared)} of {total} phases of {second.named} and of {first.named} {how}: "
        f"{one.mesh} and {other.mesh}"
    )
    return Problem(
        what=f"leakage between splits, {what}" if leak else what,
        todo="leave the copy out" if whole else "leave these phases out of one of the two",
        file=other.mesh,
        subject=second.record.label,
        phase=str(other.index) if len(shared) == 1 else None,
        severity="error" if leak or whole else "warning",
    )


Phases = Sequence[tuple[int, PhaseRecord]]
Matches = Iterator[tuple[tuple[int, PhaseRecord], tuple[int, PhaseRecord]]]


def _equal(phases: Phases, key: Callable[[PhaseRecord], str | None]) -> Matches:
    """Pair each phase with the first one of the same key."""
    first: dict[str, tuple[int, PhaseRecord]] = {}
    for item in phases:
        value = key(item[1])
        if value is not None:
            other = first.setdefault(value, item)
            if other is not item:
                yield other, item


def _alike(phases: Phases, template: Template) -> Matches:
    """Pair phases whose sums of points and targets differ by no more than rounding."""
    usable = [item for item in phases if item[1].content is not None]
    usable.sort(key=lambda item: (item[1].content or [0.0])[0])
    for k, item in enumerate(usable):
        sums = np.array(item[1].content)
        # 3e-6 of the size: text of 6 digits; 3e-8 of the coordinates: float32 far from zero.
        tolerance = max(3e-6 * template.diagonal, 3e-8 * (item[1].extent or 0.0))
        for other in usable[k + 1 :]:
            others = np.array(other[1].content)
            if others[0] - sums[0] > tolerance:
                break
            if len(others) == len(sums) and np.abs(others - sums).max() <= tolerance:
                yield item, other
