"""Fit the baselines that a model has to beat, on the training subjects.

Writes a JSON file that says how, and beside it, with the ending .npz, the arrays.
"""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read, fit, write."""
    from meshstage.cohort.statistics import read_statistics
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.motion.baselines import fit_baselines, write_baselines

    template = load_template(arguments.template)
    train = load_subjects(arguments.train)
    val = load_subjects(arguments.val)
    baselines = fit_baselines(
        template, read_statistics(arguments.stats), train, val, arguments.cycle
    )
    write_baselines(arguments.output, baselines)
    logging.info(
        "%s: %d stages; ridge on %d motion modes, %s; Gaussian process: took %s",
        arguments.output,
        baselines.about["n_stages"],
        baselines.about["n_modes"],
        baselines.about["ridge"]["note"],
        baselines.about["gp"]["took"],
    )


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_template(parser)
    parser.add_argument(
        "--stats", type=Path, required=True, metavar="FILE", help="what compute_stats.py wrote"
    )
    command_line.add_subjects(parser, "--train", "ingested training subjects")
    command_line.add_subjects(
        parser, "--val", "subjects to give the RMSE of too; not fitted on", required=False
    )
    parser.add_argument(
        "--cycle",
        choices=("closed", "open"),
        default="closed",
        help="closed: the motion comes back, stage 1 is stage 0",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="baselines.json")
    command_line.run(main, parser)
