"""What an epoch draws: its order and noise, and which samples each rank takes in each step."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Step:
    """One step of one rank.

    Parameters
    ----------
    indices : (batch,) int64 array
        Samples to load; only the first ``n_real`` count, the rest keeps shapes static.
    n_real : int
        Real samples of this rank, possibly 0.
    n_global : int
        Real samples of all ranks together, at least 1.
    """

    indices: np.ndarray
    n_real: int
    n_global: int


def epoch_order(seed: int, epoch: int, n_samples: int) -> np.ndarray:
    """Permutation of all samples, a function of seed and epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(n_samples)


def epoch_noise(seed: int, epoch: int, n_samples: int, n_scores: int) -> np.ndarray:
    """Draw standard normal noise for the scores of each sample, in the data set's order.

    A function of seed, epoch and sample alone: no batch, rank or interruption changes it.
    """
    # A zero would give the stream of `epoch_order`.
    return np.random.default_rng([seed, epoch, 1]).standard_normal((n_samples, n_scores))


def rank_batch(n_samples: int, batch_size: int, world_size: int) -> int:
    """Count the samples that a rank loads a step: at most its share of the whole cohort."""
    return min(batch_size, -(-n_samples // world_size))


def epoch_plan(order: np.ndarray, batch: int, rank: int = 0, world_size: int = 1) -> list[Step]:
    """Split an epoch so that R ranks with batch B step as one rank with batch R * B.

    Parameters
    ----------
    order : (n_samples,) int64 array
        Of ``epoch_order``, or the rest of it.
    batch : int
        Samples a rank and step, of ``rank_batch``.
    rank, world_size : int

    Returns
    -------
    list of Step
        As long on every rank; over all ranks each sample is real exactly once.
    """
    steps = []
    for start in range(0, len(order), batch * world_size):
        together = order[start : start + batch * world_size]
        mine = together[rank * batch : (rank + 1) * batch]
        padding = np.full(batch - len(mine), together[0])
        steps.append(Step(np.concatenate([mine, padding]), len(mine), len(together)))
    return steps
