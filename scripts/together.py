"""Run several of these scripts one after the other, in one job that imports what they need once."""

import argparse
import os
import time

import command_line
from meshstage.launch.plan import Shape
from meshstage.launch.processes import local_environment
from meshstage.launch.together import run_together, split_commands

STARTED = time.monotonic()


def main(arguments: argparse.Namespace) -> int:
    """Import, and run each in a fork of this process."""
    os.environ.update(local_environment(Shape(nodes=1, gpus=0), STARTED))
    words = arguments.commands[1:] if arguments.commands[:1] == ["--"] else arguments.commands
    return run_together(split_commands(words, "--then"), arguments.load)


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "--load", nargs="*", default=[], metavar="MODULE", help="what to import before they begin"
    )
    parser.add_argument(
        "commands",
        nargs=argparse.REMAINDER,
        metavar="-- SCRIPT [ARGUMENT ...] [--then SCRIPT ...]",
        help="scripts with their arguments",
    )
    command_line.run(main, parser)
