"""Names and epochs of a model's files, by counting."""

from pathlib import Path

import pytest

from meshstage.config.sources import source_files
from meshstage.models.names import checkpoint_epochs, checkpoint_name, sibling

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    ("start", "epochs", "interval"), [(0, 10, 2), (0, 5, 2), (4, 10, 3), (7, 8, 100), (3, 9, 3)]
)
def test_kept_epochs_are_multiples_after_the_start_and_the_last(start, epochs, interval):
    by_counting = [e for e in range(start + 1, epochs + 1) if e % interval == 0 or e == epochs]
    assert checkpoint_epochs(start, epochs, interval) == by_counting


def test_names_are_those_of_monai_physio():
    assert checkpoint_name("mgn") == "mgn_stage_model.pt"
    assert checkpoint_name("mlp", 20) == "mlp_stage_model_epoch_00020.pt"
    assert sibling(Path("models/mgn"), 2) == Path("models/mgn_2")


def test_sources_follow_imports_also_those_inside_functions():
    files = source_files(SCRIPTS / "compute_stats.py")
    names = {path.relative_to(SCRIPTS).as_posix() for path in files}
    assert files[0] == SCRIPTS / "compute_stats.py"
    # Imported by the script inside a function, by the library, and by what that imports.
    assert {
        "command_line.py",
        "meshstage/cohort/statistics.py",
        "meshstage/meshes/cells.py",
    } <= names
    assert "meshstage/prediction/predictor.py" not in names
