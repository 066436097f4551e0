"""Draw figures and pages: one group of `meshstage.figures.table`."""

import argparse
import logging
from pathlib import Path

import command_line
from meshstage.figures.table import GROUPS, NEEDS


def main(arguments: argparse.Namespace) -> None:
    """Read what the figures need, draw, write."""
    from meshstage.figures.drawing import draw
    from meshstage.figures.given import Given

    group = GROUPS[arguments.group]
    draw(group, Given(vars(arguments)), arguments.output)
    logging.info("%s: %s", arguments.output, ", ".join(group.files))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    groups = parser.add_subparsers(dest="group", required=True, metavar="GROUP")
    for name, group in GROUPS.items():
        one = groups.add_parser(name, help=", ".join(group.files))
        for need in group.needs:
            several = "+" if NEEDS[need].several else None
            one.add_argument(f"--{need}", type=Path, nargs=several, help=NEEDS[need].help)
        one.add_argument("--output", type=Path, required=True, help="folder to write into")
    command_line.run(main, parser)
