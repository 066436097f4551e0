"""Plot the evaluations of one or more runs: error by stage, error by subject, a table.

Writes error_by_stage.png, error_by_subject.png, runs.html and runs.tsv; of a sweep also sweeps.png.
"""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read the evaluations, plot, write."""
    from meshstage.figures.evaluation import (
        page_of_runs,
        plot_error_by_stage,
        plot_error_by_subject,
    )
    from meshstage.figures.style import save_figure
    from meshstage.figures.sweeps import is_sweep, plot_sweeps
    from meshstage.files import write_text
    from meshstage.judging.runs import as_tsv, read_evaluations, table_of_runs

    runs = read_evaluations(arguments.evaluations)
    save_figure(arguments.output / "error_by_stage.png", plot_error_by_stage(runs))
    save_figure(arguments.output / "error_by_subject.png", plot_error_by_subject(runs))
    if is_sweep(runs):
        save_figure(arguments.output / "sweeps.png", plot_sweeps(runs))
    write_text(arguments.output / "runs.html", page_of_runs(runs))
    write_text(arguments.output / "runs.tsv", as_tsv(table_of_runs(runs)))
    logging.info("%s: %d runs", arguments.output, len(runs))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "--evaluations",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="what evaluate.py wrote, one .json file per run, with its .csv file beside it",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    command_line.run(main, parser)
