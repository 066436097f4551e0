"""The step that ours is compared with: PhysicsNeMo's arithmetic, one graph per sample.

What a training loop on PhysicsNeMo's own forward does: the host builds
``[x, y, z | shape scores | stage]`` for every sample of every batch, the graph is repeated for
each sample, edges are encoded in each of them, and MLPs take concatenated inputs. The
aggregation is torch_scatter's (``scatter_add_`` with an expanded index, then a division).
The parameters may be ours: the state dict is the same.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class ReferenceGraph:
    """B copies of one graph, as ``torch_geometric.data.Batch`` makes them."""

    edge_index: Tensor  # (2, B * n_edges)
    edge_features: Tensor  # (B * n_edges, 4)


def repeat_graph(edge_index: Tensor, edge_features: Tensor, n_nodes: int, n: int) -> ReferenceGraph:
    """Lay n copies of a graph side by side."""
    copies = [edge_index + sample * n_nodes for sample in range(n)]
    return ReferenceGraph(torch.cat(copies, dim=1), edge_features.repeat(n, 1))


def host_features(coordinates: Tensor, sample_features: Tensor) -> Tensor:
    """Build (B * n_nodes, in_features) on the host, a sample at a time."""
    rows = [
        torch.cat((coordinates, sample.expand(len(coordinates), -1)), dim=1)
        for sample in sample_features
    ]
    return torch.stack(rows).flatten(0, 1)


def scatter_mean(messages: Tensor, destination: Tensor, n_nodes: int) -> Tensor:
    """Average messages by destination as torch_scatter does; zero without messages."""
    total = messages.new_zeros(n_nodes, messages.shape[1])
    total = total.scatter_add(0, destination[:, None].expand_as(messages), messages)
    count = messages.new_zeros(n_nodes)
    count = count.scatter_add(0, destination, torch.ones_like(destination, dtype=count.dtype))
    return total / count.clamp(min=1)[:, None]


def reference_mesh_graph_net(model: Any, node_features: Tensor, graph: ReferenceGraph) -> Tensor:
    """Run a MeshGraphNet's parameters on B * n_nodes nodes in the plain way.

    Parameters
    ----------
    model : MeshGraphNet
        Only its MLPs are called.
    node_features : (B * n_nodes, in_features) tensor
    graph : ReferenceGraph

    Returns
    -------
    (B * n_nodes, n_target) tensor
    """
    source, destination = graph.edge_index
    edges = model.edge_encoder.model(graph.edge_features)
    nodes = model.node_encoder.model(node_features)
    layers = iter(model.processor.processor_layers)
    for edge_block, node_block in zip(layers, layers, strict=True):
        inputs = torch.cat((edges, nodes[source], nodes[destination]), dim=1)
        edges = edge_block.edge_mlp.model(inputs) + edges
        mean = scatter_mean(edges, destination, len(nodes))
        nodes = node_block.node_mlp.model(torch.cat((mean, nodes), dim=1)) + nodes
    return model.node_decoder.model(nodes)
