"""Export a trained model as files that run without this package: .pt2, .onnx, .mdlus."""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Load the model, write each file, say how it compares with the model."""
    from meshstage.prediction.export import export_model
    from meshstage.prediction.loading import load_predictor

    predictor = load_predictor(arguments.model, arguments.epoch)
    for path in arguments.output:
        logging.info("%s: %s", path, export_model(predictor, path))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_model(parser)
    parser.add_argument(
        "--output",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="the ending tells the kind: .pt2 (torch.export) and .onnx take (pca, stage) and give "
        "targets; .mdlus is PhysicsNeMo's, the network alone",
    )
    command_line.run(main, parser)
