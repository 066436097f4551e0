"""The whole chain in one process, for notebooks and scripts: train from manifests, then ask.

The steps are those of the workflow's rules: template, ingest, check, statistics, training.
"""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from meshstage.checks.cohort import check_cohort
from meshstage.checks.leakage import Entry
from meshstage.cohort.alignment import Align
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import compute_statistics, read_statistics, write_statistics
from meshstage.cohort.subject import load_subjects
from meshstage.cohort.template import build_template, load_template
from meshstage.config.networks import NETWORKS
from meshstage.config.subjects import SubjectRow, subject_stems
from meshstage.errors import InputError, raise_if_any
from meshstage.meshes.reading import read_mesh
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.directory import Epoch, epoch_of
from meshstage.models.names import checkpoint_name, metadata_name
from meshstage.models.siblings import output_directory as directory_of_run
from meshstage.prediction.loading import load_predictor
from meshstage.prediction.questions import questions_of_manifests
from meshstage.prediction.writing import write_prediction
from meshstage.preparation.patient import score_mesh, shape_space
from meshstage.preparation.scoring import Scored
from meshstage.training.base import TrainPhysicsNeMoBase
from meshstage.training.distributed import DistributedContext, choose_device, distributed_context
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.state import RmseEntry

if TYPE_CHECKING:
    import pyvista as pv

_log = logging.getLogger(__name__)

TEMPLATE, SUBJECTS, STATISTICS = "template", "subjects", "stats.json"
"""Where a model directory of the API keeps what the rules keep in ``results/{cohort}``."""


class TrainingResult(TypedDict):
    """What a training returns; files are None on every rank but the first."""

    output_directory: Path
    checkpoint: Path | None
    metadata: Path | None
    training_loss: list[float]
    val_rmse_log: list[RmseEntry]


class PredictionResult(TypedDict):
    """What the prediction of a subject returns: one mesh per stage, and the ``.pvd`` of them."""

    subject_id: str
    predicted_meshes: list[Path]
    animation: Path


class WorkflowTrainPhysicsNeMo:
    """Train a network from manifests, in this process, or in each of a launcher's.

    Parameters
    ----------
    train_manifests : sequence of path
        At least one.
    val_manifests : sequence of path
        May be empty: then nothing is validated.
    pca_mean_mesh : path
        The template; a ``pca_model.json`` beside it is its shape model.
    output_directory : path
        The model directory. The cohort as it was read goes into ``template/``, ``subjects/`` and
        ``stats.json`` in it.
    use_template_surface : bool
        Train on the surface of a volume mesh.
    resume_from : path, optional
        A checkpoint to go on from; output then goes to the next free ``{output_directory}_{n}``.
    training_method : TrainPhysicsNeMoBase, optional
        The network and its settings; by default a MeshGraphNet with its defaults.
    log_level : int or str
        Of the logger ``meshstage``: a number of `logging` or its name.

    Attributes
    ----------
    checkpoint_file, metadata_file : Path or None
    training_loss : list of float
    val_rmse_log : list of dict
        What `process` returned, once it has.

    Raises
    ------
    ValueError
        If there is no training manifest, or no such log level.
    FileNotFoundError
        If the mesh does not exist.
    TypeError
        If the method is none.
    """

    def __init__(
        self,
        train_manifests: Sequence[Path | str],
        val_manifests: Sequence[Path | str],
        pca_mean_mesh: Path | str,
        output_directory: Path | str,
        use_template_surface: bool = False,
        resume_from: Path | str | None = None,
        training_method: TrainPhysicsNeMoBase | None = None,
        log_level: int | str = logging.INFO,
    ) -> None:
        if not train_manifests:
            raise ValueError("train_manifests is empty: give at least one training manifest")
        if not Path(pca_mean_mesh).is_file():
            raise FileNotFoundError(f"pca_mean_mesh does not exist: {pca_mean_mesh}")
        if training_method is None:
            # Late: PhysicsNeMo takes seconds, and another method may not need all of it.
            from meshstage.training.mgn import TrainPhysicsNeMoMGN

            training_method = TrainPhysicsNeMoMGN()
        _refuse_no_method("training_method", training_method)
        self.train_manifests = [Path(path) for path in train_manifests]
        self.val_manifests = [Path(path) for path in val_manifests]
        self.pca_mean_mesh = Path(pca_mean_mesh)
        self.output_directory = Path(output_directory)
        self.use_template_surface = use_template_surface
        self.resume_from = None if resume_from is None else Path(resume_from)
        self.training_method = training_method
        self.log_level = _level_number(log_level)
        self.cache_max_samples = 0
        self.checkpoint_file: Path | None = None
        self.metadata_file: Path | None = None
        self.training_loss: list[float] = []
        self.val_rmse_log: list[RmseEntry] = []

    def set_cache_size(self, cache_max_samples: int) -> None:
        """Set how many samples keep a private copy of their targets.

        0, the default, keeps none: targets come from the memory map, which the operating system
        caches once for all processes.

        Raises
        ------
        ValueError
            If it is negative.
        """
        if cache_max_samples < 0:
            raise ValueError(f"cache_max_samples is {cache_max_samples}, it must not be negative")
        self.cache_max_samples = cache_max_samples

    def process(self) -> TrainingResult:
        """Read the cohort, check it, train, and leave a finished model directory.

        Under a launcher of several processes every rank calls this; rank 0 alone writes.

        Returns
        -------
        dict
            ``output_directory``; ``checkpoint`` and ``metadata``, paths on rank 0 and None on
            the others; ``training_loss``, one per epoch; ``val_rmse_log``, a list of dicts with
            ``epoch``, ``train_rmse`` and ``val_rmse`` (None without validation), in the
            target's units.

        Raises
        ------
        InputError
            With every problem of the cohort, or if training cannot go on as asked for.
        ContinueLater
            If a signal or the deadline ended it; the same call goes on, unless it resumes.
        """
        method = self.training_method
        with distributed_context() as context, contextlib.ExitStack() as stack:
            _set_up_logging(self.log_level, context)
            directory = context.decide(lambda: stack.enter_context(self._directory()))
            stems, n_train = context.decide(lambda: self._read_cohort(directory))
            template = load_template(directory / TEMPLATE)
            subjects = load_subjects([directory / SUBJECTS / stem for stem in stems])
            train, val = subjects[:n_train], subjects[n_train:]
            statistics = read_statistics(directory / STATISTICS)
            of_cohort = (self.cache_max_samples, statistics, template.points)
            _, losses, rmse_log = method.train(
                PhaseSampleDataset(train, *of_cohort),
                PhaseSampleDataset(val, *of_cohort) if val else None,
                statistics,
                context,
                method.epochs,
                directory,
                template,
                template.points,
                resume_from=self.resume_from,
            )
            tag = method.tag
            if context.is_main:
                self.checkpoint_file = directory / checkpoint_name(tag)
                self.metadata_file = directory / metadata_name(tag)
            self.training_loss, self.val_rmse_log = losses, rmse_log
            return {
                "output_directory": directory,
                "checkpoint": self.checkpoint_file,
                "metadata": self.metadata_file,
                "training_loss": losses,
                "val_rmse_log": rmse_log,
            }

    def _directory(self) -> contextlib.AbstractContextManager[Path]:
        if self.resume_from is not None:
            load_checkpoint(self.resume_from)  # before a sibling's number is taken
        return directory_of_run(self.output_directory, self.resume_from, None)

    def _read_cohort(self, directory: Path) -> tuple[list[str], int]:
        """Write template, subjects and statistics; give the subjects' stems, training first.

        Raises
        ------
        InputError
            With every problem of the cohort that is an error; warnings are logged.
        """
        template = build_template(
            self.pca_mean_mesh, directory / TEMPLATE, surface=self.use_template_surface
        )
        manifests = [(path, "train") for path in self.train_manifests]
        manifests += [(path, "val") for path in self.val_manifests]
        rows = [SubjectRow(path, split, n) for n, (path, split) in enumerate(manifests, start=1)]
        stems = subject_stems(rows)
        records = {
            stem: ingest_subject(
                row.manifest, template, directory / SUBJECTS / stem, record_errors=True
            )
            for stem, row in zip(stems, rows, strict=True)
        }
        entries = [Entry(row, records[stem]) for stem, row in zip(stems, rows, strict=True)]
        tag = self.training_method.model_tag
        network = next((kind.name for kind in NETWORKS.values() if kind.tag == tag), None)
        report = check_cohort(template, entries, network=network)
        for problem in report.problems:
            if problem.severity == "warning":
                _log.warning("%s", problem.sentence())
        raise_if_any(report.problems)
        n_train = len(self.train_manifests)
        train = load_subjects([directory / SUBJECTS / stem for stem in stems[:n_train]])
        statistics = compute_statistics(template, train)
        write_statistics(directory / STATISTICS, statistics, template, train)
        return stems, n_train


class WorkflowInferPhysicsNeMo:
    """Ask a trained model: one of this program's, of the user's own, or of MONAI Physio.

    Parameters
    ----------
    model_directory : path
        Finished, or in progress with a kept epoch.
    inference_method : TrainPhysicsNeMoBase, optional
        Of the class that trained the model, where nothing else finds it: a class that was
        written in a notebook.
    epoch : int, "best" or None
        A kept epoch, the one with the least validation RMSE, or the final model.
    log_level : int or str
        Of the logger ``meshstage``: a number of `logging` or its name.

    Attributes
    ----------
    template_mesh : pyvista mesh
    n_target : int
    target_array : str
    checkpoint_file : Path
    epoch : int or None
        None for the final model.

    Raises
    ------
    InputError
        If there is no such model, or its files do not fit together.
    TypeError
        If the method is none.
    """

    def __init__(
        self,
        model_directory: Path | str,
        inference_method: TrainPhysicsNeMoBase | None = None,
        epoch: Epoch = None,
        log_level: int | str = logging.INFO,
    ) -> None:
        if inference_method is not None:
            _refuse_no_method("inference_method", inference_method)
        _set_up_logging(_level_number(log_level), DistributedContext())
        self.model_directory = Path(model_directory)
        predictor = load_predictor(
            self.model_directory, epoch, choose_device("auto"), inference_method
        )
        self._predictor = predictor
        self.template_mesh = predictor.mesh
        self.n_target, self.target_array = predictor.n_target, predictor.target_array
        self.checkpoint_file = predictor.checkpoint
        self.epoch = None if epoch is None else epoch_of(predictor.checkpoint)

    def predict(self, pca_coefficients: Sequence[float] | np.ndarray, stage: float) -> np.ndarray:
        """Predict one phase of a subject.

        Parameters
        ----------
        pca_coefficients : (n_pca,) array, standard deviations
        stage : float in [0, 1]

        Returns
        -------
        (n_points, n_target) float32 array, in the targets' units

        Raises
        ------
        InputError
            If the number of coefficients is not the model's, one is not finite, or the stage
            lies outside of 0 to 1.
        """
        scores = np.asarray(pca_coefficients, np.float64)
        targets: np.ndarray = self._predictor.predict(scores, [stage])[0]
        for warning in self._predictor.warnings(scores, [stage]):
            _log.warning("%s", warning)
        return targets

    def score(
        self,
        mesh: "pv.DataSet | Path | str",
        weights: np.ndarray | None = None,
        point_ids: np.ndarray | None = None,
        align: Align = "rigid",
        noise: float | None = None,
    ) -> Scored:
        """Find shape scores and alignment of a new patient's mesh, in mm.

        Parameters
        ----------
        mesh : pyvista mesh or path
            In correspondence with the template: its points and cells, or some of its points.
        weights : (mesh.n_points,) array, optional
            How much each point counts, 0 where nothing was seen.
        point_ids : (mesh.n_points,) integers, optional
            Of a mesh that is a part: the template's point, from 0, of each of its points.
        align : "none", "rigid" or "similarity"
            As the meshes of the model's cohort were brought together.
        noise : float, mm, optional
            Standard deviation of the points' error, against which scores have a unit normal
            prior. By default 0 for a whole mesh, and 1 with weights or point ids.

        Returns
        -------
        Scored
            ``shape_scores`` (n_pca,) for `predict`; ``matrix`` (4, 4) from the patient's space
            into the template's; ``residual``, mm RMS, which the scores leave.

        Raises
        ------
        InputError
            If the mesh is not in correspondence, mirrored, in another unit, too small a part, or
            the model has no shape model.
        """
        predictor = self._predictor
        space = shape_space(predictor.mesh, predictor.template_folder, predictor.n_pca)
        if isinstance(mesh, str | Path):
            mesh = read_mesh(Path(mesh))
        return score_mesh(space, mesh, align, weights, point_ids, noise)

    def predicted_mesh(self, targets: np.ndarray) -> "pv.PolyData | pv.UnstructuredGrid":
        """Put targets on a copy of the template, whose points stay where they are.

        Parameters
        ----------
        targets : (n_points, n_target) array

        Raises
        ------
        InputError
            If the shape is another.
        """
        mesh = self._predictor.mesh.copy()
        wanted = (mesh.n_points, self._predictor.n_target)
        if targets.shape != wanted:
            raise InputError(f"targets are {targets.shape}, the model's template takes {wanted}")
        mesh.point_data[self._predictor.target_array] = targets if wanted[1] > 1 else targets[:, 0]
        copy: pv.PolyData | pv.UnstructuredGrid = mesh
        return copy

    def process(
        self,
        subject_manifest: Path | str,
        stages: Sequence[float] | None = None,
        output_directory: Path | str | None = None,
    ) -> PredictionResult:
        """Predict a subject and write a mesh per stage, moved if the target is a displacement.

        Parameters
        ----------
        subject_manifest : path
            Needs ``subject_id`` and ``pca_coefficients`` only.
        stages : sequence of float in [0, 1], optional
            By default the manifest's, or else those of the training.
        output_directory : path, optional
            Gets a folder of the subject; by default ``{model_directory}/predictions``.

        Returns
        -------
        dict
            ``subject_id``, ``predicted_meshes`` and ``animation``, a ``.pvd`` of them.

        Raises
        ------
        InputError
            If manifest, scores, reference or stages cannot be used.
        """
        predictor = self._predictor
        default = self.model_directory / "predictions"
        output = default if output_directory is None else Path(output_directory)
        [question] = questions_of_manifests(predictor, [Path(subject_manifest)], stages)
        for warning in predictor.warnings(question.shape_scores, question.stages):
            _log.warning("subject %s: %s", question.subject_id, warning)
        targets = predictor.predict(question.shape_scores, question.stages)
        deviation = predictor.deviation(question.shape_scores, question.stages)
        animation, meshes = write_prediction(
            output, predictor, question, targets, deviation=deviation
        )
        return {
            "subject_id": question.subject_id,
            "predicted_meshes": meshes,
            "animation": animation,
        }


def _refuse_no_method(argument: str, method: object) -> None:
    if not isinstance(method, TrainPhysicsNeMoBase):
        raise TypeError(f"{argument} must be a TrainPhysicsNeMoBase, got {type(method).__name__}")


def _level_number(level: int | str) -> int:
    """Turn a log level's name, in any case, into its number.

    Raises
    ------
    ValueError
        If there is no such level.
    """
    if not isinstance(level, str):
        return int(level)
    numbers = logging.getLevelNamesMapping()
    if level.upper() not in numbers:
        raise ValueError(f"log_level is {level!r}, it must be one of {', '.join(numbers)}")
    return numbers[level.upper()]


def _set_up_logging(level: int, context: DistributedContext) -> None:
    """Show the program's lines where nobody has set up logging, on rank 0 only."""
    logger = logging.getLogger("meshstage")
    logger.setLevel(level if context.is_main else logging.ERROR)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
