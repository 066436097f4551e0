"""Every subject judged by the model of the fold that has not seen it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshstage.cohort.subject import Subject
from meshstage.errors import InputError, Problem, raise_if_any
from meshstage.judging.checks import split_of
from meshstage.judging.evaluation import Evaluation, Judged

FOLD = "fold"
"""Column of ``{run}.oof.csv``: the number of the fold that held a subject out."""

FOLDS = "folds"
"""Key of ``{run}.oof.json``: how many there are. No other summary has it."""


def held_out(subjects: Sequence[Subject], metadata: dict[str, Any]) -> list[Subject]:
    """Give the subjects that a fold's model has not seen.

    Raises
    ------
    InputError
        If there is none.
    """
    unseen = [subject for subject in subjects if split_of(subject.id, metadata) == "test"]
    if not unseen:
        raise InputError(
            Problem("a fold's model has seen all subjects", "give the subjects of all folds")
        )
    return unseen


def join_folds(folds: Sequence[Judged], subjects: Sequence[Subject]) -> Evaluation:
    """Put what folds say of their held-out subjects together, as one evaluation.

    Parameters
    ----------
    folds : sequence of Judged
        The first is fold 1.
    subjects : sequence of Subject
        All that were dealt, in the order of the rows to be.

    Raises
    ------
    InputError
        If a subject was judged in no fold, or in several.
    """
    by_subject: dict[str, list[int]] = {subject.id: [] for subject in subjects}
    for number, fold in enumerate(folds, 1):
        for subject_id in dict.fromkeys(row["subject_id"] for row in fold.rows):
            by_subject[subject_id].append(number)
    raise_if_any(
        Problem(
            f"is held out in {len(numbers)} folds, {', '.join(map(str, numbers))}"
            if numbers
            else "is held out in no fold",
            "train the folds again that are of other subjects",
            subject=subject_id,
        )
        for subject_id, numbers in by_subject.items()
        if len(numbers) != 1
    )
    order = {subject_id: place for place, subject_id in enumerate(by_subject)}
    rows = [row | {FOLD: number} for number, fold in enumerate(folds, 1) for row in fold.rows]
    rows.sort(key=lambda row: order[row["subject_id"]])
    first = folds[0]
    said = [set(fold.about["notes"]) for fold in folds]
    about = {
        **first.about,
        FOLDS: len(folds),
        "n_subjects": len(subjects),
        "n_samples": len(rows),
        "notes": [note for note in first.about["notes"] if all(note in notes for notes in said)],
    }
    return Judged(
        rows, first.columns, first.baselines, _floors(folds), first.n_points, about
    ).evaluation()


def _floors(folds: Sequence[Judged]) -> dict[str, np.ndarray]:
    """Floors of all subjects by as many modes as the fold with the most has.

    With more modes than a fold has, the floor is that of all it has.
    """
    floors = {key: floor for fold in folds for key, floor in fold.floors.items()}
    most = max((floor.shape[1] for floor in floors.values()), default=0)
    return {
        key: np.pad(floor, ((0, 0), (0, most - floor.shape[1])), mode="edge")
        for key, floor in floors.items()
    }
