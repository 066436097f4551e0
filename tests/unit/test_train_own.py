"""`train_own.py`: a class in a file of the user's, with options as JSON."""

import sys

import pytest

import train_command
from meshstage.models.checkpoint import load_checkpoint
from small_training import arguments

OWN = """
from meshstage.training.base import TrainPhysicsNeMoBase
from small_training import TrainSmall

class TrainOwn(TrainSmall):
    model_tag = "mine"
    factor = 1.0

class Unfinished(TrainPhysicsNeMoBase):
    pass

class Nothing:
    pass
"""


@pytest.fixture
def start(tiny_cohort, tmp_path, monkeypatch, capsys):
    """Train in this process; gives the exit code and what was said."""
    (tmp_path / "own.py").write_text(OWN)

    def run(name: str, options: str = "{}") -> tuple[int, str]:
        more = [f"--network={tmp_path}/own.py:{name}", f"--options={options}"]
        monkeypatch.setattr(sys, "argv", arguments(tiny_cohort, tmp_path / "m", *more))
        with pytest.raises(SystemExit) as left:
            train_command.run("own")
        return left.value.code, capsys.readouterr().err

    return run


def test_options_reach_setters_and_attributes(start, tmp_path):
    code, said = start("TrainOwn", '{"layer_size": 3, "factor": 2.5}')
    assert code == 0, said
    payload = load_checkpoint(tmp_path / "m" / "mine_stage_model.pt")
    # Two linear layers: 3 coordinates, 2 scores and the stage to 3, and 3 to a displacement.
    shapes = [tuple(weights.shape) for weights in payload["model_state_dict"].values()]
    assert shapes == [(3, 6), (3,), (3, 3), (3,)]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("TrainOwn", '{"width": 3}', ["neither set_width nor an attribute width"]),
        ("TrainOwn", '{"layer_size": 0}', ["layer_size is 0", "at least 1"]),
        ("TrainOwn", "[]", ["options is []", "JSON object"]),
        ("Unfinished", "{}", ["Unfinished cannot be made", "build_model"]),
        ("Nothing", "{}", ["Nothing is no training method", "TrainPhysicsNeMoBase"]),
        ("Missing", "{}", ["own.py: has no class 'Missing'"]),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_and_leaves_nothing(
    start, tmp_path, name, options, words
):
    code, said = start(name, options)
    assert code == 2
    [sentence] = [line for line in said.splitlines() if line.startswith("error:")]
    for word in words:
        assert word in sentence
    assert not (tmp_path / "m").exists()
