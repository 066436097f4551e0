"""Put the settings, data and versions of one or more trained models side by side, as a page."""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read what the models and the check say of themselves, write the page."""
    from meshstage.checks.report import read_report
    from meshstage.figures.parameters import parameters_page, read_metadata
    from meshstage.files import write_text

    names = [model.name for model in arguments.models]
    metadata = [read_metadata(model) for model in arguments.models]
    write_text(arguments.output, parameters_page(names, metadata, read_report(arguments.check)))
    logging.info("%s: %d runs", arguments.output, len(names))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "--models", type=Path, nargs="+", required=True, metavar="DIR", help="finished models"
    )
    parser.add_argument(
        "--check", type=Path, required=True, metavar="FILE", help="cohort.json of the check"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="page: .html")
    command_line.run(main, parser)
