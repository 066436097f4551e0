"""Measure how a training step grows with points, samples and hops, and what a second rank gives.

    python tests/benchmarks/growth.py --output growth.json

A base step and steps of twice the points, samples per batch, or hops run in turn; beside the ratio
of their times stands that of their products, counted. Twice of anything should be at most twice the
work: that is the target, to 5 %, for what is counted. It may be less, since edges are encoded once
for all samples of a batch.

Then one step is made by one rank with one thread, by one with two threads, and by two ranks (gloo)
with a thread and half of the batch each: equal work in all.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from alternating import Turns, alternate, verdict
from step_speed import IN_FEATURES, N_TARGET, Variant, inputs, surface

from meshstage.networks import TemplateGraph, build_mesh_graph_net

TOLERANCE = 0.05
COLUMNS = 50  # of the triangulated torus: 30 rows are 1,500 points
ONE, THREADS, RANKS = "1 rank, 1 thread", "1 rank, 2 threads", "2 ranks, 1 thread"


def make(rows: int, batch: int, hops: int, hidden: int, ranks: int = 1) -> Variant:
    """Make a MeshGraphNet's step, with gradients averaged over ranks if asked for."""
    edge_index = surface(rows, COLUMNS)
    n_nodes = rows * COLUMNS
    coordinates, samples, targets = inputs(n_nodes, batch)
    graph = TemplateGraph(edge_index, torch.randn(edge_index.shape[1], 4), n_nodes)
    model: nn.Module = build_mesh_graph_net(
        IN_FEATURES, N_TARGET, processor_size=hops, hidden_dim=hidden
    )
    if ranks > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return Variant(model, lambda: model(coordinates, graph, samples), targets)


def gflop(variant: Variant) -> float:
    """Count the products of a step."""
    with FlopCounterMode(display=False) as counter:
        variant.step()
    return counter.get_total_flops() / 1e9


def grow(settings: dict[str, int], repeats: int) -> list[dict[str, Any]]:
    """Compare the base step with those of twice of one thing."""
    doubled = {"points": "rows", "samples per batch": "batch", "hops": "hops"}
    variants = {"base": make(**settings)}
    for name, key in doubled.items():
        variants[name] = make(**settings | {key: 2 * settings[key]})
    turns = alternate({name: variant.step for name, variant in variants.items()}, repeats)
    counted = {name: gflop(variant) for name, variant in variants.items()}
    return [
        {
            "twice": name,
            "counted": counted[name] / counted["base"],
            "time": turns.ratio(name, "base"),
            "cpu_time": turns.ratio(name, "base", cpu=True),
        }
        for name in doubled
    ]


def _rank(rank: int, folder: str, settings: dict[str, int], repeats: int) -> None:
    """Be one of two ranks: both train in turn with rank 0 alone."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    whole = make(**settings)
    part = make(**settings | {"batch": settings["batch"] // 2, "ranks": 2})

    def alone(threads: int) -> None:
        if rank == 0:
            torch.set_num_threads(threads)
            whole.step()
            torch.set_num_threads(1)

    work = {ONE: lambda: alone(1), THREADS: lambda: alone(2), RANKS: part.step}
    turns = alternate(work, repeats, synchronize=dist.barrier)
    if rank == 0:
        torch.save((turns.wall, turns.cpu), f"{folder}/turns.pt")
    dist.destroy_process_group()


def compare_ranks(settings: dict[str, int], repeats: int) -> list[dict[str, Any]]:
    """Start two ranks; give how much faster than one rank with one thread the others are."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (folder, settings, repeats), nprocs=2)
        turns = Turns(*torch.load(f"{folder}/turns.pt"))
    names = (THREADS, RANKS)
    return [
        {"what": name, "faster": turns.ratio(ONE, name), "ms": turns.median_ms(name)}
        for name in names
    ]


def main() -> int:
    """Print the ratios; exit 1 if counted work is more than linear."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--points", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--hops", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7, help="steps of each variant")
    parser.add_argument("--threads", type=int, default=2, help="of the steps without ranks")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    settings = {
        "rows": max(2, arguments.points // COLUMNS),
        "batch": arguments.batch,
        "hops": arguments.hops,
        "hidden": arguments.hidden,
    }
    print("twice the         counted     time  CPU time")
    rows = grow(settings, arguments.repeats)
    for row in rows:
        numbers = f"{row['counted']:8.3f} {row['time']:8.2f} {row['cpu_time']:9.2f}"
        print(f"{row['twice']:16} {numbers}", flush=True)
    print(f"\n{'faster than ' + ONE:30}")
    ranks = compare_ranks(settings, arguments.repeats)
    for row in ranks:
        print(f"{row['what']:18} {row['faster']:6.2f}")
    missed = [
        f"twice the {row['twice']} counts {row['counted']:.3f} times the products"
        for row in rows
        if abs(row["counted"] / 2 - 1) > TOLERANCE
    ]
    about = {"settings": settings, "threads": arguments.threads}
    return verdict("growth", about | {"growth": rows, "ranks": ranks}, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
