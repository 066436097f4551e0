"""A shape model of some subjects alone, and the scores that all subjects have in it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from meshstage.cohort.geometry import distances_from_model
from meshstage.cohort.shape_model import ShapeModel
from meshstage.cohort.subject import REFERENCE, SUBJECT_JSON, TARGETS, Subject, load_record
from meshstage.cohort.template import Template, write_template
from meshstage.errors import InputError, Problem
from meshstage.files import sha256, write_json


def fit_shape_model(references: Sequence[np.ndarray], n_modes: int) -> ShapeModel:
    """Fit the mean and the principal modes of shapes that lie on each other.

    Parameters
    ----------
    references : sequence of (n_points, 3) arrays, mm
        Point by point the same anatomy, aligned.
    n_modes : int
        At most; there are never more than shapes less one, nor modes without variance.

    Raises
    ------
    InputError
        If there are fewer than two shapes, or all are equal.
    """
    shapes = np.stack([np.asarray(r, np.float64).ravel() for r in references])
    mean = shapes.mean(axis=0)
    _, values, rows = np.linalg.svd(shapes - mean, full_matrices=False)
    # Rounding leaves some 1e-16 of the coordinates' size where shapes do not differ at all.
    real = int((values > 1e-12 * np.abs(shapes).max() * np.sqrt(shapes.size)).sum())
    n_modes = min(n_modes, real, len(shapes) - 1)
    if n_modes < 1:
        what = f"{len(shapes)} training references have no modes of shape"
        raise InputError(Problem(what, "give at least two subjects that differ"))
    components = rows[:n_modes]
    # A component and its reverse are the same mode: the largest number is to be positive.
    largest = np.abs(components).argmax(axis=1)
    components *= np.sign(components[np.arange(n_modes), largest])[:, None]
    return ShapeModel(values[:n_modes] ** 2 / (len(shapes) - 1), components, mean)


def scores_of(model: ShapeModel, reference: np.ndarray) -> np.ndarray:
    """Project a shape (n_points, 3), mm, on the modes of a model that has a mean, (n_modes,)."""
    assert model.mean is not None, "a fitted model has one"
    along = model.components @ (np.asarray(reference, np.float64).ravel() - model.mean)
    scores: np.ndarray = along / np.sqrt(model.eigenvalues)
    return scores


def refit(
    template: Template, train: Sequence[Subject], others: Sequence[Subject], output: Path
) -> ShapeModel:
    """Write a template and subjects as they are in the shape model of some of them.

    Parameters
    ----------
    template : Template
    train : sequence of Subject
        The shape model and the mean are theirs, with as many modes as they have scores.
    others : sequence of Subject
        Who are projected.
    output : Path
        Folder for ``subjects/``, whose arrays are links to the ingested ones, and then for
        ``template/``.
    """
    model = fit_shape_model([s.reference for s in train], len(train[0].shape_scores))
    mesh = template.mesh()
    mesh.points = model.mean_points(template.points)
    refitted = replace(template, points=np.array(mesh.points, np.float64), shape_model=model)
    for subject in (*train, *others):
        _write_subject(refitted, subject, output / "subjects" / subject.stem)
    write_template(refitted, mesh, output / "template" / template.mesh_path.name)
    return model


def _write_subject(template: Template, subject: Subject, directory: Path) -> None:
    """Write a subject's record with its scores in the template's shape model."""
    model = template.shape_model
    assert model is not None, "it has just been fitted"
    scores = scores_of(model, subject.reference)
    record = load_record(subject.directory)
    record.shape_scores = scores.tolist()
    record.shape_scores_file = None
    if record.reference:
        record.reference.from_mean, record.reference.from_scores = distances_from_model(
            subject.reference, scores, model, template.points
        )
    record.hashes = subject.hashes | {"shape_scores": sha256(scores)}
    directory.mkdir(parents=True, exist_ok=True)
    for name in (TARGETS, REFERENCE):
        link = directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(subject.directory / name, directory))
    write_json(directory / SUBJECT_JSON, record.model_dump())
