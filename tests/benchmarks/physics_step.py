"""Measure what a strain energy costs a training step: with over without physics, at most 1.5.

    python tests/benchmarks/physics_step.py [--device cuda]

A step is the loss of one batch, its gradient, clipping and Adam, as the training loop does them.
Steps with and without physics alternate, so that a busy machine slows both; the ratio is that of
the fastest ones. On a CPU it is processor time that counts, which waiting for others does not
lengthen.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from alternating import verdict

from meshstage.cohort.demo import build_wall, displacement
from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.mechanics import elasticity
from meshstage.mechanics.bodies import Bodies
from meshstage.mechanics.elements import find_tetrahedra
from meshstage.meshes.cells import canonical_cells, mesh_edges
from meshstage.training.inputs import NetworkInputs
from meshstage.training.mgn import TrainPhysicsNeMoMGN
from meshstage.training.objective import Objective
from meshstage.training.physics import TrainPhysicsNeMoPhysicsInformedMotion
from meshstage.training.step import backward, make_optimizer, optimizer_step

# Resolution of the ventricle, and batch: 4 of the large one would take 10 GB.
SIZES = {"the demo's 387 points": (8, 4), "some 20 000 points": (33, 2)}
N_BODIES, N_SCORES = 3, 4
LIMIT = 1.5


def make_step(
    trainer: TrainPhysicsNeMoMGN, template: Template, batch: int, device: torch.device
) -> Callable[[], None]:
    """Make a function that does one training step of a default network."""
    torch.manual_seed(0)
    network = trainer.build_model(3 + N_SCORES + 1, 3).to(device)
    axes, modes = (0.0, 30.0), (0.0, 1.0)  # mean and scale
    statistics = Statistics(
        *([value] * 3 for value in axes),
        *([value] * N_SCORES for value in modes),
        20.0,
        3,
        "motion",
    )
    trainer.inputs = NetworkInputs(statistics, template.points, device, torch.float32)
    terms = []
    if isinstance(trainer, TrainPhysicsNeMoPhysicsInformedMotion):
        term = trainer.make_loss("strain_energy")
        term._bodies, term._target_scale = _bodies(template).to(device, torch.float32), 20.0  # mm
        term._body_of = {"train": (torch.arange(batch) % N_BODIES).to(device)}
        terms.append(term)
    trainer.use_edges(template.edge_index, template.edge_features)
    trainer.setup_inputs(device, template.mesh(), template.points)
    optimizer = make_optimizer(network.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(1)
    pca = torch.randn(batch, N_SCORES, generator=generator).to(device)
    stage = torch.rand(batch, generator=generator).to(device)
    depth = np.zeros(template.n_points)
    moved = [
        displacement(template.points, depth, p, s)
        for p, s in zip(pca.cpu(), stage.tolist(), strict=True)
    ]
    targets = torch.from_numpy(np.stack(moved)).float().to(device) / 20.0
    indices = torch.arange(batch, device=device)
    parameters = list(network.parameters())
    objective = Objective(trainer, terms)

    def step() -> None:
        predictions = trainer.forward_batch(network, pca, stage)
        backward(objective(predictions, targets, indices)[0], 1.0)
        optimizer_step(optimizer, parameters, 1.0)

    return step


def _bodies(template: Template) -> Bodies:
    corners = torch.from_numpy(find_tetrahedra(template.cells, template.mesh_path).corners)
    points = torch.stack([torch.from_numpy(template.points) * s for s in (0.9, 1.0, 1.1)])
    inverse, volumes = elasticity.invert_reference(points, corners)
    return Bodies(corners, inverse.movedim((-2, -1), (1, 2)), volumes, torch.tensor(10.0), 100.0)


def _template(resolution: int) -> Template:
    wall = build_wall(resolution)
    mesh = wall.mesh(wall.points)
    cells = canonical_cells(mesh)
    return Template(
        directory=Path(),
        mesh_path=Path(),
        points=wall.points,
        cells=cells,
        fingerprint=cells.fingerprint(),
        source="",
        edges="cells",
        pairs=mesh_edges(mesh),
    )


def seconds(step: Callable[[], None], device: torch.device) -> float:
    """Time one step, with the work that it left on a GPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    started = clock()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - started


def main() -> int:
    """Print a row a size; exit 1 if a ratio is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=60.0, help="to spend on each size")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.set_num_threads(arguments.threads)
    rows = {}
    for name, (resolution, batch) in SIZES.items():
        template = _template(resolution)
        trainers = (TrainPhysicsNeMoMGN(), TrainPhysicsNeMoPhysicsInformedMotion())
        steps = [make_step(trainer, template, batch, device) for trainer in trainers]
        times: list[list[float]] = [[], []]
        end = time.monotonic() + arguments.seconds
        # The first of each warms up; the fastest of two is beyond it.
        while time.monotonic() < end or len(times[0]) < 2:
            for step, taken in zip(steps, times, strict=True):
                taken.append(seconds(step, device))
        plain, physics = (min(taken) for taken in times)
        rows[name] = {"ratio": physics / plain, "points": template.n_points}
        print(
            f"{name} ({template.n_points} points, {template.n_cells} tetrahedra): "
            f"{1e3 * plain:.1f} ms without, {1e3 * physics:.1f} ms with physics, "
            f"ratio {physics / plain:.3f} (fastest of {len(times[0])} each)",
            flush=True,
        )
    missed = [
        f"{name}: {row['ratio']:.3f}, wanted at most {LIMIT}"
        for name, row in rows.items()
        if row["ratio"] > LIMIT
    ]
    return verdict("physics_step", {"limit": LIMIT, "rows": rows}, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
