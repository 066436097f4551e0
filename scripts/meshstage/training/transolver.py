"""PhysicsNeMo's Transolver: points attend to slices of the mesh."""

import torch
from torch import Tensor

from meshstage.config.networks import NETWORKS
from meshstage.config.settings import refuse_uneven_heads
from meshstage.networks.transformer import TemplateTransolver, build_transolver
from meshstage.training.base import TrainPhysicsNeMoBase


class TrainPhysicsNeMoTransolver(TrainPhysicsNeMoBase):
    """A transformer whose cost grows with the number of points, not with its square."""

    kind = NETWORKS["transolver"]
    model_tag = kind.tag
    architecture_name = "physicsnemo.models.transolver.Transolver"

    hidden_dim: int
    num_blocks: int
    num_heads: int
    num_slices: int

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Set the width of the points' states."""
        self._set("hidden_dim", hidden_dim)

    def set_num_blocks(self, num_blocks: int) -> None:
        """Set the number of transformer blocks."""
        self._set("num_blocks", num_blocks)

    def set_num_heads(self, num_heads: int) -> None:
        """Set the heads of each attention, which divide the width."""
        self._set("num_heads", num_heads)

    def set_num_slices(self, num_slices: int) -> None:
        """Set the slices of each head."""
        self._set("num_slices", num_slices)

    def check_settings(self) -> None:
        """Check each setting, and that the heads divide the width."""
        super().check_settings()
        refuse_uneven_heads(vars(self), self.kind)

    def build_model(self, in_features: int, out_features: int) -> TemplateTransolver:
        """Make a Transolver with fresh weights."""
        return build_transolver(
            in_features, out_features, **{name: getattr(self, name) for name in self.kind.options}
        )

    def forward(self, model: torch.nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features (batch_len * n_points, n_features)."""
        rows = node_feats.unflatten(0, (batch_len, -1))
        predicted: Tensor = model(rows[0, :, :3], rows[:, 0, 3:])
        return predicted.flatten(0, 1)

    def forward_batch(self, model: torch.nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict without repeating coordinates for each sample."""
        return model(self.inputs.coordinates, self.inputs.features(pca, stage))
