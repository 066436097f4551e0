"""Where a training is: what a checkpoint keeps beside weights and statistics."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

RmseEntry = dict[str, float | int | None]


@dataclass
class Progress:
    """Position and history of a lineage of runs.

    Parameters
    ----------
    epoch : int
        Finished epochs, counted over the whole lineage.
    start_epoch : int
        Where this run began.
    done : int
        Samples of the epoch after ``epoch`` that are trained already.
    step_losses : (n_steps,) float64 tensor
        Loss of each step of that epoch so far, summed over its samples on all ranks; NaN where
        the step was skipped.
    step_samples : (n_steps,) int64 tensor
        Samples of each of these steps.
    losses : list of float
        Mean loss per sample of each epoch.
    rmse_log : list of dict
        ``epoch``, ``train_rmse``, ``val_rmse`` in the target's units.
    terms : dict
        Sums over these samples of what the terms of the loss report, by name.
    skipped_steps : int
    seconds : float
        Spent on the epoch in progress, by starts that were cut short too.
    epoch_seconds : list of float
        Of this run's epochs.
    segments : list of dict
        What each run of the lineage was trained with.
    """

    epoch: int = 0
    start_epoch: int = 0
    done: int = 0
    step_losses: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    step_samples: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    terms: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    rmse_log: list[RmseEntry] = field(default_factory=list)
    skipped_steps: int = 0
    seconds: float = 0.0
    epoch_seconds: list[float] = field(default_factory=list)
    segments: list[dict[str, Any]] = field(default_factory=list)

    def to_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Collect ``training_state`` for a checkpoint: the same run gives the same bytes."""
        return {
            # Its settings are the run's, and the learning rate is that of the last step.
            "optimizer": {"state": optimizer.state_dict()["state"]},
            "done": self.done,
            "step_losses": self.step_losses,
            "step_samples": self.step_samples,
            "terms": dict(self.terms),
            "losses": list(self.losses),
            "rmse_log": [dict(entry) for entry in self.rmse_log],
            "skipped_steps": self.skipped_steps,
            "segments": [dict(segment) for segment in self.segments],
            "rng": torch.get_rng_state(),
        }

    def times(self) -> dict[str, Any]:
        """Collect what differs from run to run: only a recovery checkpoint keeps it."""
        return {"seconds": self.seconds, "epoch_seconds": list(self.epoch_seconds)}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "Progress":
        """Resume where a checkpoint was saved."""
        state = payload["training_state"]
        return cls(
            epoch=payload["epoch"],
            start_epoch=payload["start_epoch"],
            done=state["done"],
            step_losses=state["step_losses"],
            step_samples=state["step_samples"],
            terms=dict(state["terms"]),
            losses=list(state["losses"]),
            rmse_log=list(state["rmse_log"]),
            skipped_steps=state["skipped_steps"],
            seconds=state.get("seconds", 0.0),
            epoch_seconds=list(state.get("epoch_seconds", [])),
            segments=list(state["segments"]),
        )

    def add_steps(self, losses: Tensor, samples: Tensor) -> None:
        """Add steps of the epoch in progress, reduced over ranks."""
        self.step_losses = torch.cat([self.step_losses, losses.cpu()])
        self.step_samples = torch.cat([self.step_samples, samples])
        self.done += int(samples.sum())

    def end_epoch(self, loss: float, n_skipped: int, rmse: RmseEntry) -> None:
        """Close the epoch in progress; ``rmse`` is empty if it was not judged."""
        self.losses.append(loss)
        self.skipped_steps += n_skipped
        self.epoch_seconds.append(round(self.seconds, 4))
        if rmse:
            self.rmse_log.append({"epoch": self.epoch + 1, **rmse})
        self.epoch, self.done, self.seconds = self.epoch + 1, 0, 0.0
        self.step_losses, self.step_samples = self.step_losses[:0], self.step_samples[:0]
        self.terms = {}

    @property
    def best_epoch(self) -> int | None:
        """Epoch with the least validation RMSE of those kept in this run's own folder.

        None without validation subjects.
        """
        judged = [
            entry
            for entry in self.rmse_log
            if entry["val_rmse"] is not None and entry["epoch"] > self.start_epoch  # type: ignore[operator]
        ]
        return min(judged, key=lambda entry: entry["val_rmse"])["epoch"] if judged else None  # type: ignore[arg-type,return-value]
