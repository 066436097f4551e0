"""Compare two evaluations subject by subject: two runs, or one run at two dates.

Writes comparison.json, and comparison.png: the difference of the two RMSE by subject and by stage;
with --predictions also where on the mesh. Says which run is better, if that is clear.
"""

import argparse
import logging
from dataclasses import asdict, replace
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read both evaluations, compare, write."""
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.errors import InputError
    from meshstage.figures.comparison import plot_comparison, rmse_by_point
    from meshstage.figures.style import save_figure
    from meshstage.files import write_json
    from meshstage.judging.comparison import compare_runs
    from meshstage.judging.runs import read_evaluations

    paths = arguments.evaluations
    runs = [run for path in paths for run in read_evaluations([path])]
    if runs[0].name == runs[1].name:
        runs = [replace(run, name=str(path)) for run, path in zip(runs, paths, strict=True)]
    comparison = compare_runs(*runs, arguments.split)
    on_mesh = [arguments.predictions, arguments.template, arguments.subjects]
    if any(on_mesh) and not all(on_mesh):
        raise InputError("--predictions, --template and --subjects go together; give all three")
    mesh = by_point = None
    if arguments.predictions:
        mesh = load_template(arguments.template).mesh()
        subjects = load_subjects(arguments.subjects)
        subjects = [subject for subject in subjects if subject.id in comparison.by_subject]
        first, second = (rmse_by_point(subjects, folder) for folder in arguments.predictions)
        by_point = first - second
    write_json(arguments.output / "comparison.json", asdict(comparison))
    figure = plot_comparison(comparison, mesh, by_point)
    save_figure(arguments.output / "comparison.png", figure)
    logging.info("%s: %s", arguments.output, comparison.sentence())


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "evaluations", type=Path, nargs=2, metavar="FILE", help="of evaluate.py (.json)"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--split",
        choices=("train", "val", "test"),
        help="of the subjects to compare (without it: test, or the last that there is)",
    )
    parser.add_argument(
        "--predictions", type=Path, nargs=2, metavar="DIR", help="of both runs (predict.py)"
    )
    parser.add_argument("--template", type=Path, metavar="DIR", help="of build_template.py")
    command_line.add_subjects(parser, "--subjects", "subjects that were predicted", required=False)
    command_line.run(main, parser)
