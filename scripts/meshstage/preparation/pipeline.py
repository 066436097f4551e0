"""From a plan to a cohort: meshes brought together, a shape model, manifests and their table."""

import logging
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from meshstage.cohort.alignment import ALIGNMENT, Align, write_alignment
from meshstage.cohort.names import SHAPE_MODEL
from meshstage.cohort.shape_model import ShapeModel, write_shape_model
from meshstage.config.preparation import DISPLACEMENT
from meshstage.errors import InputError, Problem, at, collecting, raise_if_any
from meshstage.files import write_json, write_text
from meshstage.meshes.arrays import non_finite, point_array
from meshstage.meshes.cells import canonical_cells, mesh_edges
from meshstage.meshes.reading import write_mesh
from meshstage.preparation.correspondence import (
    Shape,
    phase_problems,
    reference_problems,
    usual_shape,
)
from meshstage.preparation.plan import Plan, PlannedSubject
from meshstage.preparation.procrustes import generalised_procrustes, transform_points
from meshstage.preparation.scoring import Scored, score_points
from meshstage.preparation.source import PhaseMesh

MANIFEST, SUBJECTS_TABLE = "manifest.json", "subjects.tsv"

# The share of the variance that modes keep, if nothing else is said.
_VARIANCE = 0.95
# Of the first eigenvalue: less is rounding, and its scores would be rounding divided by rounding.
_LEAST_EIGENVALUE = 1e-10

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """What a prepared cohort has in common.

    Parameters
    ----------
    mesh : pyvista mesh
        The template: the mean shape of the training subjects.
    model : ShapeModel
    explained : (n_modes,) float64
        Part of the variance of the training subjects that each mode is.
    """

    mesh: Any
    model: ShapeModel
    explained: np.ndarray


def prepare_cohort(plan: Plan, output: Path) -> Prepared:
    """Read all meshes, bring the subjects together, write template, shape model and manifests.

    References are read first and kept; phases are read, checked, moved and written one by one.
    Everything is written beside the output first: a cohort that stands there stays whole until
    the new one is complete.

    Parameters
    ----------
    plan : Plan
    output : Path
        Folder of the cohort: ``pca_mean.vtp`` (or ``.vtu``), ``pca_model.json``,
        ``alignment.json``, ``subjects.tsv``, and per subject a folder with ``manifest.json``,
        ``pca.json``, ``reference.*`` and its phases.

    Raises
    ------
    InputError
        With everything that is wrong with any mesh.
    """
    for problem in plan.warnings:
        _log.warning(problem.sentence())
    problems: list[Problem] = []
    meshes, shapes = _references(plan, problems)
    if not shapes:
        raise InputError(*problems)
    usual = usual_shape([*shapes.values()])
    edges = mesh_edges(meshes[usual.subject])
    found = reference_problems([*shapes.values()], usual, edges)
    problems += found
    unfit = {problem.subject for problem in found if problem.severity == "error"}
    sound = {name: shape for name, shape in shapes.items() if name not in unfit}

    prepared, scored = None, dict[str, Scored]()
    if not any(problem.severity == "error" for problem in problems):
        with collecting(problems):
            prepared = _shape_model(plan, meshes, sound)
            scored = _scores(prepared, sound, plan.settings.align)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as temporary:
        folder = Path(temporary, "cohort")
        folder.mkdir()
        for subject in plan.subjects:
            if subject.id in sound:
                writer = _Writer(plan, folder, prepared, scored.get(subject.id), edges)
                problems += writer.write(subject, meshes[subject.id], sound[subject.id])
        for problem in problems:
            if problem.severity == "warning":
                _log.warning(problem.sentence())
        raise_if_any(problems)
        assert prepared is not None, "only problems prevent a shape model"
        _write_common(plan, prepared, scored, folder)
        shutil.copytree(folder, output, copy_function=shutil.move, dirs_exist_ok=True)
    return prepared


def read_shape(mesh: PhaseMesh, phase: str | None) -> tuple[Any, Shape]:
    """Read a mesh of a source; its points must be finite."""
    with at(mesh.files[0], mesh.subject, phase):
        data = mesh.read()
        points = np.asarray(data.points, np.float64)
        if problem := non_finite(points, "the points"):
            raise InputError(problem)
    return data, Shape(mesh.subject, str(mesh.files[0]), points, canonical_cells(data), phase)


def _references(plan: Plan, problems: list[Problem]) -> tuple[dict[str, Any], dict[str, Shape]]:
    meshes, shapes = {}, {}
    for subject in plan.subjects:
        with collecting(problems):
            meshes[subject.id], shapes[subject.id] = read_shape(subject.reference, None)
    return meshes, shapes


def _shape_model(plan: Plan, meshes: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Prepared:
    """Bring the training subjects together and find the modes of their shapes."""
    settings, training = plan.settings, [subject.id for subject in plan.training]
    points = np.array([shapes[name].points for name in training])
    matrices, mean = generalised_procrustes(points, settings.align)
    aligned = [transform_points(m, p).ravel() for m, p in zip(matrices, points, strict=True)]
    pca = PCA(n_components=len(training) - 1, svd_solver="full").fit(np.array(aligned))
    moving = pca.explained_variance_ > _LEAST_EIGENVALUE * pca.explained_variance_[0]
    if not moving.any():
        what = f"the {len(training)} training subjects have one shape, so there is no mode"
        raise InputError(Problem(what, "add subjects that differ", settings.meshes))
    explained = pca.explained_variance_ratio_[moving]
    wanted = _VARIANCE if settings.variance is None else settings.variance
    # Sums of parts are 1 but for rounding.
    enough = int(np.searchsorted(np.cumsum(explained), wanted - 1e-9)) + 1
    n_modes = min(settings.modes or enough, len(explained))
    model = ShapeModel(
        pca.explained_variance_[:n_modes].astype(np.float64),
        pca.components_[:n_modes].astype(np.float64),
    )
    for mode, (eigenvalue, part) in enumerate(zip(model.eigenvalues, explained, strict=False)):
        _log.info("mode %d: variance %.4g mm^2, %.1f %%", mode + 1, eigenvalue, 100 * part)
    _log.info(
        "%d of %d modes hold %.1f %% of the variance of %d training subjects",
        n_modes, len(explained), 100 * explained[:n_modes].sum(), len(training),
    )  # fmt: skip
    template = meshes[training[0]].copy()
    _keep_shared_arrays(template, [meshes[name] for name in training[1:]])
    template.points = mean
    return Prepared(template, model, explained[:n_modes])


def _keep_shared_arrays(template: Any, others: list[Any]) -> None:
    """Leave the template what all have alike, as labels of regions; the rest is one subject's."""
    for kind in ("point_data", "cell_data"):
        own = getattr(template, kind)
        for name in list(own.keys()):
            theirs = [getattr(other, kind) for other in others]
            if not all(name in data and np.array_equal(data[name], own[name]) for data in theirs):
                del own[name]
    template.field_data.clear()


def _scores(prepared: Prepared, shapes: Mapping[str, Shape], align: Align) -> dict[str, Scored]:
    """Score every subject as `score_subject.py` scores a new patient."""
    mean = np.asarray(prepared.mesh.points, np.float64)
    modes = prepared.model.modes(prepared.model.n_modes)
    problems, scored = list[Problem](), {}
    for name, shape in shapes.items():
        with collecting(problems), at(shape.file, name):
            scored[name] = score_points(shape.points, mean, modes, align)
    raise_if_any(problems)
    worst = max(scored, key=lambda name: scored[name].residual)
    _log.info(
        "the modes leave %.3g mm RMS of references (median), at most %.3g mm (subject %s)",
        np.median([found.residual for found in scored.values()]), scored[worst].residual, worst,
    )  # fmt: skip
    return scored


@dataclass(frozen=True)
class _Writer:
    """Checks a subject's phases and, where all references are sound, writes the subject."""

    plan: Plan
    folder: Path
    prepared: Prepared | None
    scored: Scored | None
    edges: np.ndarray

    def write(
        self, subject: PlannedSubject, reference_mesh: Any, reference: Shape
    ) -> list[Problem]:
        """Give the problems of a subject's phases."""
        problems: list[Problem] = []
        names: list[dict[str, Any]] = []
        for number, (phase, stage) in enumerate(zip(subject.phases, subject.stages, strict=True)):
            label = f"{phase.phase} (stage {stage:.4g})"
            with collecting(problems):
                data, shape = read_shape(phase, label)
                problems += phase_problems(shape, reference, self.edges)
                with at(phase.files[0], subject.id, label):
                    name = f"phase_{number:03d}{self.plan.suffix}"
                    self._write_phase(subject, name, data, shape, reference)
                names.append({"mesh": name, "stage": stage})
        if self.scored and not any(problem.severity == "error" for problem in problems):
            self._write_rest(subject, names, reference)
        return problems

    def _write_phase(
        self, subject: PlannedSubject, name: str, data: Any, shape: Shape, reference: Shape
    ) -> None:
        target = self.plan.settings.target
        own = target != DISPLACEMENT
        values = point_array(data, target).astype(np.float64) if own else None
        if values is not None and (problem := non_finite(values, target)):
            raise InputError(problem)
        if self.scored is None or self.prepared is None:
            return
        if shape.points.shape != reference.points.shape:
            return  # told already
        matrix = self.scored.matrix
        moved = transform_points(matrix, shape.points)
        if values is None:
            values = moved - transform_points(matrix, reference.points)
        elif values.shape[1] == 3:
            values = values @ matrix[:3, :3].T
        mesh = self._mesh(moved)
        mesh.point_data[target] = values.astype(np.float32)
        write_mesh(self.folder / subject.stem / name, mesh)

    def _mesh(self, points: np.ndarray) -> Any:
        assert self.prepared is not None, "asked before"
        mesh = self.prepared.mesh.copy()
        mesh.clear_data()
        mesh.points = points.astype(np.float32)
        return mesh

    def _write_rest(
        self, subject: PlannedSubject, phases: list[dict[str, Any]], reference: Shape
    ) -> None:
        assert self.scored is not None, "asked before"
        folder, name = self.folder / subject.stem, f"reference{self.plan.suffix}"
        points = transform_points(self.scored.matrix, reference.points)
        write_mesh(folder / name, self._mesh(points))
        write_json(folder / "pca.json", self.scored.shape_scores.tolist())
        manifest = {
            "subject_id": subject.id,
            "fitted_reference_mesh": name,
            "pca_coefficients": "pca.json",
            "target_array": self.plan.settings.target,
            "alignment": f"../{ALIGNMENT}",
            "phases": phases,
        }
        write_json(folder / MANIFEST, manifest)


def _write_common(
    plan: Plan, prepared: Prepared, scored: Mapping[str, Scored], folder: Path
) -> None:
    template = prepared.mesh.copy()
    template.points = np.asarray(template.points, np.float32)
    write_mesh(folder / plan.template, template)
    write_shape_model(folder / SHAPE_MODEL, prepared.model)
    matrices = {name: found.matrix for name, found in scored.items()}
    write_alignment(folder / ALIGNMENT, plan.settings.align, matrices)
    rows = [f"{subject.stem}/{MANIFEST}\t{subject.split}" for subject in plan.subjects]
    write_text(folder / SUBJECTS_TABLE, "\n".join(["manifest\tsplit", *rows]) + "\n")
