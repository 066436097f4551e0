"""Check a cohort straight from other people's files, in parallel, without writing anything."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from meshstage.checks.cohort import Report, check_cohort
from meshstage.checks.leakage import Entry
from meshstage.cohort.examine import Examination, examine_subject, subject_record
from meshstage.cohort.manifest import Draft, draft_manifest
from meshstage.cohort.subject_record import SubjectRecord
from meshstage.cohort.template import Edges, Template, prepare_template
from meshstage.config.subjects import SubjectRow, read_subjects_table
from meshstage.errors import Problem, collecting
from meshstage.files import real_path


def check_files(
    mesh_path: Path,
    table: Path,
    surface: bool = False,
    edges: Edges = "cells",
    network: str | None = None,
    jobs: int = 1,
) -> Report:
    """Check a cohort before anything of it has been ingested.

    Parameters
    ----------
    mesh_path : Path
        The template.
    table : Path
        The table of subjects.
    surface, edges
        As in `prepare_template`.
    network : str, optional
        As in `check_cohort`.
    jobs : int
        Processes that read; with 1, this one.

    Returns
    -------
    Report
        Never raises for bad input: a template or table that cannot be read is a problem too.
    """
    problems: list[Problem] = []
    rows: list[SubjectRow] = []
    template = None
    with collecting(problems):
        rows = read_subjects_table(table)
    with collecting(problems):
        template, _, faults = prepare_template(mesh_path, surface, edges)
        problems += faults
    if template is None or not rows:
        # Without a template no mesh can be judged, but every manifest can.
        problems += [p for row in rows for p in draft_manifest(row.manifest).problems]
        return Report(str(mesh_path), network, {}, 0, problems)
    written = {real_path(row.manifest): row.manifest for row in reversed(rows)}
    records = dict(zip(written, _examine(list(written.values()), template, jobs), strict=True))
    entries = [Entry(row, records[real_path(row.manifest)]) for row in rows]
    return check_cohort(template, entries, table, network, problems)


def _examine(manifests: Sequence[Path], template: Template, jobs: int) -> Iterator[SubjectRecord]:
    with tqdm(total=len(manifests), desc="check", unit="subject", disable=None) as bar:
        records = (
            _examine_in_parallel(manifests, template, jobs)
            if jobs > 1 and len(manifests) > 1
            else (_record(manifest, template) for manifest in manifests)
        )
        for record in records:
            bar.update()
            yield record


def _record(manifest: Path, template: Template) -> SubjectRecord:
    try:
        return subject_record(examine_subject(manifest, template), dict)
    except Exception as error:  # the others are to be checked all the same
        what = f"the subject cannot be examined ({type(error).__name__}: {error})"
        return _failed(manifest, template, what, "open its files one by one")


@dataclass
class _Worker:
    """What each process keeps: the template comes once, not with each subject."""

    template: list[Template] = field(default_factory=list)


_worker = _Worker()


def _start(template: Template) -> None:
    _worker.template[:] = [template]


def _work(manifest: Path) -> SubjectRecord:
    return _record(manifest, _worker.template[0])


def _examine_in_parallel(
    manifests: Sequence[Path], template: Template, jobs: int
) -> Iterator[SubjectRecord]:
    # A server that has imported the modules forks the workers: forking this process, in which
    # VTK may run threads, could hang.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["meshstage.checks.files"])

    def pool(size: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(size, context, initializer=_start, initargs=(template,))

    done = 0
    try:
        with pool(min(jobs, len(manifests))) as executor:
            for record in executor.map(_work, manifests):
                yield record
                done += 1
    except BrokenProcessPool:
        # A file that crashes VTK takes all workers with it: go on with one subject a process.
        for manifest in manifests[done:]:
            try:
                with pool(1) as executor:
                    yield executor.submit(_work, manifest).result()
            except BrokenProcessPool:
                what = "one of the subject's meshes is damaged in a way that crashes the reader"
                todo = "open them one by one, and write the one that fails again"
                yield _failed(manifest, template, what, todo)


def _failed(manifest: Path, template: Template, what: str, todo: str) -> SubjectRecord:
    draft = Draft(manifest, manifest.absolute().parent.name)
    with suppress(Exception):
        draft = draft_manifest(manifest)
    problem = Problem(what, todo, str(manifest), draft.label)
    return subject_record(Examination(draft, template, [*draft.problems, problem]), dict)
