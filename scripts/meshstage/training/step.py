"""One optimizer step, decided on the device: loss, clip, skip what is not finite, Adam."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from meshstage.training.inputs import NetworkInputs
from meshstage.training.samples import PhaseSampleDataset


def resolve_precision(choice: str, device: torch.device) -> str:
    """Turn ``auto`` into bf16 where the GPU computes it, else fp32."""
    if choice != "auto":
        return choice
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def parameter_type(precision: str) -> torch.dtype:
    """Give the type that weights, inputs and targets have."""
    return torch.float64 if precision == "fp64" else torch.float32


def make_optimizer(
    parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float = 0.0
) -> torch.optim.AdamW:
    """Make the fused AdamW, which can skip a step without the host knowing."""
    optimizer = torch.optim.AdamW(
        parameters, lr=learning_rate, weight_decay=weight_decay, fused=True
    )
    optimizer.grad_scale = None  # type: ignore[attr-defined]  # the kernel reads it with found_inf
    return optimizer


def backward(loss: Tensor, share: float) -> None:
    """Propagate ``share * loss``; a loss that is not finite makes every gradient NaN.

    So a finite gradient of an infinite loss cannot pass, and the sum of gradients over ranks
    tells each of them, without a message of its own.
    """
    seed = torch.full_like(loss, share)  # keeps the loss's dtype
    loss.backward(gradient=seed.masked_fill_(~torch.isfinite(loss.detach()), torch.nan))


def optimizer_step(
    optimizer: torch.optim.AdamW, parameters: list[nn.Parameter], clip_norm: float
) -> Tensor:
    """Clip and step, or leave weights and moments alone if the gradient is not finite.

    Returns
    -------
    () bool tensor, on the device
        Whether the step was skipped: equal on all ranks, since gradients are.
    """
    norm = nn.utils.clip_grad_norm_(parameters, clip_norm)
    skipped = ~torch.isfinite(norm)
    optimizer.found_inf = skipped.to(torch.float32)  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return skipped


class Feed:
    """Samples as a network takes them: scores and stages on the device, targets when asked for.

    Parameters
    ----------
    dataset : PhaseSampleDataset
    inputs : NetworkInputs
    device_memory_fraction : float
        Targets move to the GPU for good if they take at most this part of its free memory.
    """

    def __init__(
        self,
        dataset: PhaseSampleDataset,
        inputs: NetworkInputs,
        device_memory_fraction: float,
    ) -> None:
        self.dataset = dataset
        self._device, self._dtype = inputs.coordinates.device, inputs.coordinates.dtype
        self.target_scale = inputs.statistics.target_scale
        self._scores, self._stages = inputs.samples(dataset.shape_scores, dataset.stages)
        self._resident: Tensor | None = None
        if self._device.type == "cuda" and dataset.is_stored:
            needed = len(dataset) * dataset.n_points * dataset.n_target * 4
            if needed <= device_memory_fraction * torch.cuda.mem_get_info(self._device)[0]:
                shape = (len(dataset), dataset.n_points, dataset.n_target)
                self._resident = torch.empty(shape, device=self._device)
                # One by one: the host may have less memory than the GPU.
                for index, row in enumerate(self._resident):
                    row.copy_(dataset.targets([index])[0])

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Fetch a batch.

        Parameters
        ----------
        indices : (B,) int64 tensor, on the host

        Returns
        -------
        indices : (B,) int64 tensor, on the device
        pca : (B, n_pca) tensor, normalised
        stage : (B,) tensor
        targets : (B, n_points, n_target) tensor, divided by the target scale
        """
        cuda = self._device.type == "cuda"
        # From pageable memory a copy would stop the host until the GPU has come to it.
        where = indices.pin_memory().to(self._device, non_blocking=True) if cuda else indices
        if self._resident is not None:
            targets = self._resident[where]
        else:
            targets = self.dataset.targets(indices.tolist())
            if cuda:
                targets = targets.pin_memory().to(self._device, non_blocking=True)
        return (
            where,
            self._scores[where],
            self._stages[where],
            targets.to(self._dtype).div_(self.target_scale),
        )
