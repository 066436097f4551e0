"""What is trained: network, optimizer, samples, and where it is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.errors import InputError, Problem
from meshstage.losses.term import LossTerm
from meshstage.models.checkpoint import load_weights
from meshstage.training.average import WeightAverage
from meshstage.training.distributed import DistributedContext
from meshstage.training.identity import plain_settings
from meshstage.training.method import TrainingMethod
from meshstage.training.objective import Objective
from meshstage.training.plan import epoch_noise
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.state import Progress
from meshstage.training.step import Feed, make_optimizer, parameter_type, resolve_precision


class Session:
    """One call of ``train``: everything of it that computes or is saved.

    Parameters
    ----------
    trainer : TrainingMethod
    context : DistributedContext
    statistics : Statistics
    template : Template
    coordinates : (n_points, 3) array, mm
    train, val : PhaseSampleDataset
        ``val`` may be None.
    terms : sequence of LossTerm
        Prepared for this cohort.
    lessons : PhaseSampleDataset, optional
        What steps are made of, if not of ``train``, on which alone the network is judged.
    """

    def __init__(
        self,
        trainer: TrainingMethod,
        context: DistributedContext,
        statistics: Statistics,
        template: Template,
        coordinates: np.ndarray,
        train: PhaseSampleDataset,
        val: PhaseSampleDataset | None,
        terms: Sequence[LossTerm],
        lessons: PhaseSampleDataset | None = None,
    ) -> None:
        device = context.device
        self.trainer, self.context, self.statistics = trainer, context, statistics
        self.template = template
        self.precision = resolve_precision(trainer.precision, device)
        dtype = parameter_type(self.precision)
        trainer.make_inputs(statistics, coordinates, device, dtype)
        torch.manual_seed(trainer.seed)
        network = trainer.build_model(trainer.inputs.n_features, statistics.n_target)
        self.network = network.to(device, dtype)
        self.average: WeightAverage | None = None
        trainer.use_edges(template.edge_index, template.edge_features)
        trainer.setup_inputs(device, template.mesh(), np.asarray(coordinates, np.float32))
        for term in terms:
            term.to(device, dtype)
        self.objective = Objective(trainer, terms)
        self.optimizer = make_optimizer(
            self.network.parameters(), trainer.learning_rate, trainer.weight_decay
        )
        self.train_feed = Feed(train, trainer.inputs, trainer.device_memory_fraction)
        self.lessons: Feed = self.train_feed
        if lessons is not None:
            self.lessons = Feed(lessons, trainer.inputs, trainer.device_memory_fraction)
        self.val_feed = val and Feed(val, trainer.inputs, trainer.device_memory_fraction)
        self.progress = Progress()
        self.compiled = "eager"
        self.resumed_from: str | None = None
        self._try_one_sample()

    def _try_one_sample(self) -> None:
        """Predict one sample, so that a wrong shape is refused before anything is written."""
        _, pca, stage, _ = self.train_feed.batch(torch.zeros(1, dtype=torch.int64))
        self.network.eval()  # no running mean moves, nothing random is drawn
        with torch.no_grad():
            self.predict(self.network, pca, stage)
        self.network.train()

    def restore(
        self,
        recovery: dict[str, Any] | None,
        origin: dict[str, Any] | None,
        resume_from: Path | None,
        live: Path,
    ) -> str:
        """Take weights and history from a run in progress or a resumed checkpoint; say which.

        Raises
        ------
        InputError
            If a checkpoint does not fit, or is past the last epoch.
        """
        trainer, payload = self.trainer, recovery or origin
        self.resumed_from = str(resume_from) if resume_from else None
        source = live if recovery else Path(resume_from or "")
        if payload is not None:
            load_weights(self.network, payload["model_state_dict"], source)
        if trainer.ema:
            # Copies what was loaded: the average, if the checkpoint has one.
            self.average = WeightAverage(self.network, trainer.ema)
        if payload is None:
            said = f"training {trainer.epochs} epochs from fresh weights"
        elif "training_state" in payload:
            self._restore_state(payload, source)
            said = f"resuming {source}: epoch {self.progress.epoch} of {trainer.epochs}"
        else:
            said = f"resuming {source}: weights only, so epoch 0 and a fresh optimizer"
        if recovery is None:
            self._begin_segment()
        self._update_segment()
        return said

    def _update_segment(self) -> None:
        """Describe this run of the lineage; the number of ranks as often as it changed."""
        segment = self.progress.segments[-1]
        segment |= plain_settings(self.trainer)
        ranks = segment.setdefault("ranks", [])
        if ranks[-1:] != [self.context.world_size]:
            ranks.append(self.context.world_size)

    def _restore_state(self, payload: dict[str, Any], source: Path) -> None:
        """Take optimizer, history and random numbers from a checkpoint of this program."""
        try:
            self.progress = Progress.from_payload(payload)
            state = payload["training_state"]
            # What is trained, where the checkpoint's own weights are averages.
            self.network.load_state_dict(payload["model_state_dict"] | state.get("raw_weights", {}))
            if self.average:
                self.average.restore(state)
            # Its moments alone: learning rate and the like are this run's own settings.
            self.optimizer.load_state_dict(
                self.optimizer.state_dict() | {"state": state["optimizer"]["state"]}
            )
            torch.set_rng_state(state["rng"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                Problem(
                    f"its training_state is not one of this program's ({error})",
                    todo="take another checkpoint, or remove training_state to use its weights",
                    file=str(source),
                )
            ) from None

    def _begin_segment(self) -> None:
        """Begin a run of the lineage at the epoch that its checkpoint has."""
        trainer, progress = self.trainer, self.progress
        if progress.epoch >= trainer.epochs:
            raise InputError(
                f"epochs is {trainer.epochs}, but the checkpoint has {progress.epoch} already; "
                "epochs is the total of the lineage: raise it"
            )
        progress.start_epoch = progress.epoch
        # The last epoch of a run is judged even between intervals: the log of a lineage reads as
        # if it had been trained in one go.
        last = progress.rmse_log[-1:]
        if last and last[0]["epoch"] % progress.segments[-1]["rmse_log_interval"]:
            progress.rmse_log.pop()
        progress.segments.append({"from_epoch": progress.epoch, "resumed_from": self.resumed_from})

    @property
    def judged(self) -> nn.Module:
        """The network that is judged and saved: with averaged weights if there are any."""
        return self.average.network if self.average else self.network

    def training_state(self) -> dict[str, Any]:
        """Collect ``training_state`` for a checkpoint."""
        averaged = self.average.to_state() if self.average else {}
        return self.progress.to_state(self.optimizer) | averaged

    def score_noise(self, epoch: int) -> Tensor | None:
        """Give the noise of an epoch on normalised scores: (n_samples, n_pca), if there is any."""
        trainer = self.trainer
        if not trainer.score_noise:
            return None
        shape = self.lessons.dataset.shape_scores.shape
        noise = trainer.score_noise * epoch_noise(trainer.seed, epoch, *shape)
        scaled = torch.from_numpy(noise / np.asarray(self.statistics.pca_scale))
        return scaled.to(trainer.inputs.coordinates)

    def predict(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict a batch from scores (B, n_pca) and stages (B,) in the chosen precision."""
        bf16 = self.precision == "bf16"
        with torch.autocast(self.context.device.type, torch.bfloat16, enabled=bf16):
            return self.trainer.predict_batch(model, pca, stage)
