"""Check and time training on a GPU: numbers against float64, speed, memory, waits, compiling.

    tests/benchmarks/gpu_check.sh [FILE]            at most 6 minutes; writes JSON
    python tests/benchmarks/gpu_check.py --device cpu --points 200 --hidden 16 --compile-points

1. Output and gradient of both networks in fp32 and bf16 against the reference step's arithmetic in
   float64 on the CPU, as parts of their size.
2. How often the host waits for the device in a step of the real training loop, by the profiler,
   with targets that are resident and that are not: what 12 steps do more often than 4. Wanted: 0.
3. A step in bf16 against the reference step, which as a plain loop does builds its features on the
   host, copies them and the targets, and reads the loss; and against ours compiled. In turn, with
   the device drained around each. Peak memory is what a step adds to what it found.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells each of its starts

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from alternating import verdict
from gpu_steps import Problem, speed
from surface_cohort import ingest, write_surfaces
from training_loop import open_loop

from meshstage.training.loop import Loop
from meshstage.training.mgn import TrainPhysicsNeMoMGN
from meshstage.training.mlp import TrainPhysicsNeMoMLP

# A mgn of width 128 with 700 points shows on a CPU: output 6e-7, gradient 2e-5 (a few ReLU that
# rounding switches) in fp32; 1e-2 and 3e-2 in bf16. What is computed wrongly differs by its size.
TOLERANCES = {"fp32": 1e-4, "bf16": 6e-2}
ITEMS = ("aten::item", "aten::_local_scalar_dense")
WAITS = {
    *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy"),
    *ITEMS,
}


def errors(problem: Problem, precision: str, device: torch.device) -> dict[str, float]:
    """Compare output and gradient with float64, as parts of their size."""
    cpu = torch.device("cpu")
    exact, model = problem.copy(cpu, torch.float64), problem.copy(device)
    predict = problem.ours(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        output = predict(model)
    wanted = problem.reference(cpu, torch.float64)(exact)
    for predictions in (output.float(), wanted):
        nn.functional.mse_loss(predictions, problem.targets.to(predictions)).backward()
    gradients, exact_gradients = (
        torch.cat([p.grad.flatten().double().cpu() for p in m.parameters() if p.grad is not None])
        for m in (model, exact)
    )
    output, wanted = output.detach().cpu().double(), wanted.detach()
    return {
        "output": float((output - wanted).norm() / wanted.norm()),
        "gradient": float((gradients - exact_gradients).norm() / exact_gradients.norm()),
    }


def waits_a_step(loop: Loop) -> dict[str, float]:
    """Count by name how often the host waits in a step, beside once an epoch."""
    few, many = (_waits(loop, n_steps) for n_steps in (4, 12))
    found = {name: (many[name] - few[name]) / 8 for name in sorted(WAITS)}
    if loop.context.device.type == "cpu":
        # There the kernel of Adam itself reads how many steps each parameter has seen.
        for name in ITEMS:
            found[name] -= len(list(loop.network.parameters()))
    return {name: n for name, n in found.items() if n}


def _waits(loop: Loop, n_steps: int) -> Counter[str]:
    n_samples = len(loop.session.train_feed.dataset)
    order = np.arange(n_steps * loop.trainer.batch_size) % n_samples
    activities = [ProfilerActivity.CPU]
    if loop.context.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        loop._train_steps(order)
    loop.progress.end_epoch(0.0, 0, {})
    return Counter(event.name for event in profiler.events() if event.name in WAITS)


def waits(network: str, hidden: int, n_points: int, device: str) -> dict[str, dict[str, float]]:
    """Train with targets on the device and with targets from the memory map."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        raw = write_surfaces(Path(name) / "raw", 1, 8, n_points)
        cohort = ingest(raw.mesh, raw.manifests, Path(name))
        for place, fraction in (("resident", 0.5), ("mapped", 0.0)):
            trainer = TrainPhysicsNeMoMGN() if network == "mgn" else TrainPhysicsNeMoMLP()
            trainer.set_batch_size(4)
            if isinstance(trainer, TrainPhysicsNeMoMGN):
                trainer.set_hidden_dim(hidden)
            trainer.device_memory_fraction = fraction
            with open_loop(trainer, cohort, Path(name) / f"{place}", device) as loop:
                _waits(loop, 2)  # the first steps allocate, and build what is kept
                found[place] = waits_a_step(loop)
    return found


def line(row: dict[str, Any]) -> str:
    """Lay a row of ``speed`` out."""
    values = {k: f"{v:.3g}" if isinstance(v, float) else str(v) for k, v in row.items()}
    return "  " + "  ".join(f"{name} {value}" for name, value in values.items())


def main() -> int:
    """Run all checks as long as there is time; exit 1 if one fails, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--points", type=int, nargs="+", default=[5800, 180_000])
    parser.add_argument("--compile-points", type=int, nargs="*", default=[5800])
    parser.add_argument("--check-points", type=int, default=700, help="against float64")
    parser.add_argument("--hidden", type=int, default=128, help="mgn; the mlp is 4 times as wide")
    parser.add_argument("--repeats", type=int, default=10, help="steps of each variant")
    parser.add_argument("--seconds", type=float, default=330, help="no check begins later")
    arguments = parser.parse_args()
    end, device = time.monotonic() + arguments.seconds, torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("gpu_check: PyTorch finds no GPU on this machine, so there is nothing to check")
        return 2
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    result: dict[str, Any] = {"card": card, "date": str(date.today()), "torch": torch.__version__}
    print(f"{card}, torch {torch.__version__}, {result['date']}\n\nagainst float64")
    missed = []
    for network in ("mgn", "mlp"):
        problem = Problem(network, arguments.check_points, 4, arguments.hidden)
        for precision, tolerance in TOLERANCES.items():
            found = errors(problem, precision, device)
            result[f"errors_{network}_{precision}"] = found
            text = ", ".join(f"{name} {value:.1e}" for name, value in found.items())
            print(f"  {network} {precision}: {text} (at most {tolerance:.0e})", flush=True)
            if not max(found.values()) <= tolerance:  # not a number is too much as well
                missed.append(f"{network} in {precision} differs from float64 by {text}")
    print("\nwaits of the host in a training step")
    for network in ("mgn", "mlp"):
        by_place = waits(network, arguments.hidden, arguments.check_points, arguments.device)
        result[f"waits_{network}"] = by_place
        print(f"  {network}: {by_place}", flush=True)
        missed += [
            f"{network}, {place}: waits {found}" for place, found in by_place.items() if found
        ]
    print("\na step in bf16")
    result["steps"] = []
    for n_points in arguments.points:
        for network, batch in (("mgn", 4), ("mlp", 32 if n_points < 20_000 else 4)):
            if time.monotonic() > end:
                missed.append(f"no time was left for {network} at {n_points} points")
                continue
            problem = Problem(network, n_points, batch, arguments.hidden)
            compiled = n_points in arguments.compile_points
            row = {"network": network} | speed(problem, device, compiled, arguments.repeats)
            result["steps"].append(row)
            print(line(row), flush=True)
            if "ours_failed" in row:
                missed.append(f"{network} at {n_points} points: {row['ours_failed']}")
    return verdict("gpu_check", result, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
