"""One subject read from other people's files, judged against the template, problems collected."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.cohort.geometry import distances_from_model, fit_pose, size
from meshstage.cohort.manifest import Draft, draft_manifest, read_shape_scores
from meshstage.cohort.names import subject_stem
from meshstage.cohort.subject_record import PhaseRecord, ReferenceRecord, SubjectRecord
from meshstage.cohort.template import Template
from meshstage.errors import InputError, Problem, at, collecting
from meshstage.files import real_path
from meshstage.meshes.arrays import non_finite, point_array
from meshstage.meshes.cells import canonical_cells
from meshstage.meshes.reading import read_mesh, read_mesh_file
from meshstage.meshes.renumbering import describe_difference
from meshstage.meshes.space import mesh_space

# DESIGN: phase - reference = target to this part of the template's diagonal.
DISPLACEMENT_TOLERANCE = 1e-4

_DISPLACEMENT = "phase - reference"
_MISTAKES = {
    "phase": (
        "equal the coordinates (absolute positions)",
        "save displacements from the reference, if they are what the network should learn",
    ),
    "reference - phase": (
        "are reference minus phase, the reverse of a displacement",
        "save phase minus reference, if meshes should move as they did",
    ),
    "phase - template": (
        "are phase minus template, not phase minus the subject's own reference mesh",
        "subtract the reference mesh, if they should be displacements",
    ),
}


@dataclass
class Examination:
    """A subject in the making: what has been read of it and what is wrong with it."""

    draft: Draft
    template: Template
    problems: list[Problem] = field(default_factory=list)
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))
    reference: np.ndarray | None = None
    phases: list[PhaseRecord] = field(default_factory=list)
    targets: dict[int, np.ndarray] = field(default_factory=dict)
    measured: ReferenceRecord | None = None

    @contextmanager
    def collecting(self, file: Path, phase: str | None = None) -> Iterator[None]:
        """Keep the problems of an `InputError`, with the place where they were met.

        Any other exception is a problem of this file too, and no reason to stop: other people's
        files find the gaps of every reader.
        """
        with collecting(self.problems), at(file, self.draft.label, phase):
            try:
                yield
            except InputError:
                raise
            except Exception as error:
                what = f"cannot be used ({type(error).__name__}: {error})"
                raise InputError(Problem(what, "open it, and write it again")) from error

    @property
    def errors(self) -> list[Problem]:
        """The problems that are errors."""
        return [problem for problem in self.problems if problem.severity == "error"]


def examine_subject(manifest_path: Path, template: Template) -> Examination:
    """Read one subject as far as its files go; every problem is collected, nothing is raised.

    Parameters
    ----------
    manifest_path : Path
    template : Template
        Each mesh must have its cells, or be the volume whose surface it is.
    """
    draft = draft_manifest(manifest_path)
    subject = Examination(draft, template, problems=list(draft.problems))
    if path := draft.file("pca_coefficients"):
        with subject.collecting(path):
            subject.scores = read_shape_scores(path)
            _check_score_count(subject.scores, template)
    if path := draft.file("fitted_reference_mesh"):
        with subject.collecting(path):
            mesh = read_mesh(path)
            rows = rows_on_template(mesh, template)
            points = _points(mesh)
            subject.reference = points if rows is None else points[rows]
            subject.measured = _measure(path, mesh_space(mesh), subject)
    for index, path, label in draft.phase_files():
        _examine_phase(subject, index, path, label)
    _check_widths(subject)
    _warn(subject)
    return subject


def _check_score_count(scores: np.ndarray, template: Template) -> None:
    model = template.shape_model
    # Scores of a volume's full model are legal where its surface is the template.
    if model and template.surface is None and len(scores) > model.n_modes:
        raise InputError(
            Problem(
                what=f"has {len(scores)} shape scores, the template's pca_model.json "
                f"has {model.n_modes} modes",
                todo="write one score per mode, or those of the first modes",
            )
        )


def _measure(path: Path, space: str | None, subject: Examination) -> ReferenceRecord:
    points, template = subject.reference, subject.template
    assert points is not None, "it has been read"
    record = ReferenceRecord(file=str(path), size=size(points), space=space)
    if pose := fit_pose(points, template.points):
        record.degrees, record.residual, record.mirrored_residual = pose
    if template.shape_model and len(subject.scores):
        record.from_mean, record.from_scores = distances_from_model(
            points, subject.scores, template.shape_model, template.points
        )
    return record


def rows_on_template(mesh: Any, template: Template) -> np.ndarray | None:
    """Tell which points of a mesh are the template's.

    Parameters
    ----------
    mesh : pyvista.PolyData or pyvista.UnstructuredGrid
        With the template's cells, or the volume whose surface the template is.
    template : Template

    Returns
    -------
    (n_points,) int64 array or None
        The mesh's point of each point of the template; None if they are the same.

    Raises
    ------
    InputError
        If the mesh has another number of points, or other cells.
    """
    cells = canonical_cells(mesh)
    if mesh.n_points == template.n_points and cells.same_as(template.cells):
        return None
    surface = template.surface
    is_volume = surface is not None and mesh.n_points == surface.source_n_points
    if surface and is_volume and cells.fingerprint() == surface.source_fingerprint:
        return surface.point_ids
    todo = "save it with the template's points and cells"
    if mesh.n_points == template.n_points:
        what = describe_difference(cells, template.cells, template.n_points)
    elif is_volume:
        what = f"has other cells than the volume of the template {template.source}"
    else:
        volume = f" and its volume {surface.source_n_points}" if surface else ""
        own = f"{mesh.n_points} point{'s' if mesh.n_points > 1 else ''}"
        what = f"has {own}, the template {template.source} has {template.n_points}{volume}"
        todo = "bring it into correspondence with the template, point by point"
    raise InputError(Problem(what, todo))


def _points(mesh: Any) -> np.ndarray:
    points = np.asarray(mesh.points)
    if problem := non_finite(points, "points"):
        raise InputError(problem)
    return points.astype(np.float64)


def _examine_phase(subject: Examination, index: int, path: Path, label: str) -> None:
    manifest = subject.draft.manifest
    stage = manifest.phases[index].stage if manifest else None
    record = PhaseRecord(index=index, mesh=str(path), stage=stage)
    subject.phases.append(record)
    name, template = subject.draft.target_array, subject.template
    with subject.collecting(path, label):
        mesh, record.size_bytes, record.crc32 = read_mesh_file(path)
        record.n_points = mesh.n_points
        record.space = mesh_space(mesh)
        rows = rows_on_template(mesh, template)
        points = _points(mesh)
        if name is None:
            return
        values = point_array(mesh, name)
        record.n_target = values.shape[1]
        if problem := non_finite(values, f"point array {name!r}"):
            raise InputError(problem)
        if rows is not None:
            points, values = points[rows], values[rows]
        exact = values.astype(np.float64)
        targets = _as_float32(exact, name)
        record.max_abs_target = float(np.abs(exact).max(initial=0.0))
        record.extent = float(np.abs(points).max())
        record.size = size(points)
        record.content = np.hstack([template.sketch @ points, template.sketch @ exact]).tolist()
        subject.targets[index] = targets
        if values.shape[1] == 3:
            record.target_equals = _target_equals(exact, points, subject.reference, template)


def _target_equals(
    target: np.ndarray, points: np.ndarray, reference: np.ndarray | None, template: Template
) -> list[str]:
    others = {"phase": points, "phase - template": points - template.points}
    if reference is not None:
        others |= {_DISPLACEMENT: points - reference, "reference - phase": reference - points}
    tolerance = DISPLACEMENT_TOLERANCE * template.diagonal
    return [name for name, other in others.items() if np.abs(target - other).max() <= tolerance]


def _as_float32(values: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if problem := non_finite(narrow, f"point array {name!r} as float32"):
        raise InputError(problem)
    return narrow


def _check_widths(subject: Examination) -> None:
    """Blame the phases whose target is not as wide as that of most phases."""
    widths = Counter(phase.n_target for phase in subject.phases if phase.n_target is not None)
    if len(widths) < 2:
        return
    usual = widths.most_common(1)[0][0]
    labels = {index: label for index, _, label in subject.draft.phase_files()}
    for phase in subject.phases:
        if phase.n_target not in (None, usual):
            subject.problems.append(
                Problem(
                    what=f"the point array {subject.draft.target_array!r} has {phase.n_target} "
                    f"component{'s' if phase.n_target != 1 else ''}, other phases have {usual}",
                    todo="save the same array in all phases",
                    file=phase.mesh,
                    subject=subject.draft.label,
                    phase=labels[phase.index],
                )
            )


def _warn(subject: Examination) -> None:
    def warn(what: str, todo: str) -> None:
        subject.problems.append(
            Problem(what, todo, str(subject.draft.path), subject.draft.label, severity="warning")
        )

    by_file: dict[str, list[int]] = {}
    for phase in subject.phases:
        by_file.setdefault(real_path(Path(phase.mesh)), []).append(phase.index)
    for indices in by_file.values():
        if len(indices) > 1:
            warn(f"the phases {indices} are one mesh file", "check that the motion stands still")
    name = subject.draft.target_array
    largest = [p.max_abs_target for p in subject.phases if p.max_abs_target is not None]
    if largest and not any(largest):
        warn(f"the targets {name!r} of all phases are zero", "check what was saved")
    else:
        _warn_of_mistaken_targets(subject, warn)


def _warn_of_mistaken_targets(subject: Examination, warn: Callable[[str, str], None]) -> None:
    """Tell which difference the targets are, where they are not the displacement."""
    read = [phase for phase in subject.phases if phase.content is not None]
    missed = [phase for phase in read if _DISPLACEMENT not in phase.target_equals]
    name = subject.draft.target_array
    for equal, (what, todo) in _MISTAKES.items():
        if count := sum(equal in phase.target_equals for phase in missed):
            warn(f"the targets {name!r} {what} in {count} of {len(read)} phases", todo)
            return
    if missed and len(missed) < len(read):
        warn(
            f"the targets {name!r} are phase - reference in some phases, but not in "
            f"{[phase.index for phase in missed]}: they are not taken as displacements",
            "check these phases, or the reference",
        )


def subject_record(subject: Examination, hashes: Callable[[], dict[str, str]]) -> SubjectRecord:
    """Put what is known of a subject into the form of ``subject.json``."""
    draft, widths = subject.draft, {p.n_target for p in subject.phases} - {None}
    scores_file = draft.file("pca_coefficients")
    return SubjectRecord(
        id=draft.subject_id,
        label=draft.label,
        stem=subject_stem(draft.subject_id) if draft.subject_id else None,
        manifest=str(draft.path),
        template_fingerprint=subject.template.fingerprint,
        stages=draft.manifest.stages.tolist() if draft.manifest else [],
        shape_scores_file=str(scores_file) if scores_file else None,
        shape_scores=subject.scores.tolist(),
        target_array=draft.target_array,
        n_points=subject.template.n_points,
        n_target=next(iter(widths)) if len(widths) == 1 else None,
        is_displacement=not subject.errors
        and all(_DISPLACEMENT in phase.target_equals for phase in subject.phases),
        reference=subject.measured,
        phases=subject.phases,
        hashes={} if subject.errors else hashes(),
        errors=subject.errors,
        warnings=[p for p in subject.problems if p.severity == "warning"],
    )
