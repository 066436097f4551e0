"""Print how far runs are, from their files alone: epoch, loss, skill so far, time left."""

import argparse
import time
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Print one line per run; again and again with --every, until all have finished."""
    from meshstage.errors import InputError
    from meshstage.models.watch import describe, read_status

    while True:
        problems, finished = [], []
        for model in arguments.models:
            try:
                status = read_status(model)
                print(describe(status), flush=True)
                finished.append(status.state == "finished")
            except InputError as error:  # the others are there all the same
                problems += error.problems
        if problems:
            raise InputError(*problems)
        if not arguments.every or all(finished):
            return
        time.sleep(arguments.every)


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "models", type=Path, nargs="+", metavar="DIR", help="a run, results/{cohort}/models/{run}"
    )
    parser.add_argument(
        "--every", type=float, metavar="SECONDS", help="print again until all have finished"
    )
    command_line.run(main, parser)
