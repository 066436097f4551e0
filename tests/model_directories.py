"""Model directories as MONAI Physio lays them out, written and read with PhysicsNeMo alone.

Both follow ``../shared/INTEROP.md`` and use nothing of this package, so that its reader and
writer are each judged by the other program's rules.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyvista as pv
import torch
from torch import Tensor, nn

ARCHITECTURES = {
    "mgn": "physicsnemo.models.meshgraphnet.MeshGraphNet",
    "mlp": "physicsnemo.models.mlp.FullyConnected",
}
SIZES = {
    "mgn": {
        "processor_size": 2,
        "hidden_dim": 8,
        "num_layers": 2,
        "num_processor_checkpoint_segments": 0,
        "input_dim_edges": 4,
    },
    "mlp": {"layer_size": 16, "num_layers": 3},
}


def make_network(tag: str, payload: dict[str, Any]) -> nn.Module:
    """Make PhysicsNeMo's own network from the keys of a payload."""
    if tag == "mlp":
        from physicsnemo.models.mlp import FullyConnected

        return FullyConnected(
            payload["in_features"],
            payload["layer_size"],
            payload["n_target"],
            payload["num_layers"],
            activation_fn="silu",
            skip_connections=True,
        )
    from physicsnemo.models.meshgraphnet import MeshGraphNet

    parts = ("node_processor", "edge_processor", "node_encoder", "edge_encoder", "node_decoder")
    widths = ("processor", "node_encoder", "edge_encoder", "node_decoder")
    return MeshGraphNet(
        payload["in_features"],
        4,
        payload["n_target"],
        processor_size=payload["processor_size"],
        aggregation="mean",
        **{f"num_layers_{part}": payload["num_layers"] for part in parts},
        **{f"hidden_dim_{part}": payload["hidden_dim"] for part in widths},
    )


def run_mesh_graph_net(network: nn.Module, nodes: Tensor, edges: Tensor, index: Tensor) -> Tensor:
    """Compute what a MeshGraphNet is by its paper, edge by edge: no torch_scatter.

    Parameters
    ----------
    network : physicsnemo MeshGraphNet
    nodes : (n_nodes, in_features) tensor
    edges : (n_edges, 4) tensor
    index : (2, n_edges) tensor
        Sources, destinations.

    References
    ----------
    Pfaff et al. (2021), "Learning mesh-based simulation with graph networks", section 3.2.
    """
    source, destination = index
    nodes = network.node_encoder.model(nodes)
    edges = network.edge_encoder.model(edges)
    layers = network.processor.processor_layers
    for of_edges, of_nodes in zip(layers[::2], layers[1::2], strict=True):
        inputs = torch.cat([edges, nodes[source], nodes[destination]], dim=1)
        edges = edges + of_edges.edge_mlp.model(inputs)
        mean = torch.stack(
            [edges[destination == node].mean(dim=0) for node in range(len(nodes))]
        ).nan_to_num(0.0)
        nodes = nodes + of_nodes.node_mlp.model(torch.cat([mean, nodes], dim=1))
    return network.node_decoder.model(nodes)


@dataclass
class PlainReader:
    """A model directory, read and asked by the rules of MONAI Physio's inference."""

    directory: Path
    tag: str
    epoch: int | None = None

    def __post_init__(self) -> None:
        stem = f"{self.tag}_stage_model"
        name = f"{stem}.pt" if self.epoch is None else f"{stem}_epoch_{self.epoch:05d}.pt"
        self.payload = torch.load(self.directory / name, map_location="cpu", weights_only=True)
        self.target_array = self.payload.get("target_array", "target")
        candidates = [self.directory / f"pca_mean_template{end}" for end in (".vtp", ".vtu")]
        template = pv.read(next(path for path in candidates if path.exists()))
        scaled = {
            name: np.array(self.payload[name], np.float32)
            for name in ("coordinate_mean", "coordinate_scale", "pca_mean", "pca_scale")
        }
        self.pca_mean, self.pca_scale = scaled["pca_mean"], scaled["pca_scale"]
        points = np.asarray(template.points, np.float32)
        self.points = (points - scaled["coordinate_mean"]) / scaled["coordinate_scale"]
        self.network = make_network(self.tag, self.payload)
        self.network.load_state_dict(self.payload["model_state_dict"])
        if self.tag == "mgn":
            self.index, self.edges = (
                torch.load(self.directory / f"shared_edge_{name}.pt", weights_only=True)
                for name in ("index", "features")
            )

    @torch.no_grad()
    def predict(self, pca: np.ndarray, stage: float) -> np.ndarray:
        scores = np.tile((pca - self.pca_mean) / self.pca_scale, (len(self.points), 1))
        stages = np.full((len(self.points), 1), stage)
        nodes = torch.tensor(np.hstack([self.points, scores, stages]), dtype=torch.float32)
        if self.tag == "mlp":
            output = self.network(nodes)
        else:
            output = run_mesh_graph_net(self.network, nodes, self.edges, self.index)
        return output.numpy() * float(self.payload["target_scale"])


def write_directory(directory: Path, tag: str, seed: int = 0) -> None:
    """Write a model with random weights: the final file, epoch 2 with other weights, metadata."""
    directory.mkdir(parents=True)
    torch.manual_seed(seed)
    template = pv.Icosphere(radius=20.0, nsub=1)  # 42 points, mm
    template.clear_data()
    points = np.asarray(template.points, np.float32)
    values = {
        "architecture": ARCHITECTURES[tag],
        "in_features": 6,
        "n_pca": 2,
        "coordinate_mean": points.mean(axis=0).tolist(),
        "coordinate_scale": points.std(axis=0).tolist(),
        "pca_mean": [0.5, -0.25],
        "pca_scale": [1.5, 0.75],
        "target_scale": 3.0,
        "n_target": 3,
        **SIZES[tag],
    }
    kept = {**values, "model_state_dict": make_network(tag, values).state_dict()}
    torch.save(kept, directory / f"{tag}_stage_model_epoch_00002.pt")
    final = {
        **values,
        "model_state_dict": make_network(tag, values).state_dict(),
        "target_array": "displacement",
        "train_subject_ids": ["a"],
        "val_subject_ids": ["b"],
        "resumed_from": None,
    }
    torch.save(final, directory / f"{tag}_stage_model.pt")
    described = {key: value for key, value in values.items() if key != "n_pca"}
    metadata = {**described, "n_mesh_points": 42, "target_array": "displacement", "epochs": 4}
    (directory / f"{tag}_stage_model_metadata.json").write_text(json.dumps(metadata))
    log = [{"epoch": 2, "train_rmse": 1.0, "val_rmse": 2.0}]
    (directory / "training_validation_rmse.json").write_text(json.dumps(log))
    template.save(directory / "pca_mean_template.vtp")
    if tag == "mgn":
        index, features = _edges(template)
        torch.save(index, directory / "shared_edge_index.pt")
        torch.save(features, directory / "shared_edge_features.pt")


def _edges(template: pv.PolyData) -> tuple[Tensor, Tensor]:
    """Sides of the triangles in both directions, and ``x_j - x_i`` with its length."""
    from torch_geometric.utils import to_undirected

    triangles = template.faces.reshape(-1, 4)[:, 1:]
    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    index = to_undirected(torch.from_numpy(np.ascontiguousarray(sides.T).astype(np.int64)))
    points = torch.tensor(np.asarray(template.points, np.float32))
    difference = points[index[1]] - points[index[0]]
    return index, torch.cat([difference, difference.norm(dim=1, keepdim=True)], dim=1)
