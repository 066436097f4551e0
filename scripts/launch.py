"""Run a training script as one process, as ranks on one node, or on several nodes of a SLURM job.

One process becomes plain Python. On one node, torchrun runs in this process. Inside a SLURM job,
srun first starts this script once per node, so that SLURM's signals reach it.
"""

import argparse
import logging
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import command_line
from meshstage.errors import InputError
from meshstage.launch import plan, processes, slurm
from meshstage.launch.plan import Shape

STARTED = time.monotonic()
SELF = [sys.executable, str(Path(__file__).resolve())]


def main(arguments: argparse.Namespace) -> int:
    """Decide which of the three it is, and start it."""
    # Another "--" further on belongs to the command, and REMAINDER leaves it alone.
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise InputError("nothing to run; write -- and then a Python script with its arguments")
    if arguments.child:
        processes.become_child(command, signal.Signals[arguments.child])
    shape = Shape(arguments.nodes, arguments.gpus_per_node)
    if not arguments.report and (shape.nodes > 1 or slurm.can_start_steps()):
        return _on_nodes(shape, command, arguments.dry_run)
    additions = processes.local_environment(shape, STARTED)
    if shape.nodes == shape.ranks_per_node == 1:
        start, whole = plan.python_command(command), []
    else:
        start = ["torchrun"]
        whole = plan.torchrun_arguments(
            shape, _place(shape, arguments.meet), _as_child(plan.python_command(command))
        )
    if arguments.dry_run:
        print(shlex.join(["env", *(f"{k}={v}" for k, v in additions.items()), *start, *whole]))
        return 0
    os.environ.update(additions)
    if not whole:
        processes.become(start)
    code = processes.run_torchrun(whole)
    if code:
        logging.info("the training %s", plan.describe_code(code))
    if arguments.report:
        slurm.report(arguments.report, code)
    return code


def _place(shape: Shape, meet: str | None) -> list[str]:
    """Tell torchrun whether this node is alone, or which of several it is."""
    if meet is None:
        return plan.standalone()
    return plan.member(shape, plan.node_number(os.environ), meet, slurm.this_job())


def _as_child(command: list[str], death: signal.Signals = signal.SIGKILL) -> list[str]:
    return [*SELF, "--child", death.name, "--", *command]


def _on_nodes(shape: Shape, command: list[str], dry_run: bool) -> int:
    """Start this script once on each node of the job."""
    options: dict[str, object] = {"nodes": shape.nodes, "gpus-per-node": shape.gpus}
    if shape.nodes > 1:
        job = slurm.this_job()
        port = plan.rendezvous_port(job, slurm.is_free_port)
        options["meet"] = f"{slurm.first_node_address(job, shape.nodes)}:{port}"

    def srun(address: str) -> list[str]:
        given = [f"--{name}={value}" for name, value in {**options, "report": address}.items()]
        return plan.srun_command(shape, [*SELF, *given, "--", *command])

    if dry_run:
        print(shlex.join(srun("HOST:PORT")))
        return 0
    # srun that gets SIGTERM ends its tasks; killed outright, it would leave them behind.
    code = slurm.run_on_nodes(shape, lambda address: _as_child(srun(address), signal.SIGTERM))
    if code and shape.nodes > 1:
        logging.info("the training on %d nodes %s", shape.nodes, plan.describe_code(code))
    return code


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    add = parser.add_argument
    add("--nodes", type=int, default=1, help="nodes of the job that this runs in")
    add("--gpus-per-node", type=int, default=0, help="one rank each; 0 or 1: one process per node")
    add("--dry-run", action="store_true", help="print the command that would start")
    # Given by this script to itself.
    add("--meet", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add("--report", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add("--child", metavar="SIGNAL", help=argparse.SUPPRESS)
    add(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="a Python script and its arguments",
    )
    command_line.run(main, parser)
