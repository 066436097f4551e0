"""PhysicsNeMo's fully connected network: every vertex for itself."""

import torch
from torch import Tensor

from meshstage.config.networks import NETWORKS
from meshstage.networks import TemplateFullyConnected, build_fully_connected
from meshstage.training.base import TrainPhysicsNeMoBase


class TrainPhysicsNeMoMLP(TrainPhysicsNeMoBase):
    """A fully connected network with SiLU and skip connections."""

    kind = NETWORKS["mlp"]
    model_tag = kind.tag
    architecture_name = "physicsnemo.models.mlp.FullyConnected"

    is_pointwise = True

    layer_size: int
    num_layers: int

    def set_layer_size(self, layer_size: int) -> None:
        """Set the width of every hidden layer."""
        self._set("layer_size", layer_size)

    def set_num_layers(self, num_layers: int) -> None:
        """Set the number of hidden layers."""
        self._set("num_layers", num_layers)

    def build_model(self, in_features: int, out_features: int) -> TemplateFullyConnected:
        """Make a fully connected network with fresh weights."""
        return build_fully_connected(
            in_features, out_features, layer_size=self.layer_size, num_layers=self.num_layers
        )

    def forward(self, model: torch.nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features (batch_len * n_points, n_features)."""
        return model(node_feats)

    def forward_batch(self, model: torch.nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict from coordinates and samples, which the network joins on its device."""
        return model(self.inputs.coordinates, self.inputs.features(pca, stage))
