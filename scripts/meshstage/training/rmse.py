"""How far predictions are from targets, with the work shared among ranks."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from meshstage.training.distributed import DistributedContext
from meshstage.training.step import Feed


@torch.no_grad()
def root_mean_square_error(
    feed: Feed,
    predict: Callable[[Tensor, Tensor], Tensor],
    batch_size: int,
    context: DistributedContext,
    before_batch: Callable[[], None],
    look: Callable[[Tensor, Tensor], None] | None = None,
) -> float | None:
    """Compute sqrt(sum over points and components of error squared / number of points).

    Parameters
    ----------
    feed : Feed
    predict : callable
        From scores (B, n_pca) and stages (B,) to targets (B, n_points, n_target) by their scale.
    batch_size : int
        Samples that a rank predicts at a time.
    context : DistributedContext
    before_batch : callable
        Called as often on every rank.
    look : callable, optional
        Takes each batch of predictions, and the (B,) indices of their samples.

    Returns
    -------
    float or None
        In the target's units; None if a target or a prediction is not finite.
    """
    n_samples = len(feed.dataset)
    squared = torch.zeros(n_samples, dtype=torch.float64, device=context.device)
    for together in torch.arange(n_samples).split(batch_size * context.world_size):
        before_batch()
        mine = together[context.rank :: context.world_size]
        if len(mine):
            on_device, pca, stage, targets = feed.batch(mine)
            predictions = predict(pca, stage).to(targets.dtype)
            if look:
                look(predictions, on_device)
            error = (predictions - targets).double()
            squared[on_device] = error.square().sum(dim=(1, 2))
    mean = context.sum(squared).sum() / (n_samples * feed.dataset.n_points)
    value = float(mean.sqrt()) * feed.target_scale
    return value if math.isfinite(value) else None
