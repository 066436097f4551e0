"""Judge a whole cohort before anything is trained: every problem of everybody, at once."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.checks.geometry import geometry_warnings
from meshstage.checks.leakage import Entry, shared_phases
from meshstage.cohort.subject import load_record
from meshstage.cohort.subject_record import SubjectRecord
from meshstage.cohort.template import Template
from meshstage.config.networks import needs_edges, needs_tetrahedra
from meshstage.config.subjects import SubjectRow
from meshstage.errors import Problem, collecting
from meshstage.files import real_path
from meshstage.mechanics.elements import find_tetrahedra

# A phase this many times larger than the usual one is a unit or a typing error, not a motion.
FAR_OUTSIDE = 100.0


@dataclass(frozen=True)
class Report:
    """What was checked and what was found.

    Parameters
    ----------
    template : str
        File of the template.
    network : str, optional
        The networks and loss terms that the cohort was checked for, with commas between.
    n_subjects : dict of str to int
        By split.
    n_phases : int
    problems : list of Problem
        Errors first, each kind in the order of the table.
    """

    template: str
    network: str | None
    n_subjects: dict[str, int]
    n_phases: int
    problems: list[Problem]

    @property
    def n_errors(self) -> int:
        """Number of problems that are errors."""
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def n_warnings(self) -> int:
        """Number of problems that are warnings."""
        return len(self.problems) - self.n_errors


def check_cohort(
    template: Template,
    entries: Sequence[Entry],
    table: Path | None = None,
    network: str | None = None,
    more: Sequence[Problem] = (),
) -> Report:
    """Collect every problem of a cohort.

    Parameters
    ----------
    template : Template
    entries : sequence of Entry
        One per row of the table, in its order; a manifest that stands twice comes twice.
    table : Path, optional
        The table of subjects; without it nothing is known of splits.
    network : str, optional
        Names of networks and loss terms, with commas between. A template without edges is an
        error for a network on a graph; a strain energy needs tetrahedra, and targets that are
        displacements.
    more : sequence of Problem
        What was found before there were entries.
    """
    unique = list({_manifest_key(entry): entry for entry in reversed(entries)}.values())[::-1]
    problems = [
        *more,
        *_template_problems(template, network),
        *(_physics_problems(unique, template) if needs_tetrahedra(network or "") else ()),
        *_count_problem(unique, template),
        *_table_problems(entries, table),
        *_id_problems(unique),
        *(p for entry in unique for p in (*entry.record.errors, *entry.record.warnings)),
        *(p for entry in unique for p in _ingested_problems(entry, template)),
        *_difference_problems(unique),
        *_first_modes_warning(unique, template),
        *shared_phases(unique, template),
        *geometry_warnings(unique, template),
        *_outliers(unique),
        *_score_warnings([entry for entry in unique if entry.split == "train"], table),
    ]
    return Report(
        template=template.source,
        network=network,
        n_subjects=dict(Counter(entry.split or "unknown" for entry in unique)),
        n_phases=sum(len(entry.record.phases) for entry in unique),
        problems=sorted(dict.fromkeys(problems), key=lambda problem: problem.severity),
    )


def _manifest_key(entry: Entry) -> str:
    return real_path(Path(entry.record.manifest))


def _template_problems(template: Template, network: str | None) -> Iterator[Problem]:
    no_edges = not len(template.pairs)
    for warning in template.warnings:
        yield Problem(
            what=warning,
            todo="use a mesh with cells, or the network mlp" if no_edges else "check the mesh",
            file=template.source,
            severity="error" if no_edges and needs_edges(network or "") else "warning",
        )


def _physics_problems(entries: Sequence[Entry], template: Template) -> Iterator[Problem]:
    """Find what has no strain energy."""
    problems: list[Problem] = []
    with collecting(problems):
        find_tetrahedra(template.cells, Path(template.source))
    yield from problems
    for entry in entries:
        if entry.record.is_displacement is False and not entry.record.errors:
            yield Problem(
                what=f"the target {entry.record.target_array!r} is not phase minus reference, so "
                "it strains no body",
                todo="use network mgn",
                file=entry.record.manifest,
                subject=entry.record.label,
            )


def _count_problem(entries: Sequence[Entry], template: Template) -> Iterator[Problem]:
    """Blame the template where all meshes agree with each other, and not with it."""
    counts = {phase.n_points for entry in entries for phase in entry.record.phases} - {None}
    volume = {template.surface.source_n_points} if template.surface else set()
    if len(counts) == 1 and not counts & ({template.n_points} | volume):
        yield Problem(
            what=f"the template has {template.n_points} points, every phase mesh of the cohort "
            f"that could be read has {counts.pop()}",
            todo="name the template that the meshes were made from",
            file=template.source,
        )


def _table_problems(entries: Sequence[Entry], table: Path | None) -> Iterator[Problem]:
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(_manifest_key(entry), entry)
        if other is not entry and entry.row and other.row:
            yield Problem(
                what=f"the manifest stands twice in {table or 'the list'}: "
                f"at line {other.row.line} ({other.split}) "
                f"and at line {entry.row.line} ({entry.split})",
                todo="remove one of the two lines",
                file=entry.record.manifest,
                subject=entry.record.label,
            )
    if table and not any(entry.split == "train" for entry in entries):
        yield Problem("no subject is in the split train", "give one that split", str(table))


def _loose(subject_id: str) -> str:
    """Give an id without what people do not see: case, accents' form, spaces, zero width."""
    seen = "".join(c for c in subject_id if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFC", seen).casefold().split())


def _id_problems(entries: Sequence[Entry]) -> Iterator[Problem]:
    first: dict[str, SubjectRecord] = {}
    for entry in entries:
        record = entry.record
        if record.id is None:
            continue
        other = first.setdefault(_loose(record.id), record)
        if other is record:
            continue
        what = (
            f"the subject_id {record.id!r} is used twice: {other.manifest} has it already"
            if other.id == record.id
            else f"the subject_id {record.id!r} differs from {other.id!r} of {other.manifest} "
            "only in case, spaces or the form of accents"
        )
        yield Problem(what, "give each subject an id of its own", record.manifest, record.label)


def _ingested_problems(entry: Entry, template: Template) -> Iterator[Problem]:
    if entry.record.template_fingerprint != template.fingerprint:
        yield Problem(
            what="was ingested with another template",
            todo="ingest the subject again",
            file=entry.record.manifest,
            subject=entry.record.label,
        )


def _odd_ones(
    entries: Sequence[Entry], value_of: Callable[[SubjectRecord], Any]
) -> Iterator[tuple[SubjectRecord, Any, Any]]:
    """Find subjects that differ from the usual, the training subjects' if there are any.

    Yields record, its value and the usual one; a value that is None or zero is not known.
    """
    values = [(entry, value_of(entry.record)) for entry in entries]
    values = [(entry, value) for entry, value in values if value]
    train = [value for entry, value in values if entry.split == "train"]
    counts = Counter(train or [value for _, value in values]).most_common(1)
    for entry, value in values:
        if value != counts[0][0]:
            yield entry.record, value, counts[0][0]


def _difference_problems(entries: Sequence[Entry]) -> Iterator[Problem]:
    todo = "make all subjects alike"
    for record, own, usual in _odd_ones(entries, lambda r: r.target_array):
        what = f"target_array is {own!r}, in the other subjects {usual!r}"
        yield Problem(what, todo, record.manifest, record.label)
    for record, own, usual in _odd_ones(entries, lambda r: r.n_target):
        what = f"the target {record.target_array!r} has {own} components, in the others {usual}"
        yield Problem(what, todo, record.manifest, record.label)
    for record, own, usual in _odd_ones(entries, lambda r: len(r.shape_scores)):
        if all(error.file != record.shape_scores_file for error in record.errors):
            what = f"has {own} shape scores, the other subjects have {usual}"
            yield Problem(what, todo, record.shape_scores_file, record.label)
    yield from _displacement_warnings([e.record for e in entries if not e.record.errors])


def _first_modes_warning(entries: Sequence[Entry], template: Template) -> Iterator[Problem]:
    """Say once that all subjects have scores of the first modes only."""
    model, counts = template.shape_model, {len(e.record.shape_scores) for e in entries} - {0}
    if model and template.surface is None and len(counts) == 1:
        count = counts.pop()
        if count < model.n_modes:
            yield Problem(
                f"all subjects have {count} shape scores, pca_model.json has {model.n_modes} "
                f"modes: the first {count} are meant",
                "nothing, if that is what you mean",
                template.source,
                severity="warning",
            )


def _displacement_warnings(records: Sequence[SubjectRecord]) -> Iterator[Problem]:
    still = [record for record in records if not record.is_displacement]
    if still and len(still) < len(records):
        yield Problem(
            what=f"in {len(still)} of {len(records)} subjects the targets are not "
            "phase - reference: there no meshes are moved and no surface or volume is judged",
            todo="check these subjects, if the targets should be displacements",
            file=still[0].manifest,
            subject=still[0].label,
            severity="warning",
        )


def _outliers(entries: Sequence[Entry]) -> Iterator[Problem]:
    phases = [(entry.record, phase) for entry in entries for phase in entry.record.phases]
    values = [p.max_abs_target for _, p in phases if p.max_abs_target]
    usual = float(np.median(values)) if values else 0.0
    for record, phase in phases:
        if phase.max_abs_target and phase.max_abs_target > FAR_OUTSIDE * usual:
            yield Problem(
                what=f"the largest value of {record.target_array!r} is {phase.max_abs_target:g}, "
                f"far outside the rest (the median of all phases' largest is {usual:g})",
                todo="check this phase: all errors are weighed against the largest value",
                file=phase.mesh,
                subject=record.label,
                phase=f"{phase.index}",
                severity="warning",
            )


def _score_warnings(train: Sequence[Entry], table: Path | None) -> Iterator[Problem]:
    scores = [entry.record.shape_scores for entry in train if entry.record.shape_scores]
    if not scores or len({len(row) for row in scores}) > 1:
        return
    file = str(table) if table else None
    warn = Problem("", "nothing, if that is what you mean", file, severity="warning")
    if len(scores) == 1:
        what = (
            "only one training subject has shape scores: every shape score (pca coefficient) is "
            "constant, its standard deviation 0"
        )
        label = next(entry.record.label for entry in train if entry.record.shape_scores)
        yield replace(warn, what=what, subject=label)
        return
    values = np.array(scores)
    for mode in np.flatnonzero(np.ptp(values, axis=0) <= 1e-12 * np.abs(values).max(axis=0)):
        what = f"shape score (pca coefficient) {mode} never varies: it is {values[0, mode]:g}"
        yield replace(warn, what=f"{what} in all {len(scores)} training subjects")


def ingested_entries(
    directories: Sequence[Path], rows: Sequence[SubjectRow] | None
) -> tuple[list[Entry], list[Problem]]:
    """Load what ingest recorded and match it to the rows of the table.

    Parameters
    ----------
    directories : sequence of Path
        Of ingested subjects, with or without recorded errors.
    rows : sequence of SubjectRow, optional

    Returns
    -------
    entries : list of Entry
        In the rows' order.
    problems : list of Problem
        Folders that cannot be loaded, and rows that have none.
    """
    records: dict[str, SubjectRecord] = {}
    problems: list[Problem] = []
    for directory in directories:
        with collecting(problems):
            record = load_record(directory)
            records.setdefault(real_path(Path(record.manifest)), record)
    if rows is None:
        return [Entry(None, record) for record in records.values()], problems
    entries = []
    for row in rows:
        found = records.get(real_path(row.manifest))
        if found:
            entries.append(Entry(row, found))
        elif not problems:
            what = f"line {row.line} of the table has no ingested subject"
            problems.append(Problem(what, "ingest it, and name its folder", str(row.manifest)))
    return entries, problems
