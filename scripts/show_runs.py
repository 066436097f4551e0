"""Print the table of all runs: training and held-out errors, and where the results lie."""

import argparse
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read the evaluations and print them as one table."""
    from meshstage.files import read_json
    from meshstage.judging.runs_table import runs_table

    print(runs_table([read_json(path) for path in arguments.evaluations]))
    print(f"results: {arguments.evaluations[0].parent.parent}")


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "evaluations", type=Path, nargs="+", metavar="FILE", help="evaluation/{run}.json"
    )
    command_line.run(main, parser)
