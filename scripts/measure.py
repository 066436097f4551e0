"""Measure predicted motion as cardiologists do, beside the truth: volumes and stretches by stage.

Writes measures.csv, and measures.png.
"""

import argparse
import logging
from pathlib import Path

import numpy as np

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Find the cavity on the template, read subjects and predictions, measure, write."""
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.figures.cases import read_prediction
    from meshstage.figures.measures import plot_measures
    from meshstage.figures.style import save_figure
    from meshstage.judging.measures import cavity_of, points_where
    from meshstage.judging.measuring import measure_subjects, write_measures
    from meshstage.judging.metrics import region_points

    mesh = load_template(arguments.template).mesh()
    array, value = arguments.cavity
    regions = {}
    if arguments.region:
        for label, points in region_points(mesh, arguments.region).items():
            regions[f"{arguments.region}_{label}"] = is_in = np.zeros(mesh.n_points, bool)
            is_in[points] = True
    cavity = cavity_of(mesh, points_where(mesh, array, value), regions)
    rows = measure_subjects(
        cavity,
        load_subjects(arguments.subjects),
        lambda subject: read_prediction(arguments.predictions / subject.stem, subject),
    )
    write_measures(arguments.output / "measures.csv", rows)
    save_figure(arguments.output / "measures.png", plot_measures(rows))
    logging.info("%s: %d rows", arguments.output / "measures.csv", len(rows))


def named_value(text: str) -> tuple[str, float]:
    """Read ``ARRAY=VALUE``."""
    array, separator, value = text.rpartition("=")
    try:
        if not separator or not array:
            raise ValueError
        return array, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ARRAY=VALUE") from None


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_template(parser)
    command_line.add_subjects(parser, "--subjects", "subjects that were predicted")
    add = parser.add_argument
    add("--predictions", type=Path, required=True, metavar="DIR", help="of the run (predict.py)")
    add(
        "--cavity",
        type=named_value,
        required=True,
        metavar="ARRAY=VALUE",
        help="array of the template, and its value on the surface that encloses the cavity",
    )
    add("--region", metavar="ARRAY", help="array of the template that names regions")
    add("--output", type=Path, required=True, metavar="DIR", help="gets measures.csv and .png")
    command_line.run(main, parser)
