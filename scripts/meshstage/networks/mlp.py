"""PhysicsNeMo's FullyConnected over the nodes of one template that all samples share."""

import torch
from physicsnemo.models.mlp import FullyConnected
from torch import Tensor

from meshstage.networks.parts import count_parts


class TemplateFullyConnected(FullyConnected):
    """Join template coordinates and sample features on the device, and run FullyConnected.

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
        """Cut rows into even parts by the size of a hidden layer."""
        n_parts = count_parts(rows.shape[0] * self.layers[0].linear.out_features, rows.device)
        # A compiler that does not know the number of rows could not cut them, even into one.
        return rows.chunk(n_parts) if n_parts > 1 else (rows,)


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
