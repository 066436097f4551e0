"""Ingest a subject: other people's files are read once and written as this program's own."""

from pathlib import Path

import numpy as np

from meshstage.cohort.examine import Examination, examine_subject, subject_record
from meshstage.cohort.subject import REFERENCE, SUBJECT_JSON, TARGETS
from meshstage.cohort.subject_record import SubjectRecord
from meshstage.cohort.template import Template
from meshstage.errors import InputError
from meshstage.files import sha256, write_array, write_json


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
