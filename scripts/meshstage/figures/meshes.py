"""Truth beside prediction beside error on the mesh: one picture, and one cycle as an animation."""

import base64
import io
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np
import pyvista as pv
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image

from meshstage.config.subjects import SPLITS
from meshstage.figures import style
from meshstage.figures.cases import Case
from meshstage.meshes.surface import triangles_of
from meshstage.pages import html_page

_PIXELS = 420
_VIEW = (1.0, -1.4, 0.75)  # from the front, above: into the cavity of a heart with its base up
_CYCLE_SECONDS = 2.4
_MOST_EDGES_SHOWN = 6000
_COLUMNS = ("truth", "prediction", "error")


class Scene:
    """Renders one template's cells, always from the same place.

    Parameters
    ----------
    mesh : pyvista mesh
        The template; its surface is shown, or its points if it has none.
    everything : (n, 3) array, mm
        Points that must all be in view.
    """

    def __init__(self, mesh: pv.DataSet, everything: np.ndarray) -> None:
        self._triangles = triangles_of(mesh)
        away = np.array(_VIEW) / np.linalg.norm(_VIEW)
        right = np.cross((0.0, 0.0, 1.0), away)
        right /= np.linalg.norm(right)
        # Everything in the camera's own axes: right, up and towards the eye.
        axes = np.stack([right, np.cross(away, right), away])
        seen = everything @ axes.T
        low, high = seen.min(axis=0), seen.max(axis=0)
        self._centre = (low + high) / 2 @ axes
        self._half = float((high - low)[:2].max() / 2) or 1.0
        self._eye = self._centre + away * 4 * float(np.linalg.norm(high - low) or 1.0)

    def render(
        self,
        points: np.ndarray,
        values: np.ndarray,
        largest: float,
        colours: str,
        least: float = 0.0,
    ) -> np.ndarray:
        """Render points with one value each, least to largest: (height, width, 3) uint8."""
        # Without a display VTK says so before it draws without one.
        with pv.vtk_verbosity("off"):
            plotter: Any = pv.Plotter(off_screen=True, window_size=[_PIXELS, _PIXELS])
            plotter.set_background("white")
            surface = len(self._triangles) > 0
            shown = (
                pv.PolyData.from_regular_faces(points, self._triangles)
                if surface
                else pv.PolyData(points)
            )
            plotter.add_mesh(
                shown,
                scalars=np.asarray(values, float),
                clim=(least, largest),
                cmap=colours,
                show_scalar_bar=False,
                show_edges=surface and len(self._triangles) < _MOST_EDGES_SHOWN,
                edge_color="#404040",
                line_width=0.5,
                point_size=5,
                render_points_as_spheres=not surface,
                ambient=0.5,  # more light than shade: a colour must be found again on its scale
                diffuse=0.55,
            )
            plotter.camera_position = [self._eye, self._centre, (0, 0, 1)]
            plotter.enable_parallel_projection()
            plotter.camera.parallel_scale = 1.04 * self._half
            plotter.enable_anti_aliasing("ssaa")
            picture = plotter.screenshot(return_img=True)
            plotter.close()
            return np.asarray(picture)


def _scene(mesh: pv.DataSet, cases: Sequence[Case]) -> Scene:
    everything = [
        case.points(phase, predicted)
        for case in cases
        for phase in range(len(case.subject.stages))
        for predicted in (False, True)
    ]
    return Scene(mesh, np.concatenate(everything))


def _largest(cases: Sequence[Case], value: Callable[[Case, int], np.ndarray]) -> float:
    phases = [(case, phase) for case in cases for phase in range(len(case.subject.stages))]
    return max(max(float(value(case, phase).max()) for case, phase in phases), 1e-12)


def _pictures(
    scene: Scene, case: Case, phase: int, motion: float, error: float
) -> list[np.ndarray]:
    return [
        scene.render(case.points(phase, False), case.size(phase, False), motion, style.MOTION_MAP),
        scene.render(case.points(phase, True), case.size(phase, True), motion, style.MOTION_MAP),
        scene.render(case.points(phase, True), case.error(phase), error, style.ERROR_MAP),
    ]


def _describe(case: Case, unit: str | None, phase: int | None = None) -> str:
    lines = [
        f"{case.label}: {case.subject.id} ({SPLITS[case.split]})",
        f"RMSE of all stages {case.rmse:.3g} {unit or ''}".rstrip(),
    ]
    if case.skill is not None:
        lines.append(f"skill over the mean {case.skill:.2f}")
    if phase is not None:
        lines.append(f"shown: stage {case.subject.stages[phase]:.3g}")
    return "\n".join(lines)


def plot_cases(mesh: pv.DataSet, cases: Sequence[Case], unit: str | None) -> Figure:
    """Show each case at its worst phase, one row per case: truth, prediction and error.

    Parameters
    ----------
    mesh : pyvista mesh
        The template.
    cases : sequence of Case
    unit : str, optional
        Of the target.
    """
    scene = _scene(mesh, cases)
    worst = [case.worst_phase() for case in cases]
    motion = _largest(cases, lambda case, phase: case.size(phase, False))
    error = max(float(c.error(phase).max()) for c, phase in zip(cases, worst, strict=True)) or 1e-12
    figure, axes = style.new_figure(len(cases), 3, size=(9.5, 2.4 * len(cases) + 1.0))
    for row, case, phase in zip(axes, cases, worst, strict=True):
        show_row(row, _pictures(scene, case, phase, motion, error))
        row[0].set_ylabel(
            _describe(case, unit, phase), rotation=0, ha="right", va="center", fontsize=9
        )
    _label(figure, axes, motion, error, unit, cases[0].subject.target_array)
    return figure


def show_row(row: Any, pictures: Sequence[np.ndarray]) -> list[Any]:
    """Show one picture per panel, without axes; gives what to change for another picture."""
    images = []
    for axis, picture in zip(row, pictures, strict=True):
        images.append(axis.imshow(picture))
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        for spine in axis.spines.values():
            spine.set_visible(False)
    return images


def _label(
    figure: Figure, axes: Any, motion: float, error: float, unit: str | None, name: str
) -> None:
    for axis, title in zip(axes[0], _COLUMNS, strict=True):
        axis.set_title(title)
    ending = f" ({unit})" if unit else ""
    for which, largest, colours, label in (
        (axes[:, :2], motion, style.MOTION_MAP, f"length of {name}{ending}"),
        (axes[:, 2:], error, style.ERROR_MAP, f"error{ending}"),
    ):
        figure.colorbar(
            ScalarMappable(Normalize(0, largest), colours),
            ax=which,
            location="bottom",
            label=label,
            fraction=0.05,
            aspect=30,
            pad=0.02,
        )


def animate(mesh: pv.DataSet, case: Case, unit: str | None) -> tuple[str, bytes]:
    """Show one cycle of a case, truth beside prediction beside error.

    Returns
    -------
    page : str
        HTML that needs nothing else: reports show pages, but no GIF.
    animation : bytes
        An endless GIF.
    """
    scene = _scene(mesh, [case])
    motion = _largest([case], lambda case, phase: case.size(phase, False))
    error = _largest([case], lambda case, phase: case.error(phase))
    figure, axes = style.new_figure(1, 3, size=(9, 3.9))
    figure.dpi = 80
    canvas = FigureCanvasAgg(figure)
    frames, images = [], None
    for phase in np.argsort(case.subject.stages, kind="stable"):
        pictures = _pictures(scene, case, int(phase), motion, error)
        if images is None:
            images = show_row(axes[0], pictures)
            _label(figure, axes, motion, error, unit, case.subject.target_array)
        for image, picture in zip(images, pictures, strict=True):
            image.set_data(picture)
        title = _describe(case, unit, int(phase)).replace("\n", ", ")
        figure.suptitle(title, fontsize=10)
        style.without_formulas(figure)
        canvas.draw()
        frame = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        frames.append(frame.quantize(128, dither=Image.Dither.NONE))
    milliseconds = max(40, int(1000 * _CYCLE_SECONDS / len(frames)))
    stream = io.BytesIO()
    frames[0].save(
        stream, "GIF", save_all=True, append_images=frames[1:], duration=milliseconds, loop=0
    )
    title = f"One cycle of subject {case.subject.id}"
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    image = f'<img alt="{escape(title)}" src="data:image/gif;base64,{data}">'
    return html_page(title, image, "img { max-width: 100% }\n"), stream.getvalue()
