"""Write an embedded demo cohort: idealised left ventricles that beat by a closed formula."""

import argparse
import logging
from pathlib import Path

from command_line import new_parser, run


def main(arguments: argparse.Namespace) -> None:
    """Write the cohort; every decision lives in the library."""
    from meshstage.cohort.demo import make_demo_cohort

    make_demo_cohort(
        arguments.output,
        n_subjects=arguments.subjects,
        n_phases=arguments.phases,
        resolution=arguments.resolution,
        seed=arguments.seed,
    )
    logging.info(
        "%s: %d subjects with %d phases each",
        arguments.output,
        arguments.subjects,
        arguments.phases,
    )


if __name__ == "__main__":
    parser = new_parser(__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder of the cohort")
    parser.add_argument("--subjects", type=int, default=30, help="number of subjects")
    parser.add_argument("--phases", type=int, default=8, help="phases of each, evenly spaced")
    parser.add_argument(
        "--resolution", type=int, default=8, help="rings from apex to base; 8 gives 387 points"
    )
    parser.add_argument("--seed", type=int, default=42, help="same seed, same cohort")
    run(main, parser)
