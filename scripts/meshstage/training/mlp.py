"""Train PhysicsNeMo's fully connected network: every vertex for itself."""

from typing import Any

import torch
from torch import Tensor

from meshstage.networks import TemplateFullyConnected, build_fully_connected
from meshstage.training.base import TrainPhysicsNeMoBase
from meshstage.training.settings import positive_integer


class TrainPhysicsNeMoMLP(TrainPhysicsNeMoBase):
    """Train a fully connected network with SiLU and skip connections."""

    model_tag = "mlp"
    architecture_name = "physicsnemo.models.mlp.FullyConnected"

    def __init__(self) -> None:
        super().__init__()
        self.batch_size = 32
        self.layer_size = 512
        self.num_layers = 6

    def set_layer_size(self, layer_size: int) -> None:
        """Set the width of every hidden layer."""
        self.layer_size = positive_integer("layer_size", layer_size)

    def set_num_layers(self, num_layers: int) -> None:
        """Set the number of hidden layers."""
        self.num_layers = positive_integer("num_layers", num_layers)

    def build_model(self, in_features: int, n_target: int) -> TemplateFullyConnected:
        """Make a fully connected network with fresh weights."""
        return build_fully_connected(
            in_features, n_target, layer_size=self.layer_size, num_layers=self.num_layers
        )

    def forward(self, model: torch.nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features (batch_len * n_points, in_features)."""
        return model(node_feats).view(batch_len, len(self._coordinates), -1)

    def forward_batch(self, model: torch.nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict from coordinates and samples, which the network joins on its device."""
        return model(self._coordinates, torch.cat([pca, stage[:, None]], dim=1))

    def checkpoint_fields(self) -> dict[str, Any]:
        """Give the numbers that ``build_model`` needs again."""
        return {"layer_size": self.layer_size, "num_layers": self.num_layers}
