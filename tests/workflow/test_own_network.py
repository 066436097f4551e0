"""Networks that are added: one of the user's own, docs/examples/own_network.py, and one of ours.

The second is added as CONTRIBUTING.md says, a module and a row, in a copy of the project.
"""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import pyvista as pv
import torch

from meshstage.errors import InputError
from meshstage.prediction.export import export_model
from meshstage.prediction.loading import load_predictor
from small_cohort import write_cohort
from workflow.project import ROOT, Project

RUNS = (
    "run\tnetwork\tepochs\trmse_log_interval\tlayer_size\toptions\n"
    'fourier\t../docs/examples/own_network.py:TrainFourierMLP\t2\t1\t\t{"width": 8}\n'
    "toy\ttoy\t2\t2\t5\t\n"
)
TOY_MODULE = '''\
"""A toy: two layers per vertex."""

import torch

from meshstage.config.networks import NETWORKS
from meshstage.training.base import TrainPhysicsNeMoBase


class TrainToy(TrainPhysicsNeMoBase):
    """Train a toy."""

    kind = NETWORKS["toy"]
    model_tag = kind.tag
    architecture_name = "meshstage.toy"

    def build_model(self, in_features, out_features):
        """Make two layers."""
        layers = torch.nn.Linear(in_features, self.layer_size), torch.nn.Tanh()
        return torch.nn.Sequential(*layers, torch.nn.Linear(self.layer_size, out_features))

    def forward(self, model, node_feats, batch_len):
        """Predict row by row."""
        return model(node_feats)
'''
TOY_ROW = """\
NETWORKS["toy"] = NetworkKind(
    "toy", "toy", "meshstage.training.toy:TrainToy", "two layers per vertex", ("layer_size",)
)
"""
RESULTS = "results/balls"
PCA, STAGE = np.array([0.5, -1.0]), 0.4


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train and judge it by the workflow, on 3 training subjects and 1 for validation."""
    project = Project.copy(tmp_path_factory.mktemp("own") / "project")
    shutil.copytree(ROOT / "docs/examples", project.folder / "docs/examples")
    data = project.folder / "data"
    data.mkdir()
    write_cohort(data)
    project.write("config/runs.tsv", RUNS)
    project.write("scripts/meshstage/training/toy.py", TOY_MODULE)
    registry = project.folder / "scripts/meshstage/config/networks.py"
    project.write("scripts/meshstage/config/networks.py", registry.read_text() + TOY_ROW)
    config = {
        "cohort": "balls",
        "template": "data/pca_mean.vtp",
        "subjects": "data/subjects.tsv",
        "runs": "config/runs.tsv",
    }
    project.write("config/config.yaml", json.dumps(config))
    wanted = [f"{RESULTS}/evaluation/{run}.csv" for run in ("fourier", "toy")]
    wanted += [f"{RESULTS}/predictions/fourier/delta/delta.pvd"]
    told = project.snakemake("-n", *wanted)
    assert told.returncode == 0, told.stdout
    for name in ("fourier_mlp_stage_model_epoch_00001.pt", "toy_stage_model_epoch_00002.pt"):
        assert name in told.stdout
    answer = project.snakemake(*wanted)
    assert answer.returncode == 0, answer.stdout
    return project.folder


@pytest.fixture(scope="module")
def predictor(trained):
    return load_predictor(trained / RESULTS / "models/fourier")


def test_the_model_holds_its_class_and_its_options(trained, predictor):
    example = (ROOT / "docs/examples/own_network.py").read_text(encoding="utf-8")
    kept = trained / RESULTS / "models/fourier/own_network.py"
    assert kept.read_text(encoding="utf-8") == example
    assert type(predictor.method).__name__ == "TrainFourierMLP"
    assert predictor.method.width == 8
    assert predictor.network.layers[0].weight.shape == (8, 6 + 18)  # features, 3 octaves


def test_it_is_judged_and_predicted_by_its_own_forward(trained, predictor):
    """By the formula, from the weights alone, in float64."""
    weights = {k: v.double().numpy() for k, v in predictor.network.state_dict().items()}
    statistics, points = predictor.statistics, predictor.points
    n_points = len(points)
    features = np.hstack(
        [
            (points - statistics.coordinate_mean) / statistics.coordinate_scale,
            np.tile((PCA - statistics.pca_mean) / statistics.pca_scale, (n_points, 1)),
            np.full((n_points, 1), STAGE),
        ]
    )
    phases = (features[:, :3, None] * np.pi * [1, 2, 4]).reshape(n_points, 9)
    hidden = np.hstack([features, np.sin(phases), np.cos(phases)])
    for layer in (0, 2, 4):
        hidden = hidden @ weights[f"layers.{layer}.weight"].T + weights[f"layers.{layer}.bias"]
        if layer < 4:
            hidden = hidden / (1 + np.exp(-hidden))
    expected = hidden * statistics.target_scale
    # Phases of up to 4 pi times 2 standard deviations: float32 knows them to 2e-6.
    np.testing.assert_allclose(predictor.predict(PCA, [STAGE])[0], expected, rtol=0, atol=1e-4)
    summary = json.loads((trained / RESULTS / "evaluation/fourier.json").read_text())
    assert summary["splits"]["val"] is not None
    folder = trained / RESULTS / "predictions/fourier/delta"
    phase = pv.read(sorted(folder.glob("*.vtp"))[0])
    assert phase.point_data["displacement"].shape == (n_points, 3)


def test_it_is_exported(predictor, tmp_path):
    export_model(predictor, tmp_path / "fourier.pt2")
    module = torch.export.load(tmp_path / "fourier.pt2").module()
    pca = torch.tensor(np.stack([PCA, PCA, PCA]), dtype=torch.float32)
    targets = module(pca, torch.full((3,), STAGE))
    np.testing.assert_allclose(targets[2], predictor.predict(PCA, [STAGE])[0], rtol=0, atol=1e-4)
    with pytest.raises(InputError, match="FourierMLP is none of PhysicsNeMo's own networks"):
        export_model(predictor, tmp_path / "fourier.mdlus")


def test_a_class_that_was_changed_or_lost_is_told(trained, tmp_path):
    directory = shutil.copytree(trained / RESULTS / "models/fourier", tmp_path / "fourier")
    with (directory / "own_network.py").open("a") as file:
        file.write("# edited\n")
    with pytest.raises(InputError, match="TrainFourierMLP was changed since the training"):
        load_predictor(directory)
    (directory / "own_network.py").unlink()
    with pytest.raises(InputError, match=r"own_network\.py, which holds the class .* beside it"):
        load_predictor(directory)


def test_a_network_of_ours_is_a_module_and_a_row(trained):
    """Trained and judged by the same rules, without another edit; exported by its own command."""
    summary = json.loads((trained / RESULTS / "evaluation/toy.json").read_text())
    assert summary["splits"]["train"]["n_subjects"] == 3
    model = trained / RESULTS / "models/toy"
    weights = torch.load(model / "toy_stage_model.pt", weights_only=True)["model_state_dict"]
    assert weights["0.weight"].shape == (5, 6)  # layer_size of its row; 3 + 2 scores + stage
    assert not (model / "shared_edge_index.pt").exists()
    export = [sys.executable, "scripts/export.py", "--model", model, "--output", "toy.pt2"]
    subprocess.run([*map(str, export)], cwd=trained, check=True)
    assert (trained / "toy.pt2").stat().st_size > 0
