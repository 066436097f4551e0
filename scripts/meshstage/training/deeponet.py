"""PhysicsNeMo's DeepONet: products of what a sample and what a point is."""

import torch
from torch import Tensor

from meshstage.config.networks import NETWORKS
from meshstage.networks.deeponet import build_deeponet
from meshstage.training.base import TrainPhysicsNeMoBase


class TrainPhysicsNeMoDeepONet(TrainPhysicsNeMoBase):
    """A branch that sees scores and stage, a trunk that sees coordinates, and their decoder."""

    kind = NETWORKS["deeponet"]
    model_tag = kind.tag
    architecture_name = "physicsnemo.experimental.models.xdeeponet.DeepONet"

    is_pointwise = True

    layer_size: int
    num_layers: int

    def set_layer_size(self, layer_size: int) -> None:
        """Set the width of every layer."""
        self._set("layer_size", layer_size)

    def set_num_layers(self, num_layers: int) -> None:
        """Set the hidden layers of branch and of trunk."""
        self._set("num_layers", num_layers)

    def build_model(self, in_features: int, out_features: int) -> torch.nn.Module:
        """Make a DeepONet with fresh weights."""
        return build_deeponet(
            in_features, out_features, layer_size=self.layer_size, num_layers=self.num_layers
        )

    def forward(self, model: torch.nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features (batch_len * n_points, n_features)."""
        rows = node_feats.unflatten(0, (batch_len, -1))
        predicted: Tensor = model(rows[:, 0, 3:], rows[0, :, :3])
        return predicted.flatten(0, 1)

    def forward_batch(self, model: torch.nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict with one pass of the trunk for all samples."""
        return model(self.inputs.features(pca, stage), self.inputs.coordinates)
