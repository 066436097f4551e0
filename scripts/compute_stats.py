"""Compute normalisation statistics over the template and the training subjects."""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read the ingested subjects, compute, write one JSON file."""
    from meshstage.cohort.statistics import compute_statistics, write_statistics
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template

    template = load_template(arguments.template)
    train = load_subjects(arguments.train)
    statistics = compute_statistics(template, train)
    write_statistics(arguments.output, statistics, template, train)
    logging.info(
        "%s: %d training subjects, %d shape scores, largest target %.6g",
        arguments.output,
        len(train),
        statistics.n_pca,
        statistics.target_scale,
    )


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_template(parser)
    command_line.add_subjects(parser, "--train", "ingested training subjects")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="stats.json")
    command_line.run(main, parser)
