"""Whether a model, the subjects and the baselines belong together, and what to know of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meshstage.cohort.subject import SUBJECT_JSON, Subject, differences
from meshstage.errors import Problem
from meshstage.meshes.cells import cell_fingerprint
from meshstage.motion.baselines import Baselines

if TYPE_CHECKING:
    from meshstage.prediction.predictor import Predictor


def split_of(subject_id: str, metadata: dict[str, Any]) -> str:
    """Split of a subject as the model saw it: what it never saw is test."""
    if subject_id in (metadata.get("train_subject_ids") or []):
        return "train"
    return "val" if subject_id in (metadata.get("val_subject_ids") or []) else "test"


def changed_data(
    predictor: "Predictor", subjects: Sequence[Subject], statistics_digest: str | None
) -> list[Problem]:
    """Name what differs between today's data and those that the model was trained on."""
    hashes = predictor.metadata.get("data_hashes") or {}
    todo = "train a new run, or bring the old data back"
    problems = []
    if hashes.get("template") not in (None, cell_fingerprint(predictor.mesh)):
        problems.append(Problem("the template's cells changed since the model was trained", todo))
    # A resumed run has the statistics of the model that it began with, not the cohort's.
    before = None if predictor.metadata.get("resumed_from") else hashes.get("statistics")
    if None not in (before, statistics_digest) and before != statistics_digest:
        problems.append(Problem("stats.json changed since the model was trained", todo))
    for subject in subjects:
        now_has, had = subject.hashes, (hashes.get("subjects") or {}).get(subject.id)
        if had is None or had == now_has:
            continue
        names = sorted(key for key in {*had, *now_has} if had.get(key) != now_has.get(key))
        problems.append(
            Problem(
                f"its {' and '.join(names)} changed since the model was trained",
                todo,
                str(subject.directory / SUBJECT_JSON),
                subject.id,
            )
        )
    return problems


def unfit_baselines(
    baselines: Baselines, predictor: "Predictor", subjects: Sequence[Subject]
) -> list[Problem]:
    """Name why baselines cannot be compared with this model."""
    todo = "run fit_baselines.py again"
    about = baselines.about
    if about["template_fingerprint"] != cell_fingerprint(predictor.mesh):
        return [Problem("the baselines were fitted on another template", todo)]
    if len(baselines.ridge.motion_mean) != len(predictor.points) * predictor.n_target:
        return [Problem("the baselines were fitted on targets of another width", todo)]
    if len(baselines.ridge.pca_mean) != predictor.n_pca:
        return [Problem("the baselines were fitted on another number of shape scores", todo)]
    return [
        Problem("changed since the baselines were fitted", todo, subject=subject.id)
        for subject in subjects
        if about["train_subjects"].get(subject.id, subject.hashes) != subject.hashes
    ]


def unfit_subject(subject: Subject, predictor: "Predictor") -> list[Problem]:
    """Name in which size a subject differs from the model."""
    return differences(
        subject,
        "the model",
        "evaluate it with its own model",
        n_points=len(predictor.points),
        n_target=predictor.n_target,
        n_pca=predictor.n_pca,
    )


def notes(
    metadata: dict[str, Any], subjects: Sequence[Subject], baselines: Baselines | None
) -> list[str]:
    """Say what a reader of the numbers must know."""
    said = []
    if not metadata.get("data_hashes"):
        said.append("the model does not say which data it was trained on: nothing was compared")
    if metadata.get("train_subject_ids") is None:
        said.append("the model does not name its training subjects: all count as test")
    if not all(subject.is_displacement for subject in subjects):
        said.append("a target is not a displacement: no mesh is moved, no surface or volume metric")
    if baselines is None:
        said.append("no baselines were given: no skill")
    else:
        fitted, trained = set(baselines.about["train_subjects"]), metadata.get("train_subject_ids")
        if trained is not None and fitted != set(trained):
            said.append("the baselines were fitted on other training subjects than the model")
        said.append(f"ridge: {baselines.about['ridge']['note']}")
        if opened := baselines.about["open_cycles"]:
            said.append(
                f"the baselines take stage 1 for stage 0, but in {len(opened)} training subjects "
                "the targets differ there: the motion is no cycle, and skill is flattered"
            )
    return said
