"""Ingested subjects: what was written of them, read as memory maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshstage.cohort.mapping import map_array
from meshstage.cohort.subject_record import SubjectRecord
from meshstage.errors import InputError, Problem, collecting, raise_if_any
from meshstage.files import read_record

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
    targets : (n_phases, n_points, n_target) float32, mapped from its file, units of the target
    reference : (n_points, 3) float64, mapped from its file, mm
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
    targets: np.ndarray
    reference: np.ndarray
    hashes: dict[str, str]


def load_record(directory: Path) -> SubjectRecord:
    """Read an ingested subject's ``subject.json``, with or without errors in it.

    Raises
    ------
    InputError
        If the file is missing or not one of this program's.
    """
    return read_record(directory / SUBJECT_JSON, SubjectRecord, "ingest the subject again")


def load_subject(directory: Path) -> Subject:
    """Load an ingested subject; its arrays stay on disk as memory maps, which processes share.

    Raises
    ------
    InputError
        If it has recorded errors, or its files are missing or do not fit each other.
    """
    record = load_record(directory)
    raise_if_any(record.errors)
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


def differences(subject: Subject, whose: str, todo: str, **wanted: object) -> list[Problem]:
    """Name in what a subject differs from others, from a model or from fitted numbers.

    Parameters
    ----------
    subject : Subject
    whose : str
        What has the wanted values, as in "the model".
    todo : str
    **wanted : str or int
        Any of ``target_array``, ``n_points``, ``n_target`` and ``n_pca``.
    """
    _, n_points, n_target = subject.targets.shape
    has = {
        "target_array": ("target array", subject.target_array),
        "n_points": ("number of points", n_points),
        "n_target": ("number of target components", n_target),
        "n_pca": ("number of shape scores", len(subject.shape_scores)),
    }
    return [
        Problem(
            f"the {what} is {own!r}, but {wanted[name]!r} in {whose}",
            todo,
            str(subject.directory / SUBJECT_JSON),
            subject.id,
        )
        for name, (what, own) in has.items()
        if name in wanted and own != wanted[name]
    ]


def _map_array(path: Path) -> np.ndarray:
    try:
        return map_array(path)
    except (OSError, ValueError, EOFError) as error:
        what = f"cannot be read as an array ({error})"
        raise InputError(Problem(what, "ingest the subject again", str(path))) from None


def load_subjects(directories: Sequence[Path]) -> list[Subject]:
    """Load ingested subjects, see `load_subject`; the problems of all are raised together."""
    subjects, problems = [], list[Problem]()
    for directory in directories:
        with collecting(problems):
            subjects.append(load_subject(directory))
    raise_if_any(problems)
    return subjects
