"""Modes of motion whose coefficients a network predicts: one small network for a whole mesh."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.config.networks import NETWORKS
from meshstage.errors import InputError, Problem
from meshstage.motion.model import Observed
from meshstage.motion.modes import principal_modes
from meshstage.networks import TemplateFullyConnected, build_fully_connected
from meshstage.training.base import TrainPhysicsNeMoBase

if TYPE_CHECKING:
    import pyvista as pv

# The modes leave a thousandth of the motion's size; a network for hundreds would learn noise.
_VARIANCE_KEPT, _MOST_MODES = 1 - 1e-6, 64
_MODES = "modes."


class TrainPhysicsNeMoPOD(TrainPhysicsNeMoBase):
    """A fully connected network from shape scores and stage to coefficients of motion modes.

    The modes are the principal ones of the training motions (proper orthogonal decomposition),
    and part of the model. Of a base, they move what it leaves.
    """

    kind = NETWORKS["pod"]
    model_tag = kind.tag
    architecture_name = "physicsnemo.models.mlp.FullyConnected"

    layer_size: int
    num_layers: int

    def set_layer_size(self, layer_size: int) -> None:
        """Set the width of every hidden layer."""
        self._set("layer_size", layer_size)

    def set_num_layers(self, num_layers: int) -> None:
        """Set the number of hidden layers."""
        self._set("num_layers", num_layers)

    def fit_fixed(self, train: Sequence[Observed], statistics: Statistics) -> dict[str, Tensor]:
        """Add the modes, and mean and spread of the training motions along them.

        Raises
        ------
        InputError
            If all training motions are equal.
        """
        fixed = super().fit_fixed(train, statistics)
        _, modes, _ = principal_modes([s.targets for s in train], _VARIANCE_KEPT, _MOST_MODES)
        if not len(modes):
            what = "all training motions are equal, so they have no modes"
            raise InputError(Problem(what, "give subjects that move, or take the network mlp"))
        base = self.make_base(fixed, statistics)
        along, n_samples = [], 0
        total = torch.zeros(train[0].targets.shape[1:], dtype=torch.float64)
        for subject in train:
            learned = torch.tensor(subject.targets / statistics.target_scale, dtype=torch.float64)
            if base:
                scores = statistics.normalise_scores(subject.shape_scores)
                pca = torch.tensor(np.tile(scores, (len(learned), 1)))
                left = learned - base(pca, torch.tensor(subject.stages))
                learned = left / base.residual_scale.clamp(min=1e-12)
            total += learned.sum(dim=0)
            n_samples += len(learned)
            along.append(learned.flatten(1) @ torch.from_numpy(modes).T)
        fixed[f"{_MODES}mean"] = total / n_samples
        fixed[f"{_MODES}fields"] = torch.from_numpy(modes).unflatten(1, total.shape)
        fixed[f"{_MODES}spread"] = torch.cat(along).std(dim=0, correction=0)
        return fixed

    def build_model(self, in_features: int, out_features: int) -> TemplateFullyConnected:
        """Make a network that sees no coordinates and gives a number per mode."""
        n_modes = len(self.fixed_tensors[f"{_MODES}fields"])
        return build_fully_connected(
            in_features - 3, n_modes, layer_size=self.layer_size, num_layers=self.num_layers
        )

    def setup_inputs(
        self, device: torch.device, template_mesh: "pv.DataSet", template_coords: np.ndarray
    ) -> None:
        """Put the modes on the device."""
        self._modes = _Modes(
            *(self.fixed_tensors[_MODES + name] for name in ("mean", "fields", "spread"))
        ).to(device)

    def forward(self, model: nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features, of which a sample's first node tells all."""
        shared = node_feats.unflatten(0, (batch_len, -1))[:, 0, 3:]
        return self._move(model, shared).flatten(0, 1)

    def forward_batch(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict from normalised scores (B, n_pca) and stages (B,)."""
        return self._move(model, self.inputs.features(pca, stage))

    def _move(self, model: nn.Module, features: Tensor) -> Tensor:
        moved: Tensor = self._modes(model(features))
        return moved.to(features.dtype)


class _Modes(nn.Module):
    """Moves a mesh along its modes, in float64: autocast would round the sum to three digits.

    Parameters
    ----------
    mean : (n_points, n_target) float64 tensor
    fields : (n_modes, n_points, n_target) float64 tensor
    spread : (n_modes,) float64 tensor
    """

    mean: Tensor
    fields: Tensor
    spread: Tensor

    def __init__(self, mean: Tensor, fields: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("fields", fields)
        self.register_buffer("spread", spread)

    def forward(self, amounts: Tensor) -> Tensor:
        """Move by amounts in spreads: (B, n_modes) to (B, n_points, n_target)."""
        moved = (amounts.double() * self.spread) @ self.fields.flatten(1)
        return self.mean + moved.unflatten(1, self.mean.shape)
