"""Subjects of a cohort: ingested once from other people's files, then read as ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from meshstage.errors import InputError, Problem
from meshstage.examine import Examination, examine_subject, subject_record
from meshstage.files import read_json, sha256, write_array, write_json
from meshstage.subject_record import SubjectRecord
from meshstage.template import Template

__all__ = [
    "Subject",
    "SubjectRecord",
    "ingest_subject",
    "load_record",
    "load_subject",
    "load_subjects",
]

SUBJECT_JSON, TARGETS, REFERENCE = "subject.json", "targets.npy", "reference.npy"


@dataclass(frozen=True)
class Subject:
    """An ingested subject without errors.

    Parameters
    ----------
    directory : Path
    id, stem : str
    stages : (n_phases,) float64
    shape_scores : (n_pca,) float64, standard deviations
    target_array : str
    is_displacement : bool
        Whether phase - reference = target on every phase, to 1e-4 of the template's diagonal.
    targets : (n_phases, n_points, n_target) float32 memory map, units of the target
    reference : (n_points, 3) float64 memory map, mm
    hashes : dict of str to str
        SHA-256 of the contents: targets, reference, shape scores, stages.
    """

    directory: Path
    id: str
    stem: str
    stages: np.ndarray
    shape_scores: np.ndarray
    target_array: str
    is_displacement: bool
    targets: np.memmap
    reference: np.memmap
    hashes: dict[str, str]


def ingest_subject(
    manifest_path: Path,
    template: Template,
    output_directory: Path,
    record_errors: bool = False,
) -> SubjectRecord:
    """Read one subject from its manifest and write it as this program's own files.

    Parameters
    ----------
    manifest_path : Path
    template : Template
    output_directory : Path
        Gets ``targets.npy``, ``reference.npy`` and ``subject.json``, whatever the id is.
    record_errors : bool
        Write a subject with errors too: they stand in ``subject.json``, its arrays are empty.

    Raises
    ------
    InputError
        With every problem of the subject, unless they are recorded; nothing is written then.
    """
    subject = examine_subject(manifest_path, template)
    if subject.errors and not record_errors:
        raise InputError(*subject.errors)
    targets, reference = _arrays(subject)

    def hashes() -> dict[str, str]:
        return {
            "targets": sha256(targets),
            "reference": sha256(reference),
            "shape_scores": sha256(subject.scores),
            "stages": sha256(np.array([phase.stage for phase in subject.phases])),
        }

    record = subject_record(subject, hashes)
    write_array(output_directory / TARGETS, targets)
    write_array(output_directory / REFERENCE, reference)
    write_json(output_directory / SUBJECT_JSON, record.model_dump())
    return record


def _arrays(subject: Examination) -> tuple[np.ndarray, np.ndarray]:
    if subject.errors:
        return np.zeros((0, 0, 0), dtype=np.float32), np.zeros((0, 3))
    assert subject.reference is not None, "a subject without errors has a reference"
    return np.stack([subject.targets[phase.index] for phase in subject.phases]), subject.reference


def load_record(directory: Path) -> SubjectRecord:
    """Read an ingested subject's ``subject.json``, with or without errors in it.

    Raises
    ------
    InputError
        If the file is missing or not one of this program's.
    """
    path = directory / SUBJECT_JSON
    try:
        return SubjectRecord.model_validate(read_json(path))
    except ValidationError as error:
        what = f"is not a subject.json of this program ({error.error_count()} values differ)"
        raise InputError(Problem(what, "ingest the subject again", str(path))) from None


def load_subject(directory: Path) -> Subject:
    """Load an ingested subject; its arrays stay on disk as memory maps, which processes share.

    Raises
    ------
    InputError
        If it has recorded errors, or its files are missing or do not fit each other.
    """
    record = load_record(directory)
    if record.errors:
        raise InputError(*(error.problem() for error in record.errors))
    targets, reference = (_map_array(directory / name) for name in (TARGETS, REFERENCE))
    shape = (len(record.phases), record.n_points, record.n_target)
    if targets.shape != shape or reference.shape != (record.n_points, 3):
        what = f"{TARGETS} {targets.shape} or {REFERENCE} {reference.shape} do not fit {shape}"
        raise InputError(Problem(what, "ingest the subject again", str(directory)))
    assert record.id and record.stem and record.target_array, "a subject without errors has them"
    return Subject(
        directory=directory,
        id=record.id,
        stem=record.stem,
        stages=np.array(record.stages, dtype=np.float64),
        shape_scores=np.array(record.shape_scores, dtype=np.float64),
        target_array=record.target_array,
        is_displacement=record.is_displacement,
        targets=targets,
        reference=reference,
        hashes=record.hashes,
    )


def _map_array(path: Path) -> np.memmap:
    try:
        array: np.memmap = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    except (OSError, ValueError, EOFError) as error:
        what = f"cannot be read as an array ({error})"
        raise InputError(Problem(what, "ingest the subject again", str(path))) from None


def load_subjects(directories: Sequence[Path]) -> list[Subject]:
    """Load ingested subjects, see `load_subject`; the problems of all are raised together."""
    subjects, problems = [], list[Problem]()
    for directory in directories:
        try:
            subjects.append(load_subject(directory))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return subjects
