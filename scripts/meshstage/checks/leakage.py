"""Data that stand under two subjects: the same file, the same bytes, the same numbers."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshstage.cohort.subject_record import PhaseRecord, SubjectRecord
from meshstage.cohort.template import Template
from meshstage.config.subjects import SubjectRow
from meshstage.errors import Problem
from meshstage.files import real_path

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
        ("are the same file", _equal(phases, lambda p: real_path(Path(p.mesh)))),
        ("are byte for byte the same file", _same_bytes(phases, template)),
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


def _equal(phases: Phases, key: Callable[[PhaseRecord], Hashable]) -> Matches:
    """Pair each phase with the first one of the same key; None is no key."""
    first: dict[Hashable, tuple[int, PhaseRecord]] = {}
    for item in phases:
        value = key(item[1])
        if value is not None:
            other = first.setdefault(value, item)
            if other is not item:
                yield other, item


def _same_bytes(phases: Phases, template: Template) -> Matches:
    def key(phase: PhaseRecord) -> Hashable:
        return None if phase.crc32 is None else (phase.size_bytes, phase.crc32)

    for one, other in _equal(phases, key):
        unread = one[1].content is None or other[1].content is None
        # 32 bits alone agree by chance in a large cohort; then the points do not.
        if unread or _close(one[1], other[1], template, columns=3):
            yield one, other


def _alike(phases: Phases, template: Template) -> Matches:
    """Pair phases whose sums of points and targets differ by no more than rounding."""
    usable = [item for item in phases if item[1].content is not None]
    usable.sort(key=lambda item: _first_sum(item[1]))
    matched: set[int] = set()
    for k, item in enumerate(usable):
        if k in matched:  # what is like it has been found by what it is like
            continue
        limit = _first_sum(item[1]) + _tolerance(item[1], template)
        for m in range(k + 1, len(usable)):
            other = usable[m]
            if _first_sum(other[1]) > limit:
                break
            if _close(item[1], other[1], template):
                matched.add(m)
                yield item, other


def _first_sum(phase: PhaseRecord) -> float:
    assert phase.content is not None, "only phases with content are sorted"
    return phase.content[0][0]


def _tolerance(phase: PhaseRecord, template: Template) -> float:
    # 3e-6 of the size: text of 6 digits; 3e-8 of the coordinates: float32 far from zero.
    return max(3e-6 * template.diagonal, 3e-8 * (phase.extent or 0.0))


def _close(
    one: PhaseRecord, other: PhaseRecord, template: Template, columns: int | None = None
) -> bool:
    a, b = (np.array(phase.content)[:, :columns] for phase in (one, other))
    return a.shape == b.shape and float(np.abs(a - b).max()) <= _tolerance(one, template)
