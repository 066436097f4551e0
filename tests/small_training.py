"""A network that needs no PhysicsNeMo, to test training with; also a program, like train_mlp.py.

As a program it misbehaves where the environment says so: ``STEP_SECONDS`` makes steps last,
``FAIL_ON_RANK`` raises in the third step of that rank, ``TELL_STEPS`` names a file that gets one
line per step.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import train_command
from meshstage.cohort.subject import Subject
from meshstage.config.methods import load_class
from meshstage.config.networks import NETWORKS
from meshstage.training.base import TrainPhysicsNeMoBase
from meshstage.training.distributed import DistributedContext
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.state import RmseEntry


class TrainSmall(TrainPhysicsNeMoBase):
    """Two linear layers per point."""

    model_tag = "mlp"
    architecture_name = "tests.Small"

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.layer_size = 8
        self.rmse_log_interval = 2
        for name, value in settings.items():
            setattr(self, name, value)

    def set_layer_size(self, layer_size: int) -> None:
        self._set("layer_size", layer_size)

    def build_model(self, in_features: int, out_features: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(in_features, self.layer_size),
            nn.Tanh(),
            nn.Linear(self.layer_size, out_features),
        )

    def forward(self, model: nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        return model(node_feats)

    def checkpoint_fields(self) -> dict[str, Any]:
        return {"layer_size": self.layer_size}


def make_mgn(segments: int = 0) -> TrainPhysicsNeMoBase:
    """Make a tiny MeshGraphNet's trainer; the import takes seconds."""
    from meshstage.training.mgn import TrainPhysicsNeMoMGN

    trainer = TrainPhysicsNeMoMGN()
    trainer.set_hidden_dim(8)
    trainer.set_processor_size(2)
    trainer.set_num_layers(1)
    trainer.set_num_processor_checkpoint_segments(segments)
    return trainer


def make_mlp() -> TrainPhysicsNeMoBase:
    """Make a tiny fully connected network's trainer."""
    from meshstage.training.mlp import TrainPhysicsNeMoMLP

    trainer = TrainPhysicsNeMoMLP()
    trainer.set_layer_size(16)
    trainer.set_num_layers(3)
    trainer.set_batch_size(4)
    return trainer


MORE = {
    "deeponet": {"layer_size": 16, "num_layers": 2, "batch_size": 4},
    "transolver": {"hidden_dim": 16, "num_blocks": 2, "num_slices": 5},
    "flare": {"hidden_dim": 16, "num_blocks": 2, "num_slices": 5},
    "geotransolver": {"hidden_dim": 16, "num_blocks": 2, "num_slices": 5},
}


def make_more(name: str) -> TrainPhysicsNeMoBase:
    """Make a tiny trainer of one of PhysicsNeMo's other networks."""
    trainer: TrainPhysicsNeMoBase = load_class(NETWORKS[name].method)()
    trainer.rmse_log_interval = 2
    for key, value in MORE[name].items():
        getattr(trainer, f"set_{key}")(value)
    return trainer


def run(
    trainer: TrainPhysicsNeMoBase,
    cohort: Any,
    output: Path,
    epochs: int = 4,
    resume_from: Path | None = None,
    train: Sequence[Subject] | None = None,
    context: DistributedContext | None = None,
) -> tuple[nn.Module, list[float], list[RmseEntry]]:
    """Train on a cohort like conftest's."""
    val = cohort.subjects["val"]
    return trainer.train(
        PhaseSampleDataset(train or cohort.subjects["train"]),
        PhaseSampleDataset(val) if val else None,
        cohort.statistics,
        context or DistributedContext(),
        epochs,
        output,
        cohort.template,
        cohort.template.points,
        resume_from=resume_from,
    )


def arguments(cohort: Any, output: Path, *more: str) -> list[str]:
    """Command line of this program on a cohort like conftest's; what comes last wins."""
    return [
        str(Path(__file__)),
        f"--template={cohort.template_directory}",
        f"--stats={cohort.statistics_path}",
        f"--output={output}",
        "--epochs=3",
        "--rmse-log-interval=2",
        "--train",
        *map(str, cohort.subject_directories["train"]),
        "--val",
        *map(str, cohort.subject_directories["val"]),
        *more,
    ]


class _TrainAwkward(TrainSmall):
    """Slow, or failing, as the environment says."""

    _n_steps = 0

    def _compute_loss(self, *arguments: Any) -> Tensor:
        self._n_steps += 1
        time.sleep(float(os.environ.get("STEP_SECONDS", 0)))
        if "TELL_STEPS" in os.environ:
            with Path(os.environ["TELL_STEPS"]).open("a") as stream:
                stream.write(f"{os.environ.get('RANK', 0)} {os.getpid()}\n")
        if self._n_steps == 3 and os.environ.get("FAIL_ON_RANK") == os.environ.get("RANK", "0"):
            raise RuntimeError("this rank was told to fail")
        return super()._compute_loss(*arguments)


if __name__ == "__main__":
    train_command.run(__doc__, NETWORKS["mlp"], _TrainAwkward)
