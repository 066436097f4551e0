"""PhysicsNeMo's FullyConnected over the nodes of one template that all samples share."""

import math

import torch
from physicsnemo.models.mlp import FullyConnected
from torch import Tensor

# Numbers of a hidden layer in a part at most: small enough for malloc to hand out again what it
# would otherwise page in afresh, large enough for products to run at full rate. A step at 1,500
# points, batch 32, 512 x 6, two threads, uncut over cut into parts: 1.14 with 0.8 million numbers,
# 1.23 with 3, 1.24 with 6, 1.13 with 12, whose arrays malloc no longer keeps.
NUMBERS_OF_PART = 2**22


class TemplateFullyConnected(FullyConnected):
    """Run FullyConnected's parameters on template coordinates and sample features apart.

    Constructor, parameters and state dict are PhysicsNeMo's.
    """

    def forward(self, node_features: Tensor, sample_features: Tensor | None = None) -> Tensor:
        """Predict the targets of B samples.

        Parameters
        ----------
        node_features : (n_nodes, 3) tensor, or (..., in_features) tensor
            Normalised template coordinates if `sample_features` are given; else all inputs
            of each node, flattened or not: an MLP knows no number of nodes.
        sample_features : (B, n_pca + 1) tensor, optional
            Normalised shape scores, then the stage.

        Returns
        -------
        (B, n_nodes, n_target) tensor, or (..., n_target) tensor
            In the unit of the network: targets divided by their scale.
        """
        x = node_features
        if sample_features is not None:
            n_nodes, n_samples = node_features.shape[0], sample_features.shape[0]
            of_nodes = node_features.expand(n_samples, -1, -1)
            x = torch.cat((of_nodes, sample_features[:, None].expand(-1, n_nodes, -1)), dim=-1)
        rows = x.flatten(0, -2)
        # A node needs no other: they may go through all layers a part at a time.
        targets = [FullyConnected.forward(self, part) for part in self._parts(rows)]
        return torch.cat(targets).unflatten(0, x.shape[:-1])

    def _parts(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Cut rows into even parts on a CPU; a GPU, and a compiler, take all at once."""
        if rows.device.type != "cpu" or torch.compiler.is_compiling():
            return (rows,)
        width = self.layers[0].linear.out_features
        return rows.chunk(max(1, math.ceil(rows.shape[0] * width / NUMBERS_OF_PART)))


def build_fully_connected(
    in_features: int, n_target: int, layer_size: int = 512, num_layers: int = 6
) -> TemplateFullyConnected:
    """Make the MLP that predicts each node by itself: SiLU, skip connections.

    Parameters
    ----------
    in_features : int
        3 coordinates, the shape scores and the stage.
    n_target : int
        Width of the target.
    layer_size, num_layers : int
        Width and number of the hidden layers.
    """
    return TemplateFullyConnected(
        in_features=in_features,
        layer_size=layer_size,
        out_features=n_target,
        num_layers=num_layers,
        activation_fn="silu",
        skip_connections=True,
    )
