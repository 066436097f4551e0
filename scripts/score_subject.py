"""Score new patients' meshes: shape scores, alignment and a manifest for predict.py."""

import argparse
import logging
from pathlib import Path

import numpy as np

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Score all meshes before anything is written."""
    from meshstage.errors import InputError, Problem, at, collecting, raise_if_any
    from meshstage.meshes.reading import read_mesh
    from meshstage.preparation.patient import (
        array_of,
        read_shape_space,
        score_mesh,
        write_patient,
    )

    space, found, problems = read_shape_space(arguments.model), {}, list[Problem]()
    for path in arguments.mesh:
        with collecting(problems), at(path):
            if path.stem in found:
                what = f"two of these meshes are called {path.stem}, which names the subject"
                raise InputError(Problem(what, "rename one"))
            mesh = read_mesh(path)
            weights = array_of(mesh, arguments.weights)
            point_ids = array_of(mesh, arguments.point_ids)
            found[path.stem] = (
                score_mesh(space, mesh, arguments.align, weights, point_ids, arguments.noise),
                mesh if weights is None and point_ids is None else None,
            )
    raise_if_any(problems)
    for name, (scored, mesh) in found.items():
        manifest = write_patient(arguments.output, name, space, scored, arguments.align, mesh)
        scores = np.array2string(scored.shape_scores, precision=3, separator=", ")
        logging.info("%s: scores %s, %.3g mm RMS left", manifest, scores, scored.residual)


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    add = parser.add_argument
    add(
        "--model",
        type=Path,
        required=True,
        metavar="DIR",
        help="the model directory whose pca_model.json says what scores mean",
    )
    add(
        "--mesh",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="meshes in correspondence with the template, mm; a file's name is the subject's id",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="gets one folder per subject")
    command_line.add_align(parser)
    add(
        "--weights",
        metavar="ARRAY",
        help="point array of the meshes: how much a point counts, 0 where nothing was seen",
    )
    add(
        "--point-ids",
        metavar="ARRAY",
        help="point array of meshes that are parts: the template's point, from 0, of each point",
    )
    add(
        "--noise",
        type=command_line.positive,
        metavar="MM",
        help="standard deviation of the points' error, against which scores have a unit normal "
        "prior (without it: none for whole meshes, 1 with --weights or --point-ids)",
    )
    command_line.run(main, parser)
