"""PhysicsNeMo's GeoTransolver over the nodes of one template that all samples share."""

import torch
from physicsnemo.models.geotransolver import GeoTransolver
from torch import Tensor


class TemplateGeoTransolver(GeoTransolver):
    """GeoTransolver that makes of coordinates, once, what is the same for all samples.

    Constructor, parameters and state dict are PhysicsNeMo's.
    """

    def forward(self, node_features: Tensor, sample_features: Tensor) -> Tensor:
        """Predict the targets of B samples.

        Parameters
        ----------
        node_features : (n_nodes, 3) tensor
            Normalised template coordinates: what a point is, and the geometry.
        sample_features : (B, n_pca + n_stage) tensor
            Normalised shape scores, then the encoded stage: the global embedding.

        Returns
        -------
        (B, n_nodes, n_target) tensor
            In the unit of the network: targets divided by their scale.
        """
        n_samples, nodes = sample_features.shape[0], node_features[None]
        of_mesh = self.context_builder.geometry_tokenizer(nodes)  # (1, heads, slices, D)
        of_samples = self.context_builder.global_tokenizer(sample_features[:, None])
        context = torch.cat((of_mesh.expand(n_samples, -1, -1, -1), of_samples), dim=-1)
        x = (self.preprocess[0](nodes).expand(n_samples, -1, -1),)
        for block in self.blocks:
            x = block(x, context)
        predicted: Tensor = self.ln_mlp_out[0](x[0])
        return predicted


def build_geotransolver(
    in_features: int,
    n_target: int,
    hidden_dim: int = 64,
    num_blocks: int = 4,
    num_heads: int = 4,
    num_slices: int = 32,
) -> TemplateGeoTransolver:
    """Make a GeoTransolver without ball queries; see `transformer.build_transolver`."""
    return TemplateGeoTransolver(
        functional_dim=3,
        out_dim=n_target,
        geometry_dim=3,
        global_dim=in_features - 3,
        n_layers=num_blocks,
        n_hidden=hidden_dim,
        n_head=num_heads,
        slice_num=num_slices,
        use_te=False,  # transformer_engine wants a GPU
    )
