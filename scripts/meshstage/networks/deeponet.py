"""PhysicsNeMo's DeepONet: a branch for the sample, a trunk for the template's points."""

import warnings

from physicsnemo.models.mlp import FullyConnected

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that it is experimental, which docs/networks.md says
    from physicsnemo.experimental.models.xdeeponet import DeepONet


def build_deeponet(
    in_features: int, n_target: int, layer_size: int = 128, num_layers: int = 4
) -> DeepONet:
    """Make a DeepONet that takes features of samples (B, F) and coordinates (n_nodes, 3).

    Its own forward runs the trunk once for all samples, and gives (B, n_nodes, n_target).

    Parameters
    ----------
    in_features : int
        3 coordinates, the shape scores and the encoded stage.
    n_target : int
        Width of the target.
    layer_size, num_layers : int
        Width of all layers; number of the hidden ones of branch and of trunk.
    """

    def fully_connected(n_inputs: int) -> FullyConnected:
        return FullyConnected(
            in_features=n_inputs,
            layer_size=layer_size,
            out_features=layer_size,
            num_layers=num_layers,
            activation_fn="silu",
            skip_connections=True,
        )

    return DeepONet(
        fully_connected(in_features - 3),
        trunk=fully_connected(3),
        width=layer_size,
        out_channels=n_target,
        decoder_type="mlp",
        decoder_width=layer_size,
        decoder_layers=1,  # per sample and point: the one part that is not shared
        decoder_activation_fn="silu",
        trunk_input="grid",
    )
