"""Where a resumed run goes, and that a refused one leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from meshstage.errors import ContinueLater, InputError
from meshstage.models import siblings
from meshstage.models.names import EVENTS
from meshstage.models.siblings import output_directory
from small_training import TrainSmall
from small_training import run as train


def test_siblings_are_numbered_beside_their_run(tmp_path):
    run, checkpoint = tmp_path / "run", tmp_path / "c.pt"
    for arguments, directory in (
        ((run, None, None), run),
        ((run, checkpoint, None), tmp_path / "run_1"),
        ((run, checkpoint, None), tmp_path / "run_2"),
        ((run, checkpoint, 2), tmp_path / "run_2"),
    ):
        with output_directory(*arguments) as given:
            assert given == directory
    for arguments, said in (
        ((run, None, 1), "needs --resume-from"),
        ((run, checkpoint, 0), "numbered from 1"),
    ):
        with pytest.raises(InputError, match=said), output_directory(*arguments):
            pass


@pytest.mark.parametrize("error", [InputError("refused"), ContinueLater("later"), KeyError("bug")])
def test_only_a_refused_sibling_is_removed(tmp_path, error):
    with (
        pytest.raises(type(error)),
        output_directory(tmp_path / "run", tmp_path / "c.pt", None) as made,
    ):
        (made / "template").mkdir()
        raise error
    assert made.exists() is not isinstance(error, InputError)


def test_a_sibling_that_has_begun_to_train_stays(tmp_path):
    with (
        pytest.raises(InputError),
        output_directory(tmp_path / "run", tmp_path / "c.pt", None) as made,
    ):
        (made / EVENTS).touch()
        raise InputError("the loss is not finite")
    assert (made / EVENTS).exists()


def test_a_given_sibling_that_is_refused_is_not_made(tiny_cohort, tmp_path):
    """As the rule does it: the checkpoint has two epochs, and two are asked for."""
    train(TrainSmall(), tiny_cohort, tmp_path / "run", epochs=2)
    with pytest.raises(InputError, match="epochs is 2, but the checkpoint has 2 already"):
        train(
            TrainSmall(),
            tiny_cohort,
            tmp_path / "run_1",
            epochs=2,
            resume_from=tmp_path / "run/mlp_stage_model.pt",
        )
    assert not (tmp_path / "run_1").exists()


@pytest.mark.spawn
def test_resumes_at_the_same_moment_take_different_directories(tmp_path):
    """Eight processes wait for one file and then ask at once."""
    program = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from meshstage.models.siblings import output_directory
folder = Path(sys.argv[2])
print("ready", flush=True)
while not (folder / "go").exists():
    pass
with output_directory(folder / "run", folder / "c.pt", None) as taken:
    print(taken, flush=True)
"""
    scripts = Path(siblings.__file__).parents[2]
    command = [sys.executable, "-c", program, str(scripts), str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert all(process.stdout.readline() == "ready\n" for process in processes)
    (tmp_path / "go").touch()
    taken = {process.communicate()[0].strip() for process in processes}
    assert taken == {str(tmp_path / f"run_{n}") for n in range(1, 9)}
