"""What is minimised: the data term and the further terms of a method, and what they report."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.losses.term import LossTerm
from meshstage.training.method import TrainingMethod
from meshstage.training.samples import PhaseSampleDataset


class Objective:
    """The named terms of a loss.

    Parameters
    ----------
    method : TrainingMethod
    terms : sequence of LossTerm
        Prepared, and on the device.

    Attributes
    ----------
    names : list of str
        Of the values that an epoch shows apart: none where the data term is the whole loss.
    counts : set of str
        Those of them that are sums; the others are means over samples.
    """

    def __init__(self, method: TrainingMethod, terms: Sequence[LossTerm]) -> None:
        self.method, self.terms = method, terms
        self.names = ["data_loss", *(f"{term.name}_loss" for term in terms)] if terms else []
        self.reported = [name for term in terms for name in (*term.means, *term.counts)]
        self.names += self.reported
        self.counts = {name for term in terms for name in term.counts}

    def __call__(
        self, predictions: Tensor, targets: Tensor, indices: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of k samples.

        Parameters
        ----------
        predictions, targets : (k, n_points, n_target) tensor
        indices : (k,) int64 tensor
            In the training data set.

        Returns
        -------
        loss : () tensor
            The sum of all terms.
        sums : (len(names),) float64 tensor
            Each value, summed over the samples.
        """
        data = self.method._compute_loss(
            predictions.flatten(0, 1),
            targets.flatten(0, 1),
            len(indices),
            self.method.inputs.statistics.target_scale,
            indices,
        )
        if not self.terms:
            return data, torch.zeros(0, dtype=torch.float64, device=data.device)
        losses = {"data": data}
        reported: dict[str, Tensor] = {}
        for term in self.terms:
            losses[term.name], values = term(predictions, indices, "train")
            reported |= values
        means = [loss.detach().double() * len(indices) for loss in losses.values()]
        sums = torch.stack([*means, *_sums(reported, self.reported)])
        return torch.stack(list(losses.values())).sum(), sums

    @torch.no_grad()
    def report(self, predictions: Tensor, indices: Tensor) -> Tensor:
        """Sum what the terms report of validation samples: (len(reported),) float64."""
        values: dict[str, Tensor] = {}
        for term in self.terms:
            values |= term(predictions, indices, "val")[1]
        return torch.stack(_sums(values, self.reported))

    def start_epoch(self, epoch: int) -> None:
        """Prepare an epoch, counted from 0."""
        for term in self.terms:
            term.start_epoch(epoch)

    def values(self, sums: Iterable[float], n_samples: int) -> dict[str, float]:
        """Turn the sums of an epoch into what is shown of it, by name."""
        return self._shown(self.names, sums, n_samples)

    def val_values(self, sums: Iterable[float], n_samples: int) -> dict[str, float]:
        """Turn the sums of a validation into what is shown of it, by name."""
        shown = self._shown(self.reported, sums, n_samples)
        return {f"val_{name}": value for name, value in shown.items()}

    def _shown(self, names: list[str], sums: Iterable[float], n_samples: int) -> dict[str, float]:
        return {
            name: value if name in self.counts else value / n_samples
            for name, value in zip(names, sums, strict=True)
        }


def prepare_terms(
    method: TrainingMethod,
    template: Template,
    train: PhaseSampleDataset,
    val: PhaseSampleDataset | None,
    statistics: Statistics,
    tell: bool,
) -> list[LossTerm]:
    """Make the terms of a method's ``losses`` for a cohort.

    Raises
    ------
    InputError
        If a term cannot be computed for it.
    """
    terms = [method.make_loss(name) for name in method.losses]
    subjects = {"train": train.subjects, "val": val.subjects if val else []}
    for term in terms:
        term.prepare(template, subjects, statistics, tell)
    return terms


def _sums(values: dict[str, Tensor], names: list[str]) -> list[Tensor]:
    return [values[name].detach().double().sum() for name in names]
