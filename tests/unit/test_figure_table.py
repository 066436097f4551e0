"""The table of figures is whole: every function is there, takes what is read, and is described."""

import importlib
import inspect
from pathlib import Path

import pytest

from meshstage.errors import InputError
from meshstage.figures.drawing import draw
from meshstage.figures.given import Given
from meshstage.figures.table import GROUPS, NEEDS, Drawing, Group

DRAWINGS = [d for group in GROUPS.values() for d in group.drawings]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.files[0])
def test_every_function_takes_what_is_read(drawing: Drawing) -> None:
    module, _, name = drawing.function.partition(":")
    function = getattr(importlib.import_module(f"meshstage.figures.{module}"), name)
    inspect.signature(function).bind(*drawing.takes)
    for argument in drawing.takes:
        assert hasattr(Given, argument), argument


def test_no_file_is_drawn_twice_and_every_need_is_known() -> None:
    names = [name for group in GROUPS.values() for name in group.files]
    assert len(names) == len(set(names))
    assert {need for group in GROUPS.values() for need in group.needs} == set(NEEDS)


def test_a_new_figure_is_a_function_and_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshstage.figures import training

    monkeypatch.setattr(
        training, "last_loss", lambda losses: (f"{losses[-1]}", b"\x00"), raising=False
    )
    (tmp_path / "training_losses.json").write_text("[2.0, 1.0]")
    row = Drawing(("last.txt", "last.bin"), "last loss", "training:last_loss", ("losses",))
    draw(Group("Training", ("model",), (row,)), Given({"model": tmp_path}), tmp_path / "figures")
    assert (tmp_path / "figures/last.txt").read_text() == "1.0"
    assert (tmp_path / "figures/last.bin").read_bytes() == b"\x00"
    with pytest.raises(InputError, match="--model is missing; give it"):
        draw(Group("Training", ("model",), (row,)), Given({}), tmp_path / "other")
