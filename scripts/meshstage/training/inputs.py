"""What a network is fed: template coordinates, shape scores and stage, normalised."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meshstage.cohort.statistics import Statistics


class NetworkInputs:
    """Make a network's inputs from raw values; training, judging and predicting use this class.

    Parameters
    ----------
    statistics : Statistics
    points : (n_points, 3) array, mm
        Of the template.
    device : torch.device
    dtype : torch.dtype
        Of the weights.

    Attributes
    ----------
    coordinates : (n_points, 3) tensor
        Normalised, on the device.
    """

    def __init__(
        self, statistics: Statistics, points: np.ndarray, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.statistics = statistics
        self.coordinates = torch.from_numpy(statistics.normalise_coordinates(points)).to(
            device, dtype
        )

    @property
    def n_points(self) -> int:
        """Nodes of the template."""
        return self.coordinates.shape[0]

    def at(self, coordinates: Tensor) -> "NetworkInputs":
        """Copy it for other normalised coordinates, (n_points, 3), on the device."""
        other = copy.copy(self)
        other.coordinates = coordinates
        return other

    @staticmethod
    def describe(statistics: Statistics) -> dict[str, Any]:
        """Give what a checkpoint keeps, and from which this class can be made again."""
        return {
            "in_features": statistics.n_features,
            "n_pca": statistics.n_pca,
            **statistics.to_dict(),
        }

    def samples(self, shape_scores: np.ndarray, stages: np.ndarray) -> tuple[Tensor, Tensor]:
        """Bring scores (B, n_pca) and stages (B,) to the device, normalised, in the same shapes."""
        scores = torch.from_numpy(self.statistics.normalise_scores(shape_scores))
        where = self.coordinates
        return scores.to(where), torch.from_numpy(np.asarray(stages, np.float64)).to(where)

    def features(self, pca: Tensor, stage: Tensor) -> Tensor:
        """Join what all nodes of a sample share: (B, n_pca) and (B,) to (B, n_pca + 1)."""
        return torch.cat([pca, stage[:, None]], dim=1)

    def rows(self, pca: Tensor, stage: Tensor) -> Tensor:
        """Lay out the inputs of every node: (B * n_points, n_features), sample by sample."""
        shared = self.features(pca, stage)
        size = (shared.shape[0], self.n_points, -1)  # len() would fix the size of a traced batch
        return torch.cat(
            [self.coordinates.expand(*size), shared[:, None].expand(*size)], dim=2
        ).flatten(0, 1)
