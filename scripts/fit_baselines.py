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
    from meshstage.motion.baseline_fit import fit_baselines
    from meshstage.motion.baselines import write_baselines

    template = load_template(arguments.template)
    train = load_subjects(arguments.train)
    val = load_subjects(arguments.val)
    baselines = fit_baselines(template, read_statistics(arguments.stats), train, val)
    write_baselines(arguments.output, baselines)
    logging.info(
        "%s: %d stages, %d motion modes, %s",
        arguments.output,
        len(baselines.stages),
        len(baselines.modes),
        baselines.about["ridge"]["note"],
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
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="baselines.json")
    command_line.run(main, parser)
