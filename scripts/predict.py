"""Predict how subjects move: meshes by stage, from manifests or from shape scores alone."""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Load the model once, predict subject by subject."""
    from tqdm import tqdm

    from meshstage.inference import load_predictor
    from meshstage.manifest import read_manifest, read_shape_scores
    from meshstage.prediction import shape_points, subject_points, write_prediction

    # Everything that can be wrong with the input is found before anything is written.
    manifests = [read_manifest(path, targets_required=False) for path in arguments.manifest or ()]
    scores = [read_shape_scores(manifest.shape_scores_path) for manifest in manifests]
    predictor = load_predictor(arguments.model, arguments.epoch, arguments.device)
    if arguments.pca:
        scores = [read_shape_scores(arguments.pca)]
        jobs = [(arguments.pca.stem, None, shape_points(predictor, scores[0]))]
    else:
        jobs = [(m.stem, m, subject_points(predictor, m)) for m in manifests]
    for (name, manifest, points), pca in tqdm(
        zip(jobs, scores, strict=True), total=len(jobs), disable=None
    ):
        own = [phase.stage for phase in manifest.phases] if manifest else []
        stages = arguments.stages or own or predictor.stages_trained
        for warning in predictor.warnings(pca, stages):
            logging.warning("%s: %s", name, warning)
        targets = predictor.predict(pca, stages)
        path = write_prediction(arguments.output / name, predictor, points, stages, targets, name)
        logging.info("%s: %d stages", path, len(stages))


def _epoch(text: str) -> int | str:
    return text if text == "best" else int(text)


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    add = parser.add_argument
    add(
        "--model",
        type=Path,
        required=True,
        metavar="DIR",
        help="a model directory, also one in progress",
    )
    add("--epoch", type=_epoch, metavar="N|best", help="a kept epoch (without it: the final model)")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--manifest", type=Path, nargs="+", metavar="FILE", help="subjects; targets are not needed"
    )
    source.add_argument("--pca", type=Path, metavar="FILE", help="a JSON list of shape scores")
    add(
        "--stages",
        type=float,
        nargs="+",
        metavar="S",
        help="stages in [0, 1] (without it: the manifest's own, else the training stages)",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="gets one folder a subject")
    add("--device", default="cpu", help="cpu, or cuda")
    command_line.run(main, parser)
