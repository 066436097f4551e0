"""What the three training scripts share: their options, and the call of the library."""

import argparse
import logging
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import command_line

if TYPE_CHECKING:
    from meshstage.training.base import TrainPhysicsNeMoBase
    from meshstage.training.distributed import DistributedContext

# A launcher tells when the job began; the clock is one for all processes of a machine.
STARTED = float(os.environ.get("MESHSTAGE_STARTED", time.monotonic()))


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """Make a parser with what every network's training takes."""
    parser = command_line.new_parser(description)
    command_line.add_template(parser)
    add = parser.add_argument
    add("--stats", type=Path, required=True, metavar="FILE", help="stats.json of compute_stats.py")
    command_line.add_subjects(parser, "--train", "training subjects")
    command_line.add_subjects(parser, "--val", "validation subjects", required=False)
    add("--output", type=Path, required=True, metavar="DIR", help="the model directory")
    add("--resume-from", type=Path, metavar="FILE", help="start from this checkpoint")
    add(
        "--sibling",
        type=int,
        metavar="N",
        help="with --resume-from: write to DIR_N, and go on if it is unfinished "
        "(without it: the next free DIR_1, DIR_2, ...)",
    )
    settings = parser.add_argument_group("training")
    add = settings.add_argument
    add("--epochs", type=int, help="total of the lineage, resumed epochs included (1500)")
    add("--batch-size", type=int, help="samples a rank and step (4, mlp 32)")
    add("--learning-rate", type=float, help="of Adam (1e-3)")
    add("--grad-clip-norm", type=float, help="largest norm of a step's gradient (1.0)")
    add("--seed", type=int, help="of initial weights and order of samples (42)")
    add("--rmse-log-interval", type=int, help="epochs between kept and judged models (100)")
    add("--loss-log-interval", type=int, help="epochs between log lines (10)")
    add("--max-skipped-fraction", type=float, help="non-finite steps an epoch may skip (0.1)")
    running = parser.add_argument_group("running")
    add = running.add_argument
    add(
        "--recovery-interval",
        type=int,
        help="epochs between recovery checkpoints (as often as costs under 1%% of the time)",
    )
    add(
        "--time-budget",
        type=float,
        metavar="MINUTES",
        help="save and leave (exit 75) before; 0: none",
    )
    add("--precision", choices=["auto", "fp32", "bf16", "fp64"], help="auto: bf16 on a GPU with it")
    add("--compile", choices=["off", "auto", "on"], help="torch.compile (off)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where to compute")
    add("--device-memory-fraction", type=float, help="of a GPU's free memory, for targets (0.5)")
    return parser


_SETTERS = ("epochs", "batch_size", "learning_rate", "grad_clip_norm")
_ATTRIBUTES = (
    "seed",
    "rmse_log_interval",
    "loss_log_interval",
    "max_skipped_fraction",
    "recovery_interval",
    "precision",
    "compile",
    "device_memory_fraction",
)


def run(
    parser: argparse.ArgumentParser,
    make_trainer: Callable[[], "TrainPhysicsNeMoBase"],
    own_setters: tuple[str, ...],
) -> None:
    """Parse, train and exit."""
    command_line.run(lambda arguments: _train(arguments, make_trainer, own_setters), parser)


def _train(
    arguments: argparse.Namespace,
    make_trainer: Callable[[], "TrainPhysicsNeMoBase"],
    own_setters: tuple[str, ...],
) -> None:
    """Give each option that is set to the trainer, and train."""
    from meshstage.launch.ranks import this_rank
    from meshstage.models.owner import refuse_owned
    from meshstage.models.siblings import output_directory
    from meshstage.training.leaving import note_signals

    # Before imports that take seconds: a signal then is answered at the first step, and a run
    # that somebody owns at once. Ranks that still wait for each other just die of a signal.
    rank = this_rank(os.environ)
    if rank is None or rank.world_size == 1:
        note_signals()
    numbered = arguments.resume_from is None or arguments.sibling is not None
    if numbered and (rank is None or rank.rank == 0):
        refuse_owned(output_directory(arguments.output, arguments.resume_from, arguments.sibling))
    from meshstage.training.distributed import distributed_context
    from meshstage.training.settings import positive_number

    trainer = make_trainer()
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    for name in (*_SETTERS, *own_setters):
        if name in given:
            getattr(trainer, f"set_{name}")(given[name])
    for name in _ATTRIBUTES:
        if name in given:
            setattr(trainer, name, given[name])
    if arguments.time_budget:
        trainer.deadline = STARTED + 60 * positive_number("time_budget", arguments.time_budget)
    with distributed_context(arguments.device) as context:
        if not context.is_main:
            logging.getLogger("meshstage").setLevel(logging.ERROR)  # rank 0 says it for all
        _train_on(context, trainer, arguments)


def _train_on(
    context: "DistributedContext", trainer: "TrainPhysicsNeMoBase", arguments: argparse.Namespace
) -> None:
    """Read the samples, train, and leave a rank's traceback where it can be found."""
    import torch

    from meshstage.cohort.statistics import read_statistics
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.errors import ContinueLater, InputError
    from meshstage.models.siblings import output_directory
    from meshstage.training.samples import PhaseSampleDataset

    output = context.decide(
        lambda: output_directory(arguments.output, arguments.resume_from, arguments.sibling)
    )
    report = output / f"traceback_rank_{context.rank}.txt"
    try:
        report.unlink(missing_ok=True)
        template = load_template(arguments.template)
        val = load_subjects(arguments.val)
        trainer.train(
            PhaseSampleDataset(load_subjects(arguments.train)),
            PhaseSampleDataset(val) if val else None,
            read_statistics(arguments.stats),
            context,
            trainer.epochs,
            output,
            template,
            template.points,
            resume_from=arguments.resume_from,
        )
    except (InputError, ContinueLater):
        raise
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"out of GPU memory with batch size {trainer.batch_size}: lower --batch-size, or with "
            "a MeshGraphNet raise --num-processor-checkpoint-segments"
        ) from error
    except Exception:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(traceback.format_exc(), encoding="utf-8")
        raise
