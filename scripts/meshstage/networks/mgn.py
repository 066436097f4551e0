"""PhysicsNeMo's MeshGraphNet over one template graph that all samples of a batch share.

Tensors are laid out (n_nodes, B, width) and (n_edges, B, width), so that gathering and averaging
along edges moves whole rows of a batch.
"""

import torch
from physicsnemo.models.meshgraphnet import MeshGraphNet
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from meshstage.errors import InputError, Problem
from meshstage.networks.edge_block import edge_block
from meshstage.networks.graph import TemplateGraph


class TemplateMeshGraphNet(MeshGraphNet):
    """Run MeshGraphNet's parameters over one shared graph, without torch_scatter.

    Constructor, parameters and state dict are PhysicsNeMo's; the result is the same function
    of the parameters as its own forward over B copies of the graph. Expects what
    `build_mesh_graph_net` makes: ReLU, LayerNorm, mean aggregation. First derivatives only.
    """

    def forward(
        self, node_features: Tensor, graph: TemplateGraph, sample_features: Tensor | None = None
    ) -> Tensor:
        """Predict the targets of B samples.

        Parameters
        ----------
        node_features : (n_nodes, 3) tensor, or (B * n_nodes, in_features) tensor
            Normalised template coordinates if `sample_features` are given; else all inputs
            of each node, one sample after the other.
        graph : TemplateGraph
            The template's edges, on the same device.
        sample_features : (B, n_pca + 1) tensor, optional
            Normalised shape scores, then the stage.

        Returns
        -------
        (B, n_nodes, n_target) tensor
            In the unit of the network: targets divided by their scale.
        """
        nodes = self._encode_nodes(node_features, graph, sample_features)  # (N, B, H)
        edges = self.edge_encoder(graph.edge_features)[:, None]  # (E, 1, H): once for all samples
        mean = nodes.new_empty(0)  # what a node block takes from the edge block before it
        for start, end in self.processor.checkpoint_segments:
            state = (start, end, nodes, edges, mean, graph)
            if self.processor.num_processor_checkpoint_segments > 0:
                nodes, edges, mean = checkpoint(self._run_layers, *state, use_reentrant=False)
            else:
                nodes, edges, mean = self._run_layers(*state)
        return self.node_decoder(nodes).transpose(0, 1).contiguous()

    def _encode_nodes(
        self, node_features: Tensor, graph: TemplateGraph, sample_features: Tensor | None
    ) -> Tensor:
        first, rest = self.node_encoder.model[0], self.node_encoder.model[1:]
        if sample_features is None:
            by_sample = node_features.unflatten(0, (-1, graph.n_nodes))  # (B, N, F)
            return rest(first(by_sample.transpose(0, 1)))
        width = node_features.shape[-1]
        of_nodes = functional.linear(node_features, first.weight[:, :width], first.bias)
        of_samples = functional.linear(sample_features, first.weight[:, width:])
        return rest(of_nodes[:, None] + of_samples)

    def _run_layers(
        self, start: int, end: int, nodes: Tensor, edges: Tensor, mean: Tensor, graph: TemplateGraph
    ) -> tuple[Tensor, Tensor, Tensor]:
        last_edge_block = self.processor.num_processor_layers - 2
        for index in range(start, end):
            layer = self.processor.processor_layers[index]
            if index % 2 == 0:
                edges, mean = edge_block(
                    layer.edge_mlp.model, edges, nodes, graph, keep_edges=index < last_edge_block
                )
            else:
                assert layer.aggregation == "mean", f"no aggregation {layer.aggregation!r} here"
                inputs = torch.cat((mean.to(nodes.dtype), nodes), dim=-1)
                nodes = nodes + layer.node_mlp.model(inputs)
        return nodes, edges, mean


def build_mesh_graph_net(
    in_features: int,
    n_target: int,
    processor_size: int = 3,
    hidden_dim: int = 128,
    num_layers: int = 2,
    num_processor_checkpoint_segments: int = 0,
    input_dim_edges: int = 4,
) -> TemplateMeshGraphNet:
    """Make a network with one width and one depth for encoders, processor and decoder.

    Parameters
    ----------
    in_features : int
        3 coordinates, the shape scores and the stage.
    n_target : int
        Width of the target.
    processor_size : int
        Message passing hops.
    hidden_dim, num_layers : int
        Width and number of hidden layers of every MLP.
    num_processor_checkpoint_segments : int
        Parts of the processor whose activations are computed again in the backward pass;
        0 keeps all of them.
    input_dim_edges : int
        Width of the edge features.

    Raises
    ------
    InputError
        If the segments do not divide the 2 * processor_size layers of the processor.
    """
    n_layers = 2 * processor_size
    segments = num_processor_checkpoint_segments
    allowed = [0, *(n for n in range(1, n_layers + 1) if n_layers % n == 0)]
    if segments not in allowed:
        raise InputError(
            Problem(
                what=f"num_processor_checkpoint_segments is {segments}, which does not divide the "
                f"{n_layers} layers of processor_size {processor_size}",
                todo=f"choose one of {', '.join(map(str, allowed))}",
            )
        )
    return TemplateMeshGraphNet(
        input_dim_nodes=in_features,
        input_dim_edges=input_dim_edges,
        output_dim=n_target,
        processor_size=processor_size,
        num_layers_node_processor=num_layers,
        num_layers_edge_processor=num_layers,
        hidden_dim_processor=hidden_dim,
        hidden_dim_node_encoder=hidden_dim,
        num_layers_node_encoder=num_layers,
        hidden_dim_edge_encoder=hidden_dim,
        num_layers_edge_encoder=num_layers,
        hidden_dim_node_decoder=hidden_dim,
        num_layers_node_decoder=num_layers,
        aggregation="mean",
        num_processor_checkpoint_segments=segments,
    )
