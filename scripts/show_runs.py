"""Print the table of all runs: training and held-out errors, and where the results lie."""

import argparse
import shutil
import sys
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read the evaluations of one cohort and print them as one table."""
    from meshstage.errors import InputError
    from meshstage.judging.runs import read_evaluations, table_of_runs
    from meshstage.pages import text_table

    folders = sorted({str(path.parent) for path in arguments.evaluations})
    if len(folders) > 1:
        raise InputError(
            f"the evaluations lie in {folders[0]} and {folders[1]}; show one cohort at a time"
        )
    header, body = table_of_runs(read_evaluations(arguments.evaluations), short=True)
    # A terminal gets wrapped cells; a file gets lines that other programs can search.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(text_table([header, *body], width))
    print(f"results: {Path(folders[0]).parent}")


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "evaluations", type=Path, nargs="+", metavar="FILE", help="evaluation/{run}.json"
    )
    command_line.run(main, parser)
