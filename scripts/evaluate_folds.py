"""Judge each subject by the model of the fold that has not seen it: errors out of fold.

Writes of each fold evaluation/{run}.csv and .json, of its held-out subjects, and of all folds
together the same with a column that names the fold.
"""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read, evaluate fold by fold, write."""
    from dataclasses import replace

    from meshstage.cohort.statistics import read_statistics
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.judging.evaluation import judge_model, write_evaluation
    from meshstage.judging.out_of_fold import held_out, join_folds
    from meshstage.judging.summary import sentences
    from meshstage.motion.baselines import read_baselines
    from meshstage.prediction.loading import load_predictor

    subjects = load_subjects(arguments.subjects)
    template = load_template(arguments.template) if arguments.template else None
    folds = []
    for fold in arguments.folds:
        predictor = load_predictor(fold / "models" / arguments.run, None, arguments.device)
        unseen = held_out(subjects, predictor.metadata)
        own = [fold / "subjects" / subject.stem for subject in unseen]
        if own[0].exists():
            unseen = load_subjects(own)
        baselines = read_baselines(fold / "baselines.json")
        digest = read_statistics(fold / "stats.json").digest()
        judged = judge_model(predictor, unseen, baselines, arguments.region, digest, template)
        folds.append(replace(judged, about={"run": arguments.run, **judged.about}))
        write_evaluation(fold / "evaluation" / f"{arguments.run}.csv", folds[-1].evaluation())
    evaluation = join_folds(folds, subjects)
    write_evaluation(arguments.output, evaluation)
    logging.info("%s out of fold: %s", arguments.run, sentences(evaluation.summary)[-1])


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument("--run", required=True, metavar="NAME", help="a folder of models/")
    parser.add_argument(
        "--folds",
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="folders with stats.json, baselines.json, models/{run}/ and, with a shape model of "
        "their own, subjects/",
    )
    command_line.add_subjects(parser, "--subjects", "all that were dealt to the folds")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="a .csv file, {run}.oof.csv"
    )
    parser.add_argument(
        "--region", metavar="NAME", help="array of the template whose values name regions"
    )
    parser.add_argument("--template", type=Path, metavar="DIR", help="where regions are read")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    command_line.run(main, parser)
