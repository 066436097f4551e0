"""Bring what is predicted in the template's space back into the patient's own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshstage.errors import Problem, raise_if_any
from meshstage.prediction.questions import Question
from meshstage.preparation.procrustes import transform_points


def check_alignments(questions: Sequence[Question]) -> None:
    """Refuse subjects of which nothing says where their own space is.

    Raises
    ------
    InputError
        With a problem per subject.
    """
    what = "nothing says where the patient's own space is"
    todo = "name an alignment in the manifest, or give --reference, or --space template"
    raise_if_any(
        Problem(what, todo, subject=question.subject_id)
        for question in questions
        if question.matrix is None
    )


def in_patient_space(
    question: Question, targets: np.ndarray, deviation: np.ndarray | None, is_displacement: bool
) -> tuple[Question, np.ndarray, np.ndarray | None]:
    """Undo a subject's alignment.

    Parameters
    ----------
    question : Question
        With a matrix.
    targets : (n_stages, n_points, n_target) array
        Three components are a vector: it is turned back, and scaled back if it is a
        displacement. Others stay.
    deviation : (n_stages, n_points) array, optional
        Scaled back with a displacement.
    is_displacement : bool

    Returns
    -------
    question : Question
        Its points are the patient's; it has no matrix any more.
    targets, deviation : arrays as given, or None
    """
    assert question.matrix is not None, "check_alignments has looked"
    back = np.linalg.inv(question.matrix)
    scale = np.cbrt(np.linalg.det(back[:3, :3]))
    if targets.shape[2] == 3:
        linear = back[:3, :3] if is_displacement else back[:3, :3] / scale
        targets = targets @ linear.T
    if deviation is not None and is_displacement:
        deviation = deviation * scale
    points = transform_points(back, question.points)
    return replace(question, points=points, matrix=None), targets, deviation
