"""What a resumed or repeated training accepts, what it refuses, and what it records."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import train_command
from meshstage.config.networks import COMMON
from meshstage.config.settings import Setting, settings
from meshstage.errors import ContinueLater, InputError
from meshstage.models import siblings
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.training.distributed import DistributedContext
from meshstage.training.samples import PhaseSampleDataset
from shared_data import shared
from small_training import TrainSmall, run

FINAL = checkpoint_name("mlp")


@pytest.fixture(scope="module")
def parent(tiny_cohort, tmp_path_factory):
    """Train 4 epochs."""
    output = tmp_path_factory.mktemp("parent") / "model"
    run(TrainSmall(), tiny_cohort, output, epochs=4)
    return output


def metadata(output: Path):
    return json.loads((output / "mlp_stage_model_metadata.json").read_text())


def test_the_lineage_of_runs_is_recorded(tiny_cohort, tmp_path, parent):
    """Learning rate, epochs, batch size and seed may change from run to run."""
    trainer = TrainSmall(learning_rate=5e-4, batch_size=3, seed=7)
    run(trainer, tiny_cohort, tmp_path / "on", epochs=6, resume_from=parent / FINAL)
    first, second = metadata(tmp_path / "on")["lineage"]
    assert [
        (s["from_epoch"], s["epochs"], s["learning_rate"], s["batch_size"], s["seed"])
        for s in (first, second)
    ] == [(0, 4, 1e-3, 4, 42), (4, 6, 5e-4, 3, 7)]
    assert first["resumed_from"] is None
    assert second["resumed_from"] == str(parent / FINAL)
    assert second["ranks"] == [1]
    payload = load_checkpoint(tmp_path / "on" / FINAL)
    assert len(payload["training_state"]["losses"]) == 6


def test_metadata_says_how_it_was_trained(parent, tiny_cohort):
    found = metadata(parent)
    expected = {
        "seed": 42,
        "ranks": 1,
        "effective_batch": 4,
        "precision": "fp32",
        "compile": "eager",
        "skipped_steps": 0,
        "device": "cpu",
        "epochs": 4,
    }
    assert {key: found[key] for key in expected} == expected
    assert len(found["epoch_seconds"]) == 4 and min(found["epoch_seconds"]) > 0
    assert found["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert found["peak_memory_mb"] > 10
    repository = Path(siblings.__file__).parent
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True
    ).stdout.strip()
    assert found["git_commit"] == (commit or None)
    hashes = found["data_hashes"]["subjects"]
    assert hashes["train-0"] == tiny_cohort.subjects["train"][0].hashes


def test_best_epoch_is_the_one_with_the_least_validation_rmse_kept_here(
    tiny_cohort, tmp_path, parent
):
    log = json.loads((parent / "training_validation_rmse.json").read_text())
    assert metadata(parent)["best_epoch"] == min(log, key=lambda e: e["val_rmse"])["epoch"]
    # A learning rate of 3 ruins the model: the parent's epochs are better, but not in this folder.
    trainer = TrainSmall(learning_rate=3.0)
    run(trainer, tiny_cohort, tmp_path / "worse", epochs=8, resume_from=parent / FINAL)
    log = json.loads((tmp_path / "worse" / "training_validation_rmse.json").read_text())
    assert min(log, key=lambda e: e["val_rmse"])["epoch"] <= 4
    best = metadata(tmp_path / "worse")["best_epoch"]
    assert best > 4 and (tmp_path / "worse" / checkpoint_name("mlp", best)).exists()


def test_another_model_is_refused_with_a_table(tiny_cohort, tmp_path, parent):
    """Width, number of scores, target array and template: all told at once, old and new."""
    other = replace(
        tiny_cohort.statistics,
        pca_mean=(0.0, 0.0, 0.0),
        pca_scale=(1.0, 1.0, 1.0),
        target_array="velocity",
    )
    cohort = replace(
        tiny_cohort, statistics=other, template=replace(tiny_cohort.template, fingerprint="f00d")
    )
    with pytest.raises(InputError) as caught:
        run(TrainSmall(layer_size=9), cohort, tmp_path / "on", 8, resume_from=parent / FINAL)
    sentence, header, *rows = str(caught.value).splitlines()
    assert str(parent / FINAL) in sentence and "5 places" in sentence
    assert header.split() == ["checkpoint", "this", "training"]
    assert [row.split() for row in rows] == [
        ["in_features", "6", "7"],
        ["layer_size", "8", "9"],
        ["n_pca", "2", "3"],
        ["target_array", "displacement", "velocity"],
        ["template_fingerprint", tiny_cohort.template.fingerprint, "f00d"],
    ]
    assert not (tmp_path / "on").exists()


def test_another_network_is_refused(tiny_cohort, tmp_path, parent):
    class Other(TrainSmall):
        architecture_name = "tests.Other"

    with pytest.raises(InputError, match=r"architecture +tests\.Small +tests\.Other"):
        run(Other(), tiny_cohort, tmp_path / "on", 8, resume_from=parent / FINAL)


def test_epochs_are_the_total_of_the_lineage(tiny_cohort, tmp_path, parent):
    with pytest.raises(InputError, match=r"epochs is 4, but the checkpoint has 4 already.*total"):
        run(TrainSmall(), tiny_cohort, tmp_path / "on", 4, resume_from=parent / FINAL)


def strip_to_weights(path: Path, output: Path, *drop: str) -> Path:
    payload = load_checkpoint(path)
    for key in ("training_state", "epoch", "start_epoch", *drop):
        payload.pop(key)
    torch.save(payload, output)
    return output


def test_weights_only_start_at_epoch_0_with_a_fresh_optimizer(
    tiny_cohort, tmp_path, parent, caplog
):
    """And with the statistics that the weights were trained with: that is said."""
    caplog.set_level("INFO")
    weights = strip_to_weights(parent / FINAL, tmp_path / "weights.pt")
    payload = torch.load(weights, weights_only=True)
    payload["target_scale"] *= 2
    torch.save(payload, weights)
    trainer = TrainSmall(learning_rate=1e-9)
    _, losses, _ = run(trainer, tiny_cohort, tmp_path / "on", epochs=2, resume_from=weights)
    assert f"resuming {weights}: weights only, so epoch 0 and a fresh optimizer" in caplog.text
    assert "statistics come from the checkpoint" in caplog.text
    final = load_checkpoint(tmp_path / "on" / FINAL)
    assert (final["epoch"], len(losses)) == (2, 2)
    assert final["target_scale"] == 2 * tiny_cohort.statistics.target_scale
    step = final["training_state"]["optimizer"]["state"][0]["step"]
    assert int(step) == 2 * 4  # epochs of 15 samples in batches of 4
    # The weights were taken: 8 steps of Adam move each by at most about 8e-9.
    for key, value in load_checkpoint(parent / FINAL)["model_state_dict"].items():
        torch.testing.assert_close(final["model_state_dict"][key], value, rtol=0, atol=1e-7)


def test_bare_weights_take_the_statistics_of_the_cohort(tiny_cohort, tmp_path, parent, caplog):
    state = load_checkpoint(parent / FINAL)["model_state_dict"]
    torch.save(state, tmp_path / "bare.pt")
    run(TrainSmall(), tiny_cohort, tmp_path / "on", epochs=1, resume_from=tmp_path / "bare.pt")
    assert "holds no statistics" in caplog.text
    final = load_checkpoint(tmp_path / "on" / FINAL)
    assert final["target_scale"] == tiny_cohort.statistics.target_scale


def test_statistics_of_other_scores_are_refused_even_if_their_number_is_not_told(
    tiny_cohort, tmp_path, parent
):
    weights = strip_to_weights(parent / FINAL, tmp_path / "w.pt", "n_pca", "in_features")
    payload = torch.load(weights, weights_only=True)
    payload["pca_mean"], payload["pca_scale"] = [0.0] * 3, [1.0] * 3
    torch.save(payload, weights)
    with pytest.raises(InputError, match=r"n_pca +3 +2"):
        run(TrainSmall(), tiny_cohort, tmp_path / "on", 1, resume_from=weights)


def test_a_training_state_of_another_program_is_told(tiny_cohort, tmp_path, parent):
    payload = load_checkpoint(parent / FINAL) | {"training_state": {"optimizer": {}, "losses": []}}
    torch.save(payload, tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"other\.pt: its training_state is not one of this"):
        run(TrainSmall(), tiny_cohort, tmp_path / "on", 8, resume_from=tmp_path / "other.pt")


def test_a_checkpoint_of_another_program_can_be_gone_on_from(tiny_cohort, tmp_path, caplog):
    """MONAI Physio's own MLP, on subjects made up for its template's 3 shape scores."""
    from meshstage.training.mlp import TrainPhysicsNeMoMLP

    caplog.set_level("INFO")
    theirs = shared("data", "interop", "mlp", FINAL)
    source = json.loads(theirs.with_name("mlp_stage_model_metadata.json").read_text())
    trainer = TrainPhysicsNeMoMLP()
    trainer.set_layer_size(source["layer_size"])
    trainer.set_num_layers(source["num_layers"])
    generator = np.random.default_rng(0)
    subjects = [
        replace(subject, shape_scores=generator.standard_normal(3))
        for subject in tiny_cohort.subjects["train"]
    ]
    own = replace(tiny_cohort.statistics, pca_mean=(0.0,) * 3, pca_scale=(1.0,) * 3)
    trainer.train(
        PhaseSampleDataset(subjects),
        None,
        own,
        DistributedContext(),
        1,
        tmp_path / "on",
        tiny_cohort.template,
        tiny_cohort.template.points,
        resume_from=theirs,
    )
    final = load_checkpoint(tmp_path / "on" / FINAL)
    assert final["pca_mean"] == source["pca_mean"]
    assert final["epoch"] == 1
    assert "epoch 0 and a fresh optimizer" in caplog.text
    assert "statistics come from the checkpoint" in caplog.text
    assert metadata(tmp_path / "on")["best_epoch"] is None  # nothing was validated


# ---------------------------------------------------------------- a run in progress


@pytest.fixture
def in_progress(tiny_cohort, tmp_path):
    """Leave a run after 3 epochs of 6."""

    def stop(epoch, epochs):
        if epoch == 3:
            raise ContinueLater("the test stops here")

    trainer = TrainSmall(recovery_interval=1)
    trainer._on_epoch_start = stop
    output = tmp_path / "model"
    with pytest.raises(ContinueLater):
        run(trainer, tiny_cohort, output, epochs=6)
    return output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_rate": 0.5}, "learning_rate was 0.001 and is 0.5"),
        ({"seed": 1}, "seed was 42 and is 1"),
        ({"batch_size": 2}, "batch_size was 4 and is 2"),
        ({"layer_size": 9}, "layer_size was 8 and is 9"),
        ({"precision": "fp64"}, "precision was auto and is fp64"),
        ({"grad_clip_norm": 2.0}, "grad_clip_norm was 1.0 and is 2.0"),
        ({"schedule": "cosine"}, "schedule was constant and is cosine"),
        ({"weight_decay": 0.1}, "weight_decay was 0.0 and is 0.1"),
        ({"score_noise": 0.1}, "score_noise was 0.0 and is 0.1"),
        ({"ema": 0.9}, "ema was 0.0 and is 0.9"),
        ({"rmse_log_interval": 3}, "rmse_log_interval was 2 and is 3; the model of epoch 3 is not"),
    ],
)
def test_other_settings_of_a_run_in_progress_are_told_before_training(
    tiny_cohort, in_progress, settings, said
):
    before = sorted(path.name for path in (in_progress / "live").iterdir())
    with pytest.raises(InputError, match="in progress with other settings") as caught:
        run(TrainSmall(**settings), tiny_cohort, in_progress, epochs=6)
    assert said in str(caught.value)
    assert sorted(path.name for path in (in_progress / "live").iterdir()) == before


def test_other_data_of_a_run_in_progress_are_told(tiny_cohort, in_progress):
    first, *others = tiny_cohort.subjects["train"]
    train = [replace(first, hashes=first.hashes | {"targets": "0" * 64}), *others]
    with pytest.raises(InputError, match=r"data of train subject train-0 was .* and is"):
        run(TrainSmall(), tiny_cohort, in_progress, 6, train=train)


def test_what_only_logs_or_saves_may_change(tiny_cohort, in_progress):
    trainer = TrainSmall(
        loss_log_interval=1,
        recovery_interval=None,
        max_skipped_fraction=0.5,
        compile="auto",
        rmse_log_interval=4,
        deadline=None,
        device_memory_fraction=0.1,
    )
    run(trainer, tiny_cohort, in_progress, epochs=7)
    # Of the new interval 4 and the new last epoch: 2 was kept, and is not declared any more.
    assert sorted(path.name for path in in_progress.glob("*epoch*")) == [
        checkpoint_name("mlp", 4),
        checkpoint_name("mlp", 7),
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rmse_log_interval": 0}, "rmse_log_interval is 0"),
        ({"loss_log_interval": -1}, "loss_log_interval is -1"),
        ({"recovery_interval": 0}, "recovery_interval is 0"),
        ({"recovery_interval": 1.5}, "recovery_interval is 1.5"),
        ({"seed": -1}, "seed is -1"),
        ({"max_skipped_fraction": 1.1}, "max_skipped_fraction is 1.1"),
        ({"device_memory_fraction": float("nan")}, "device_memory_fraction is nan"),
        ({"precision": "fp16"}, "precision is 'fp16'"),
        ({"schedule": "linear"}, "schedule is 'linear', it must be one of constant, cosine"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"score_noise": -0.1}, "score_noise is -0.1"),
        ({"ema": 1.0}, "ema is 1.0, it must be a finite number of at least 0 and below 1"),
        ({"compile": "yes"}, "compile is 'yes'"),
    ],
)
def test_impossible_settings_are_told(tiny_cohort, tmp_path, settings, said):
    with pytest.raises(InputError, match=said):
        run(TrainSmall(**settings), tiny_cohort, tmp_path / "m", epochs=1)


@pytest.mark.parametrize("value", [0, -3, 2.5, True, "4", float("inf")])
def test_setters_refuse_what_cannot_be(value):
    trainer = TrainSmall()
    with pytest.raises(InputError, match="epochs is"):
        trainer.set_epochs(value)
    with pytest.raises(InputError, match="batch_size is"):
        trainer.set_batch_size(value)
    if value not in (2.5,):
        with pytest.raises(InputError, match="learning_rate is"):
            trainer.set_learning_rate(value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"widht": 3}, "own.py:Own has neither set_widht nor an attribute widht"),
        ({"width": "a"}, "own.py:Own does not take 'a' as its option width"),
    ],
)
def test_an_option_that_an_own_class_does_not_take_is_a_sentence(options, words):
    """A setter of the user's own raises what Python has for it: 1 <= "a" is a TypeError."""

    class Own:
        def set_width(self, width):
            self.width = width >= 1 and width

    with pytest.raises(InputError, match=words):
        train_command._set_options(Own(), "own.py:Own", options)
    own = Own()
    train_command._set_options(own, "own.py:Own", {"width": 3})
    assert own.width == 3


class TrainFlat(TrainSmall):
    """Gives all numbers in one row, which numbers of one sample would broadcast with."""

    def forward(self, model, node_feats, batch_len):
        return model(node_feats).reshape(1, -1)


def test_another_shape_is_refused_before_anything_is_written(tiny_cohort, tmp_path):
    """42 points of 3 components: 126 numbers; both shapes stand in the sentence."""
    with pytest.raises(
        InputError, match=r"TrainFlat\.forward gave the shape \(1, 126\).*\(42, 3\)"
    ):
        run(TrainFlat(batch_size=1), tiny_cohort, tmp_path / "flat", epochs=1)
    assert not [p.name for p in (tmp_path / "flat").glob("*") if p.name != "owner.json"]


class TrainWeighted(TrainSmall):
    """A loss of the user's own, with a weight of its own."""

    n_calls = 0

    def __init__(self, **settings):
        self.my_weight = 1.0
        super().__init__(**settings)

    def _compute_loss(self, pred, tgt, batch_len, target_scale, indices):
        TrainWeighted.n_calls += 1
        return self.my_weight * (pred - tgt).abs().mean()


def test_a_finished_model_is_never_handed_over_to_another_class_or_weight(tiny_cohort, tmp_path):
    """What was trained with one loss is no answer to who asks for another."""
    output = tmp_path / "model"
    run(TrainSmall(), tiny_cohort, output, epochs=1)
    with pytest.raises(InputError, match=r"class was .*TrainSmall.* and is .*TrainWeighted"):
        run(TrainWeighted(), tiny_cohort, output, epochs=1)
    run(TrainWeighted(), tiny_cohort, tmp_path / "own", epochs=1)
    trained = TrainWeighted.n_calls
    assert trained
    with pytest.raises(InputError, match=r"my_weight was 1\.0 and is 100\.0"):
        run(TrainWeighted(my_weight=100.0), tiny_cohort, tmp_path / "own", epochs=1)
    run(TrainWeighted(), tiny_cohort, tmp_path / "own", epochs=1)
    assert TrainWeighted.n_calls == trained  # finished already, by the same class and weight


def another(setting: Setting):
    """Give a possible value of a setting that is not its default, and does something."""
    if setting.choices:
        return setting.choices[-1]  # cosine; fp64
    if setting.kind is int:
        return setting.default + 1
    return setting.default / 1000 or 0.125  # a clip that clips


# A teacher without pupils, and pupils without one, are refused.
BESIDE = {"teacher": {"synthetic_subjects": 1}, "synthetic_subjects": {"teacher": "gp"}}


@pytest.mark.parametrize(
    "name", [n for n in COMMON if settings()[n].change == "resume" and n != "losses"]
)
def test_what_may_change_on_a_resume_is_applied(tiny_cohort, tmp_path, parent, name):
    """The lineage says it, and the fifth epoch ends elsewhere than without it."""
    changed, plain = {**BESIDE.get(name, {}), name: another(settings()[name])}, {}
    weights = []
    for folder, values in (("changed", changed), ("plain", plain)):
        output = tmp_path / folder
        run(TrainSmall(**values), tiny_cohort, output, 5, resume_from=parent / FINAL)
        weights.append(load_checkpoint(output / FINAL)["model_state_dict"])
    assert metadata(tmp_path / "changed")["lineage"][-1][name] == changed[name]
    assert any(not torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
