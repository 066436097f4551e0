"""What every script shares: a parser, plain log lines, and one sentence for a user's mistake."""

import argparse
import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from meshstage.errors import EXIT_BAD_INPUT, EXIT_CONTINUE_LATER, ContinueLater, InputError


class _Help(argparse.HelpFormatter):
    """Shows a default where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        shown = action.default not in (None, False, argparse.SUPPRESS) and action.option_strings
        return f"{text} (default: %(default)s)" if shown else text


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """Make a parser that shows defaults and takes ``--debug``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=_Help)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def add_template(parser: argparse.ArgumentParser) -> None:
    """Add ``--template DIR``."""
    parser.add_argument(
        "--template",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder that build_template.py wrote",
    )


def add_subjects(
    parser: argparse.ArgumentParser, option: str, what: str, required: bool = True
) -> None:
    """Add an option that takes folders of ingested subjects."""
    parser.add_argument(
        option,
        type=Path,
        nargs="+" if required else "*",
        required=required,
        default=None if required else [],
        metavar="DIR",
        help=f"{what} (folders that ingest_subject.py wrote)",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add ``--model DIR`` and ``--epoch N|best``."""
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="DIR",
        help="a model directory, also one in progress",
    )
    parser.add_argument(
        "--epoch",
        type=lambda text: int(text) if text.isdecimal() else text,
        metavar="N|best",
        help="a kept epoch (without it: the final model)",
    )


def add_align(parser: argparse.ArgumentParser) -> None:
    """Add ``--align none|rigid|similarity``."""
    parser.add_argument(
        "--align",
        choices=["none", "rigid", "similarity"],
        default="rigid",
        help="how a new mesh is brought to the template: as those of the model's cohort were",
    )


def positive(text: str) -> float:
    """Read a number of an option that must be larger than 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def run(
    main: Callable[[argparse.Namespace], int | None], parser: argparse.ArgumentParser
) -> NoReturn:
    """Parse the command line, call ``main`` and exit: 0, 2 for bad input, 75 to continue later."""
    # An encoding that lacks a character of an id or a path must not end a script.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    try:
        code = main(arguments) or 0
    except InputError as error:
        if arguments.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        code = EXIT_BAD_INPUT
    except ContinueLater as notice:
        print(notice, file=sys.stderr)
        code = EXIT_CONTINUE_LATER
    sys.exit(code)
