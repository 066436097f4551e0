"""What a model is asked: subjects, from manifests or from shape scores, and stages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshstage.cohort.alignment import Align, read_alignment
from meshstage.cohort.manifest import Manifest, read_manifest, read_shape_scores
from meshstage.cohort.names import SHAPE_MODEL, subject_stem
from meshstage.cohort.shape_model import read_shape_model
from meshstage.errors import InputError, Problem, at, collecting, raise_if_any
from meshstage.meshes.reading import read_mesh
from meshstage.prediction.predictor import Predictor, check_stages
from meshstage.preparation.patient import corresponding_points, score_mesh, shape_space
from meshstage.preparation.procrustes import transform_points


@dataclass(frozen=True)
class Question:
    """One subject to predict.

    Parameters
    ----------
    subject_id : str
    stem : str
        Name of its folder and animation.
    points : (n_points, 3) float64, mm
        The subject's undeformed points.
    shape_scores : (n_pca,) float64, standard deviations
    stages : (n_stages,) float64
    matrix : (4, 4) float64, optional
        Maps the patient's own space into the template's, where all else is given.
    """

    subject_id: str
    stem: str
    points: np.ndarray
    shape_scores: np.ndarray
    stages: np.ndarray
    matrix: np.ndarray | None = None


def questions_of_manifests(
    predictor: Predictor, paths: Sequence[Path], stages: Sequence[float] | None = None
) -> list[Question]:
    """Read the subjects that are to be predicted; a manifest here needs no targets.

    Parameters
    ----------
    predictor : Predictor
    paths : sequence of Path
        Manifests.
    stages : sequence of float, optional
        By default each manifest's own, or else those of the training.

    Raises
    ------
    InputError
        With the problems of all manifests: what they name cannot be read or does not fit the
        model, or two have the same id.
    """
    check_stages(stages or ())
    questions: dict[str, Question] = {}
    problems: list[Problem] = []
    for path in paths:
        with collecting(problems):
            question = _question(predictor, read_manifest(path, targets_required=False), stages)
            if question.stem in questions:
                what = f"the subject_id {question.subject_id!r} stands in two of these manifests"
                raise InputError(Problem(what, "name each subject once", str(path)))
            questions[question.stem] = question
    raise_if_any(problems)
    return list(questions.values())


def _question(predictor: Predictor, manifest: Manifest, stages: Sequence[float] | None) -> Question:
    scores = _read_scores(predictor, manifest.shape_scores_path)
    chosen = _chosen_stages(predictor, manifest.stages if stages is None else stages)
    points = subject_points(predictor, manifest, scores)
    matrix = None
    if path := manifest.alignment_path:
        with at(path, manifest.subject_id):
            matrix = read_alignment(path).matrix(manifest.subject_id)
    return Question(manifest.subject_id, manifest.stem, points, scores, chosen, matrix)


def question_of_scores(
    predictor: Predictor, path: Path, stages: Sequence[float] | None = None
) -> Question:
    """Read shape scores alone; they stand for a subject that is called like their file.

    Raises
    ------
    InputError
        If the scores cannot be read or do not fit the model.
    """
    check_stages(stages or ())
    scores, chosen = _read_scores(predictor, path), _chosen_stages(predictor, stages or ())
    return Question(path.stem, path.stem, shape_points(predictor, scores), scores, chosen)


def question_of_mesh(
    predictor: Predictor,
    path: Path,
    stages: Sequence[float] | None = None,
    align: Align = "rigid",
) -> Question:
    """Score a patient's own mesh, which stands for a subject that is called like its file.

    Raises
    ------
    InputError
        If the mesh cannot be read or scored, see `meshstage.preparation.patient.score_mesh`.
    """
    check_stages(stages or ())
    space = shape_space(predictor.mesh, predictor.template_folder, predictor.n_pca)
    with at(path):
        mesh = read_mesh(path)
        scored = score_mesh(space, mesh, align)
        points = transform_points(scored.matrix, corresponding_points(mesh, predictor.mesh))
        stem = subject_stem(path.stem)
    chosen = _chosen_stages(predictor, stages or ())
    return Question(path.stem, stem, points, scored.shape_scores, chosen, scored.matrix)


def _chosen_stages(predictor: Predictor, stages: Sequence[float] | np.ndarray) -> np.ndarray:
    chosen = np.asarray(stages if len(stages) else predictor.stages_trained, np.float64)
    if not chosen.size:
        what, todo = "the model does not tell the stages of its training", "give --stages"
        raise InputError(Problem(what, todo, str(predictor.directory)))
    return chosen + 0.0  # -0.0 is stage 0


def stages_asked(predictor: Predictor, values: Sequence[float] | None) -> Sequence[float] | None:
    """Give stages as they are, and for one whole number n from 2 on n even stages.

    A closed cycle has them at i / n, from 0 to before 1, which is 0 again; an open one at
    i / (n - 1), from 0 to 1.
    """
    if values is None or len(values) != 1 or values[0] < 2 or values[0] % 1:
        return values
    n = int(values[0])
    # Quotients are the numbers that people write: 17 / 20 is 0.85, and 17 * 0.05 is not.
    return [i / (n - 1 if predictor.method.cycle == "open" else n) for i in range(n)]


def _read_scores(predictor: Predictor, path: Path) -> np.ndarray:
    scores = read_shape_scores(path)
    with at(path):
        predictor.check_scores(scores)
    return scores


def subject_points(
    predictor: Predictor, manifest: Manifest, shape_scores: np.ndarray
) -> np.ndarray:
    """Read the points of a subject's own reference mesh; without one, reconstruct them.

    Parameters
    ----------
    predictor : Predictor
    manifest : Manifest
        Its reference has the template's cells, or is the volume whose surface the template is.
    shape_scores : (n_pca,) array, standard deviations

    Returns
    -------
    (n_points, 3) float64 array, mm

    Raises
    ------
    InputError
        If the reference has other points or cells than the template.
    """
    if not manifest.fitted_reference_mesh:
        return shape_points(predictor, shape_scores)
    with at(manifest.reference_path, manifest.subject_id):
        return corresponding_points(read_mesh(manifest.reference_path), predictor.mesh)


def shape_points(predictor: Predictor, shape_scores: np.ndarray) -> np.ndarray:
    """Reconstruct a subject's points from its scores; the template's own without a shape model.

    A model of a volume's surface may have fewer scores than the shape model has modes, or more:
    those that both have count.

    Returns
    -------
    (n_points, 3) float64 array, mm
    """
    path = predictor.template_folder / SHAPE_MODEL
    if not path.exists():
        return predictor.points
    return read_shape_model(path, len(predictor.points)).points(shape_scores, predictor.points)
