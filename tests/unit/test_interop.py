"""Models of MONAI Physio here, and ours there.

The other package needs a dozen others, torch_scatter among them, which no ordinary installation
here has. What could not be run against it is marked by a skip below; the same is always checked
against a reader and a writer that follow INTEROP.md with PhysicsNeMo alone.
"""

import importlib.util
import json
import logging
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import pyvista as pv
import torch

from meshstage.errors import InputError
from meshstage.prediction.loading import load_predictor
from meshstage.workflow import WorkflowTrainPhysicsNeMo
from model_directories import SIZES, PlainReader, write_directory
from scripts_in_process import run_script
from shared_data import shared
from small_models import small_method

PCA = np.array([0.3, -1.1])
STAGES = [0.0, 0.4, 1.0]

# Float32: some 10 roundings of 6e-8 in a network this small, of outputs of size one, in another
# order of sums; then times the target scale of 3.
ATOL = 3 * 2e-6


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    root = tmp_path_factory.mktemp("theirs")
    for tag in ("mgn", "mlp"):
        write_directory(root / tag, tag)
    return root


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
@pytest.mark.parametrize("epoch", [None, 2])
def test_their_model_predicts_here_as_by_their_rules(theirs, tag, epoch):
    reader = PlainReader(theirs / tag, tag, epoch)
    predictor = load_predictor(theirs / tag, epoch)
    predicted = predictor.predict(PCA, STAGES)
    expected = np.stack([reader.predict(PCA, stage) for stage in STAGES])
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=ATOL)
    # Theirs has the name in the final checkpoint only, ours reads the metadata too.
    assert predictor.target_array == "displacement"


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
def test_final_and_kept_epoch_are_told_apart(theirs, tag):
    """Guards the test above: weights of the wrong file would show."""
    final, kept = (load_predictor(theirs / tag, epoch).predict(PCA, [0.4]) for epoch in (None, 2))
    assert np.abs(final - kept).max() > 1000 * ATOL


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module.", "module._orig_mod."])
def test_bare_and_wrapped_state_dicts_predict_the_same(theirs, tmp_path, tag, prefix):
    directory = tmp_path / tag
    shutil.copytree(theirs / tag, directory)
    path = directory / f"{tag}_stage_model.pt"
    state = torch.load(path, weights_only=True)["model_state_dict"]
    torch.save({prefix + key: value for key, value in state.items()}, path)
    predicted = load_predictor(directory).predict(PCA, STAGES)
    np.testing.assert_array_equal(predicted, load_predictor(theirs / tag).predict(PCA, STAGES))


def test_bare_state_dict_without_its_metadata_is_a_sentence(theirs, tmp_path):
    directory = tmp_path / "mlp"
    shutil.copytree(theirs / "mlp", directory)
    path = directory / "mlp_stage_model.pt"
    torch.save(torch.load(path, weights_only=True)["model_state_dict"], path)
    (directory / "mlp_stage_model_metadata.json").unlink()
    with pytest.raises(InputError, match=r"mlp_stage_model\.pt: .*'coordinate_mean'.*metadata"):
        load_predictor(directory)


@pytest.mark.parametrize("missing", ["pca_scale", "hidden_dim"])
def test_metadata_that_lacks_a_value_is_a_sentence(theirs, tmp_path, missing):
    directory = tmp_path / "mgn"
    shutil.copytree(theirs / "mgn", directory)
    path = directory / "mgn_stage_model.pt"
    torch.save(torch.load(path, weights_only=True)["model_state_dict"], path)
    metadata = directory / "mgn_stage_model_metadata.json"
    values = json.loads(metadata.read_text())
    del values[missing]
    metadata.write_text(json.dumps(values))
    with pytest.raises(InputError, match=f"'{missing}'"):
        load_predictor(directory)


def test_physics_model_is_a_mesh_graph_net_under_its_own_name(theirs, tmp_path):
    directory = tmp_path / "physics"
    directory.mkdir()
    for path in (theirs / "mgn").iterdir():
        name = path.name.replace("mgn_stage", "physics_informed_motion_stage")
        shutil.copy(path, directory / name)
    predicted = load_predictor(directory).predict(PCA, STAGES)
    np.testing.assert_array_equal(predicted, load_predictor(theirs / "mgn").predict(PCA, STAGES))


def test_best_epoch_of_their_model_comes_from_its_rmse_log(theirs):
    assert load_predictor(theirs / "mlp", "best").checkpoint.name.endswith("epoch_00002.pt")


def test_predict_script_asks_their_model(theirs, tmp_path, capsys):
    """A compiled network's bare state dict, through the command line, to files."""
    directory = tmp_path / "mgn"
    shutil.copytree(theirs / "mgn", directory)
    path = directory / "mgn_stage_model.pt"
    state = torch.load(path, weights_only=True)["model_state_dict"]
    torch.save({f"_orig_mod.{key}": value for key, value in state.items()}, path)
    (tmp_path / "pca.json").write_text(json.dumps(PCA.tolist()))
    arguments = ["--model", directory, "--pca", tmp_path / "pca.json", "--output", tmp_path / "out"]
    assert run_script("predict.py", *arguments, "--stages", 0.4) == 0
    mesh = pv.read(tmp_path / "out" / "pca" / "phase_000_stage_0.4.vtp")
    expected = PlainReader(theirs / "mgn", "mgn").predict(PCA, 0.4)
    np.testing.assert_allclose(mesh.point_data["displacement"], expected, rtol=0, atol=ATOL)
    # Their metadata does not tell the training stages: then they must be given.
    assert run_script("predict.py", *arguments) == 2
    assert "--stages" in capsys.readouterr().err


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
@pytest.mark.parametrize("bare", [False, True])
def test_training_goes_on_from_their_model(theirs, tmp_path, tiny_cohort, caplog, tag, bare):
    """A learning rate of 1e-12 leaves weights of size 0.1 as they are in float32."""
    source = tmp_path / "theirs"
    shutil.copytree(theirs / tag, source)
    checkpoint = source / f"{tag}_stage_model.pt"
    state = torch.load(checkpoint, weights_only=True)["model_state_dict"]
    if bare:
        torch.save(state, checkpoint)
    method = small_method(tag, epochs=1)
    method.set_learning_rate(1e-12)
    with caplog.at_level(logging.INFO):
        result = WorkflowTrainPhysicsNeMo(
            tiny_cohort.manifests["train"],
            [],
            tiny_cohort.mesh_path,
            tmp_path / "run",
            resume_from=checkpoint,
            training_method=method,
        ).process()
    assert result["output_directory"] == tmp_path / "run_1"
    assert "weights only, so epoch 0 and a fresh optimizer" in caplog.text
    assert "statistics come from the checkpoint" in caplog.text
    own = torch.load(result["checkpoint"], weights_only=True)
    for name, value in state.items():
        # Adam moves a weight by at most the learning rate a step, and biases are often zero.
        torch.testing.assert_close(own["model_state_dict"][name], value, rtol=1e-6, atol=1e-11)
    assert (own["pca_mean"], own["pca_scale"]) == ([0.5, -0.25], [1.5, 0.75])
    assert own["target_scale"] == 3.0


# ------------------------------------------------------------------ what they can do with ours


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
@pytest.mark.parametrize("epoch", [None, 2])
def test_our_model_predicts_by_their_rules(small_models, tag, epoch):
    directory = small_models.directory(tag)
    reader = PlainReader(directory, tag, epoch)
    predictor = load_predictor(directory, epoch)
    expected = np.stack([reader.predict(PCA, stage) for stage in STAGES])
    # Their statistics are float32: normalised inputs differ in the last bit.
    atol = 2e-6 * predictor.statistics.target_scale
    predicted = predictor.predict(PCA, STAGES)
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=atol)
    assert np.abs(predicted).max() > 1000 * atol
    assert reader.target_array == "displacement"


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
def test_our_payload_has_their_keys(small_models, theirs, tag):
    name = f"{tag}_stage_model.pt"
    own, their = (
        torch.load(root / name, weights_only=True)
        for root in (small_models.directory(tag), theirs / tag)
    )
    assert their.keys() <= own.keys()
    for key in their.keys() - {"model_state_dict"}:
        assert type(own[key]) is type(their[key]), key
    assert own["architecture"] == their["architecture"]
    assert own["model_state_dict"].keys() == their["model_state_dict"].keys()
    assert SIZES[tag].keys() <= own.keys()
    for name in ("training_losses.json", "training_validation_rmse.json", "pca_model.json"):
        assert (small_models.directory(tag) / name).exists()
    table = (small_models.directory(tag) / "training_validation_rmse.csv").read_text()
    assert table.startswith("epoch,train_rmse,val_rmse\n")


def test_our_graph_of_a_surface_is_theirs(small_models, theirs):
    """Both templates are the same sphere: sides of triangles, both ways, sorted alike."""
    own, their = small_models.directory("mgn"), theirs / "mgn"
    index, features = (
        [torch.load(d / f"shared_edge_{kind}.pt", weights_only=True) for d in (own, their)]
        for kind in ("index", "features")
    )
    assert torch.equal(*index)
    # Differences of float32 coordinates of 20 mm, in float64 here: 1e-6 mm.
    torch.testing.assert_close(*features, rtol=0, atol=4e-6)


# ------------------------------------------------------------------ against the other program


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
def test_predictions_of_the_other_program_are_met(tag):
    """Directories and predictions that monai-physio 2026.9.1 wrote itself."""
    directory = shared("data", "interop", tag)
    asked = np.load(directory / "their_predictions.npz")
    for epoch in (None, 2):
        predictor = load_predictor(directory, epoch)
        for row in np.flatnonzero(asked["epoch"] == (epoch or 0)):
            predicted = predictor.predict(asked["pca"][row], [asked["stage"][row]])[0]
            # As above, at a target scale of 11 mm.
            np.testing.assert_allclose(predicted, asked["targets"][row], rtol=0, atol=1.1e-5)


def test_predict_script_asks_a_model_of_the_other_program(tmp_path):
    directory = shared("data", "interop", "mgn")
    manifest = shared("data", "interop", "cohort", "s004", "manifest.json")
    arguments = ["--model", directory, "--manifest", manifest, "--output", tmp_path]
    assert run_script("predict.py", *arguments, "--epoch", "best") == 0
    assert len(list((tmp_path / "s004").glob("phase_*.vtp"))) == 4


def test_training_goes_on_from_a_model_of_the_other_program(tmp_path):
    """On the very cohort that it was trained on: RMSE begins where theirs ended."""
    directory, cohort = shared("data", "interop", "mgn"), shared("data", "interop", "cohort")
    method = small_method("mgn", epochs=1)
    method.set_hidden_dim(16)
    method.set_learning_rate(1e-12)
    result = WorkflowTrainPhysicsNeMo(
        [cohort / f"s00{k}/manifest.json" for k in range(4)],
        [cohort / "s004/manifest.json"],
        cohort / "pca_mean.vtp",
        tmp_path / "run",
        resume_from=directory / "mgn_stage_model.pt",
        training_method=method,
    ).process()
    their = json.loads((directory / "training_validation_rmse.json").read_text())[-1]
    [own] = result["val_rmse_log"]
    assert own["val_rmse"] == pytest.approx(their["val_rmse"], rel=1e-5)
    assert own["train_rmse"] == pytest.approx(their["train_rmse"], rel=1e-5)


@pytest.fixture
def other_program(monkeypatch):
    """Their inference without their package's __init__, which imports a dozen others."""
    found = importlib.util.find_spec("monai_physio")
    if found is None or found.origin is None:
        pytest.skip("monai-physio is not installed here: not run against it")
    package = types.ModuleType("monai_physio")
    package.__path__ = [str(Path(found.origin).parent)]
    monkeypatch.setitem(sys.modules, "monai_physio", package)
    yield importlib.import_module("monai_physio.workflow_infer_physicsnemo")
    for name in [name for name in sys.modules if name.startswith("monai_physio.")]:
        del sys.modules[name]


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
@pytest.mark.parametrize("epoch", [None, 2])
def test_the_other_program_predicts_with_our_model(small_models, other_program, tag, epoch):
    if tag == "mgn" and importlib.util.find_spec("torch_scatter") is None:
        pytest.skip("torch_scatter is not installed here: PhysicsNeMo's own forward cannot run")
    name = "InferPhysicsNeMoMGN" if tag == "mgn" else "InferPhysicsNeMoMLP"
    module = importlib.import_module(f"monai_physio.infer_physicsnemo_{tag}")
    directory = small_models.directory(tag)
    asked = other_program.WorkflowInferPhysicsNeMo(directory, getattr(module, name)(), epoch=epoch)
    predictor = load_predictor(directory, epoch)
    for stage in STAGES:
        np.testing.assert_allclose(
            predictor.predict(PCA, [stage])[0],
            asked.predict(PCA, stage),
            rtol=0,
            atol=2e-6 * predictor.statistics.target_scale,
        )
