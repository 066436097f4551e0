"""The page of parameters: what differs stands out, nothing of the metadata is lost."""

import re
from pathlib import Path

import pytest

from meshstage.checks.cohort import Report
from meshstage.errors import InputError, Problem
from meshstage.figures.parameters import parameters_page, tables_of_parameters
from meshstage.figures.records import read_metadata
from meshstage.files import write_json

MGN = {
    "architecture": "physicsnemo.models.meshgraphnet.MeshGraphNet",
    "processor_size": 3,
    "num_layers": 2,
    "epochs": 80,
    "learning_rate": 0.002,
    "resumed_from": None,
    "ranks": 2,
    "target_is_displacement": True,
    "template_fingerprint": "ab" * 32,
    "train_subject_ids": ["a", "b"],
    "val_subject_ids": [],
    "training_stages": [0.0, 0.5],
    "epoch_seconds": [9.0, 2.0, 4.0],
    "packages": {"torch": "2.14.1", "python": "3.11.7"},
    "git_commit": "c" * 40,
}
MLP = MGN | {
    "architecture": "physicsnemo.models.mlp.FullyConnected",
    "layer_size": 128,
    "learning_rate": 0.003,
    "packages": {"torch": "2.14.1"},
}
del MLP["processor_size"]


def test_rows_of_sections() -> None:
    tables = {section: dict(table) for section, table in tables_of_parameters([MGN, MLP]).items()}
    assert list(tables) == ["Network", "Training", "Data", "Versions"]
    assert tables["Network"] == {
        "architecture": ["MeshGraphNet", "FullyConnected"],
        "processor size": ["3", "-"],
        "num layers": ["2", "2"],
        "layer size": ["-", "128"],
    }
    assert tables["Training"]["learning rate"] == ["0.002", "0.003"]
    assert tables["Training"]["median seconds per epoch"] == ["4", "4"]
    assert tables["Training"]["resumed from"] == ["-", "-"]
    assert tables["Data"]["training subjects"] == ["2", "2"]
    assert tables["Data"]["validation subjects"] == ["0", "0"]
    assert tables["Data"]["the target is a displacement"] == ["yes", "yes"]
    assert tables["Data"]["fingerprint of the template"] == ["abababababab"] * 2
    assert tables["Versions"]["torch"] == ["2.14.1", "2.14.1"]
    assert tables["Versions"]["python"] == ["3.11.7", "-"]
    assert tables["Versions"]["commit of this program"] == ["c" * 12] * 2


def test_page_marks_what_differs_and_escapes_names() -> None:
    warning = Problem("a point has no neighbour", "look", severity="warning")
    report = Report("t.vtu", "mgn", {"train": 2, "val": 0, "test": 1}, 12, [warning])
    page = parameters_page(["a<b>", "m"], [MGN, MLP], report)
    assert "3 subjects (2 train, 0 val, 1 test), 12 phases: 0 errors, 1 warning." in page
    assert "a&lt;b&gt;" in page and "a<b>" not in page
    bold = re.findall(r'<tr class="differs"><th>(.*?)</th>', page)
    assert bold == ["architecture", "processor size", "layer size", "learning rate", "python"]


def test_metadata_of_each_network_are_found(tmp_path: Path) -> None:
    for tag in ("mgn", "mlp", "physics_informed_motion"):
        folder = tmp_path / tag
        folder.mkdir()
        write_json(folder / f"{tag}_stage_model_metadata.json", {"epochs": 3})
        assert read_metadata(folder) == {"epochs": 3}
    with pytest.raises(InputError, match="no finished model here"):
        read_metadata(tmp_path)
