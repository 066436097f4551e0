"""Write a published shape model as a template (pca_mean.vtp) with its modes (pca_model.json)."""

import argparse
import logging
from pathlib import Path

from command_line import new_parser, run


def main(arguments: argparse.Namespace) -> None:
    """Read the atlas, write one phase of it."""
    from meshstage.errors import InputError, Problem
    from meshstage.preparation.atlas import write_atlas
    from meshstage.preparation.readers import READERS

    reader = READERS[arguments.format]
    assert reader.atlas is not None, "the parser offers atlases only"
    given = {"triangles": arguments.triangles} if arguments.triangles else {}
    atlas = reader.atlas(arguments.source, reader.checked(given))
    phase = arguments.phase or atlas.phases[0]
    if phase not in atlas.phases:
        what = f"the atlas has no phase {phase!r}, it has {', '.join(atlas.phases)}"
        raise InputError(Problem(what, "name one of them", str(arguments.source)))
    path = write_atlas(atlas, phase, arguments.modes, arguments.output)
    logging.info("%s: %s, %d points", path, phase, atlas.mesh.n_points)


if __name__ == "__main__":
    parser = new_parser(__doc__)
    parser.add_argument(
        "--format",
        required=True,
        choices=["uk-digital-heart", "cardiac-atlas"],
        help="whose atlas it is",
    )
    parser.add_argument(
        "--source", type=Path, required=True, metavar="FILE", help="*_mean.vtk, or the .h5 file"
    )
    parser.add_argument(
        "--triangles",
        type=Path,
        metavar="FILE",
        help="triangles of the surface, points counted from 1 (cardiac-atlas)",
    )
    parser.add_argument("--phase", help="ED or ES (without it: the first of the atlas)")
    parser.add_argument(
        "--modes", type=int, metavar="K", help="the first modes only (without it: all)"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    run(main, parser)
