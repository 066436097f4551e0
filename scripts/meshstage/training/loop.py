"""The loop: epochs of steps, judged, saved on the way, left in good order."""

import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from meshstage.errors import ContinueLater
from meshstage.models.journal import Journal
from meshstage.models.live import RunFolder
from meshstage.training import record
from meshstage.training.compiling import compile_network
from meshstage.training.leaving import LEAVE, SAVE, Watch, reason
from meshstage.training.plan import Step, epoch_order, epoch_plan, rank_batch
from meshstage.training.rmse import root_mean_square_error
from meshstage.training.session import Session
from meshstage.training.skipped import judge_steps
from meshstage.training.state import RmseEntry
from meshstage.training.step import Feed, backward, optimizer_step


class Loop:
    """Train a session up to its last epoch, or leave before.

    Parameters
    ----------
    session : Session
    folder : RunFolder
    watch : Watch
    journal : Journal
    """

    def __init__(self, session: Session, folder: RunFolder, watch: Watch, journal: Journal) -> None:
        self.session, self.folder, self.watch, self.journal = session, folder, watch, journal
        self.trainer, self.context = session.trainer, session.context
        self.progress, self.network = session.progress, session.network
        self._compile()
        self.model = self._distributed()

    def run(self) -> None:
        """Train up to the last epoch.

        Raises
        ------
        InputError
            If too many steps are not finite.
        ContinueLater
            If it has to leave before; everything is saved.
        """
        trainer, progress = self.trainer, self.progress
        self.journal.event("start", epoch=progress.epoch, epochs=trainer.epochs)
        bar = tqdm(
            total=trainer.epochs,
            initial=progress.epoch,
            unit="epoch",
            # A bar belongs on a terminal, never in a log file.
            disable=None if self.context.is_main else True,
        )
        with bar:
            while progress.epoch < trainer.epochs:
                self._train_epoch()
                bar.update()

    def _train_epoch(self) -> None:
        """Train the epoch after ``progress.epoch``, or what is left of it."""
        trainer, progress, journal = self.trainer, self.progress, self.journal
        epoch = progress.epoch + 1
        self._began = time.monotonic() - progress.seconds
        order = epoch_order(trainer.seed, epoch, len(self.session.train_feed.dataset))
        trainer._on_epoch_start(epoch)
        if progress.done and self.context.is_main:
            trainer._go_on_from_terms(progress.terms)
        self._train_steps(order)
        loss, skipped = judge_steps(
            progress, order, self.session.train_feed.dataset, trainer.max_skipped_fraction
        )
        rmse = self._judge(epoch)
        progress.seconds = time.monotonic() - self._began
        progress.end_epoch(loss, len(skipped), rmse)
        for step, samples in skipped:
            journal.event("skip", epoch=epoch, step=step, samples=samples)
            journal.warn("epoch %d, step %d skipped, not finite: %s", epoch, step, samples)
        if rmse:
            self.context.decide(lambda: record.keep_epoch(self.session, self.folder))
        values = {"loss": loss, **trainer._epoch_terms(self.context), **rmse}
        journal.epoch(epoch, trainer.epochs, progress.epoch_seconds[-1], values)
        if rmse or epoch % trainer.loss_log_interval == 0:
            trainer._log_epoch(journal, epoch, values)
        flags = self._joined(self.watch.epoch_flags(epoch))
        if epoch == trainer.epochs:
            flags = SAVE  # what is left is to write the files: no time limit may lose the end
        if flags:
            self._save(flags)

    def _train_steps(self, order: np.ndarray) -> None:
        """Do the steps of an epoch that are not done yet; save or leave between any two."""
        trainer, progress, context = self.trainer, self.progress, self.context
        batch = rank_batch(len(order), trainer.batch_size, context.world_size)
        plan = epoch_plan(order[progress.done :], batch, context.rank, context.world_size)
        samples = torch.tensor([step.n_global for step in plan], dtype=torch.int64)
        losses = torch.zeros(len(plan), dtype=torch.float64, device=context.device)
        known = 0
        for number, step in enumerate([*plan, None]):
            flags = self._joined(self.watch.flags())
            if flags or step is None:
                progress.add_steps(context.sum(losses[known:number]), samples[known:number])
                progress.terms = trainer._terms_so_far(context)
                known = number
            if flags:
                self._save(flags)
            if step is not None:
                losses[number] = self._train_step(step)
                self.watch.tick()

    def _joined(self, flags: int) -> int:
        """Join the flags of all ranks: rank 0 alone decides when to save, any may have to leave."""
        return self.context.any_of(flags if self.context.is_main else flags & LEAVE)

    def _train_step(self, plan: Step) -> Tensor:
        """Do one optimizer step; give this rank's summed loss, NaN if the step was skipped."""
        context, trainer, k = self.context, self.trainer, plan.n_real
        loss = self._loss(torch.from_numpy(plan.indices), k)
        # Ranks are averaged by DDP: each weighs its own mean by its part of the global batch.
        backward(loss, k * context.world_size / plan.n_global if k else 1.0)
        skipped = optimizer_step(
            self.session.optimizer, list(self.network.parameters()), trainer.grad_clip_norm
        )
        return torch.where(skipped, torch.nan, loss.detach().double() * k)

    def _loss(self, indices: Tensor, k: int) -> Tensor:
        """Mean loss of the first k samples; an exact zero without any."""
        on_device, pca, stage, targets = self.session.train_feed.batch(indices)
        predictions = self.session.predict(self.model, pca, stage).to(targets.dtype)[:k]
        if k == 0:
            # The sum of nothing is 0 with gradient 0; the mean of nothing would be NaN.
            return predictions.sum()
        return self.trainer._compute_loss(predictions, targets[:k], on_device[:k])

    def _compile(self) -> None:
        """Compile the network if asked for; the outcome goes into the metadata."""
        batch = min(self.trainer.batch_size, len(self.session.train_feed.dataset))
        self.model = self.network
        self.session.compiled = compile_network(
            self.network,
            self.trainer.compile,
            self.trainer._compile_compatible,
            self.context.device,
            self.session.precision,
            lambda: self._loss(torch.arange(batch), batch),
        )
        if self.session.compiled.startswith("eager,"):
            self.journal.warn("torch.compile: %s", self.session.compiled)

    def _distributed(self) -> nn.Module:
        if not self.context.is_distributed:
            return self.network
        cuda = self.context.device.type == "cuda"
        return DistributedDataParallel(
            self.network,
            device_ids=[self.context.local_rank] if cuda else None,
            gradient_as_bucket_view=True,
        )

    # ------------------------------------------------------------------ judge and save

    def _judge(self, epoch: int) -> RmseEntry:
        """Compute RMSE at the epochs that are declared; leaves in between if it has to."""
        if epoch % self.trainer.rmse_log_interval and epoch != self.trainer.epochs:
            return {}
        return {
            "train_rmse": self._rmse(self.session.train_feed),
            "val_rmse": self._rmse(self.session.val_feed) if self.session.val_feed else None,
        }

    def _rmse(self, feed: Feed) -> float | None:
        def pause() -> None:
            self.watch.tick()
            if flags := self._joined(self.watch.flags()):
                self._save(flags)

        return root_mean_square_error(
            feed,
            lambda pca, stage: self.session.predict(self.network, pca, stage),
            self.trainer.batch_size,
            self.context,
            pause,
            self.trainer._on_validation_batch if feed is self.session.val_feed else None,
        )

    def _save(self, flags: int) -> None:
        """Write a recovery checkpoint on rank 0, and leave if it is time to.

        Raises
        ------
        ContinueLater
            If it is.
        """
        started, progress = time.monotonic(), self.progress
        if progress.done:
            progress.seconds = started - self._began
        self.context.decide(lambda: self.folder.save_recovery(record.payload(self.session)))
        self.watch.saved(time.monotonic() - started)
        if flags & LEAVE:
            why = reason(flags)
            self.journal.event("leave", epoch=progress.epoch, samples=progress.done, reason=why)
            raise ContinueLater(
                f"leaving for {why} after epoch {progress.epoch} and {progress.done} samples of "
                "the next: saved; run the same command to go on"
            )
