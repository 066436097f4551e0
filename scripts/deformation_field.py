"""Write predicted motion as displacement fields on the grid of an image, to warp that image."""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read all that is needed, compute a field per phase, write each as soon as it is there."""
    from tqdm import tqdm

    from meshstage.errors import at
    from meshstage.prediction.images import (
        check_overlap,
        displacement_fields,
        read_grid,
        resample,
        to_lps,
        write_image,
    )
    from meshstage.prediction.reading import read_motion

    motion, grid = read_motion(arguments.prediction), read_grid(arguments.image)
    space, output = arguments.mesh_space, arguments.output
    with at(arguments.image):
        check_overlap(to_lps(motion.points, space), grid, space)
    ending = ".nii.gz" if arguments.image.name.lower().endswith((".nii.gz", ".nii")) else ".mha"
    wanted = arguments.directions or ("forward", "inverse")
    with at(arguments.prediction):
        weight, fields = displacement_fields(
            motion, grid, space, arguments.decay, "inverse" in wanted
        )
    write_image(output / f"weight{ending}", resample(weight, grid))
    for name, *both in tqdm(fields, total=len(motion.names), unit="phase", disable=None):
        for direction, field in zip(("forward", "inverse"), both, strict=True):
            if direction in wanted:
                path = output / f"{name}_{direction}{ending}"
                write_image(path, resample(field, grid))
                logging.info("%s", path)


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    add = parser.add_argument
    add(
        "--prediction",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of one subject's predicted meshes, in the image's space",
    )
    add(
        "--image",
        type=Path,
        required=True,
        metavar="FILE",
        help="the image of the organ at rest; only its grid is read",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="gets two fields per phase")
    direction = parser.add_mutually_exclusive_group()
    for name, text in (
        ("forward", "write the fields at rest only: x + u(x) is where x has moved to"),
        ("inverse", "write the fields that resample the image into each phase only"),
    ):
        direction.add_argument(
            f"--{name}", dest="directions", action="store_const", const=(name,), help=text
        )
    add(
        "--mesh-space",
        choices=["lps", "ras"],
        default="lps",
        help="what the meshes' x, y, z are; the fields are LPS as all of ITK's",
    )
    add(
        "--decay",
        type=command_line.positive,
        metavar="MM",
        help="distance from the organ at which motion has faded (without it: 3 times the largest "
        "displacement, at least a tenth of the organ)",
    )
    command_line.run(main, parser)
