"""What a training step of each network costs, beside PhysicsNeMo's own forward.

One process, one thread, 4 samples (``--samples``): forward, squared error, backward. A network of
the template is compared in alternation with its own class fed with repeated coordinates. Peak
memory is that of a fresh process per network and size: ``peak_mb`` with libraries and network,
``step_mb`` what its first step adds.

    python tests/benchmarks/network_costs.py --output costs.json --points 700 5800 50000
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

N_SCORES, N_TARGET = 10, 3
NETWORKS = ("mlp", "mgn", "deeponet", "transolver", "flare", "geotransolver")


def main() -> None:
    """Measure each network and size in a process of its own; what stands in the file stays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--points", type=int, nargs="+", default=[700, 5800, 50000])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one, arguments.points[0], arguments.samples, arguments.steps)
        return
    path = arguments.output
    found = json.loads(path.read_text()) if path.is_file() else {}
    for n_points in arguments.points:
        for name in arguments.networks:
            key = f"{name} {n_points} {arguments.samples}"
            if key in found:
                continue
            more = ("--points", n_points, "--samples", arguments.samples, "--one", name)
            command = [sys.executable, __file__, "--output", path, "--steps", arguments.steps]
            answer = subprocess.run(
                [*map(str, (*command, *more))], check=True, capture_output=True, text=True
            )
            found[key] = json.loads(answer.stdout.splitlines()[-1])
            path.write_text(json.dumps(found, indent=1) + "\n")
            print(key, found[key], flush=True)


def measure(name: str, n_points: int, n_samples: int, steps: int) -> None:
    """Print seconds per step, ratio to PhysicsNeMo's own forward, and peak MB, as JSON."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    nodes, samples = torch.randn(n_points, 3), torch.randn(n_samples, N_SCORES + 1)
    ours, theirs, network = make(name, nodes, samples)
    target = torch.zeros(n_samples, n_points, N_TARGET)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def step(forward: Callable[[], Any]) -> float:
        start = time.process_time()
        network.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(forward(), target).backward()
        return time.process_time() - start

    step(ours)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pairs = [(step(ours), step(theirs) if theirs else None) for _ in range(steps)]
    result = {
        "cpu_seconds_per_step": round(statistics.median(one for one, _ in pairs), 4),
        "peak_mb": round(peak / 1024),  # of the whole process, libraries included
        "step_mb": round((peak - before) / 1024),
        "parameters": sum(p.numel() for p in network.parameters()),
    }
    if theirs:
        ratios = [one / other for one, other in pairs if other]
        result["ratio_to_physicsnemo"] = round(statistics.median(ratios), 3)
    print(json.dumps(result))


def make(name: str, nodes: Any, samples: Any) -> tuple[Callable[[], Any], Any, Any]:
    """Give our forward, PhysicsNeMo's (None where it needs torch_scatter), and the network."""
    from meshstage.config.methods import load_class
    from meshstage.config.networks import NETWORKS as ROWS

    method = load_class(ROWS[name].method)()
    network = method.build_model(3 + samples.shape[1], N_TARGET)
    n, b = len(nodes), len(samples)
    repeated = nodes.expand(b, -1, -1)
    features = samples[:, None].expand(-1, n, -1)
    base = type(network).__bases__[0]
    if name == "mgn":
        graph = grid_graph(n)
        return lambda: network(nodes, graph, samples), None, network
    if name == "deeponet":  # theirs has no batch of coordinates: one call per sample
        import torch

        def each() -> Any:
            return torch.cat([network(sample[None], nodes) for sample in samples])

        return lambda: network(samples, nodes), each, network
    if name == "mlp":
        import torch

        def rows() -> Any:
            flat = torch.cat((repeated, features), dim=-1).flatten(0, 1)
            return base.forward(network, flat).unflatten(0, (b, n))

        return lambda: network(nodes, samples), rows, network
    if name == "geotransolver":
        more = {"global_embedding": samples[:, None], "geometry": repeated}
        return (
            lambda: network(nodes, samples),
            lambda: base.forward(network, repeated, **more),
            network,
        )
    return (
        lambda: network(nodes, samples),
        lambda: base.forward(network, features, embedding=repeated),
        network,
    )


def grid_graph(n: int) -> Any:
    """Make edges of a strip of triangles, three per point as on a surface, in both directions."""
    import torch

    from meshstage.networks import TemplateGraph

    width = max(2, int(n**0.5))
    index = np.arange(n)
    pairs = np.concatenate([np.stack((index, (index + k) % n)) for k in (1, width, width + 1)], 1)
    edges = torch.from_numpy(np.concatenate((pairs, pairs[::-1]), axis=1).copy())
    return TemplateGraph(edges, torch.randn(edges.shape[1], 4), n)


if __name__ == "__main__":
    main()
