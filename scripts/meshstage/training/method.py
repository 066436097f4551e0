"""What a network is to its training and to whoever asks it: settings and seams."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.config.methods import load_class
from meshstage.config.networks import (
    COMMON,
    FUNCTION,
    LOSSES,
    NetworkKind,
    refuse_contradictions,
    split_names,
    tag_of,
)
from meshstage.config.settings import settings
from meshstage.errors import InputError
from meshstage.losses.term import LossTerm
from meshstage.motion.model import Observed
from meshstage.training.base_motion import BaseMotion, fit_base
from meshstage.training.inputs import NetworkInputs

if TYPE_CHECKING:
    import pyvista as pv

    from meshstage.training.distributed import DistributedContext


class TrainingMethod(ABC):
    """A network that maps ``[template xyz | shape scores | stage]`` to a target per vertex.

    A subclass names itself (``model_tag``, ``architecture_name``), builds its network, and says
    how a batch goes through it. Its public attributes with plain values are its settings: they
    belong to the identity of a run, and a model keeps them.

    Parameters
    ----------
    log_level : int or str
        Lines of the training below this level are not shown.

    Attributes
    ----------
    epochs, batch_size, learning_rate, ...
        Every setting of `config.networks.COMMON`, with its default; help and bounds of each are
        in `config.settings`.
    losses : tuple of str
        Loss terms beside the data term, by their names in `config.networks.LOSSES`.
    deadline : float or None
        Of ``time.monotonic()``: training saves and leaves before it.
    inputs : NetworkInputs
        Set before ``setup_inputs`` is called.
    fixed_tensors : dict of str to Tensor
        Of `fit_fixed`: what a model computes with beside its weights; a checkpoint keeps them.
    """

    model_tag = "base"
    architecture_name = "base"
    # For networks that see points as separate rows, as those of a batch normalisation.
    _shuffle_points_within_batch = False
    # Whether a vertex is predicted by itself, so that a template may go through in pieces.
    is_pointwise = False
    kind: ClassVar[NetworkKind | None] = None  # the row of a network of ours

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str
    weight_decay: float
    score_noise: float
    ema: float
    grad_clip_norm: float
    seed: int
    rmse_log_interval: int
    loss_log_interval: int
    max_skipped_fraction: float
    recovery_interval: int | None
    precision: str
    compile: str
    device_memory_fraction: float
    losses: tuple[str, ...]
    teacher: str
    synthetic_subjects: int
    base = "none"
    stage_encoding = "raw"
    cycle = "closed"
    inputs: NetworkInputs

    _base: BaseMotion | None = None

    def __init__(self, log_level: int | str = logging.INFO) -> None:
        self.log_level = log_level
        self._compile_incompatible: str | None = None
        self.deadline: float | None = None
        self.fixed_tensors: dict[str, Tensor] = {}
        kind = self.kind
        for name in kind.settings_with() if kind else COMMON:
            if name != "losses":
                setattr(self, name, settings()[name].default)
        self.set_losses(())
        for name, value in (kind.defaults if kind else {}).items():
            setattr(self, name, value)

    @property
    def tag(self) -> str:
        """Of the names of a model's files: another than ``model_tag`` if it computes more."""
        return tag_of(self.model_tag, {name: getattr(self, name) for name in FUNCTION})

    # ------------------------------------------------------------------ what a user may set

    def _set(self, name: str, value: Any) -> None:
        setattr(self, name, settings()[name].checked(value))

    def set_epochs(self, epochs: int) -> None:
        """Set the number of epochs of the whole lineage."""
        self._set("epochs", epochs)

    def set_batch_size(self, batch_size: int) -> None:
        """Set the samples per rank and step."""
        self._set("batch_size", batch_size)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set Adam's learning rate."""
        self._set("learning_rate", learning_rate)

    def set_grad_clip_norm(self, grad_clip_norm: float) -> None:
        """Set the largest norm that the whole gradient may have in a step."""
        self._set("grad_clip_norm", grad_clip_norm)

    def set_base(self, base: str) -> None:
        """Name the motion model that the network corrects: none, stage_mean, ridge or gp."""
        self._set("base", base)

    def set_stage_encoding(self, stage_encoding: str) -> None:
        """Say how the stage is fed: raw, or cyclic."""
        self._set("stage_encoding", stage_encoding)

    def set_cycle(self, cycle: str) -> None:
        """Say whether the motion comes back: closed, or open."""
        self._set("cycle", cycle)

    def set_losses(self, losses: str | Sequence[str]) -> None:
        """Name the loss terms beside the data term, and give their settings to this method."""
        names = split_names(losses) if isinstance(losses, str) else list(losses)
        for name in names:
            if name not in LOSSES:
                raise InputError(f"losses has {name!r}, known are {', '.join(LOSSES)}")
        self.losses = self.kind.losses_with(",".join(names)) if self.kind else tuple(names)
        for option in (option for name in self.losses for option in LOSSES[name].options):
            if not hasattr(self, option):
                setattr(self, option, settings()[option].default)

    def set_compile_incompatible(self, reason: str | None) -> None:
        """Say why ``torch.compile`` must not touch this network; None allows it again."""
        self._compile_incompatible = reason

    def check_settings(self) -> None:
        """Check settings that were set as plain attributes.

        Raises
        ------
        InputError
            Naming the first that is impossible.
        """
        for name in settings().keys() & vars(self).keys() - {"losses"}:
            self._set(name, getattr(self, name))
        self.set_losses(self.losses)
        refuse_contradictions(vars(self))  # a method without epochs has no teacher

    # ------------------------------------------------------------------ what a model computes

    def fit_fixed(self, train: Sequence[Observed], statistics: Statistics) -> dict[str, Tensor]:
        """Fit what no step changes, on the training subjects: the base, if there is one."""
        if self.base == "none":
            return {}
        base = fit_base(self.base, train, statistics, self.cycle)
        return {f"base.{name}": tensor for name, tensor in base.items()}

    def make_inputs(
        self, statistics: Statistics, points: np.ndarray, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Make the inputs, and the base from ``fixed_tensors``; before the network is built."""
        self.inputs = NetworkInputs(
            statistics, points, device, dtype, self.stage_encoding, self.cycle
        )
        self._base = self.make_base(self.fixed_tensors, statistics)
        if self._base:
            self._base.to(device)

    def make_base(self, tensors: Mapping[str, Tensor], statistics: Statistics) -> BaseMotion | None:
        """Make the base from tensors of `fit_fixed`; None without one."""
        if self.base == "none":
            return None
        own = {k.removeprefix("base."): v for k, v in tensors.items() if k.startswith("base.")}
        return BaseMotion(self.base, own, statistics, self.cycle)

    def predict_batch(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict what the model as a whole does: `forward_batch`, on top of the base if any."""
        predicted = self.forward_batch(model, pca, stage)
        return self._base.corrected(predicted, pca, stage) if self._base else predicted

    def trust(self, pca: Tensor) -> Tensor:
        """Part of the network's correction that counts, (B, n_pca) to (B,): see `BaseMotion`."""
        return self._base.trust(pca) if self._base else torch.ones_like(pca[:, 0])

    # ------------------------------------------------------------------ seams of a network

    @abstractmethod
    def build_model(self, in_features: int, out_features: int) -> nn.Module:
        """Make the network with fresh weights, not compiled.

        Parameters
        ----------
        in_features : int
            3 coordinates, the shape scores and the encoded stage.
        out_features : int
            Components of the target.
        """

    def use_edges(  # noqa: B027  a network without a graph needs none
        self, edge_index: np.ndarray | Tensor, edge_features: np.ndarray | Tensor
    ) -> None:
        """Take the edges of the template, (2, n_edges) and (n_edges, 4), before `setup_inputs`."""

    def setup_inputs(  # noqa: B027  a hook, not a duty
        self, device: torch.device, template_mesh: "pv.DataSet", template_coords: np.ndarray
    ) -> None:
        """Put what all samples share on the device; called once, before the first batch.

        Parameters
        ----------
        device : torch.device
        template_mesh : pyvista data set
        template_coords : (n_points, 3) float32 array, mm
            As they are in the mesh; ``self.inputs.coordinates`` are the normalised ones.
        """

    @abstractmethod
    def forward(self, model: nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features.

        Parameters
        ----------
        model : nn.Module
            The network as built, or the distributed module around it.
        node_feats : (batch_len * n_points, n_features) tensor
            One sample after the other.
        batch_len : int

        Returns
        -------
        (batch_len * n_points, n_target) tensor, or (batch_len, n_points, n_target) tensor
            Targets divided by their scale.
        """

    def forward_batch(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict a batch from normalised scores (B, n_pca) and stages (B,).

        Builds flattened features for ``forward``; a network that can do better overrides this.

        Returns
        -------
        (B, n_points, n_target) tensor
            Targets divided by their scale.

        Raises
        ------
        InputError
            If ``forward`` gives another shape.
        """
        rows, n_samples = self.inputs.rows(pca, stage), stage.shape[0]
        order = None
        if self._shuffle_points_within_batch and torch.is_grad_enabled():
            order = torch.randperm(len(rows), device=rows.device)
            rows = rows[order]
        predicted = self.forward(model, rows, n_samples)
        shape = (n_samples, self.inputs.n_points, self.inputs.statistics.n_target)
        if predicted.shape not in ((shape[0] * shape[1], shape[2]), shape):
            raise InputError(
                f"{type(self).__name__}.forward gave the shape {tuple(predicted.shape)}, but "
                f"{n_samples} samples of {shape[1]} points and {shape[2]} target components need "
                f"{(shape[0] * shape[1], shape[2])}"
            )
        if order is not None:
            predicted = predicted.reshape(-1, shape[2])[order.argsort()]
        return predicted.reshape(shape)

    def deviation_batch(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor | None:
        """Say how far off a prediction may be; None where a network does not tell.

        Returns
        -------
        (B, n_points) tensor or None
            Root of the expected squared length of the error, divided by the targets' scale.
        """
        return None

    def checkpoint_fields(self) -> dict[str, Any]:
        """Give what ``build_model`` needs again, and the settings of loss terms."""
        names = list(self.kind.options if self.kind else ())
        names += [option for name in self.losses for option in LOSSES[name].options]
        return {name: getattr(self, name) for name in names}

    def build_checkpoint(self, model: nn.Module, stats: Statistics) -> dict[str, Any]:
        """Collect what a model needs to be used: weights, statistics, architecture.

        Plain tensors and Python values, with the keys that MONAI Physio reads.
        """
        return {
            "model_state_dict": {k: v.detach().cpu() for k, v in model.state_dict().items()},
            "architecture": self.architecture_name,
            **NetworkInputs.describe(stats, self.stage_encoding, self.cycle),
            "base": self.base,
            "fixed_tensors": self.fixed_tensors,
            **self.checkpoint_fields(),
        }

    def save_artifacts(self, output_dir: Path) -> None:  # noqa: B027  a hook, not a duty
        """Write files that predicting needs; called once ``setup_inputs`` has run.

        Every file that appears belongs to the finished model.
        """

    def load_artifacts(self, folder: Path) -> None:  # noqa: B027  a hook, not a duty
        """Read what `save_artifacts` wrote, before ``setup_inputs`` of a prediction."""

    @property
    def rows_per_sample(self) -> int:
        """Rows of the widest arrays of a sample; a prediction takes samples by their number."""
        return self.inputs.n_points

    # ------------------------------------------------------------------ the loss

    def _compute_loss(
        self, pred: Tensor, tgt: Tensor, batch_len: int, target_scale: float, indices: Tensor
    ) -> Tensor:
        """Compute the data term: the mean squared error.

        Parameters
        ----------
        pred, tgt : (batch_len * n_points, n_target) tensor
            Targets divided by their scale, sample by sample.
        batch_len : int
        target_scale : float
            Brings both to the target's units.
        indices : (batch_len,) int64 tensor
            Positions in the training data set.

        Returns
        -------
        () tensor
        """
        return nn.functional.mse_loss(pred, tgt)

    def make_loss(self, name: str) -> LossTerm:
        """Make one of the terms of ``losses`` from the settings of this method."""
        kind = LOSSES[name]
        term: LossTerm = load_class(kind.term)(
            **{option: getattr(self, option) for option in kind.options}
        )
        return term

    # ------------------------------------------------------------------ hooks of the loop

    def _on_epoch_start(self, epoch: int, epochs: int) -> None:  # noqa: B027
        """Prepare an epoch, counted from 0."""

    def _log_epoch(  # noqa: B027
        self, context: "DistributedContext", epoch: int, epochs: int
    ) -> None:
        """Log more of an epoch, counted from 0, on epochs that log."""
