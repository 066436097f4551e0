"""What an edit reruns: a script and the modules that it imports."""

from pathlib import Path

import pytest

from meshstage.config.networks import NETWORKS
from meshstage.config.sources import source_files

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def modules_of(script: str) -> set[str]:
    return {path.relative_to(SCRIPTS).as_posix() for path in source_files(SCRIPTS / script)}


@pytest.mark.parametrize(
    "script",
    [
        "compute_stats.py", "fit_baselines.py", "evaluate.py", "predict.py", "plot_training.py",
        "plot_evaluation.py", "plot_meshes.py", "make_viewer.py",
    ],
)  # fmt: skip
def test_an_edit_of_the_examination_reruns_the_examination_only(script):
    """Reading an ingested subject is a module, examining a subject's files is another."""
    assert "meshstage/cohort/examine.py" in modules_of("ingest_subject.py")
    assert "meshstage/cohort/subject.py" in modules_of("compute_stats.py")
    assert "meshstage/cohort/examine.py" not in modules_of(script)


def test_imports_inside_functions_count():
    found = modules_of("compute_stats.py")
    assert {"command_line.py", "meshstage/files.py"} <= found
    assert source_files(SCRIPTS / "compute_stats.py")[0] == SCRIPTS / "compute_stats.py"


def test_what_loads_networks_by_name_depends_on_all_of_them():
    for kind in NETWORKS.values():
        module = kind.method.partition(":")[0].replace(".", "/") + ".py"
        assert module in modules_of("train.py")
