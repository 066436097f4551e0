"""What every network's training shares with a user: settings, seams and ``train``."""

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.journal import Journal
from meshstage.models.live import RunFolder
from meshstage.models.owner import owned
from meshstage.training import record
from meshstage.training.distributed import DistributedContext
from meshstage.training.leaving import Watch
from meshstage.training.loop import Loop
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.session import Session
from meshstage.training.settings import (
    check_attributes,
    positive_integer,
    positive_number,
    run_settings,
)
from meshstage.training.state import RmseEntry


class TrainPhysicsNeMoBase(ABC):
    """Train a network that maps ``[template xyz | shape scores | stage]`` to a target a vertex.

    A subclass names itself (``model_tag``, ``architecture_name``), builds its network, and says
    how a batch goes through it; everything else, from the order of samples to what survives a
    power cut, is here.

    Attributes
    ----------
    epochs : int
        Total of the lineage: a run resumed at 200 with 500 trains 300.
    batch_size : int
        Samples a rank and step.
    learning_rate, grad_clip_norm : float
    rmse_log_interval, loss_log_interval : int
        Epochs between kept and judged models, and between log lines.
    seed : int
        Of the initial weights and of the order of samples.
    recovery_interval : int or None
        Epochs between recovery checkpoints; None: as often as costs under 1 % of the time.
    precision, compile : str
        See ``training.step.PRECISIONS`` and ``training.compiling.CHOICES``.
    max_skipped_fraction : float
        Steps of an epoch that may be skipped as not finite before training gives up.
    device_memory_fraction : float
        Part of a GPU's free memory that targets may take for good.
    deadline : float or None
        Of ``time.monotonic()``: training saves and leaves before.
    target_scale : float
        What predictions are to be multiplied by; known from ``setup_inputs`` on.
    """

    model_tag: str
    architecture_name: str
    # Change memory or speed, not the function that is learned.
    hardware_fields: tuple[str, ...] = ()
    # Shape the loss, not the function: fixed within a run, free where a checkpoint is resumed.
    loss_fields: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.epochs = 1500
        self.batch_size = 4
        self.learning_rate = 1e-3
        self.grad_clip_norm = 1.0
        self.rmse_log_interval = 100
        self.loss_log_interval = 10
        self.seed = 42
        self.recovery_interval: int | None = None
        self.precision = "auto"
        self.compile = "off"
        self.max_skipped_fraction = 0.1
        self.device_memory_fraction = 0.5
        self.deadline: float | None = None
        self.target_scale = 1.0
        self._compile_compatible = True
        # Rows of one batch are not shuffled: their order cannot change a mean.
        self._shuffle_points_within_batch = False

    # ------------------------------------------------------------------ what a user may set

    def set_epochs(self, epochs: int) -> None:
        """Set the number of epochs of the whole lineage."""
        self.epochs = positive_integer("epochs", epochs)

    def set_batch_size(self, batch_size: int) -> None:
        """Set the samples a rank and step."""
        self.batch_size = positive_integer("batch_size", batch_size)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set Adam's learning rate."""
        self.learning_rate = positive_number("learning_rate", learning_rate)

    def set_grad_clip_norm(self, norm: float) -> None:
        """Set the largest norm that the whole gradient may have in a step."""
        self.grad_clip_norm = positive_number("grad_clip_norm", norm)

    def set_compile_incompatible(self) -> None:
        """Say that ``torch.compile`` must not touch this network."""
        self._compile_compatible = False

    # ------------------------------------------------------------------ seams of a network

    @abstractmethod
    def build_model(self, in_features: int, n_target: int) -> nn.Module:
        """Make the network with fresh weights.

        Parameters
        ----------
        in_features : int
            3 coordinates, the shape scores and the stage.
        n_target : int
            Components of the target.
        """

    def setup_inputs(
        self, template_mesh: Template, template_coords: Tensor, device: torch.device
    ) -> None:
        """Put what all samples share on the device, once.

        Parameters
        ----------
        template_mesh : Template
        template_coords : (n_points, 3) tensor
            Normalised, in the type of the weights.
        """
        self._coordinates = template_coords.to(device)

    @abstractmethod
    def forward(self, model: nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features.

        Parameters
        ----------
        model : nn.Module
            The network as built, or the distributed module around it.
        node_feats : (batch_len * n_points, in_features) tensor
            One sample after the other.
        batch_len : int

        Returns
        -------
        (batch_len, n_points, n_target) tensor
            Targets divided by their scale.
        """

    def checkpoint_fields(self) -> dict[str, Any]:
        """Give the numbers that ``build_model`` needs again."""
        return {}

    def build_checkpoint(self, model: nn.Module, stats: Statistics) -> dict[str, Any]:
        """Collect what a model needs to be used: weights, statistics, architecture.

        Plain tensors and Python values, with the keys that MONAI Physio reads.
        """
        return {
            "model_state_dict": {k: v.detach().cpu() for k, v in model.state_dict().items()},
            "architecture": self.architecture_name,
            "in_features": stats.n_features,
            "n_pca": stats.n_pca,
            **stats.to_dict(),
            **self.checkpoint_fields(),
        }

    def save_artifacts(self, directory: Path) -> list[str]:
        """Write the network's own files beside the checkpoint; return their names."""
        return []

    def forward_batch(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict a batch from normalised scores (B, n_pca) and stages (B,).

        Builds flattened features for ``forward``; a network that can do better overrides this.
        """
        sample = torch.cat([pca, stage[:, None]], dim=1)
        n_points, batch_len = len(self._coordinates), len(sample)
        features = torch.cat(
            [
                self._coordinates.expand(batch_len, -1, -1),
                sample[:, None].expand(-1, n_points, -1),
            ],
            dim=2,
        )
        return self.forward(model, features.flatten(0, 1), batch_len)

    def _compute_loss(self, predictions: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Mean squared error of k real samples: two (k, n_points, n_target) and (k,) indices."""
        return nn.functional.mse_loss(predictions, targets)

    def _on_epoch_start(self, epoch: int) -> None:  # noqa: B027  a hook, not a duty
        """Prepare an epoch, counted from 1."""

    def _on_validation_batch(self, predictions: Tensor, indices: Tensor) -> None:  # noqa: B027
        """Look at predictions of validation samples, shaped as in `_compute_loss`."""

    def _epoch_terms(self, context: DistributedContext) -> dict[str, float]:
        """Give further values of the epoch that has ended, by name, equal on all ranks."""
        return {}

    def _terms_so_far(self, context: DistributedContext) -> Tensor:
        """Give what `_epoch_terms` needs of the epoch in progress, summed over ranks."""
        return torch.zeros(0, dtype=torch.float64)

    def _go_on_from_terms(self, terms: Tensor) -> None:  # noqa: B027
        """Take `_terms_so_far` of an epoch that was cut short; called on rank 0 alone."""

    def _log_epoch(self, journal: Journal, epoch: int, values: dict[str, float | None]) -> None:
        """Write the epoch's log line; ``values`` by name, None where nothing was computed."""
        parts = [f"{name} {value:.4g}" for name, value in values.items() if value is not None]
        journal.say("%s", "  ".join([f"epoch {epoch}/{self.epochs}", *parts]))

    # ------------------------------------------------------------------ training

    def train(
        self,
        train_dataset: PhaseSampleDataset,
        val_dataset: PhaseSampleDataset | None,
        stats: Statistics,
        context: DistributedContext,
        epochs: int,
        output_dir: Path,
        template_mesh: Template,
        template_coords: np.ndarray,
        resume_from: Path | None = None,
    ) -> tuple[nn.Module, list[float], list[RmseEntry]]:
        """Train, or go on with a run in progress, and leave a finished model directory.

        Parameters
        ----------
        train_dataset, val_dataset : PhaseSampleDataset
            ``val_dataset`` may be None: nothing is then validated.
        stats : Statistics
            Of the training subjects; a checkpoint that is resumed from brings its own.
        context : DistributedContext
        epochs : int
            Total of the lineage.
        output_dir : Path
            The model directory.
        template_mesh : Template
        template_coords : (n_points, 3) array, mm
        resume_from : Path, optional
            A checkpoint to start from.

        Returns
        -------
        model : nn.Module
        training_losses : list of float, one an epoch of the lineage
        val_rmse_log : list of dict with ``epoch``, ``train_rmse``, ``val_rmse``

        Raises
        ------
        InputError
            If the run cannot go on as asked for, or the numbers stop being finite.
        ContinueLater
            If a signal or the time budget ended it; everything is saved.
        """
        self.set_epochs(epochs)
        check_attributes(self)
        folder = RunFolder(Path(output_dir), self.model_tag)
        origin = None
        if resume_from is not None:
            origin = load_checkpoint(Path(resume_from))
            record.refuse_other_model(self, Path(resume_from), origin, stats, template_mesh)
            stats = record.inherited_statistics(origin, stats)
        settings = run_settings(self, stats, template_mesh, train_dataset, val_dataset, resume_from)
        with contextlib.ExitStack() as stack:
            notice = context.decide(lambda: stack.enter_context(owned(folder.output)))
            if context.decide(lambda: folder.is_complete(settings)):
                return record.finished_model(self, folder, stats)
            recovery = context.decide(lambda: folder.open(settings))
            watch = stack.enter_context(Watch(self.deadline, self.recovery_interval))
            session = Session(
                self, context, stats, template_mesh, template_coords, train_dataset, val_dataset
            )
            start = session.restore(recovery, origin, resume_from, folder.live)
            journal = stack.enter_context(
                Journal(folder.output, context.is_main, session.progress.epoch)
            )
            for line in filter(None, (notice, start)):
                journal.say("%s", line)
            Loop(session, folder, watch, journal).run()
            context.decide(lambda: record.write_model(session, folder, settings))
            journal.event("end", epoch=session.progress.epoch)
        return session.network, session.progress.losses, session.progress.rmse_log
