"""What the training scripts share: their options, and the call of the library."""

import argparse
import contextlib
import logging
import os
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command_line
from meshstage.config.methods import load_class
from meshstage.config.networks import (
    COMMON,
    LOSSES,
    NETWORKS,
    NetworkKind,
    kind_of,
    parse_options,
    refuse_foreign,
)
from meshstage.config.settings import Setting, default_of, settings
from meshstage.errors import InputError, Problem

if TYPE_CHECKING:
    from meshstage.training.base import TrainPhysicsNeMoBase
    from meshstage.training.distributed import DistributedContext

# A launcher tells when the job began; the clock is one for all processes of a machine.
STARTED = float(os.environ.get("MESHSTAGE_STARTED", time.monotonic()))

_TIME_BUDGET = Setting("time_budget", float, None, "minutes", "always", minimum=0)


def run(
    description: str | None, kind: NetworkKind | None = None, method: type | None = None
) -> None:
    """Parse, train and exit.

    Parameters
    ----------
    description : str
        Of the script.
    kind : NetworkKind, optional
        Without it ``--network`` names a row of the registry, or a class of the user's own.
    method : type, optional
        The training method, where it is not the one of the row.
    """
    chosen = kind or NETWORKS.get(_named_network())
    parser = _parser(description, chosen)
    if kind is None:
        add = parser.add_argument_group("which network").add_argument
        names = ", ".join(NETWORKS)
        add("--network", required=True, metavar="NAME", help=f"{names} or FILE.py:CLASS")
        add("--options", metavar="JSON", help="settings of a class, as in '{\"width\": 32}'")
    command_line.run(lambda arguments: _train(arguments, chosen, method), parser)


def _named_network() -> str:
    """Look for ``--network`` before the other options, which depend on it."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--network", default="")
    named: str = first.parse_known_args()[0].network
    return named


def _parser(description: str | None, kind: NetworkKind | None) -> argparse.ArgumentParser:
    """Make a parser with the settings of a network and of all loss terms."""
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
        help="with --resume-from: write to DIR_N, and resume it if it is unfinished "
        "(without it: the next free DIR_1, DIR_2, ...)",
    )
    add(
        "--time-budget",
        type=float,
        metavar="MINUTES",
        help="save and exit with 75 before they have passed; 0: none",
    )
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where to compute")
    groups = {"network": kind.options if kind else ()}
    if kind is None or kind.has_epochs:
        groups = {"training": COMMON, **groups}
        groups |= {f"loss {loss.name}": loss.options for loss in LOSSES.values()}
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        for setting in (settings()[name] for name in names):
            default = default_of(kind, setting.name) if kind else setting.default
            shown = "" if default in (None, "") else f" ({default})"
            group.add_argument(
                setting.option,
                metavar="|".join(setting.choices) or setting.kind.__name__.upper(),
                help=(setting.help + shown).replace("%", "%%"),
            )
    return parser


def _train(arguments: argparse.Namespace, kind: NetworkKind | None, method: type | None) -> None:
    """Make the training method with each option that is set, and train."""
    from meshstage.launch.ranks import this_rank
    from meshstage.models.owner import refuse_owned
    from meshstage.models.siblings import output_directory
    from meshstage.training.leaving import note_signals

    given = {
        name: setting.parsed(text)
        for name, setting in settings().items()
        if (text := getattr(arguments, name, None)) is not None
    }
    kind = kind or kind_of(arguments.network, Path())
    refuse_foreign(given, kind)
    budget = _TIME_BUDGET.checked(arguments.time_budget)
    # Before imports that take seconds: a signal then is answered at the first step, and a run
    # that somebody owns at once. Ranks that still wait for each other just die of a signal.
    rank = this_rank(os.environ)
    if kind.has_epochs and (rank is None or rank.world_size == 1):
        note_signals()
    numbered = arguments.resume_from is None or arguments.sibling is not None
    if numbered and (rank is None or rank.rank == 0):
        with output_directory(
            arguments.output, arguments.resume_from, arguments.sibling
        ) as directory:
            refuse_owned(directory)
    from meshstage.training.distributed import distributed_context

    trainer = _make(method or load_class(kind.method))
    options = parse_options(getattr(arguments, "options", None) or "{}")
    _set_options(trainer, kind.name, given | options)
    if budget:
        trainer.deadline = STARTED + 60 * budget
    with distributed_context(arguments.device) as context:
        if not context.is_main:
            logging.getLogger("meshstage").setLevel(logging.ERROR)  # rank 0 says it for all
        with contextlib.ExitStack() as stack:
            output = context.decide(
                lambda: stack.enter_context(
                    output_directory(arguments.output, arguments.resume_from, arguments.sibling)
                )
            )
            _train_on(context, trainer, arguments, output)


def _set_options(trainer: Any, network: str, options: Mapping[str, Any]) -> None:
    """Call the setter of each option, or set the attribute where there is no setter."""
    for name, value in options.items():
        setter = getattr(trainer, f"set_{name}", None)
        if setter is None and not hasattr(trainer, name):
            what = f"{network} has neither set_{name} nor an attribute {name}"
            raise InputError(Problem(what, f"remove the option {name}, or give the class one"))
        try:
            setter(value) if setter else setattr(trainer, name, value)
        except (TypeError, ValueError) as error:  # raised by a setter of the user's own
            if isinstance(error, InputError):
                raise
            what = f"{network} does not take {value!r} as its option {name} ({error})"
            raise InputError(Problem(what, "change the value")) from error


def _make(method: type) -> "TrainPhysicsNeMoBase":
    """Make the training method; a class of the user's own may not be one."""
    from meshstage.training.base import TrainPhysicsNeMoBase

    name = method.__name__
    if not issubclass(method, TrainPhysicsNeMoBase):
        raise InputError(
            Problem(f"{name} is no training method", "derive it from TrainPhysicsNeMoBase")
        )
    try:
        return method()
    except TypeError as error:  # a method of the base class is missing, or it wants arguments
        raise InputError(Problem(f"{name} cannot be made: {error}", "mend it")) from error


def _train_on(
    context: "DistributedContext",
    trainer: "TrainPhysicsNeMoBase",
    arguments: argparse.Namespace,
    output: Path,
) -> None:
    """Read the samples, train, and leave a rank's traceback where it can be found."""
    import torch

    from meshstage.cohort.statistics import read_statistics
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.errors import ContinueLater
    from meshstage.training.samples import PhaseSampleDataset

    report = output / f"traceback_rank_{context.rank}.txt"
    try:
        report.unlink(missing_ok=True)
        template = load_template(arguments.template)
        val = load_subjects(arguments.val)
        statistics = read_statistics(arguments.stats)
        of_cohort = (0, statistics, template.points)
        trainer.train(
            PhaseSampleDataset(load_subjects(arguments.train), *of_cohort),
            PhaseSampleDataset(val, *of_cohort) if val else None,
            statistics,
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
