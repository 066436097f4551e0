"""What a network is fed: template coordinates, shape scores and stage, normalised."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meshstage.cohort.statistics import Statistics
from meshstage.training.motion_tensors import encode

N_HARMONICS = 3


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
    stage_encoding : str
        "raw", or "cyclic": see `stage_names`.
    cycle : str
        "closed" or "open".

    Attributes
    ----------
    coordinates : (n_points, 3) tensor
        Normalised, on the device.
    """

    def __init__(
        self,
        statistics: Statistics,
        points: np.ndarray,
        device: torch.device,
        dtype: torch.dtype,
        stage_encoding: str = "raw",
        cycle: str = "closed",
    ) -> None:
        self.statistics = statistics
        self.stage_encoding, self.cycle = stage_encoding, cycle
        self.coordinates = torch.from_numpy(statistics.normalise_coordinates(points)).to(
            device, dtype
        )

    @property
    def n_features(self) -> int:
        """Width of a node's input: x, y, z, shape scores, encoded stage."""
        return len(feature_names(self.statistics, self.stage_encoding, self.cycle))

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
    def describe(
        statistics: Statistics, stage_encoding: str = "raw", cycle: str = "closed"
    ) -> dict[str, Any]:
        """Give what a checkpoint keeps, and from which this class can be made again."""
        return {
            "in_features": len(feature_names(statistics, stage_encoding, cycle)),
            "n_pca": statistics.n_pca,
            "stage_encoding": stage_encoding,
            "cycle": cycle,
            **statistics.to_dict(),
        }

    def samples(self, shape_scores: np.ndarray, stages: np.ndarray) -> tuple[Tensor, Tensor]:
        """Bring scores (B, n_pca) and stages (B,) to the device, normalised, in the same shapes."""
        scores = torch.from_numpy(self.statistics.normalise_scores(shape_scores))
        where = self.coordinates
        return scores.to(where), torch.from_numpy(np.asarray(stages, np.float64)).to(where)

    def features(self, pca: Tensor, stage: Tensor) -> Tensor:
        """Join what all nodes of a sample share: scores (B, n_pca) and encoded stages (B,)."""
        encoded = stage[:, None]
        if self.stage_encoding == "cyclic":
            encoded = encode(stage, N_HARMONICS, self.cycle).to(stage.dtype)
        return torch.cat([pca, encoded], dim=1)

    def rows(self, pca: Tensor, stage: Tensor) -> Tensor:
        """Lay out the inputs of every node: (B * n_points, n_features), sample by sample."""
        shared = self.features(pca, stage)
        size = (shared.shape[0], self.n_points, -1)  # len() would fix the size of a traced batch
        return torch.cat(
            [self.coordinates.expand(*size), shared[:, None].expand(*size)], dim=2
        ).flatten(0, 1)


def feature_names(statistics: Statistics, stage_encoding: str, cycle: str) -> list[str]:
    """Name the inputs of a node: coordinates, shape scores, stage or its features.

    A cyclic stage is as many numbers in either cycle: cosines and sines of `N_HARMONICS` whole
    turns where it is closed, cosines of twice as many half turns where it is open.
    """
    stage = ["stage"]
    if stage_encoding == "cyclic":
        waves = ("cos", "sin") if cycle == "closed" else ("cos",)
        n_each = 2 * N_HARMONICS // len(waves)
        stage = [f"stage_{wave}_{k}" for wave in waves for k in range(1, n_each + 1)]
    scores = [f"pca_c{k}" for k in range(1, statistics.n_pca + 1)]
    return [*(f"mean_shape_{axis}" for axis in "xyz"), *scores, *stage]
