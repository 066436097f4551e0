"""Fit mean shape, modes and scores anew on training subjects, and project all others.

Writes template/ and subjects/ as build_template.py and ingest_subject.py do; reads no mesh again.
"""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read, fit, project, write."""
    from meshstage.cohort.refit import refit
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template

    train, others = load_subjects(arguments.train), load_subjects(arguments.others)
    model = refit(load_template(arguments.template), train, others, arguments.output)
    logging.info(
        "%s: %d modes of %d subjects; %d projected",
        arguments.output,
        model.n_modes,
        len(train),
        len(others),
    )


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_template(parser)
    command_line.add_subjects(parser, "--train", "ingested subjects to fit on")
    command_line.add_subjects(parser, "--others", "subjects to project", required=False)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    command_line.run(main, parser)
