"""Make a page in 3-D, truth beside prediction, to be turned by hand; it needs no network.

Shows the best, the median and the worst held-out subject.
"""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read the cases, write one HTML file."""
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.figures.cases import read_cases
    from meshstage.figures.viewer import viewer_page
    from meshstage.files import write_text
    from meshstage.judging.runs import read_summary
    from meshstage.motion.baselines import read_baselines

    summary = read_summary(arguments.evaluation)
    cases = read_cases(summary, load_subjects(arguments.subjects), arguments.predictions)
    means = None
    if arguments.baselines:
        baselines = read_baselines(arguments.baselines)
        means = [
            baselines.predict(c.subject.shape_scores, c.subject.stages)["stage_mean"] for c in cases
        ]
    mesh = load_template(arguments.template).mesh()
    write_text(arguments.output, viewer_page(mesh, cases, summary["unit"], means))
    logging.info("%s: %d subjects", arguments.output, len(cases))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_template(parser)
    parser.add_argument(
        "--evaluation", type=Path, required=True, metavar="FILE", help="of the run (.json)"
    )
    parser.add_argument(
        "--predictions", type=Path, required=True, metavar="DIR", help="of the run (predict.py)"
    )
    command_line.add_subjects(parser, "--subjects", "ingested subjects that were evaluated")
    parser.add_argument(
        "--baselines", type=Path, metavar="FILE", help="baselines.json: adds the skill"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="an .html file")
    command_line.run(main, parser)
