"""The exponential moving average (EMA) of a network's weights."""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """The mean of the weights after each step, in which k steps ago weighs ``decay ** k``.

    The initial weights have no part in it, so that a short training is averaged as well as a long
    one. PyTorch's `AveragedModel` asks the device in each step whether it is the first, and would
    count a skipped step.

    Parameters
    ----------
    network : nn.Module
        Whose weights are averaged; it is left alone.
    decay : float

    Attributes
    ----------
    network : nn.Module
        A copy that holds the averaged weights, and shares the buffers.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._raw, self._decay = network, decay
        self.network = copy.deepcopy(network, {id(buffer): buffer for buffer in network.buffers()})
        self.network.requires_grad_(False)
        device = next(network.parameters()).device
        # Of all steps so far: 1 + decay + decay ** 2 + ...
        self._weight = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(self, skipped: Tensor) -> None:
        """Take in the weights after a step.

        Parameters
        ----------
        skipped : () bool tensor, on the device
            Whether the step was skipped: then nothing moves.
        """
        self._weight = torch.where(skipped, self._weight, 1 + self._decay * self._weight)
        share = torch.where(skipped, 0.0, 1 / self._weight)
        averages: list[Tensor] = [*self.network.parameters()]
        raw: list[Tensor] = [*self._raw.parameters()]
        changes = torch._foreach_sub(raw, averages)
        torch._foreach_mul_(changes, share.to(changes[0].dtype))
        torch._foreach_add_(averages, changes)

    def to_state(self) -> dict[str, Any]:
        """Collect what ``training_state`` keeps: the weights that are trained, and the weight."""
        buffers = dict(self._raw.named_buffers(remove_duplicate=False))
        weights = self._raw.state_dict()
        return {
            "raw_weights": {k: v.detach().cpu() for k, v in weights.items() if k not in buffers},
            "average_weight": float(self._weight),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take ``training_state``; without an average in it, the average begins anew."""
        self._weight.fill_(state.get("average_weight", 0.0))
