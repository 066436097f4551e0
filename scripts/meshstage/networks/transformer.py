"""PhysicsNeMo's Transolver and FLARE over the nodes of one template that all samples share."""

from physicsnemo.models.flare import FLARE
from physicsnemo.models.transolver import Transolver
from torch import Tensor
from torch.nn.functional import linear


class TemplateTransolver(Transolver):
    """Transolver whose first layer sees template coordinates once, not once per sample.

    Constructor, parameters and state dict are PhysicsNeMo's.
    """

    def forward(self, node_features: Tensor, sample_features: Tensor) -> Tensor:
        """Predict the targets of B samples.

        Parameters
        ----------
        node_features : (n_nodes, 3) tensor
            Normalised template coordinates.
        sample_features : (B, n_pca + n_stage) tensor
            Normalised shape scores, then the encoded stage.

        Returns
        -------
        (B, n_nodes, n_target) tensor
            In the unit of the network: targets divided by their scale.
        """
        return _forward(self, node_features, sample_features)


class TemplateFLARE(FLARE):
    """FLARE whose first layer sees template coordinates once, not once per sample.

    Constructor, parameters and state dict are PhysicsNeMo's.
    """

    def forward(self, node_features: Tensor, sample_features: Tensor) -> Tensor:
        """Predict the targets of B samples; see `TemplateTransolver.forward`."""
        return _forward(self, node_features, sample_features)


def _forward(network: Transolver, node_features: Tensor, sample_features: Tensor) -> Tensor:
    """Run the network, of whose first product each factor is made of what it depends on."""
    first, *rest = network.preprocess.layers
    n_coordinates = node_features.shape[1]
    of_nodes = linear(node_features, first.weight[:, :n_coordinates], first.bias)
    of_samples = linear(sample_features, first.weight[:, n_coordinates:])
    x = of_nodes + of_samples[:, None]  # (B, n_nodes, 2 hidden_dim)
    for layer in (*rest, *network.blocks):
        x = layer(x)
    return x


def build_transolver(
    in_features: int,
    n_target: int,
    hidden_dim: int = 64,
    num_blocks: int = 4,
    num_heads: int = 4,
    num_slices: int = 32,
) -> TemplateTransolver:
    """Make a Transolver: in each block, points attend to slices of the mesh that it learns.

    Parameters
    ----------
    in_features : int
        3 coordinates, the shape scores and the encoded stage.
    n_target : int
        Width of the target.
    hidden_dim : int
        Width of the points' states; a multiple of `num_heads`.
    num_blocks, num_heads, num_slices : int
        Blocks; heads of each attention; slices of each head.
    """
    return TemplateTransolver(
        **_arguments(in_features, n_target, hidden_dim, num_blocks, num_heads, num_slices)
    )


def build_flare(
    in_features: int,
    n_target: int,
    hidden_dim: int = 64,
    num_blocks: int = 4,
    num_heads: int = 4,
    num_slices: int = 32,
) -> TemplateFLARE:
    """Make a FLARE, which gathers points into learned queries; `num_slices` is their number."""
    return TemplateFLARE(
        **_arguments(in_features, n_target, hidden_dim, num_blocks, num_heads, num_slices)
    )


def _arguments(
    in_features: int,
    n_target: int,
    hidden_dim: int,
    num_blocks: int,
    num_heads: int,
    num_slices: int,
) -> dict[str, int | bool]:
    return {
        "functional_dim": in_features - 3,
        "embedding_dim": 3,
        "out_dim": n_target,
        "n_layers": num_blocks,
        "n_hidden": hidden_dim,
        "n_head": num_heads,
        "slice_num": num_slices,
        "use_te": False,  # transformer_engine wants a GPU
    }
