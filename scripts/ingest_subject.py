"""Read subjects from their manifests: check them and write their arrays, each once."""

import argparse
import logging
from pathlib import Path

from command_line import new_parser, run


def main(arguments: argparse.Namespace) -> None:
    """Load the template, ingest each subject, say what was found."""
    from meshstage.cohort.ingest import ingest_subject
    from meshstage.cohort.template import load_template
    from meshstage.errors import InputError, Problem, raise_if_any

    manifests, folders = arguments.manifest, arguments.output
    if len(manifests) != len(folders):
        what = f"{len(manifests)} manifests and {len(folders)} folders to write"
        raise InputError(Problem(what, "give --output one folder per manifest, in their order"))
    template = load_template(arguments.template)
    found = []
    for manifest, folder in zip(manifests, folders, strict=True):
        try:
            record = ingest_subject(manifest, template, folder, arguments.record_errors)
        except InputError as error:  # the other subjects have theirs to say too
            found += error.problems
            continue
        for problem in (*record.errors, *record.warnings):
            logging.warning("%s: %s", problem.severity, problem.sentence())
        logging.info(
            "%s: subject %s, %d phases, %d errors, %d warnings",
            folder,
            record.label,
            len(record.phases),
            len(record.errors),
            len(record.warnings),
        )
    raise_if_any(found)


if __name__ == "__main__":
    parser = new_parser(__doc__)
    parser.add_argument(
        "--manifest", type=Path, required=True, nargs="+", metavar="FILE", help="JSON"
    )
    parser.add_argument(
        "--template", type=Path, required=True, metavar="DIR", help="written by build_template.py"
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        nargs="+",
        metavar="DIR",
        help="folder to write, one per manifest",
    )
    parser.add_argument(
        "--record-errors",
        action="store_true",
        help="keep errors in subject.json for check_cohort.py, instead of exit code 2",
    )
    run(main, parser)
