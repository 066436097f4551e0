"""Measure what a training step costs beside its tensor arithmetic: under 1 % of it.

    python tests/benchmarks/host_work.py --output host_work.json

Epochs of the real training loop run on the CPU. Counted as arithmetic is what happens within
forward pass, loss, backward pass and optimizer step; all the rest of an epoch is host work, whether
anybody thought of it or not: order and plan, the batch's targets from the memory map and their
division by the scale, flags, journal, TensorBoard. What is left out: judging (RMSE) and recovery
checkpoints, which come at intervals of their own, and the time in which Python launches the
arithmetic, which on a CPU nothing tells from the arithmetic itself.

Epochs alternate between targets in the memory map, as on every CPU, and targets that are resident
with the network, as on a GPU with room for them. The target is judged on the first.
"""

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from alternating import verdict
from surface_cohort import ingest, write_surfaces
from training_loop import open_loop

from meshstage.training import loop as loop_module
from meshstage.training.loop import Loop
from meshstage.training.mgn import TrainPhysicsNeMoMGN

LIMIT = 0.01


class Stopwatch:
    """Sum up the seconds within some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function, so that its time is counted."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments, **named)
            self.seconds += time.perf_counter() - start
            return result

        return timed


def measure(loop: Loop, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Train epochs, in turn with mapped and resident targets; give seconds of each."""
    feed, dataset = loop.session.train_feed, loop.session.train_feed.dataset
    places = {"mapped": None, "resident": dataset.targets(range(len(dataset)))}
    epochs: dict[str, list[dict[str, float]]] = {name: [] for name in places}
    arithmetic, gather = Stopwatch(), Stopwatch()
    loop.session.predict = arithmetic.time(loop.session.predict)  # type: ignore[method-assign]
    loop.trainer._compute_loss = arithmetic.time(loop.trainer._compute_loss)  # type: ignore
    feed.batch = gather.time(feed.batch)  # type: ignore[method-assign]
    with (
        patch.object(loop_module, "backward", arithmetic.time(loop_module.backward)),
        patch.object(loop_module, "optimizer_step", arithmetic.time(loop_module.optimizer_step)),
    ):
        for _ in range(repeats + 1):
            for name, resident in places.items():
                feed._resident = resident
                arithmetic.seconds = gather.seconds = 0.0
                start = time.perf_counter()
                loop._train_epoch()
                whole = time.perf_counter() - start
                seconds = {"whole": whole, "gather": gather.seconds}
                epochs[name].append(seconds | {"host": whole - arithmetic.seconds})
    return {name: of_place[1:] for name, of_place in epochs.items()}  # the first warms up


def main() -> int:
    """Print a row a place of the targets; exit 1 if the host works 1 % or more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--points", type=int, default=1500)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5, help="epochs of each variant")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    trainer = TrainPhysicsNeMoMGN()
    trainer.set_hidden_dim(arguments.hidden)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = write_surfaces(folder / "raw", 1, arguments.samples, arguments.points)
        cohort = ingest(raw.mesh, raw.manifests, folder)
        with open_loop(trainer, cohort, folder / "model") as loop:
            epochs = measure(loop, arguments.repeats)
    n_steps = -(-arguments.samples // trainer.batch_size)
    print("targets    host / step   gather / step   step ms   host ms   gather ms")
    rows = {}
    for place, seconds in epochs.items():
        row = {
            f"{part}_share": median(epoch[part] / epoch["whole"] for epoch in seconds)
            for part in ("host", "gather")
        }
        for part in ("whole", "host", "gather"):
            row[f"{part}_ms"] = 1e3 * median(epoch[part] for epoch in seconds) / n_steps
        rows[place] = row
        print(
            f"{place:9} {row['host_share']:12.2%} {row['gather_share']:15.2%} "
            f"{row['whole_ms']:9.1f} {row['host_ms']:9.3f} {row['gather_ms']:11.3f}"
        )
    share = rows["mapped"]["host_share"]
    missed = [f"{share:.2%} of a step, wanted under {LIMIT:.0%}"] if share >= LIMIT else []
    about = {"limit": LIMIT, "points": cohort.template.n_points, "threads": arguments.threads}
    return verdict("host_work", about | {"targets": rows}, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
