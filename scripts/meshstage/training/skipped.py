"""What to make of an epoch's steps: their mean loss, and those that were not finite."""

import numpy as np
import torch

from meshstage.errors import InputError
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.state import Progress


def judge_steps(
    progress: Progress, order: np.ndarray, dataset: PhaseSampleDataset, max_fraction: float
) -> tuple[float, int, list[tuple[int, str]]]:
    """Look at the losses of an epoch whose steps are all done.

    Parameters
    ----------
    progress : Progress
        Its ``step_losses`` are NaN where a step was skipped.
    order : (n_samples,) int64 array
        In which the steps took the samples.
    dataset : PhaseSampleDataset
    max_fraction : float
        Of the steps that may be skipped.

    Returns
    -------
    loss : float
        Mean per sample over the finite steps.
    n_samples : int
        Samples of the finite steps.
    skipped : list of (step, samples)
        Steps from 1 on, and the subjects and phases in them.

    Raises
    ------
    InputError
        If no step, or too few steps, had finite numbers.
    """
    losses, samples = progress.step_losses, progress.step_samples
    finite = torch.isfinite(losses)
    steps = np.split(order, samples.cumsum(0)[:-1].numpy())
    skipped = [
        (number + 1, _suspects(steps[number], dataset))
        for number in torch.nonzero(~finite).flatten().tolist()
    ]
    if not finite.any() or len(skipped) > max_fraction * len(steps):
        raise InputError(
            f"{len(skipped)} of {len(steps)} steps of epoch {progress.epoch + 1} had no finite "
            f"loss or gradient (the first: {skipped[0][1]}); check the targets with "
            "check_cohort.py, or train with a lower learning rate"
        )
    n_samples = samples[finite].sum()
    return float(losses[finite].sum() / n_samples), int(n_samples), skipped


def _suspects(indices: np.ndarray, dataset: PhaseSampleDataset) -> str:
    """Name the samples of a skipped step, only those whose targets are at fault if any is."""
    at_fault = [i for i in indices if not torch.isfinite(dataset.targets([i])).all()]
    return "; ".join(dataset.describe(i) for i in at_fault or indices)
