"""Write what a model predicts: moved meshes by phase, playable as an animation."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from meshstage.errors import InputError, Problem
from meshstage.files import atomic
from meshstage.inference import Predictor
from meshstage.manifest import Manifest, read_shape_scores
from meshstage.meshes import POINT_IDS, read_mesh, write_mesh
from meshstage.model_files import SHAPE_MODEL
from meshstage.shape_model import read_shape_model


def subject_points(predictor: Predictor, manifest: Manifest) -> np.ndarray:
    """Read the points of a subject's own reference mesh; without one, reconstruct them.

    Returns
    -------
    (n_points, 3) float64 array, mm

    Raises
    ------
    InputError
        If the reference has other points than the template.
    """
    if not manifest.fitted_reference_mesh:
        return shape_points(predictor, read_shape_scores(manifest.shape_scores_path))
    reference = read_mesh(manifest.reference_path)
    points = np.asarray(reference.points, np.float64)
    ids = predictor.mesh.point_data.get(POINT_IDS)
    if ids is not None and len(points) != len(ids) and len(points) > ids.max():
        points = points[ids]  # a volume, and the model lives on its surface
    if len(points) != len(predictor.points):
        raise InputError(
            Problem(
                f"the reference has {len(points)} points, the model's template has "
                f"{len(predictor.points)}",
                "fit the reference with the template that the model was trained on",
                str(manifest.reference_path),
                manifest.subject_id,
            )
        )
    return points


def shape_points(predictor: Predictor, shape_scores: np.ndarray) -> np.ndarray:
    """Reconstruct a subject's points from its scores; the template's own without a shape model.

    Returns
    -------
    (n_points, 3) float64 array, mm
    """
    path = predictor.directory / SHAPE_MODEL
    if not path.exists():
        return predictor.points
    model = read_shape_model(path, len(predictor.points))
    offset = (shape_scores * np.sqrt(model.eigenvalues)) @ model.components
    return predictor.points + offset.reshape(-1, 3)


def moves_meshes(predictor: Predictor) -> bool:
    """Say whether the target is a displacement, so that it moves points."""
    by_name = predictor.n_target == 3 and predictor.target_array == "displacement"
    return bool(predictor.metadata.get("target_is_displacement", by_name))


def write_prediction(
    output: Path,
    predictor: Predictor,
    points: np.ndarray,
    stages: Sequence[float],
    targets: np.ndarray,
    name: str,
) -> Path:
    """Write one mesh a stage, and a ``.pvd`` that plays them with the stage as time.

    Parameters
    ----------
    output : Path
        Folder of the subject.
    predictor : Predictor
    points : (n_points, 3) array, mm
        The subject's undeformed points.
    stages : (n_stages,) sequence
    targets : (n_stages, n_points, n_target) array
    name : str
        Stem of the ``.pvd``.

    Returns
    -------
    Path
        The ``.pvd``.
    """
    suffix = ".vtp" if hasattr(predictor.mesh, "faces") else ".vtu"
    moved = moves_meshes(predictor)
    root = ElementTree.Element("VTKFile", type="Collection", version="0.1")
    collection = ElementTree.SubElement(root, "Collection")
    for index, (stage, target) in enumerate(zip(stages, targets, strict=True)):
        mesh = predictor.mesh.copy()
        mesh.clear_data()
        mesh.points = points + target if moved else points.copy()
        mesh.point_data[predictor.target_array] = target if target.shape[1] > 1 else target[:, 0]
        # The whole stage, so that 0.291 and 0.295 stay apart; the index keeps files in order.
        file = f"phase_{index:03d}_stage_{float(stage)!r}{suffix}"
        write_mesh(output / file, mesh)
        ElementTree.SubElement(collection, "DataSet", timestep=repr(float(stage)), file=file)
    ElementTree.indent(root)
    path = output / f"{name}.pvd"
    with atomic(path) as temporary:
        ElementTree.ElementTree(root).write(temporary, encoding="utf-8", xml_declaration=True)
    return path
