"""Read one subject from its manifest: check it and write its arrays, so that it is parsed once."""

import argparse
import logging
from pathlib import Path

from command_line import new_parser, run


def main(arguments: argparse.Namespace) -> None:
    """Load the template, ingest, say what was found."""
    from meshstage.cohort.ingest import ingest_subject
    from meshstage.cohort.template import load_template

    record = ingest_subject(
        arguments.manifest,
        load_template(arguments.template),
        arguments.output,
        record_errors=arguments.record_errors,
    )
    for problem in (*record.errors, *record.warnings):
        logging.warning("%s: %s", problem.severity, problem.sentence())
    logging.info(
        "%s: subject %s, %d phases, %d errors, %d warnings",
        arguments.output,
        record.label,
        len(record.phases),
        len(record.errors),
        len(record.warnings),
    )


if __name__ == "__main__":
    parser = new_parser(__doc__)
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="JSON")
    parser.add_argument(
        "--template", type=Path, required=True, metavar="DIR", help="written by build_template.py"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--record-errors",
        action="store_true",
        help="keep errors in subject.json for check_cohort.py, instead of exit code 2",
    )
    run(main, parser)
