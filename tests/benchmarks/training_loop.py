"""The loop of a training, set up as ``train`` does and then left to a benchmark to run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from surface_cohort import Ingested

from meshstage.models.journal import Journal
from meshstage.models.live import RunFolder
from meshstage.training.base import TrainPhysicsNeMoBase
from meshstage.training.distributed import DistributedContext
from meshstage.training.identity import defaults_of_older_runs, run_identity
from meshstage.training.leaving import Watch
from meshstage.training.loop import Loop
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.session import Session


@contextmanager
def open_loop(
    trainer: TrainPhysicsNeMoBase, cohort: Ingested, output: Path, device: str = "cpu"
) -> Iterator[Loop]:
    """Set a training up whose epochs are neither judged nor saved: they only train.

    Parameters
    ----------
    trainer : TrainPhysicsNeMoBase
    cohort : Ingested
        All of whose subjects train.
    output : Path
        The model directory.
    device : str
    """
    trainer.epochs = trainer.rmse_log_interval = trainer.recovery_interval = 10**6
    train = PhaseSampleDataset(cohort.subjects)
    identity = run_identity(trainer, cohort.statistics, cohort.template, train, None, None)
    folder = RunFolder(output, trainer.model_tag, defaults_of_older_runs(trainer, identity))
    folder.open(identity)
    context = DistributedContext(torch.device(device))
    session = Session(
        trainer,
        context,
        cohort.statistics,
        cohort.template,
        cohort.template.points,
        train,
        None,
        [],
    )
    session.restore(None, None, None, folder.live)
    with (
        Watch(None, trainer.recovery_interval) as watch,
        Journal(output, True, 0) as journal,
    ):
        yield Loop(session, folder, watch, journal)
