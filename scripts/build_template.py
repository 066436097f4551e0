"""Prepare the template: the mesh whose points are the nodes, its graph and its shape model."""

import argparse
import logging
from pathlib import Path

from command_line import new_parser, run
from meshstage.meshes.formats import listed_suffixes


def main(arguments: argparse.Namespace) -> None:
    """Read, build and write the template, warn about what is odd."""
    from meshstage.cohort.template import build_template

    template = build_template(
        arguments.mesh, arguments.output, surface=arguments.surface, edges=arguments.edges
    )
    for warning in template.warnings:
        logging.warning("%s: %s", arguments.mesh, warning)
    logging.info(
        "%s: %d points, %d cells, %d edges",
        template.mesh_path,
        template.n_points,
        template.n_cells,
        len(template.pairs),
    )


if __name__ == "__main__":
    parser = new_parser(__doc__)
    parser.add_argument(
        "--mesh",
        type=Path,
        required=True,
        metavar="FILE",
        help=f"template mesh ({listed_suffixes()}); a pca_model.json beside it is its shape model",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--surface", action="store_true", help="use the outer surface of a volume mesh"
    )
    parser.add_argument(
        "--edges",
        choices=["cells", "triangulated"],
        default="cells",
        help="sides of the cells, or of the triangles that they are cut into",
    )
    run(main, parser)
