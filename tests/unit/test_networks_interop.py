"""Weights go in and out: monai-physio's model directories, and PhysicsNeMo's own classes."""

from pathlib import Path
from typing import Any

import numpy as np
import physicsnemo
import pytest
import pyvista as pv
import torch
from physicsnemo.models.meshgraphnet import MeshGraphNet
from physicsnemo.models.mlp import FullyConnected
from torch import Tensor

from meshstage.networks import TemplateGraph, build_fully_connected, build_mesh_graph_net
from shared_data import shared

FILES = {0: "{tag}_stage_model.pt", 2: "{tag}_stage_model_epoch_00002.pt"}


def their_network(directory: Path, payload: dict[str, Any], n_nodes: int) -> tuple[Any, tuple]:
    """Build ours from their payload; return it and what its forward takes besides features."""
    if payload["architecture"] == "physicsnemo.models.meshgraphnet.MeshGraphNet":
        names = ("in_features", "n_target", "processor_size", "hidden_dim", "num_layers")
        model: Any = build_mesh_graph_net(**{name: payload[name] for name in names})
        edge_index, edge_features = (
            torch.load(directory / f"shared_edge_{name}.pt", weights_only=True)
            for name in ("index", "features")
        )
        extra: tuple = (TemplateGraph(edge_index, edge_features, n_nodes),)
    else:
        names = ("in_features", "n_target", "layer_size", "num_layers")
        model, extra = build_fully_connected(**{name: payload[name] for name in names}), ()
    model.load_state_dict(payload["model_state_dict"])
    return model, extra


@pytest.mark.parametrize("epoch", FILES)
@pytest.mark.parametrize("tag", ["mgn", "mlp"])
def test_their_weights_give_their_predictions(tag: str, epoch: int) -> None:
    directory = shared("data", "interop", tag)
    payload = torch.load(directory / FILES[epoch].format(tag=tag), weights_only=True)
    theirs = np.load(directory / "their_predictions.npz")
    chosen = theirs["epoch"] == epoch
    points = torch.from_numpy(np.asarray(pv.read(directory / "pca_mean_template.vtp").points))

    def normalised(values: Tensor, name: str) -> Tensor:
        mean, scale = (torch.tensor(payload[f"{name}_{part}"]) for part in ("mean", "scale"))
        return (values.float() - mean) / scale

    scores = normalised(torch.from_numpy(theirs["pca"][chosen]), "pca")
    samples = torch.cat((scores, torch.from_numpy(theirs["stage"][chosen])[:, None]), dim=1)
    model, extra = their_network(directory, payload, len(points))
    with torch.no_grad():
        prediction = model(normalised(points, "coordinate"), *extra, samples)
    expected = theirs["targets"][chosen]
    # Both sides round in float32 (6e-8) some 20 times in another order: a few 1e-6 of the
    # largest value. Wrong weights, edges or scales move it by percents.
    np.testing.assert_allclose(
        prediction.numpy() * payload["target_scale"],
        expected,
        rtol=0,
        atol=5e-6 * np.abs(expected).max(),
    )


@pytest.mark.parametrize(
    ("build", "plain"),
    [(build_mesh_graph_net, MeshGraphNet), (build_fully_connected, FullyConnected)],
)
def test_weights_fit_the_plain_class_both_ways(build: Any, plain: type, tmp_path: Path) -> None:
    ours = build(7, 3, num_layers=2)
    theirs = plain(**ours._args["__args__"])
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict(), strict=True)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.save(str(tmp_path / "theirs.mdlus"))
    loaded = physicsnemo.Module.from_checkpoint(str(tmp_path / "theirs.mdlus"))
    assert type(loaded) is plain
    for name, value in ours.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


@pytest.mark.parametrize("build", [build_mesh_graph_net, build_fully_connected])
def test_physicsnemos_own_files_bring_our_classes_back(build: Any, tmp_path: Path) -> None:
    model = build(7, 3, num_layers=2)
    model.save(str(tmp_path / "ours.mdlus"))
    loaded = physicsnemo.Module.from_checkpoint(str(tmp_path / "ours.mdlus"))
    assert type(loaded) is type(model)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
