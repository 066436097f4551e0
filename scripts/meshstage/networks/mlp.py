"""PhysicsNeMo's FullyConnected over the nodes of one template that all samples share."""

from physicsnemo.models.mlp import FullyConnected
from torch import Tensor
from torch.nn import functional


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
        if sample_features is None:
            return super().forward(node_features)
        first = self.layers[0]
        width = node_features.shape[-1]
        weight, bias = first.linear.weight, first.linear.bias
        of_nodes = functional.linear(node_features, weight[:, :width], bias)
        of_samples = functional.linear(sample_features, weight[:, width:])
        x = first.activation_fn(of_nodes + of_samples[:, None])  # (B, N, layer_size)
        skip = x
        for index, layer in enumerate(self.layers[1:], start=1):
            x = layer(x)
            if self.skip_connections and index % 2 == 0:
                x, skip = x + skip, x
        return self.final_layer(x)


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
