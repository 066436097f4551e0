"""Where one of two runs is better: by subject, by stage, and on the mesh."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyvista as pv
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from meshstage.cohort.subject import Subject
from meshstage.config.subjects import SPLITS
from meshstage.figures import style
from meshstage.figures.cases import read_prediction
from meshstage.figures.meshes import Scene, show_row
from meshstage.judging.comparison import Comparison

_DIFFERENCE_MAP = "PuOr_r"  # both ends are told apart by colour-blind eyes; equal is white
_MOST_SUBJECTS = 60


def rmse_by_point(subjects: Sequence[Subject], predictions: Path) -> np.ndarray:
    """Pool the error at each point over the subjects' stages, (n_points,), units of the target.

    Parameters
    ----------
    subjects : sequence of Subject
    predictions : Path
        Folder of the run's predictions, with one folder per subject.
    """
    square = 0.0
    for subject in subjects:
        error = read_prediction(predictions / subject.stem, subject) - subject.targets
        square = square + (error.astype(np.float64) ** 2).sum(axis=(0, 2))
    return np.asarray(np.sqrt(square / sum(len(subject.stages) for subject in subjects)))


def plot_comparison(
    comparison: Comparison, mesh: pv.DataSet | None = None, by_point: np.ndarray | None = None
) -> Figure:
    """Plot the differences of two runs' RMSE: below 0 the first is better.

    Parameters
    ----------
    comparison : Comparison
    mesh : pyvista mesh, optional
        The template.
    by_point : (n_points,) array, optional
        Difference of the two runs' `rmse_by_point`.
    """
    first, second = comparison.names
    label = f"{style.label_rmse(comparison.unit)}, {first} less {second}"
    panels = 2 + (by_point is not None)
    ranked = sorted(comparison.by_subject.items(), key=lambda item: item[1][0] - item[1][1])
    shown = ranked
    if len(ranked) > _MOST_SUBJECTS:
        shown = ranked[: _MOST_SUBJECTS // 2] + ranked[-_MOST_SUBJECTS // 2 :]
    figure, ((left, middle, *rest),) = style.new_figure(
        1, panels, size=(5 * panels, max(4.0, 1.6 + 0.2 * len(shown)))
    )
    left.barh(
        [name for name, _ in shown],
        [a - b for _, (a, b) in shown],
        color=[style.COLOURS[0] if a < b else style.COLOURS[1] for _, (a, b) in shown],
    )
    left.set_axisbelow(True)
    left.set_xlabel(label)
    left.set_title(f"{SPLITS[comparison.split]} subjects, {len(shown)} of {len(ranked)}")
    stages = np.array(list(comparison.by_stage))
    found = list(comparison.by_stage.values())
    middle.plot(stages, [d.value for d in found], **style.run_style(0))
    known = [d for d in found if d.low is not None]
    if len(known) == len(found):
        middle.fill_between(stages, [d.low for d in found], [d.high for d in found], alpha=0.2)
    middle.axhline(0, color="0.25", linewidth=1)
    middle.set(xlabel="stage", ylabel=label, title="by stage, 95 % interval over subjects")
    if mesh is not None and by_point is not None:
        largest = float(np.abs(by_point).max()) or 1e-12
        points = np.asarray(mesh.points)
        picture = Scene(mesh, points).render(points, by_point, largest, _DIFFERENCE_MAP, -largest)
        show_row(rest, [picture])
        scale = ScalarMappable(Normalize(-largest, largest), _DIFFERENCE_MAP)
        figure.colorbar(scale, ax=rest[0], location="bottom", label=label)
    return figure
