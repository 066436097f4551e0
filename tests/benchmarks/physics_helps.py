"""Measure whether a strain energy helps where data are few and noisy: the table of docs/physics.md.

    python tests/benchmarks/physics_helps.py

Of a demo cohort few subjects train, with noise on every target that training or validation sees.
The same MeshGraphNet learns from them with and without physics, from the same seeds, and both are
judged on test subjects whose motion is known without noise: the models of the last epoch, and
those of the epoch that was best on the (noisy) validation subject.
"""

import dataclasses
import logging
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from meshstage.cohort.demo import make_demo_cohort
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import compute_statistics
from meshstage.cohort.subject import Subject, load_subject
from meshstage.cohort.template import build_template, load_template
from meshstage.mechanics import elasticity
from meshstage.mechanics.elements import find_tetrahedra
from meshstage.prediction.loading import load_predictor
from meshstage.prediction.predictor import Predictor
from meshstage.training.distributed import DistributedContext
from meshstage.training.mgn import TrainPhysicsNeMoMGN
from meshstage.training.physics import TrainPhysicsNeMoPhysicsInformedMotion
from meshstage.training.samples import PhaseSampleDataset

N_TRAIN, N_VAL, N_TEST = 3, 1, 6
N_PHASES, RESOLUTION, COHORT_SEED = 4, 6, 42  # 219 points, 792 tetrahedra
NOISE_MM = 3.0  # each coordinate of each point by itself
SEEDS = (1, 2, 3)
EPOCHS, BATCH, LEARNING_RATE = 300, 3, 3e-3
# The best of 1e-4 with 1e-3 and 1e-3 with 1e-2, on the cohort of seed 7.
LAMBDA_PHYSICS, LAMBDA_VOLUME = 1e-3, 1e-2
EPOCHS_JUDGED: tuple[Literal["best"] | None, ...] = (None, "best")
N_PROCESSES = 2

MEASURES = {
    "rmse": "RMSE, mm",
    "inverted": "inverted elements, % of all",
    "element": "volume error of an element, %",
    "wall": "volume error of the wall, %",
}
TRAINERS = {"mgn": TrainPhysicsNeMoMGN, "physics": TrainPhysicsNeMoPhysicsInformedMotion}


def write_cohort(folder: Path) -> None:
    """Write and ingest a demo cohort."""
    n = N_TRAIN + N_VAL + N_TEST
    make_demo_cohort(folder / "raw", n, N_PHASES, RESOLUTION, COHORT_SEED)
    template = build_template(folder / "raw" / "pca_mean.vtu", folder / "template")
    for index in range(n):
        manifest = folder / "raw" / f"demo-{index + 1:03d}" / "manifest.json"
        ingest_subject(manifest, template, folder / "subjects" / str(index))


def load_cohort(folder: Path) -> tuple[list[Subject], list[Subject], list[Subject]]:
    """Load subjects to train, validate and test; the first two with noise, always the same."""
    subjects = [load_subject(folder / "subjects" / str(k)) for k in range(N_TRAIN + N_VAL + N_TEST)]
    for index, subject in enumerate(subjects[: N_TRAIN + N_VAL]):
        noise = np.random.default_rng([0, index]).standard_normal(subject.targets.shape)
        noisy = subject.targets + (NOISE_MM * noise).astype(np.float32)
        subjects[index] = dataclasses.replace(subject, targets=noisy)
    return subjects[:N_TRAIN], subjects[N_TRAIN:-N_TEST], subjects[-N_TEST:]


def measure(folder: Path, network: str, seed: int) -> list[dict[str, float]]:
    """Train one network, and judge its models of ``EPOCHS_JUDGED`` on the test subjects."""
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    template = load_template(folder / "template")
    train, val, test = load_cohort(folder)
    trainer = TRAINERS[network]()
    trainer.seed = seed
    trainer.set_hidden_dim(32)
    trainer.set_processor_size(1)
    trainer.set_batch_size(BATCH)
    trainer.set_learning_rate(LEARNING_RATE)
    trainer.rmse_log_interval = EPOCHS // 10
    if isinstance(trainer, TrainPhysicsNeMoPhysicsInformedMotion):
        trainer.set_lambda_physics(LAMBDA_PHYSICS)
        trainer.set_lambda_volume(LAMBDA_VOLUME)
    output = folder / f"{network}-{seed}"
    trainer.train(
        PhaseSampleDataset(train),
        PhaseSampleDataset(val),
        compute_statistics(template, train),
        DistributedContext(),
        EPOCHS,
        output,
        template,
        template.points,
    )
    corners = torch.from_numpy(find_tetrahedra(template.cells, template.mesh_path).corners)
    return [judge(load_predictor(output, epoch), test, corners) for epoch in EPOCHS_JUDGED]


def judge(predictor: Predictor, subjects: list[Subject], corners: torch.Tensor) -> dict[str, float]:
    """Compare predictions of a model with the true motion of some subjects.

    Returns
    -------
    dict
        ``rmse`` in mm; in per cent, as means over subjects and phases: ``inverted`` elements,
        ``element``, the mean of |J - true J| over the wall, and ``wall``, the error of its volume.
    """
    rows = []
    for subject in subjects:
        inverse, volumes = elasticity.invert_reference(torch.from_numpy(subject.reference), corners)
        predicted, true = (
            torch.from_numpy(np.array(u, np.float64))
            for u in (predictor.predict(subject.shape_scores, subject.stages), subject.targets)
        )
        ratio, true_ratio = (
            elasticity.volume_ratio(elasticity.deformation_gradient(u, corners, inverse))
            for u in (predicted, true)
        )
        wall, true_wall = (elasticity.body_mean(r, volumes) for r in (ratio, true_ratio))
        rows.append(
            torch.stack(
                [
                    (predicted - true).square().sum(dim=2).mean(dim=1),
                    100 * (ratio <= 0).double().mean(dim=1),
                    100 * elasticity.body_mean((ratio - true_ratio).abs(), volumes),
                    100 * (wall / true_wall - 1).abs(),
                ],
                dim=1,
            )
        )
    square, *others = torch.cat(rows).mean(dim=0).tolist()
    return dict(zip(MEASURES, [square**0.5, *others], strict=True))


def table(results: dict[tuple[str, int], dict[str, float]]) -> str:
    """Write the results as Markdown: a row a measure and network, a column a seed."""
    lines = [
        "| on test subjects | network | " + " | ".join(f"seed {s}" for s in SEEDS) + " | mean |",
        "| --- | --- |" + " --- |" * (len(SEEDS) + 1),
    ]
    for name, title in MEASURES.items():
        means = {}
        for network in TRAINERS:
            values = [results[network, seed][name] for seed in SEEDS]
            means[network] = float(np.mean(values))
            cells = " | ".join(f"{value:.3g}" for value in [*values, means[network]])
            lines.append(f"| {title} | {network} | {cells} |")
        if means["mgn"]:
            change = 100 * (means["physics"] / means["mgn"] - 1)
            lines[-1] = lines[-1].removesuffix("|") + f"({change:+.0f} %) |"
    return "\n".join(lines)


def main() -> None:
    """Make the cohort, train all networks, print the table."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cohort(folder)
        jobs = list(product(TRAINERS, SEEDS))
        # Fresh processes: PyTorch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(N_PROCESSES, mp_context=context) as pool:
            futures = {job: pool.submit(measure, folder, *job) for job in jobs}
            results = {job: future.result() for job, future in futures.items()}
    for index, title in enumerate(("last epoch", "best epoch by validation")):
        print(f"\nModels of the {title}:\n")
        print(table({job: judged[index] for job, judged in results.items()}))
    print(f"\n{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
