"""The loop: epochs of steps, judged, saved on the way, left in good order."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from meshstage.checkpoint import load_weights
from meshstage.dataset import PhaseSampleDataset
from meshstage.distributed import DistributedContext
from meshstage.errors import ContinueLater, InputError
from meshstage.statistics import Statistics
from meshstage.template import Template
from meshstage.training import record
from meshstage.training.compiling import compile_network
from meshstage.training.journal import Journal
from meshstage.training.leaving import LEAVE, SAVE, Watch
from meshstage.training.live import RunFolder
from meshstage.training.plan import Step, epoch_order, epoch_plan, rank_batch
from meshstage.training.state import Progress, RmseEntry
from meshstage.training.step import (
    Feed,
    backward,
    make_optimizer,
    optimizer_step,
    parameter_type,
    resolve_precision,
)

if TYPE_CHECKING:
    from meshstage.training.base import TrainPhysicsNeMoBase


class Session:
    """One call of ``train``: network, optimizer, samples, and where it is.

    Parameters
    ----------
    trainer : TrainPhysicsNeMoBase
    context : DistributedContext
    statistics : Statistics
    template : Template
    coordinates : (n_points, 3) array, mm
    train, val : PhaseSampleDataset
        ``val`` may be None.
    """

    def __init__(
        self,
        trainer: "TrainPhysicsNeMoBase",
        context: DistributedContext,
        statistics: Statistics,
        template: Template,
        coordinates: np.ndarray,
        train: PhaseSampleDataset,
        val: PhaseSampleDataset | None,
    ) -> None:
        device = context.device
        self.trainer, self.context, self.statistics = trainer, context, statistics
        self.template = template
        self.precision = resolve_precision(trainer.precision, device)
        dtype = parameter_type(self.precision)
        torch.manual_seed(trainer.seed)
        network = trainer.build_model(statistics.n_features, statistics.n_target)
        self.network = network.to(device, dtype)
        normalised = torch.from_numpy(statistics.normalise_coordinates(coordinates))
        trainer.setup_inputs(template, normalised.to(dtype), device)
        self.optimizer = make_optimizer(self.network.parameters(), trainer.learning_rate)
        self.train_feed, self.val_feed = (
            dataset and Feed(dataset, statistics, device, dtype, trainer.device_memory_fraction)
            for dataset in (train, val)
        )
        self.progress = Progress()
        self.compiled = "eager"
        self.resumed_from: str | None = None

    # ------------------------------------------------------------------ where to begin

    def restore(
        self,
        recovery: dict[str, Any] | None,
        origin: dict[str, Any] | None,
        resume_from: Path | None,
    ) -> str:
        """Take weights and history from a run in progress or a resumed checkpoint; say which.

        Raises
        ------
        InputError
            If a checkpoint does not fit, or is past the last epoch.
        """
        trainer, payload = self.trainer, recovery or origin
        self.resumed_from = str(resume_from) if resume_from else None
        said = f"training {trainer.epochs} epochs from fresh weights"
        if payload is not None:
            load_weights(self.network, payload["model_state_dict"], resume_from or Path("live"))
            said = "weights only, so epoch 0 and a fresh optimizer"
            if "training_state" in payload:
                self.progress = Progress.from_payload(payload)
                self.optimizer.load_state_dict(payload["training_state"]["optimizer"])
                torch.set_rng_state(payload["training_state"]["rng"])
                said = f"epoch {self.progress.epoch} of {trainer.epochs}"
            said = f"going on from {resume_from if recovery is None else 'where it was'}: {said}"
        for group in self.optimizer.param_groups:
            group["lr"] = trainer.learning_rate
        if recovery is None:
            self._begin_segment()
        ranks = self.progress.segments[-1]["ranks"]
        if not ranks or ranks[-1] != self.context.world_size:
            ranks.append(self.context.world_size)
        return said

    def _begin_segment(self) -> None:
        """Begin a run of the lineage at the epoch that its checkpoint has."""
        trainer, progress = self.trainer, self.progress
        if progress.epoch >= trainer.epochs:
            raise InputError(
                f"epochs is {trainer.epochs}, but the checkpoint has {progress.epoch} already; "
                "epochs is the total of the lineage: raise it"
            )
        progress.start_epoch = progress.epoch
        # The log of a lineage reads as if it had been trained in one go.
        interval = trainer.rmse_log_interval
        progress.rmse_log = [entry for entry in progress.rmse_log if not entry["epoch"] % interval]
        progress.segments.append(record.segment(trainer, progress.epoch, self.resumed_from))

    # ------------------------------------------------------------------ the loop

    def run(self, folder: RunFolder, watch: Watch, journal: Journal) -> None:
        """Train up to the last epoch.

        Raises
        ------
        InputError
            If too many steps are not finite.
        ContinueLater
            If it has to leave before; everything is saved.
        """
        trainer, progress = self.trainer, self.progress
        self.model = self._distributed(self._compiled(journal))
        journal.event("start", epoch=progress.epoch, epochs=trainer.epochs, tag=trainer.model_tag)
        bar = tqdm(
            total=trainer.epochs,
            initial=progress.epoch,
            unit="epoch",
            # A bar belongs on a terminal, never in a log file.
            disable=None if self.context.is_main else True,
        )
        with bar:
            while progress.epoch < trainer.epochs:
                self._train_epoch(folder, watch, journal)
                bar.update()

    def _train_epoch(self, folder: RunFolder, watch: Watch, journal: Journal) -> None:
        """Train the epoch after ``progress.epoch``, or what is left of it."""
        trainer, progress, context = self.trainer, self.progress, self.context
        epoch, started = progress.epoch + 1, time.monotonic()
        order = epoch_order(trainer.seed, epoch, len(self.train_feed.dataset))
        batch = rank_batch(len(order), trainer.batch_size, context.world_size)
        plan = epoch_plan(order[progress.done :], batch, context.rank, context.world_size)
        samples = torch.tensor([step.n_global for step in plan])
        losses = torch.zeros(len(plan), dtype=torch.float64, device=context.device)
        trainer._on_epoch_start(epoch)
        saved = 0
        for number, step in enumerate(plan):
            flags = context.any_of(self._flags(watch.flags()))
            if flags:
                progress.add_steps(context.sum(losses[saved:number]), samples[saved:number])
                saved = number
                self._save(folder, watch, journal, flags)
            losses[number] = self._train_step(step)
            watch.tick()
        progress.add_steps(context.sum(losses[saved:]), samples[saved:])
        loss = self._end_epoch(order, journal)
        progress.epoch_seconds.append(round(time.monotonic() - started, 4))
        entry = self._judge(epoch, folder)
        watch.tick()
        terms = trainer._epoch_terms(context)
        values = {"loss": loss, **terms, **entry}
        journal.epoch(epoch, trainer.epochs, progress.epoch_seconds[-1], values)
        if entry or epoch % trainer.loss_log_interval == 0:
            trainer._log_epoch(journal, epoch, values)
        flags = context.any_of(self._flags(watch.epoch_flags(epoch)))
        if epoch == trainer.epochs:
            flags = SAVE  # what is left is to write the files: no time limit may lose the end
        if flags:
            self._save(folder, watch, journal, flags)

    def _flags(self, flags: int) -> int:
        """Let rank 0 alone decide when to save; any rank may have to leave."""
        return flags if self.context.is_main else flags & LEAVE

    def _train_step(self, plan: Step) -> Tensor:
        """Do one optimizer step; give this rank's summed loss, NaN if the step was skipped."""
        context, trainer, k = self.context, self.trainer, plan.n_real
        loss = self._loss(torch.from_numpy(plan.indices), k)
        # Ranks are averaged by DDP: each weighs its own mean by its part of the global batch.
        backward(loss, k * context.world_size / plan.n_global if k else 1.0)
        skipped = optimizer_step(
            self.optimizer, list(self.network.parameters()), trainer.grad_clip_norm
        )
        return torch.where(skipped, torch.nan, loss.detach().double() * k)

    def _loss(self, indices: Tensor, k: int) -> Tensor:
        """Mean loss of the first k samples; an exact zero without any."""
        on_device, pca, stage, targets = self.train_feed.batch(indices)
        with self._autocast():
            predictions = self.trainer.forward_batch(self.model, pca, stage)
        predictions = predictions.to(targets.dtype)[:k]
        if k == 0:
            # The sum of nothing is 0 with gradient 0; the mean of nothing would be NaN.
            return predictions.sum()
        return self.trainer._compute_loss(predictions, targets[:k], on_device[:k])

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.context.device.type, torch.bfloat16)

    def _compiled(self, journal: Journal) -> nn.Module:
        """Compile the network if asked for; the outcome goes into the metadata."""
        batch = min(self.trainer.batch_size, len(self.train_feed.dataset))
        self.model = self.network
        self.compiled = compile_network(
            self.network,
            self.trainer.compile,
            self.trainer._compile_compatible,
            self.context.device,
            self.precision,
            lambda: self._loss(torch.arange(batch), batch),
        )
        if self.compiled.startswith("eager,"):
            journal.warn("torch.compile: %s", self.compiled)
        return self.network

    def _distributed(self, network: nn.Module) -> nn.Module:
        if not self.context.is_distributed:
            return network
        cuda = self.context.device.type == "cuda"
        return DistributedDataParallel(
            network,
            device_ids=[self.context.local_rank] if cuda else None,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )

    # ------------------------------------------------------------------ after an epoch

    def _end_epoch(self, order: np.ndarray, journal: Journal) -> float:
        """Look at the losses of the epoch's steps: the one time that the host waits for them.

        Raises
        ------
        InputError
            If no step, or too few steps, had finite numbers.
        """
        progress, trainer = self.progress, self.trainer
        losses, samples = progress.step_losses, progress.step_samples
        finite = torch.isfinite(losses)
        steps = np.split(order, samples.cumsum(0)[:-1].numpy())
        skipped = [(n, self._suspects(steps[n])) for n in torch.nonzero(~finite).flatten().tolist()]
        for number, suspects in skipped:
            journal.event("skip", epoch=progress.epoch + 1, step=number + 1, samples=suspects)
            journal.warn(
                "epoch %d, step %d skipped, not finite: %s",
                progress.epoch + 1,
                number + 1,
                suspects,
            )
        progress.skipped_steps += len(skipped)
        if not finite.any() or len(skipped) > trainer.max_skipped_fraction * len(steps):
            raise InputError(
                f"{len(skipped)} of {len(steps)} steps of epoch {progress.epoch + 1} had no finite "
                f"loss or gradient (the first: {skipped[0][1]}); check the targets with "
                "check_cohort.py or lower the learning rate"
            )
        loss = float(losses[finite].sum() / samples[finite].sum())
        progress.end_epoch(loss)
        return loss

    def _suspects(self, indices: np.ndarray) -> str:
        """Name the samples of a skipped step, only those whose targets are at fault if any is."""
        dataset = self.train_feed.dataset
        at_fault = [i for i in indices if not torch.isfinite(dataset.targets([i])).all()]
        return "; ".join(dataset.describe(i) for i in at_fault or indices)

    def _judge(self, epoch: int, folder: RunFolder) -> RmseEntry:
        """Compute RMSE and keep the model, at the epochs that are declared."""
        trainer = self.trainer
        if epoch % trainer.rmse_log_interval and epoch != trainer.epochs:
            return {}
        values = {
            "train_rmse": self._rmse(self.train_feed),
            "val_rmse": self._rmse(self.val_feed) if self.val_feed else None,
        }
        self.progress.rmse_log.append({"epoch": epoch, **values})
        payload = record.payload(self)
        self.context.decide(lambda: folder.keep(epoch, payload))
        return values

    @torch.no_grad()
    def _rmse(self, feed: Feed) -> float:
        """Root mean squared error a point, in the target's units, shared among ranks."""
        context, n_samples = self.context, len(feed.dataset)
        squared = torch.zeros(n_samples, dtype=torch.float64, device=context.device)
        mine = torch.arange(context.rank, n_samples, context.world_size)
        for indices in mine.split(self.trainer.batch_size):
            on_device, pca, stage, targets = feed.batch(indices)
            with self._autocast():
                predictions = self.trainer.forward_batch(self.network, pca, stage)
            error = (predictions.to(targets.dtype) - targets).double()
            squared[on_device] = error.square().sum(dim=(1, 2))
        mean = context.sum(squared).sum() / (n_samples * feed.dataset.n_points)
        return float(mean.sqrt()) * self.statistics.target_scale

    def _save(self, folder: RunFolder, watch: Watch, journal: Journal, flags: int) -> None:
        """Write a recovery checkpoint on rank 0, and leave if it is time to.

        Raises
        ------
        ContinueLater
            If it is.
        """
        started, progress = time.monotonic(), self.progress
        payload = record.payload(self)
        self.context.decide(lambda: folder.save_recovery(payload))
        watch.saved(time.monotonic() - started)
        if flags & LEAVE:
            journal.event("leave", epoch=progress.epoch, samples=progress.done, reason=watch.reason)
            raise ContinueLater(
                f"leaving for {watch.reason} after epoch {progress.epoch} and {progress.done} "
                "samples of the next: saved; run the same command to go on"
            )
