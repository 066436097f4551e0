"""Measure the memory that ranks share, and how soon they train: 1.2 copies of the targets, 5 s.

    python tests/benchmarks/ranks_memory.py --output ranks_memory.json

Four ranks, started by ``launch.py`` as a user starts them, train a real MLP (of width 4, so that
reading is what takes time) for one epoch on a cohort of 2 GB of targets. In an epoch each rank
reads a quarter of the samples; at its end each reads all the others too, as it does in the course
of a training. Then all stop, and each tells its proportional set size (PSS: a page that four
processes map counts a quarter in each). What counts is the growth of PSS since the libraries were
imported, summed over the ranks: the mapped targets, but also batches, gradients and buffers.

The time is that from the moment at which the last rank had imported its libraries to the moment
at which the last rank began its first epoch. The files are sparse, so making them takes no time;
their pages in memory are as real as others. ``--cache`` makes each rank keep private copies of
that many samples: it shows what PSS says of a program that does.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from alternating import verdict
from surface_cohort import ingest, write_surfaces

from meshstage.cohort.statistics import read_statistics, write_statistics
from meshstage.cohort.subject import SUBJECT_JSON, TARGETS, load_record, load_subjects
from meshstage.cohort.template import load_template
from meshstage.files import write_json
from meshstage.training.distributed import DistributedContext, distributed_context
from meshstage.training.mlp import TrainPhysicsNeMoMLP
from meshstage.training.samples import PhaseSampleDataset

IMPORTED = time.monotonic()  # one clock for all processes of a machine
HERE = Path(__file__).resolve()
MAX_COPIES, MAX_SECONDS = 1.2, 5.0
PHASES = 100  # a subject


def write_cohort(folder: Path, n_points: int, n_bytes: float) -> None:
    """Ingest one subject, then enlarge it to as many as make so many bytes of targets."""
    raw = write_surfaces(folder / "raw", 1, 2, n_points)
    small = ingest(raw.mesh, raw.manifests, folder)
    [subject], shape = small.subjects, (PHASES, small.template.n_points, 3)
    record = load_record(subject.directory)
    many = record.model_copy(
        update={
            "stages": (np.arange(PHASES) / PHASES).tolist(),
            "phases": [record.phases[0].model_copy(update={"index": k}) for k in range(PHASES)],
        }
    )
    write_statistics(folder / "stats.json", small.statistics, small.template, small.subjects)
    for index in range(max(1, round(n_bytes / (4 * np.prod(shape))))):
        home = folder / "large" / f"{index:04d}"
        home.mkdir(parents=True)
        np.lib.format.open_memmap(home / TARGETS, mode="w+", dtype=np.float32, shape=shape)
        (home / "reference.npy").symlink_to(subject.directory / "reference.npy")
        write_json(home / SUBJECT_JSON, many.model_dump())


def pss(only: str = "") -> int:
    """Proportional set size of this process, bytes; or that of mapped files of one name."""
    return sum(size for path, size in _mappings() if path.endswith(only))


def _mappings() -> Iterator[tuple[str, int]]:
    path = ""
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            path = rest[4] if len(rest) > 4 else ""
        elif first == "Pss:":
            yield path, 1024 * int(rest[0])


class _TrainMeasured(TrainPhysicsNeMoMLP):
    """Notes when the first epoch and its first loss came, and PSS once all has been read."""

    def __init__(self, dataset: PhaseSampleDataset) -> None:
        super().__init__()
        self.dataset, self.noted = dataset, dict[str, float]()
        self.set_layer_size(4)
        self.set_num_layers(2)
        self.set_batch_size(4)  # a MeshGraphNet's: what a batch of 32 needs is not the cohort's

    def _on_epoch_start(self, epoch: int, epochs: int) -> None:
        self.noted["epoch"] = time.monotonic()

    def _compute_loss(self, *arguments: Any) -> Tensor:
        self.noted.setdefault("loss", time.monotonic())
        return super()._compute_loss(*arguments)

    def _log_epoch(self, context: DistributedContext, epoch: int, epochs: int) -> None:
        for index in range(len(self.dataset)):
            self.dataset.targets([index])
        context.barrier()
        self.noted |= {"pss": pss(), "pss_of_targets": pss(TARGETS)}
        context.barrier()  # nobody's pages go before all are counted


def train(folder: Path, cache: int) -> None:
    """Be one rank: train an epoch, and leave what was noted."""
    with distributed_context("cpu") as context:
        context.barrier()
        before = pss()
        context.barrier()
        template = load_template(folder / "template")
        subjects = load_subjects(sorted((folder / "large").iterdir()))
        trainer = _TrainMeasured(PhaseSampleDataset(subjects, cache))
        statistics = read_statistics(folder / "stats.json")
        trainer.train(
            trainer.dataset,
            None,
            statistics,
            context,
            1,
            folder / "model",
            template,
            template.points,
        )
    noted = trainer.noted | {"imported": IMPORTED, "before": before}
    write_json(folder / f"rank_{context.rank}.json", noted)


def main() -> int:
    """Make the cohort, start the ranks, add up; exit 1 if they take too much or too long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--gbytes", type=float, default=2.0, help="of targets")
    parser.add_argument("--points", type=int, default=5800)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--cache", type=int, default=0, help="samples that each rank copies")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # makes this a rank
    arguments = parser.parse_args()
    if arguments.folder:
        train(arguments.folder, arguments.cache)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cohort(folder, arguments.points, 1e9 * arguments.gbytes)
        size = sum(path.stat().st_size for path in folder.glob(f"large/*/{TARGETS}"))
        launch = [f"{HERE.parents[2]}/scripts/launch.py", f"--gpus-per-node={arguments.ranks}"]
        rank = [str(HERE), f"--folder={folder}", f"--cache={arguments.cache}"]
        subprocess.run([sys.executable, *launch, "--", *rank], check=True)
        noted = [json.loads(path.read_text()) for path in sorted(folder.glob("rank_*.json"))]
    growth = sum(rank["pss"] - rank["before"] for rank in noted)
    imported = max(rank["imported"] for rank in noted)
    result = {
        "ranks": len(noted),
        "target_gbytes": size / 1e9,
        "copies": growth / size,
        "copies_mapped": sum(rank["pss_of_targets"] for rank in noted) / size,
        "pss_before_gbytes": sum(rank["before"] for rank in noted) / 1e9,
        "epoch_after_s": max(rank["epoch"] for rank in noted) - imported,
        "loss_after_s": max(rank["loss"] for rank in noted) - imported,
    }
    print("ranks  targets GB  copies in all  of them mapped  first epoch s  first loss s")
    print(
        f"{result['ranks']:5} {size / 1e9:11.2f} {result['copies']:14.3f} "
        f"{result['copies_mapped']:15.3f} {result['epoch_after_s']:14.2f} "
        f"{result['loss_after_s']:13.2f}"
    )
    missed = []
    if result["copies"] > MAX_COPIES:
        missed.append(f"{result['copies']:.2f} copies, wanted at most {MAX_COPIES}")
    if result["epoch_after_s"] > MAX_SECONDS:
        missed.append(f"{result['epoch_after_s']:.1f} s, wanted at most {MAX_SECONDS:.0f}")
    return verdict("ranks_memory", result, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
