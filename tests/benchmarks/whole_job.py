"""Time a whole job, from manifests to a trained model, against a plain loop: 1.4 times or more.

    python tests/benchmarks/whole_job.py --output whole_job.json

Ours is the API (``WorkflowTrainPhysicsNeMo``): template, ingest, check, statistics, training with
its journal, checkpoints and RMSE. The other is ``reference_loop.py``, which parses VTK files each
time that it needs a sample. The cohorts: 12 subjects of 8 phases with about 1,500 points, and the
real hearts of ``heart-surface``, if they lie beside the project (3 subjects, 29 phases in all,
5,810 points). Both train the same network from the same weights on the same batches, so that the
training RMSE of their last epochs must agree within 2 %; that of one validation heart, far from the
two that are trained on, follows the rounding. "If kept" is the ratio that is left against a
reference that keeps in memory what it has parsed once.
"""

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # both on the CPU, wherever this runs

import torch
from alternating import verdict
from reference_loop import Job, ReferenceLoop
from surface_cohort import write_surfaces

from meshstage.training.mgn import TrainPhysicsNeMoMGN
from meshstage.workflow import WorkflowTrainPhysicsNeMo
from shared_data import SHARED

LIMIT, RMSE_TOLERANCE = 1.4, 0.02
SPLITS = ("train_rmse", "val_rmse")


def train_ours(job: Job, output: Path) -> dict[str, float]:
    """Do the job through the API; give the RMSE of both splits."""
    method = TrainPhysicsNeMoMGN()
    method.set_epochs(job.epochs)
    method.set_hidden_dim(job.hidden)
    method.set_processor_size(job.hops)
    method.set_batch_size(job.batch)
    method.set_learning_rate(job.learning_rate)
    method.set_grad_clip_norm(job.clip_norm)
    method.seed = job.seed
    result = WorkflowTrainPhysicsNeMo(
        job.train,
        job.val,
        job.mesh,
        output,
        training_method=method,
        log_level=logging.ERROR,
    ).process()
    last = result["val_rmse_log"][-1]
    return {name: float(last[name] or 0.0) for name in SPLITS}


def compare(job: Job, rounds: int, folder: Path) -> dict[str, Any]:
    """Do the job both ways, in turn; give medians of ratios, and the largest gap of RMSE."""
    turns: list[dict[str, Any]] = []
    for turn in range(rounds):
        start = time.perf_counter()
        loop = ReferenceLoop(job)
        reference = loop.run(folder / "reference.pt")
        between = time.perf_counter()
        ours = train_ours(job, folder / f"ours_{turn}")
        reference_s, ours_s = between - start, time.perf_counter() - between
        turns.append(
            {
                "reference_s": reference_s,
                "ours_s": ours_s,
                "ratio": reference_s / ours_s,
                "ratio_if_kept": (reference_s - loop.vtk.again_s) / ours_s,
                "vtk_share": loop.vtk.seconds / reference_s,
                **{f"{split}_gap": abs(ours[split] / reference[split] - 1) for split in SPLITS},
                "reference": reference,
                "ours": ours,
            }
        )
    names = ("ratio", "ratio_if_kept", "vtk_share", "reference_s", "ours_s")
    medians = {name: statistics.median(turn[name] for turn in turns) for name in names}
    gaps = {f"{split}_gap": max(turn[f"{split}_gap"] for turn in turns) for split in SPLITS}
    return medians | gaps | {"turns": turns}


def surfaces(folder: Path, points: int, n_subjects: int, **settings: int) -> Job:
    """Write the cohort of spheres: two of twelve subjects are for validation."""
    raw = write_surfaces(folder, n_subjects, 8, points)
    n_val = max(1, n_subjects // 6)
    return Job(raw.mesh, raw.manifests[:-n_val], raw.manifests[-n_val:], **settings)


def hearts(folder: Path, **settings: int) -> Job:
    """Take the cohort ``heart-surface`` with its own splits."""
    rows = [line.split("\t") for line in (folder / "subjects.tsv").read_text().splitlines()[1:]]
    train, val = (
        [folder / path for path, split in rows if split == name] for name in ("train", "val")
    )
    return Job(folder / "pca_mean.vtp", train, val, **settings)


def main() -> int:
    """Print one row per cohort; exit 1 if a ratio or an RMSE is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--cohorts", nargs="+", default=["surfaces", "heart-surface"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--points", type=int, default=1500, help="of the surfaces")
    parser.add_argument("--subjects", type=int, default=12, help="of the surfaces")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--hops", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = {name: getattr(arguments, name) for name in ("epochs", "hidden", "hops", "batch")}
    rows: dict[str, Any] = {}
    missed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "warm").mkdir()
        little = {"epochs": 1, "hidden": 8, "hops": 1, "batch": 4}
        compare(surfaces(folder / "little", 100, 2, **little), 1, folder / "warm")
        print(
            "cohort         ratio  if kept  VTK of ref.  reference s   ours s  RMSE train     val"
        )
        for cohort in arguments.cohorts:
            hearts_at = SHARED / "data/cohorts/heart-surface"
            if cohort != "surfaces" and not hearts_at.exists():
                print(f"{cohort}: left out, since {hearts_at} is not here")
                continue
            if cohort == "surfaces":
                job = surfaces(folder / "raw", arguments.points, arguments.subjects, **settings)
            else:
                job = hearts(hearts_at, **settings)
            (folder / cohort).mkdir()
            row = rows[cohort] = compare(job, arguments.rounds, folder / cohort)
            print(
                f"{cohort:14} {row['ratio']:5.2f} {row['ratio_if_kept']:8.2f} "
                f"{row['vtk_share']:12.1%} {row['reference_s']:12.1f} {row['ours_s']:8.1f} "
                f"{row['train_rmse_gap']:12.2%} {row['val_rmse_gap']:7.2%}",
                flush=True,
            )
            if row["ratio"] < LIMIT:
                missed.append(f"{cohort}: {row['ratio']:.2f} times, wanted {LIMIT}")
            if row["train_rmse_gap"] > RMSE_TOLERANCE:
                gap = row["train_rmse_gap"]
                missed.append(f"{cohort}: RMSE differs by {gap:.1%}, wanted {RMSE_TOLERANCE:.0%}")
    about = {"settings": settings, "threads": arguments.threads, "limit": LIMIT}
    return verdict("whole_job", about | {"cohorts": rows}, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
