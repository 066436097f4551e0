"""Draw a group of the table of figures into files."""

import importlib
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from meshstage.figures.given import Given
from meshstage.figures.style import save_figure
from meshstage.figures.table import Drawing, Group
from meshstage.files import atomic, write_text


def draw(group: Group, given: Given, folder: Path) -> None:
    """Draw all files of a group into a folder.

    Parameters
    ----------
    group : Group
    given : Given
    folder : Path

    Raises
    ------
    InputError
        If a file that is needed is missing or does not fit.
    """
    for drawing in group.drawings:
        results = _results(drawing, given)
        for name, result in zip(drawing.files, results, strict=True):
            _write(folder / name, result)


def _results(drawing: Drawing, given: Given) -> tuple[Any, ...]:
    module, _, name = drawing.function.partition(":")
    function = getattr(importlib.import_module(f"meshstage.figures.{module}"), name)
    found = function(*(getattr(given, argument) for argument in drawing.takes))
    return found if isinstance(found, tuple) else (found,)


def _write(path: Path, result: Any) -> None:
    if isinstance(result, Figure):
        save_figure(path, result)
    elif isinstance(result, bytes):
        with atomic(path) as temporary:
            temporary.write_bytes(result)
    else:
        write_text(path, result)
