"""Train PhysicsNeMo's MeshGraphNet over the one template graph."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meshstage.cohort.names import EDGE_FEATURES, EDGE_INDEX
from meshstage.cohort.template import Template
from meshstage.errors import InputError
from meshstage.files import atomic
from meshstage.networks import TemplateGraph, TemplateMeshGraphNet, build_mesh_graph_net
from meshstage.training.base import TrainPhysicsNeMoBase
from meshstage.training.settings import positive_integer


class TrainPhysicsNeMoMGN(TrainPhysicsNeMoBase):
    """Train a MeshGraphNet: what a vertex does depends on its neighbours' features too."""

    model_tag = "mgn"
    architecture_name = "physicsnemo.models.meshgraphnet.MeshGraphNet"
    hardware_fields = ("num_processor_checkpoint_segments",)

    def __init__(self) -> None:
        super().__init__()
        self.processor_size = 3
        self.hidden_dim = 128
        self.num_layers = 2
        self.num_processor_checkpoint_segments = 0

    def set_processor_size(self, processor_size: int) -> None:
        """Set the hops: how many edges away a vertex sees."""
        self.processor_size = positive_integer("processor_size", processor_size)

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Set the width of every hidden layer and of node and edge states."""
        self.hidden_dim = positive_integer("hidden_dim", hidden_dim)

    def set_num_layers(self, num_layers: int) -> None:
        """Set the hidden layers of each encoder, processor and decoder MLP."""
        self.num_layers = positive_integer("num_layers", num_layers)

    def set_num_processor_checkpoint_segments(self, segments: int) -> None:
        """Set the segments that are computed again in the backward pass; 0 stores everything."""
        if segments != 0:
            positive_integer("num_processor_checkpoint_segments", segments)
        self.num_processor_checkpoint_segments = segments

    def build_model(self, in_features: int, n_target: int) -> TemplateMeshGraphNet:
        """Make a MeshGraphNet with fresh weights."""
        return build_mesh_graph_net(
            in_features,
            n_target,
            processor_size=self.processor_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            num_processor_checkpoint_segments=self.num_processor_checkpoint_segments,
        )

    def setup_inputs(
        self, template_mesh: Template, template_coords: Tensor, device: torch.device
    ) -> None:
        """Put coordinates and graph on the device.

        Raises
        ------
        InputError
            If the template has no edge.
        """
        super().setup_inputs(template_mesh, template_coords, device)
        if not template_mesh.edge_index.size:
            raise InputError(
                f"{template_mesh.mesh_path}: the template has no edge, so a MeshGraphNet has no "
                "graph; use network mlp, or a template with cells"
            )
        self._edge_index = torch.from_numpy(template_mesh.edge_index)
        self._edge_features = torch.from_numpy(template_mesh.edge_features)
        graph = TemplateGraph(self._edge_index, self._edge_features, len(template_coords))
        self._graph = graph.to(device, template_coords.dtype)

    def forward(self, model: torch.nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features (batch_len * n_points, in_features)."""
        return model(node_feats, self._graph)

    def forward_batch(self, model: torch.nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict without repeating coordinates for each sample, or samples for each vertex."""
        return model(self._coordinates, self._graph, torch.cat([pca, stage[:, None]], dim=1))

    def checkpoint_fields(self) -> dict[str, Any]:
        """Give the numbers that ``build_model`` needs again."""
        return {
            "processor_size": self.processor_size,
            "hidden_dim": self.hidden_dim,
            "num_layers": self.num_layers,
            "num_processor_checkpoint_segments": self.num_processor_checkpoint_segments,
            "input_dim_edges": 4,
        }

    def save_artifacts(self, directory: Path) -> list[str]:
        """Write the graph that the weights were trained on."""
        for name, tensor in ((EDGE_INDEX, self._edge_index), (EDGE_FEATURES, self._edge_features)):
            with atomic(directory / name) as temporary:
                torch.save(tensor, temporary)
        return [EDGE_INDEX, EDGE_FEATURES]
