"""Write what is predicted: moved meshes by stage, playable as an animation."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyvista as pv

from meshstage.files import atomic
from meshstage.meshes.reading import write_mesh
from meshstage.prediction.predictor import Predictor
from meshstage.prediction.questions import Question
from meshstage.prediction.reading import MOVED_BY
from meshstage.prediction.stress import Tissue


def write_prediction(
    output: Path,
    predictor: Predictor,
    question: Question,
    targets: np.ndarray,
    tissue: Tissue | None = None,
    deviation: np.ndarray | None = None,
) -> tuple[Path, list[Path]]:
    """Write one mesh per stage, and a ``.pvd`` that plays them with the stage as time.

    Meshes of an earlier prediction of this subject are removed: viewers group files by name.

    Parameters
    ----------
    output : Path
        Gets a folder of the subject.
    predictor : Predictor
    question : Question
    targets : (n_stages, n_points, n_target) array
    tissue : Tissue, optional
        Writes stress and strain on the cells too.
    deviation : (n_stages, n_points) array, optional
        Written as the point array ``{target_array}_deviation``.

    Returns
    -------
    animation : Path
        The ``.pvd``.
    meshes : list of Path
        One per stage.
    """
    suffix = ".vtp" if isinstance(predictor.mesh, pv.PolyData) else ".vtu"
    folder, moved = output / question.stem, predictor.moves_meshes
    root = ElementTree.Element("VTKFile", type="Collection", version="0.1")
    collection = ElementTree.SubElement(root, "Collection")
    paths = []
    for index, (stage, target) in enumerate(zip(question.stages.tolist(), targets, strict=True)):
        mesh = predictor.mesh.copy()
        mesh.clear_data()
        mesh.points = question.points + target if moved else question.points.copy()
        if moved:
            mesh.field_data[MOVED_BY] = [predictor.target_array]
        mesh.point_data[predictor.target_array] = target if target.shape[1] > 1 else target[:, 0]
        if deviation is not None:
            mesh.point_data[f"{predictor.target_array}_deviation"] = deviation[index]
        if tissue:
            mesh.cell_data.update(tissue.cell_arrays(question.points, target))
        # The whole stage, so that 0.291 and 0.295 stay apart; the index keeps files in order.
        file = f"phase_{index:03d}_stage_{stage!r}{suffix}"
        write_mesh(folder / file, mesh)
        paths.append(folder / file)
        ElementTree.SubElement(collection, "DataSet", timestep=repr(stage), file=file)
    ElementTree.indent(root)
    animation = folder / f"{question.stem}.pvd"
    with atomic(animation) as temporary:
        ElementTree.ElementTree(root).write(temporary, encoding="utf-8", xml_declaration=True)
    for path in folder.glob("phase_*_stage_*.vt[pu]"):
        if path not in paths:
            path.unlink()
    return animation, paths
