"""Which subjects to look at, with their truth and prediction: the best, the median, the worst."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from meshstage.cohort.geometry import size
from meshstage.cohort.subject import Subject
from meshstage.errors import InputError, Problem
from meshstage.judging.columns import RMSE, skill_column
from meshstage.meshes.arrays import point_array
from meshstage.meshes.reading import read_mesh


@dataclass(frozen=True)
class Case:
    """One subject's truth beside its prediction.

    Parameters
    ----------
    label : str
        "best", "median" or "worst".
    subject : Subject
    split : str
    predicted : (n_phases, n_points, n_target) array, units of the target
    rmse : float, units of the target
    skill : float, optional
        Over the mean motion.
    """

    label: str
    subject: Subject
    split: str
    predicted: np.ndarray
    rmse: float
    skill: float | None

    def points(self, phase: int, predicted: bool) -> np.ndarray:
        """Points at a phase, (n_points, 3) mm: moved if the target is a displacement."""
        if not self.subject.is_displacement:
            return self.subject.reference
        offset = self.predicted[phase] if predicted else self.subject.targets[phase]
        return self.subject.reference + offset

    def size(self, phase: int, predicted: bool) -> np.ndarray:
        """Length of the target at each point, (n_points,)."""
        values = self.predicted[phase] if predicted else self.subject.targets[phase]
        return np.linalg.norm(values, axis=1)

    def error(self, phase: int) -> np.ndarray:
        """Length of the error at each point, (n_points,)."""
        return np.linalg.norm(self.predicted[phase] - self.subject.targets[phase], axis=1)

    def worst_phase(self) -> int:
        """Phase with the largest RMSE."""
        phases = range(len(self.subject.stages))
        return max(phases, key=lambda phase: float((self.error(phase) ** 2).mean()))


def choose_subjects(summary: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Choose the best, the median and the worst held-out subject by RMSE.

    Of train subjects only where none was held out. Fewer than three subjects give fewer entries.

    Returns
    -------
    list of (label, entry of the summary's ``subjects``)
    """
    column = RMSE.column(summary["unit"])
    held_out = [s for s in summary["subjects"] if s["split"] != "train"]
    ranked = sorted(held_out or summary["subjects"], key=lambda s: (s[column], s["subject_id"]))
    if len(ranked) < 3:
        labels = ["best", "worst"] if len(ranked) == 2 else ["only"]
        return list(zip(labels, ranked, strict=True))
    middle = ranked[(len(ranked) - 1) // 2]
    return [("best", ranked[0]), ("median", middle), ("worst", ranked[-1])]


def read_cases(
    summary: dict[str, Any], subjects: Sequence[Subject], predictions: Path
) -> list[Case]:
    """Read truth and prediction of the subjects to look at.

    Parameters
    ----------
    summary : dict
        An evaluation's summary.
    subjects : sequence of Subject
    predictions : Path
        Folder of the run's predictions, with one folder per subject.

    Raises
    ------
    InputError
        If a subject or a predicted mesh is missing.
    """
    column = RMSE.column(summary["unit"])
    known = {subject.id: subject for subject in subjects}
    cases = []
    for label, entry in choose_subjects(summary):
        subject = known.get(entry["subject_id"])
        if subject is None:
            raise InputError(
                Problem(
                    "it was evaluated, but is not among the subjects given",
                    "give all subjects that were evaluated",
                    subject=entry["subject_id"],
                )
            )
        predicted = read_prediction(predictions / subject.stem, subject)
        skill = entry.get(skill_column("stage_mean"))
        cases.append(Case(label, subject, entry["split"], predicted, entry[column], skill))
    return cases


def read_prediction(folder: Path, subject: Subject) -> np.ndarray:
    """Read a subject's predicted targets at its own stages, by the ``.pvd`` of its folder.

    Returns
    -------
    (n_phases, n_points, n_target) float32 array

    Raises
    ------
    InputError
        If a stage was not predicted, or a mesh does not fit the subject.
    """
    todo = "run predict.py for this subject again"
    collection = next(iter(sorted(folder.glob("*.pvd"))), None)
    if collection is None:
        raise InputError(Problem("there is no .pvd file here", todo, str(folder), subject.id))
    try:
        entries = ElementTree.parse(collection).getroot().iter("DataSet")
        files = {float(entry.attrib["timestep"]): entry.attrib["file"] for entry in entries}
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise InputError(
            Problem(f"cannot be read ({error})", todo, str(collection), subject.id)
        ) from None
    missing = [stage for stage in subject.stages if float(stage) not in files]
    if missing:
        raise InputError(
            Problem(f"no prediction at stage {missing[0]:g}", todo, str(collection), subject.id)
        )
    shape = subject.targets.shape
    predicted = np.empty(shape, np.float32)
    for phase, stage in enumerate(subject.stages):
        path = folder / files[float(stage)]
        mesh = read_mesh(path)
        values = point_array(mesh, subject.target_array)
        if values.shape != shape[1:]:
            what = f"{values.shape} predicted values, but {shape[1:]} in the truth"
            raise InputError(Problem(what, todo, str(path), subject.id))
        # Displacements alone do not tell in whose space they are.
        if subject.is_displacement and not np.allclose(
            mesh.points, subject.reference + values, atol=1e-3 * size(subject.reference)
        ):
            what = "its points are not the subject's reference moved by the prediction"
            again = "predict it again, with its own manifest and --space template"
            raise InputError(Problem(what, again, str(path), subject.id))
        predicted[phase] = values
    return predicted
