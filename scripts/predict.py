"""Predict how subjects move: meshes by stage, from manifests or from shape scores alone."""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Load the model once; read all that is asked before anything is written; predict."""
    from tqdm import tqdm

    from meshstage.prediction.gltf import check_shown, write_cycle
    from meshstage.prediction.loading import load_predictor
    from meshstage.prediction.patient_space import check_alignments, in_patient_space
    from meshstage.prediction.questions import (
        question_of_mesh,
        question_of_scores,
        questions_of_manifests,
        stages_asked,
    )
    from meshstage.prediction.writing import write_prediction
    from meshstage.training.distributed import choose_device

    device = choose_device(arguments.device)
    predictor = load_predictor(arguments.model, arguments.epoch, device)
    if arguments.gltf:
        check_shown(predictor)
    stages = stages_asked(predictor, arguments.stages)
    if arguments.manifest:
        questions = questions_of_manifests(predictor, arguments.manifest, stages)
    elif arguments.reference:
        questions = [question_of_mesh(predictor, arguments.reference, stages, arguments.align)]
    else:
        questions = [question_of_scores(predictor, arguments.pca, stages)]
    space = arguments.space or ("patient" if arguments.reference else "template")
    if space == "patient":
        check_alignments(questions)
    tissue = None
    if arguments.stress:
        from meshstage.prediction.stress import tissue_of

        tissue = tissue_of(predictor)
    for question in tqdm(questions, unit="subject", disable=None):
        for warning in predictor.warnings(question.shape_scores, question.stages):
            logging.warning("subject %s: %s", question.subject_id, warning)
        targets = predictor.predict(question.shape_scores, question.stages)
        deviation = predictor.deviation(question.shape_scores, question.stages)
        if space == "patient":
            question, targets, deviation = in_patient_space(
                question, targets, deviation, predictor.moves_meshes
            )
        animation, meshes = write_prediction(
            arguments.output, predictor, question, targets, tissue, deviation
        )
        if arguments.gltf:
            write_cycle(animation.with_suffix(".glb"), predictor, question, targets)
        logging.info("%s: %d meshes", animation, len(meshes))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_model(parser)
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--manifest", type=Path, nargs="+", metavar="FILE", help="subjects; targets are not needed"
    )
    source.add_argument("--pca", type=Path, metavar="FILE", help="a JSON list of shape scores")
    source.add_argument(
        "--reference",
        type=Path,
        metavar="FILE",
        help="a patient's own undeformed mesh in correspondence, which is scored first",
    )
    command_line.add_align(parser)
    add(
        "--space",
        choices=["template", "patient"],
        help="where the meshes are written: the patient's space undoes the alignment (without it: "
        "patient with --reference, else template)",
    )
    add(
        "--stages",
        type=float,
        nargs="+",
        metavar="S",
        help="stages in [0, 1], or one whole number from 2 on for as many even stages (without "
        "it: the manifest's own, else the training stages)",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="gets one folder per subject")
    add(
        "--stress",
        action="store_true",
        help="write Cauchy and von Mises stress (kPa), J and the first principal stretch on the "
        "cells; the tissue is the model's (without physics: mu 10 kPa, lambda 100 kPa)",
    )
    add(
        "--gltf",
        action="store_true",
        help="write the cycle as one .glb file too, for slides and web pages",
    )
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where to compute")
    command_line.run(main, parser)
