"""What a loss term is to the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.subject import Subject
from meshstage.cohort.template import Template


class LossTerm(ABC):
    """A term that is added to the data term; it may report further values.

    Attributes
    ----------
    name : str
        Of the term; its mean per epoch is shown as ``{name}_loss``.
    means, counts : tuple of str
        Names of further values of each sample, shown as their mean or as their sum over an epoch.
    """

    name: str
    means: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()

    @abstractmethod
    def prepare(
        self,
        template: Template,
        subjects: Mapping[str, Sequence[Subject]],
        statistics: Statistics,
        tell: bool,
    ) -> None:
        """Compute what depends on the cohort alone, before training.

        Parameters
        ----------
        template : Template
        subjects : mapping
            By split, "train" and "val"; samples are numbered subject by subject, phase by phase.
        statistics : Statistics
        tell : bool
            Log notices.

        Raises
        ------
        InputError
            If the term cannot be computed for this cohort.
        """

    def to(self, device: torch.device, dtype: torch.dtype) -> None:  # noqa: B027
        """Move what was prepared to the device, in the type of the weights."""

    def start_epoch(self, epoch: int) -> None:  # noqa: B027  a hook, not a duty
        """Prepare an epoch, counted from 0 over the lineage."""

    @abstractmethod
    def __call__(
        self, predictions: Tensor, indices: Tensor, split: str
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the term.

        Parameters
        ----------
        predictions : (k, n_points, n_target) tensor
            Targets divided by their scale.
        indices : (k,) int64 tensor, on the same device
            Samples of the split.
        split : "train" or "val"

        Returns
        -------
        loss : () tensor
            Mean over the samples.
        values : dict of (k,) tensors
            Each of ``means`` and ``counts``, per sample.
        """
