"""A network of your own: Fourier features of the template before an MLP, and a robust loss.

In ``config/runs.tsv`` (paths are relative to that table)::

    run      network                                              epochs  options
    fourier  ../docs/examples/own_network.py:TrainFourierMLP      200     {"width": 96}

From Python: ``WorkflowTrainPhysicsNeMo(..., training_method=TrainFourierMLP())``.
"""

import logging
import math
from typing import Any

import torch
from torch import Tensor, nn

from meshstage import TrainPhysicsNeMoBase


class FourierMLP(nn.Module):
    """Sines and cosines of the coordinates let a small MLP follow fine shape.

    Parameters
    ----------
    in_features : int
        3 normalised coordinates, the shape scores and the stage.
    out_features : int
    width : int
        Of both hidden layers.
    n_frequencies : int
        Octaves of the coordinates, from one period in 2 standard deviations on.
    """

    def __init__(self, in_features: int, out_features: int, width: int, n_frequencies: int) -> None:
        super().__init__()
        self.register_buffer("octaves", math.pi * 2.0 ** torch.arange(n_frequencies))
        n_waves = 2 * 3 * n_frequencies
        self.layers = nn.Sequential(
            nn.Linear(in_features + n_waves, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, out_features),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Predict (n_rows, out_features) from (n_rows, in_features)."""
        phases = (features[:, :3, None] * self.octaves).flatten(1)  # (n_rows, 3 n_frequencies)
        return self.layers(torch.cat([features, phases.sin(), phases.cos()], dim=1))


class TrainFourierMLP(TrainPhysicsNeMoBase):
    """Train a `FourierMLP` with Huber's loss, which a few wild vertices cannot rule."""

    model_tag = "fourier_mlp"
    architecture_name = "own_network.FourierMLP"

    def __init__(self, log_level: int | str = logging.INFO) -> None:
        super().__init__(log_level=log_level)
        self.width = 64
        self.n_frequencies = 3
        self.delta = 0.5  # of the target scale: beyond it, errors count linearly

    def set_width(self, width: int) -> None:
        """Set the width of both hidden layers."""
        if width < 1:
            raise ValueError(f"width is {width}, it must be at least 1")
        self.width = int(width)

    def build_model(self, in_features: int, out_features: int) -> nn.Module:
        """Make the network with fresh weights."""
        return FourierMLP(in_features, out_features, self.width, self.n_frequencies)

    def forward(self, model: nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict (batch_len * n_points, n_target) from as many rows of features."""
        return model(node_feats)

    def checkpoint_fields(self) -> dict[str, Any]:
        """Give the numbers that `build_model` needs again."""
        return {"width": self.width, "n_frequencies": self.n_frequencies}

    def _compute_loss(
        self, pred: Tensor, tgt: Tensor, batch_len: int, target_scale: float, indices: Tensor
    ) -> Tensor:
        return nn.functional.huber_loss(pred, tgt, delta=self.delta)
