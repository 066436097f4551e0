"""Kills through Snakemake, one of each kind; `make storm` does twelve in a row."""

import pytest

from benchmarks.kill_storm import KINDS, Storm

pytestmark = [pytest.mark.spawn, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def storm(tmp_path_factory):
    storm = Storm(tmp_path_factory.mktemp("storm") / "project", epochs=8, seed=1)
    yield storm
    storm.end()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_leaves_a_run_that_can_go_on(storm, kind):
    """The same command again trains on; only after Snakemake itself died it needs --unlock."""
    before = len(storm.finished())
    storm.kill(kind, epochs=2)
    assert len(storm.finished()) >= before + 2
    assert (storm.model() / "live").is_dir()
    assert not (storm.model() / "mlp_stage_model.pt").exists()


def whole_files(folder):
    """Contents by name; what a kill left half written may be removed by whoever comes next."""
    paths = (path for path in folder.iterdir() if not path.name.startswith(".meshstage-"))
    return {path.name: path.read_bytes() for path in paths}


def test_other_settings_are_refused_and_touch_nothing(storm):
    runs = storm.project.folder / "config/runs.tsv"
    text = runs.read_text(encoding="utf-8")
    before = whole_files(storm.model() / "live")
    runs.write_text(text.replace("\t64\t", "\t32\t"), encoding="utf-8")
    storm.start()
    assert storm.finish() == 1
    assert "layer_size was 64 and is 32" in storm.output()
    assert "rename this folder, or take another run id" in storm.output()
    assert before == whole_files(storm.model() / "live")
    runs.write_text(text, encoding="utf-8")


def test_the_end_is_that_of_a_run_that_was_left_alone(storm):
    storm.start()
    assert storm.finish() == 0, storm.output()
    assert sorted(storm.finished()) == list(range(1, 9))
    assert max(storm.finished().values()) <= 2
    assert storm.weights_equal()
