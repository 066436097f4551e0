"""The template's graph as tensors that move with the network."""

import torch
from torch import Tensor, nn


class TemplateGraph(nn.Module):
    """Hold the edges of the one mesh that all samples share.

    Edges are kept sorted by destination, so that what is summed into one node lies together.
    The order of the edges given here changes nothing but rounding.

    Parameters
    ----------
    edge_index : (2, n_edges) int64 tensor
        Source nodes and destination nodes; messages are averaged at the destination.
    edge_features : (n_edges, 4) float32 tensor, mm
        ``[dx, dy, dz, length]``.
    n_nodes : int
        Nodes of the template; a node without edges receives zero.

    Raises
    ------
    ValueError
        If the shapes disagree, or an edge names a node that is not there.
    """

    edge_features: Tensor
    source: Tensor
    destination: Tensor
    inverse_degree: Tensor

    def __init__(self, edge_index: Tensor, edge_features: Tensor, n_nodes: int) -> None:
        super().__init__()
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise ValueError(f"edge_index must be (2, n_edges), got {tuple(edge_index.shape)}")
        if edge_features.ndim != 2 or len(edge_features) != edge_index.shape[1]:
            raise ValueError(
                f"edge_features must be ({edge_index.shape[1]}, width) to match edge_index, "
                f"got {tuple(edge_features.shape)}"
            )
        if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n_nodes:
            raise ValueError(
                f"edge_index names nodes {int(edge_index.min())} to {int(edge_index.max())}, "
                f"the template has nodes 0 to {n_nodes - 1}"
            )
        self.n_nodes = n_nodes
        by_destination = torch.argsort(edge_index[1], stable=True)
        source, destination = edge_index[:, by_destination]
        degree = torch.bincount(destination, minlength=n_nodes).clamp(min=1)
        for name, tensor in {
            "edge_features": edge_features[by_destination],
            "source": source.contiguous(),
            "destination": destination.contiguous(),
            "inverse_degree": degree.to(edge_features.dtype).reciprocal(),
        }.items():
            # Not persistent: the network's checkpoint holds weights, the template its own files.
            self.register_buffer(name, tensor, persistent=False)
