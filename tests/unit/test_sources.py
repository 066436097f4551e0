"""What an edit reruns: a script and the modules that it imports."""

from pathlib import Path

import pytest

from meshstage.config.networks import NETWORKS
from meshstage.config.sources import source_files
from meshstage.figures.table import GROUPS

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def modules_of(script: str) -> set[str]:
    return {path.relative_to(SCRIPTS).as_posix() for path in source_files(SCRIPTS / script)}


@pytest.mark.parametrize(
    "script",
    [
        "compute_stats.py", "fit_baselines.py", "evaluate.py", "predict.py", "plot.py",
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


def test_an_edit_of_a_figure_draws_its_group_again_and_no_other():
    by_group = {
        name: {
            path.relative_to(SCRIPTS / "meshstage").as_posix()
            for path in source_files(SCRIPTS / "plot.py", *group.modules)
            if "meshstage" in path.parts
        }
        for name, group in GROUPS.items()
    }
    assert {"figures/viewer.py", "figures/viewer.html"} <= by_group["viewer"]
    assert [name for name, found in by_group.items() if "figures/viewer.html" in found] == [
        "viewer"
    ]
    assert [name for name, found in by_group.items() if "figures/sweeps.py" in found] == ["sweeps"]
