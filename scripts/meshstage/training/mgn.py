"""PhysicsNeMo's MeshGraphNet over the one template graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from meshstage.cohort.names import EDGE_FEATURES, EDGE_INDEX
from meshstage.config.networks import NETWORKS
from meshstage.errors import InputError, Problem
from meshstage.models.checkpoint import save_tensors
from meshstage.networks import TemplateGraph, TemplateMeshGraphNet, build_mesh_graph_net
from meshstage.training.base import TrainPhysicsNeMoBase

if TYPE_CHECKING:
    import pyvista as pv


class TrainPhysicsNeMoMGN(TrainPhysicsNeMoBase):
    """A MeshGraphNet: what a vertex does depends on its neighbours' features too."""

    kind = NETWORKS["mgn"]
    model_tag = kind.tag
    architecture_name = "physicsnemo.models.meshgraphnet.MeshGraphNet"

    processor_size: int
    hidden_dim: int
    num_layers: int
    num_processor_checkpoint_segments: int

    def set_processor_size(self, processor_size: int) -> None:
        """Set the hops: how many edges away a vertex sees."""
        self._set("processor_size", processor_size)

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Set the width of every hidden layer and of node and edge states."""
        self._set("hidden_dim", hidden_dim)

    def set_num_layers(self, num_layers: int) -> None:
        """Set the hidden layers of each encoder, processor and decoder MLP."""
        self._set("num_layers", num_layers)

    def set_num_processor_checkpoint_segments(self, num_segments: int) -> None:
        """Set the segments that are computed again in the backward pass; 0 stores everything."""
        self._set("num_processor_checkpoint_segments", num_segments)

    def build_model(self, in_features: int, out_features: int) -> TemplateMeshGraphNet:
        """Make a MeshGraphNet with fresh weights."""
        return build_mesh_graph_net(
            in_features, out_features, **{name: getattr(self, name) for name in self.kind.options}
        )

    def use_edges(
        self, edge_index: np.ndarray | Tensor, edge_features: np.ndarray | Tensor
    ) -> None:
        """Take the edges of the template, (2, n_edges) and (n_edges, 4)."""
        self._edges = torch.as_tensor(edge_index), torch.as_tensor(edge_features)

    def setup_inputs(
        self, device: torch.device, template_mesh: "pv.DataSet", template_coords: np.ndarray
    ) -> None:
        """Put the graph on the device.

        Raises
        ------
        InputError
            If the template has no edge, or the edges are not the template's.
        """
        if not self._edges[0].numel():
            raise InputError(
                "the template has no edge, so a MeshGraphNet has no graph; use network mlp, or a "
                "template with cells"
            )
        try:
            graph = TemplateGraph(*self._edges, self.inputs.n_points)
        except ValueError as error:
            raise InputError(f"the graph does not fit the template: {error}") from None
        self._graph = graph.to(device, self.inputs.coordinates.dtype)

    @property
    def rows_per_sample(self) -> int:
        """Edges of the graph, or its nodes if they are more."""
        return max(self.inputs.n_points, len(self._graph.edge_features))

    def forward(self, model: torch.nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features (batch_len * n_points, n_features)."""
        return model(node_feats, self._graph).flatten(0, 1)

    def forward_batch(self, model: torch.nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict without repeating coordinates for each sample, or samples for each vertex."""
        return model(self.inputs.coordinates, self._graph, self.inputs.features(pca, stage))

    def checkpoint_fields(self) -> dict[str, Any]:
        """Give the numbers that ``build_model`` needs again."""
        return super().checkpoint_fields() | {"input_dim_edges": 4}

    def save_artifacts(self, output_dir: Path) -> None:
        """Write the graph that the weights were trained on."""
        for name, tensor in zip((EDGE_INDEX, EDGE_FEATURES), self._edges, strict=True):
            save_tensors(output_dir / name, tensor)

    def load_artifacts(self, folder: Path) -> None:
        """Read the graph that the weights were trained on.

        Raises
        ------
        InputError
            If a file is missing, truncated, or holds more than a tensor.
        """
        tensors = []
        for path in (folder / EDGE_INDEX, folder / EDGE_FEATURES):
            try:
                tensors.append(torch.load(path, weights_only=True))
            except Exception as error:  # whatever damage makes of a file
                reason = (str(error) or repr(error)).splitlines()[0][:120]
                what = f"the graph of the model cannot be read ({reason})"
                todo = "copy it from the model directory"
                raise InputError(Problem(what, todo, str(path))) from None
        self.use_edges(*tensors)
