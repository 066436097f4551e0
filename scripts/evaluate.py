"""Judge a trained model on ingested subjects: metrics, and skill against the baselines.

Which subjects are train and val is what the model's metadata say; all others are test. Writes a
CSV file with one row per subject and phase, and a summary beside it with the ending .json.
"""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read, evaluate, write."""
    from meshstage.cohort.statistics import read_statistics
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.judging.evaluation import Evaluation, evaluate_model, write_evaluation
    from meshstage.judging.summary import sentences
    from meshstage.motion.baselines import read_baselines

    subjects = load_subjects(arguments.subjects)
    baselines = read_baselines(arguments.baselines) if arguments.baselines else None
    digest = read_statistics(arguments.stats).digest() if arguments.stats else None
    template = load_template(arguments.template) if arguments.template else None

    # The network's library takes many seconds to import: not before the rest has been read.
    from meshstage.prediction.loading import load_predictor

    predictor = load_predictor(arguments.model, arguments.epoch, arguments.device)
    evaluation = evaluate_model(predictor, subjects, baselines, arguments.region, digest, template)
    about = {"run": arguments.model.name}
    write_evaluation(arguments.output, Evaluation(evaluation.rows, about | evaluation.summary))
    for sentence in sentences(evaluation.summary):
        logging.info("%s: %s", arguments.model.name, sentence)


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_model(parser)
    command_line.add_subjects(parser, "--subjects", "ingested subjects, of any split")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="a .csv file")
    parser.add_argument(
        "--baselines", type=Path, metavar="FILE", help="baselines.json, of fit_baselines.py"
    )
    parser.add_argument(
        "--stats", type=Path, metavar="FILE", help="stats.json, to be compared with the model's"
    )
    parser.add_argument(
        "--region", metavar="NAME", help="array of the template whose values name regions"
    )
    parser.add_argument(
        "--template",
        type=Path,
        metavar="DIR",
        help="folder that build_template.py wrote, to find regions in (without it: the model's)",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    command_line.run(main, parser)
