"""One look for all figures: safe for colour-blind eyes, and readable in a black and white print."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from meshstage.files import atomic
from meshstage.judging.columns import FLOOR
from meshstage.motion.baselines import TITLES

# Okabe and Ito (2008), "Color Universal Design", without yellow, which is lost on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# A print without colours keeps dashes and markers apart.
DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (3, 1, 1, 1, 1, 1)), (0, (5, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

MOTION_MAP = "cividis"  # lightness alone orders it: Nuñez, Anderton and Renslow (2018)
ERROR_MAP = "inferno"

# Grey tones and dashes of the baselines, in the order of their table.
_BASELINES = (("0.55", ":"), ("0.25", "--"), ("0.25", "-."), ("0.55", (0, (5, 1))))
_FLOOR = {"label": "floor (best of the motion modes)", "color": "0.75", "linestyle": "-"}

_SETTINGS = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
    "text.parse_math": False,  # a subject called P$1_$ is a name and not a formula
    "svg.hashsalt": "meshstage",  # the same figure gives the same bytes
}


def new_figure(
    n_rows: int = 1, n_columns: int = 1, size: tuple[float, float] = (7.0, 4.0), **options: Any
) -> tuple[Figure, Any]:
    """Make a figure, inches wide and high, and its axes as (n_rows, n_columns) array.

    It belongs to no window: nothing here needs a display.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=size)
        return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure atomically, in the format of the path's ending."""
    without_formulas(figure)
    # Without a time stamp and a version: the same data give the same bytes.
    dropped = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
    with matplotlib.rc_context(_SETTINGS), atomic(path) as temporary:
        figure.savefig(temporary, metadata=dropped.get(path.suffix, {"CreationDate": None}))


def without_formulas(figure: Figure) -> None:
    """Take all text of a figure as it stands: ids and names of users may hold dollar signs."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)


def run_style(index: int) -> dict[str, Any]:
    """Colour, dash and marker of the n-th run."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 5,
    }


def baseline_style(name: str) -> dict[str, Any]:
    """Label, grey tone and dash of a baseline, or of the floor."""
    if name == FLOOR:
        return dict(_FLOOR)
    names = list(TITLES)
    index = names.index(name) if name in names else len(names)
    colour, dash = _BASELINES[index % len(_BASELINES)]
    return {"label": TITLES.get(name, name), "color": colour, "linestyle": dash}


def label_rmse(unit: str | None) -> str:
    """Axis label of an RMSE."""
    return f"RMSE ({unit})" if unit else "RMSE"


def legend_below(figure: Figure, axes: Axes, n_columns: int = 4) -> None:
    """Put the legend of one panel under all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns, frameon=False)
