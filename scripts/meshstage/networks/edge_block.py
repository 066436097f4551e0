"""One edge block of MeshGraphNet and the mean at each destination, a part of the edges at a time.

Outside its matrix products a step is memory traffic: plain autograd reads and writes arrays of
(n_edges, B, width) once an operation. One differentiable function takes some thousand rows from
the gather to the mean, in place where it can, and keeps little for the backward pass.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from meshstage.networks.graph import TemplateGraph
from meshstage.networks.parts import count_parts


def edge_block(
    mlp: nn.Sequential, edges: Tensor, nodes: Tensor, graph: TemplateGraph, keep_edges: bool
) -> tuple[Tensor, Tensor]:
    """Update edges by a residual MLP of ``[edge | source | destination]``, and average them.

    Parameters
    ----------
    mlp : nn.Sequential
        Linear, ReLU, ..., Linear, LayerNorm: the MLP of a PhysicsNeMo ``MeshEdgeBlock``.
    edges : (n_edges, B, width) tensor, or (n_edges, 1, width) while all samples share them
    nodes : (n_nodes, B, width) tensor
    graph : TemplateGraph
    keep_edges : bool
        False after the last block: its edges are only averaged, and never stored.

    Returns
    -------
    edges : (n_edges, B, width) tensor, or the given ones if they are not kept
    mean : (n_nodes, B, width) tensor, at least float32
        Zero at a node without edges.
    """
    assert isinstance(mlp[0], nn.Linear), "do_concat_trick is not supported: edges are never joined"
    assert isinstance(mlp[1], nn.ReLU), f"the activation must be ReLU, got {mlp[1]}"
    first, *others = [layer for layer in mlp if isinstance(layer, nn.Linear)]
    norm = mlp[-1]
    width = nodes.shape[-1]
    of_edge, of_source, of_destination = first.weight.split((edges.shape[-1], width, width), dim=1)
    from_source = functional.linear(nodes, of_source)
    from_destination = functional.linear(nodes, of_destination, first.bias)
    dtype = from_source.dtype  # what autocast chose for products
    new_edges, mean = _EdgeBlock.apply(
        (graph.source, graph.destination, graph.inverse_degree),
        (keep_edges, torch.is_grad_enabled(), norm.eps),
        edges,
        from_source,
        from_destination,
        norm.weight,
        norm.bias,
        of_edge.to(dtype),
        *(part.to(dtype) for linear in others for part in (linear.weight, linear.bias)),
    )
    return new_edges if keep_edges else edges, mean


def _parts(edges: Tensor, nodes: Tensor) -> Iterator[slice]:
    """Cut the edges into even parts by the size of their states, (n_edges, B, width)."""
    n_edges = len(edges)
    n_parts = count_parts(n_edges * nodes[0].numel(), edges.device)
    step = max(1, math.ceil(n_edges / n_parts))
    return (slice(start, start + step) for start in range(0, n_edges, step))


def _start_sum(like: Tensor) -> Tensor:
    """Make zeros of a shape, in float32 at least: bfloat16 would lose the later terms of a sum."""
    return torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))


def _add_product(total: Tensor, rows: Tensor, matrix: Tensor) -> None:
    """Add ``rows @ matrix`` to ``total`` in place: within the product, if the types agree.

    That saves a pass over the result, and its memory.
    """
    if total.dtype == rows.dtype:
        total.view(-1, total.shape[-1]).addmm_(rows.flatten(0, -2), matrix)
    else:
        total += rows @ matrix


class _EdgeBlock(torch.autograd.Function):
    """``edges + LayerNorm(MLP(...))`` and its mean by destination.

    Saves 3 rows an edge and sample with two hidden layers (the inputs of all linear layers but
    the first, and of the norm), where concatenated inputs and plain autograd keep 6.
    """

    @staticmethod
    def forward(
        ctx: Any,
        graph: tuple[Tensor, Tensor, Tensor],
        options: tuple[bool, bool, float],
        edges: Tensor,
        from_source: Tensor,
        from_destination: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor | None, Tensor]:
        source, destination, inverse_degree = graph
        keep_edges, needs_backward, eps = options
        norm_weight, norm_bias, of_edge, *rest = parameters
        _, n_samples, width = from_source.shape
        total = _start_sum(from_source)
        new_edges = total.new_empty(len(edges), n_samples, width) if keep_edges else None
        saved: list[Tensor] = []
        for part in _parts(edges, from_source):
            hidden = from_source.index_select(0, source[part])
            hidden += from_destination.index_select(0, destination[part])
            rows = edges[part].to(hidden.dtype)
            if rows.shape == hidden.shape:
                _add_product(hidden, rows, of_edge.t())
            else:
                hidden += functional.linear(rows, of_edge)
            inputs = []
            for weight, bias in zip(rest[::2], rest[1::2], strict=True):
                inputs.append(hidden.relu_())
                hidden = functional.linear(hidden, weight, bias)
            update, mean, rstd = torch.native_layer_norm(
                hidden.to(norm_weight.dtype), (width,), norm_weight, norm_bias, eps
            )
            if new_edges is None:
                update += edges[part]
            else:
                update = torch.add(update, edges[part], out=new_edges[part])
            total.index_add_(0, destination[part], update.to(total.dtype))
            if needs_backward:
                saved += [*inputs, hidden, mean, rstd]
        ctx.save_for_backward(*graph, edges, *parameters, *saved)
        ctx.n_parameters = len(parameters)
        ctx.n_saved = len(rest) // 2 + 3  # tensors a part
        ctx.set_materialize_grads(False)  # edges that are not kept have no gradient to fill in
        return new_edges, total.mul_(inverse_degree.to(total.dtype)[:, None, None])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_new_edges: Tensor | None, grad_mean: Tensor) -> tuple:
        source, destination, inverse_degree, edges, *others = ctx.saved_tensors
        parameters, saved = others[: ctx.n_parameters], iter(others[ctx.n_parameters :])
        norm_weight, norm_bias, of_edge, *rest = parameters
        shared = edges.shape[1] == 1
        grad_total = grad_mean * inverse_degree.to(grad_mean.dtype)[:, None, None]
        grad_edges = torch.empty_like(edges)
        grad_source, grad_destination = torch.zeros_like(grad_mean), torch.zeros_like(grad_mean)
        grads = [_start_sum(parameter) for parameter in parameters]
        for part in _parts(edges, grad_mean):
            *inputs, last, mean, rstd = (next(saved) for _ in range(ctx.n_saved))
            into = grad_edges[part]
            out = None if shared else into
            grad = torch.index_select(grad_total, 0, destination[part], out=out)
            if grad_new_edges is not None:
                grad += grad_new_edges[part]
            if shared:
                torch.sum(grad, 1, keepdim=True, out=into)
            grad, grad_weight, grad_bias = torch.ops.aten.native_layer_norm_backward(
                grad.to(norm_weight.dtype),
                last.to(norm_weight.dtype),
                norm_weight.shape,
                mean,
                rstd,
                norm_weight,
                norm_bias,
                (True, True, True),
            )
            grads[0] += grad_weight
            grads[1] += grad_bias
            grad = grad.to(of_edge.dtype)
            for index in reversed(range(len(inputs))):
                rows = grad.flatten(0, 1)
                _add_product(grads[3 + 2 * index], rows.t(), inputs[index].flatten(0, 1))
                grads[4 + 2 * index] += rows.t() @ rows.new_ones(len(rows))  # faster than sum(0)
                grad = grad @ rest[2 * index]
                torch.ops.aten.threshold_backward.grad_input(
                    grad, inputs[index], 0, grad_input=grad
                )
            grad_source.index_add_(0, source[part], grad.to(grad_source.dtype))
            grad_destination.index_add_(0, destination[part], grad.to(grad_source.dtype))
            if shared:
                grad = grad.sum(1, keepdim=True)
            rows = edges[part].flatten(0, 1).to(grad.dtype)
            _add_product(grads[2], grad.flatten(0, 1).t(), rows)
            _add_product(into, grad, of_edge)
        return None, None, grad_edges, grad_source, grad_destination, *grads
