"""The loop: epochs of steps, judged, saved on the way, left in good order."""

import time
from collections.abc import Callable

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
from meshstage.training.schedule import rate_at
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
        self.objective = session.objective
        self._noise: Tensor | None = None  # of the epoch, on the scores
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
        order = epoch_order(trainer.seed, epoch, len(self.session.lessons.dataset))
        self._noise = self.session.score_noise(epoch)
        trainer._on_epoch_start(epoch - 1, trainer.epochs)
        self.objective.start_epoch(epoch - 1)
        self._train_steps(order)
        loss, n_samples, skipped = judge_steps(
            progress, order, self.session.lessons.dataset, trainer.max_skipped_fraction
        )
        terms = self.objective.values(progress.terms.values(), n_samples)
        rmse, val_terms = self._judge(epoch)
        progress.seconds = time.monotonic() - self._began
        progress.end_epoch(loss, len(skipped), rmse)
        for step, samples in skipped:
            journal.event("skip", epoch=epoch, step=step, samples=samples)
            journal.warn("epoch %d, step %d skipped, not finite: %s", epoch, step, samples)
        if rmse:
            self.context.decide(lambda: record.keep_epoch(self.session, self.folder))
        values = {"loss": loss, **terms, **val_terms, **rmse}
        journal.epoch(epoch, trainer.epochs, progress.epoch_seconds[-1], values)
        if rmse or epoch % trainer.loss_log_interval == 0:
            shown = [f"{name} {value:.4g}" for name, value in values.items() if value is not None]
            journal.say("%s", "  ".join([f"epoch {epoch}/{trainer.epochs}", *shown]))
            trainer._log_epoch(self.context, epoch - 1, trainer.epochs)
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
        # Samples of the epoch before the middle of each step: neither the first nor the last step
        # of a cosine is wasted on a learning rate of 0.
        middles = (progress.done + samples.cumsum(0) - samples / 2).tolist()
        losses = torch.zeros(len(plan), dtype=torch.float64, device=context.device)
        names = self.objective.names
        # What an earlier start has summed, all ranks together, goes on rank 0.
        before = progress.terms if context.is_main else {}
        sums = torch.tensor([before.get(name, 0.0) for name in names], dtype=torch.float64)
        self.sums = sums.to(context.device)
        known = 0
        for number, step in enumerate([*plan, None]):
            flags = self._joined(self.watch.flags())
            if flags or step is None:
                progress.add_steps(context.sum(losses[known:number]), samples[known:number])
                progress.terms = dict(
                    zip(names, context.sum(self.sums.clone()).tolist(), strict=True)
                )
                known = number
            if flags:
                self._save(flags)
            if step is not None:
                self._set_learning_rate(middles[number] / len(order))
                losses[number] = self._train_step(step)
                self.watch.tick()

    def _set_learning_rate(self, done: float) -> None:
        """Set the rate of a step at a part of the epoch, whose place is counted in this run."""
        trainer, progress = self.trainer, self.progress
        start = progress.start_epoch
        place = (progress.epoch - start + done) / (trainer.epochs - start)
        for group in self.session.optimizer.param_groups:
            group["lr"] = trainer.learning_rate * rate_at(trainer.schedule, place)

    def _joined(self, flags: int) -> int:
        """Join the flags of all ranks: rank 0 alone decides when to save, any may have to leave."""
        return self.context.any_of(flags if self.context.is_main else flags & LEAVE)

    def _train_step(self, plan: Step) -> Tensor:
        """Do one optimizer step; give this rank's summed loss, NaN if the step was skipped."""
        context, trainer, k = self.context, self.trainer, plan.n_real
        loss, sums = self._loss(torch.from_numpy(plan.indices), k)
        # Ranks are averaged by DDP: each weighs its own mean by its part of the global batch.
        backward(loss, k * context.world_size / plan.n_global if k else 1.0)
        skipped = optimizer_step(
            self.session.optimizer, list(self.network.parameters()), trainer.grad_clip_norm
        )
        if self.session.average:
            self.session.average.update(skipped)
        self.sums += torch.where(skipped, 0.0, sums)
        return torch.where(skipped, torch.nan, loss.detach().double() * k)

    def _loss(self, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Mean loss of the first k samples and the sums of its parts; exact zeros without any."""
        on_device, pca, stage, targets = self.session.lessons.batch(indices)
        if self._noise is not None:
            pca = pca + self._noise[on_device]
        predictions = self.session.predict(self.model, pca, stage).to(targets.dtype)[:k]
        if k == 0:
            # The sum of nothing is 0 with gradient 0; the mean of nothing would be NaN.
            return predictions.sum(), torch.zeros_like(self.sums)
        return self.objective(predictions, targets[:k], on_device[:k])

    def _compile(self) -> None:
        """Compile the network if asked for; the outcome goes into the metadata."""
        batch = min(self.trainer.batch_size, len(self.session.lessons.dataset))
        self.model = self.network
        self.session.compiled = compile_network(
            self.network,
            self.trainer.compile,
            self.trainer._compile_incompatible,
            self.context.device,
            self.session.precision,
            lambda: self._loss(torch.arange(batch), batch)[0],
        )
        if self.session.compiled.startswith("eager,"):
            self.journal.warn("torch.compile: %s", self.session.compiled)

    def _distributed(self) -> nn.Module:
        """Wrap the network for several ranks.

        After its first backward pass DDP lays its buckets out anew, and a bucket's layout decides
        in which order three or more ranks are summed. So that first pass is one that trains
        nothing: else the first step of each start would round differently from all others.
        """
        if not self.context.is_distributed:
            return self.network
        cuda = self.context.device.type == "cuda"
        model = DistributedDataParallel(
            self.network,
            device_ids=[self.context.local_rank] if cuda else None,
            gradient_as_bucket_view=True,
        )
        _, pca, stage, _ = self.session.train_feed.batch(torch.zeros(1, dtype=torch.int64))
        self.network.eval()  # no running mean moves, nothing random is drawn
        self.session.predict(model, pca, stage).sum().backward()
        self.session.optimizer.zero_grad(set_to_none=True)
        self.network.train()
        return model

    # ------------------------------------------------------------------ judge and save

    def _judge(self, epoch: int) -> tuple[RmseEntry, dict[str, float]]:
        """Compute RMSE, and what the loss's terms report of validation, at declared epochs.

        Leaves in between if it has to.
        """
        if epoch % self.trainer.rmse_log_interval and epoch != self.trainer.epochs:
            return {}, {}
        val, objective, context = self.session.val_feed, self.objective, self.context
        rmse: RmseEntry = {"train_rmse": self._rmse(self.session.train_feed), "val_rmse": None}
        if not val:
            return rmse, {}
        sums = torch.zeros(len(objective.reported), dtype=torch.float64, device=context.device)

        def look(predictions: Tensor, indices: Tensor) -> None:
            sums.add_(objective.report(predictions, indices))

        rmse["val_rmse"] = self._rmse(val, look if objective.reported else None)
        return rmse, objective.val_values(context.sum(sums).tolist(), len(val.dataset))

    def _rmse(
        self, feed: Feed, look: Callable[[Tensor, Tensor], None] | None = None
    ) -> float | None:
        def pause() -> None:
            self.watch.tick()
            if flags := self._joined(self.watch.flags()):
                self._save(flags)

        return root_mean_square_error(
            feed,
            lambda pca, stage: self.session.predict(self.session.judged, pca, stage),
            self.trainer.batch_size,
            self.context,
            pause,
            look,
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
        self.context.decide(lambda: self.folder.save_recovery(record.recovery(self.session)))
        self.watch.saved(time.monotonic() - started)
        if flags & LEAVE:
            why = reason(flags)
            self.journal.event("leave", epoch=progress.epoch, samples=progress.done, reason=why)
            raise ContinueLater(
                f"leaving for {why} after epoch {progress.epoch} and {progress.done} samples of "
                "the next: saved; run the same command to go on"
            )
