"""The modes of a shape model on the mesh."""

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from meshstage.cohort.shape_model import ShapeModel
from meshstage.figures import style
from meshstage.figures.meshes import Scene

_MOST_MODES = 8
_SCORES = (-2.0, 0.0, 2.0)


def plot_modes(mesh: Any, model: ShapeModel) -> Figure:
    """Show the first eight modes, one row per mode: the mean, and two standard deviations off it.

    Colours are the distance from the mean shape, mm.

    Parameters
    ----------
    mesh : pyvista mesh
        The template.
    model : ShapeModel
    """
    modes = model.modes(_MOST_MODES)
    mean = model.mean_points(np.asarray(mesh.points, np.float64))
    shapes = [[mean + score * mode for score in _SCORES] for mode in modes]
    largest = max(float(np.linalg.norm(2 * modes, axis=2).max()), 1e-12)
    scene = Scene(mesh, np.concatenate([points for row in shapes for points in row]))
    figure, axes = style.new_figure(len(modes), 3, size=(8.0, 2.6 * len(modes)))
    share = model.eigenvalues / model.eigenvalues.sum()
    for mode, row in enumerate(shapes):
        for axis, points, score in zip(axes[mode], row, _SCORES, strict=True):
            moved = np.linalg.norm(points - mean, axis=1)
            axis.imshow(scene.render(points, moved, largest, style.MOTION_MAP))
            axis.set_axis_off()
            axis.set_title("mean" if score == 0 else f"{score:+g} standard deviations")
        text = (
            f"mode {mode + 1}: {model.eigenvalues[mode]:.3g} mm², {share[mode]:.1%} of these modes"
        )
        axes[mode][0].text(0, 1.2, text, transform=axes[mode][0].transAxes)
    scale = ScalarMappable(Normalize(0, largest), style.MOTION_MAP)
    figure.colorbar(scale, ax=axes, label="distance from the mean [mm]", shrink=0.6)
    return figure
