"""Time a training step against the reference step of ``reference_step.py``, alternating.

Both variants run in this one process, one after the other, again and again; a line gives the
median of the ratios. The wall clock is what a user waits; the ratio of CPU times holds on a
machine that others use too. Beside each step stands its floor: its products at the rate of one
large product, plus all other reads and writes at the rate of a large copy.

    python tests/benchmarks/step_speed.py --output step_speed.json
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from alternating import alternate, verdict
from physicsnemo.models.mlp import FullyConnected
from reference_step import host_features, reference_mesh_graph_net, repeat_graph

from meshstage.networks import TemplateGraph, build_fully_connected, build_mesh_graph_net
from meshstage.networks.parts import count_parts

N_SCORES, N_TARGET = 8, 3
IN_FEATURES = 3 + N_SCORES + 1
MESH_SIZES = {700: (25, 28), 1500: (30, 50), 5800: (58, 100)}
LIMITS = {700: 1.7, 1500: 1.7, 5800: 1.5}  # how many times faster than the reference
SAVED = 0.8  # of the reference's saved activations, at most
PRODUCT_SHARE = 0.85  # of the rate of one large product
PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_, torch.ops.aten.bmm}
Step = Callable[[], None]


def surface(n_rows: int, n_columns: int) -> Tensor:
    """Triangulate a torus: (2, 6 * n_nodes), both directions, sorted as PyG sorts."""
    row, column = torch.meshgrid(torch.arange(n_rows), torch.arange(n_columns), indexing="ij")
    ends = [
        torch.stack(
            (
                (row * n_columns + column).flatten(),
                ((row + down) % n_rows * n_columns + (column + right) % n_columns).flatten(),
            )
        )
        for down, right in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1))
    ]
    edges = torch.cat(ends, dim=1)
    return edges[:, torch.argsort(edges[0] * n_rows * n_columns + edges[1])]


class Variant:
    """One network with its optimizer and the way its predictions are made.

    Parameters
    ----------
    model : nn.Module
    predict : () -> (B, n_nodes, n_target) tensor
    targets : (B, n_nodes, n_target) tensor
    """

    def __init__(self, model: nn.Module, predict: Callable[[], Tensor], targets: Tensor) -> None:
        self.model, self.predict, self.targets = model, predict, targets
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step(self) -> None:
        """Make one optimizer step as training does."""
        self.optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(self.predict().float(), self.targets).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def saved_bytes(self) -> int:
        """Bytes kept from forward to backward, parameters left out."""
        parameters = {p.untyped_storage().data_ptr() for p in self.model.parameters()}
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.predict()
        return sum(kept.values())


class Traffic(TorchDispatchMode):
    """Count the bytes that each operation reads and writes, as if nothing stayed in cache.

    Views move nothing; products are left out, because their floor is arithmetic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not func.is_view and func.overloadpacket not in PRODUCTS:
            self.n_bytes += sum(
                leaf.nbytes
                for leaf in tree_leaves((args, kwargs, result))
                if isinstance(leaf, Tensor)
            )
        return result


@dataclass(frozen=True)
class Rates:
    """What the machine reaches on one large product and one large copy, with these threads."""

    product_gflops: float
    copy_gbytes: float


def seconds_of(work: Callable[[], Any], repeats: int) -> float:
    """Take the fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_rates(repeats: int = 10) -> Rates:
    """Multiply 2048 x 2048 matrices and copy 128 MB."""
    matrix, product = torch.randn(2048, 2048), torch.empty(2048, 2048)
    source, copy = torch.randn(2**25), torch.zeros(2**25)
    return Rates(
        2 * 2048**3 / seconds_of(lambda: torch.mm(matrix, matrix, out=product), repeats) / 1e9,
        2 * source.nbytes / seconds_of(lambda: copy.copy_(source), repeats) / 1e9,
    )


def compare(name: str, reference: Variant, ours: Variant, repeats: int) -> dict[str, Any]:
    """Alternate both steps; give medians, their ratios, and our floor."""
    turns = alternate({"reference": reference.step, "ours": ours.step}, repeats)
    rates = measure_rates()
    with FlopCounterMode(display=False) as flops:
        ours.step()
    with Traffic() as traffic:
        ours.step()
    product_ms = flops.get_total_flops() / rates.product_gflops / 1e6
    traffic_ms = traffic.n_bytes / rates.copy_gbytes / 1e6
    saved = {"reference": reference.saved_bytes(), "ours": ours.saved_bytes()}
    return {
        "name": name,
        "ratio": turns.ratio("reference", "ours"),
        "cpu_ratio": turns.ratio("reference", "ours", cpu=True),
        "reference_ms": turns.median_ms("reference"),
        "ours_ms": turns.median_ms("ours"),
        "saved_ratio": saved["ours"] / saved["reference"],
        "saved_mbytes": saved["ours"] / 1e6,
        "gflop": flops.get_total_flops() / 1e9,
        "gbyte": traffic.n_bytes / 1e9,
        "product_floor_ms": product_ms,
        "traffic_floor_ms": traffic_ms,
        **asdict(rates),
    }


def inputs(n_nodes: int, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw coordinates (n_nodes, 3), sample features and targets."""
    return (
        torch.randn(n_nodes, 3),
        torch.randn(batch, N_SCORES + 1),
        torch.randn(batch, n_nodes, N_TARGET),
    )


def mesh_graph_net(n_nodes: int, batch: int, repeats: int) -> dict[str, Any]:
    """Compare MeshGraphNet's steps, hidden 128, 3 hops."""
    edge_index = surface(*MESH_SIZES[n_nodes])
    edge_features = torch.randn(edge_index.shape[1], 4)
    coordinates, samples, targets = inputs(n_nodes, batch)
    model, plain = (build_mesh_graph_net(IN_FEATURES, N_TARGET) for _ in range(2))
    plain.load_state_dict(model.state_dict())
    graph = TemplateGraph(edge_index, edge_features, n_nodes)

    def predict_plainly() -> Tensor:
        graphs = repeat_graph(edge_index, edge_features, n_nodes, batch)
        features = host_features(coordinates, samples)
        return reference_mesh_graph_net(plain, features, graphs).view_as(targets)

    reference = Variant(plain, predict_plainly, targets)
    ours = Variant(model, lambda: model(coordinates, graph, samples), targets)
    torch.testing.assert_close(ours.predict(), reference.predict(), rtol=1e-4, atol=1e-4)
    return compare(f"mgn {n_nodes} points, batch {batch}", reference, ours, repeats)


def fully_connected(n_nodes: int, batch: int, repeats: int) -> dict[str, Any]:
    """Compare the MLP's steps, 512 x 6, and its products with one large one."""
    coordinates, samples, targets = inputs(n_nodes, batch)
    model, plain = (build_fully_connected(IN_FEATURES, N_TARGET) for _ in range(2))
    plain.load_state_dict(model.state_dict())

    def predict_plainly() -> Tensor:
        features = host_features(coordinates, samples)
        return FullyConnected.forward(plain, features).view_as(targets)

    reference = Variant(plain, predict_plainly, targets)
    ours = Variant(model, lambda: model(coordinates, samples), targets)
    torch.testing.assert_close(ours.predict(), reference.predict(), rtol=1e-4, atol=1e-4)
    row = compare(f"mlp {n_nodes} points, batch {batch}", reference, ours, repeats)
    n_parts = count_parts(batch * n_nodes * 512, coordinates.device)
    return row | {"product_share": product_share(batch * n_nodes // n_parts, 512, repeats)}


def product_share(n_rows: int, width: int, repeats: int) -> float:
    """Rate of a hidden layer's three products over that of one large product, alternating."""
    x, gradient, out = (torch.randn(n_rows, width) for _ in range(3))
    weight, weight_gradient = torch.randn(width, width), torch.empty(width, width)
    matrix, product = torch.randn(2048, 2048), torch.empty(2048, 2048)

    def products() -> None:
        torch.mm(x, weight.t(), out=out)
        torch.mm(gradient, weight, out=out)
        torch.mm(gradient.t(), x, out=weight_gradient)

    shares = []
    for _ in range(repeats + 1):
        layer = seconds_of(products, 3) / (3 * n_rows * width**2)
        large = seconds_of(lambda: torch.mm(matrix, matrix, out=product), 3) / 2048**3
        shares.append(large / layer)
    return statistics.median(shares[1:])


HEAD = (
    f"{'step':28} {'ratio':>6} {'of CPU':>6} {'ref. ms':>8} {'ours ms':>8} {'saved':>6} "
    f"{'MB':>6}  floor ms: {'products':>8} {'traffic':>8}  products / large"
)


def line(row: dict[str, Any]) -> str:
    """Lay a row out below ``HEAD``."""
    return (
        f"{row['name']:28} {row['ratio']:6.2f} {row['cpu_ratio']:6.2f} "
        f"{row['reference_ms']:8.0f} {row['ours_ms']:8.0f} {row['saved_ratio']:6.2f} "
        f"{row['saved_mbytes']:6.0f}            {row['product_floor_ms']:8.0f} "
        f"{row['traffic_floor_ms']:8.0f}  {row.get('product_share', float('nan')):.2f}"
    )


def missed_by(row: dict[str, Any]) -> list[str]:
    """Say which of its targets a row misses."""
    wanted = {"ratio": row["limit"], "product_share": PRODUCT_SHARE}
    found = [
        f"{row['name']}: {name} {row[name]:.3f}, wanted {least}"
        for name, least in wanted.items()
        if row.get(name, least) < least
    ]
    if row["name"].startswith("mgn") and row["saved_ratio"] > SAVED:
        found.append(f"{row['name']}: saves {row['saved_ratio']:.2f}, wanted at most {SAVED}")
    return found


def main() -> int:
    """Run the comparisons, print the table; exit 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--points", type=int, nargs="*", default=list(MESH_SIZES))
    parser.add_argument("--mlp-points", type=int, default=1500, help="0 leaves the MLP out")
    parser.add_argument("--repeats", type=int, default=5, help="steps of each variant")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print(HEAD)
    rows = []
    for n_nodes in args.points:
        limit = {"limit": LIMITS.get(n_nodes, 1.0)}
        rows.append(mesh_graph_net(n_nodes, 4, args.repeats) | limit)
        print(line(rows[-1]), flush=True)
    if args.mlp_points:
        rows.append(fully_connected(args.mlp_points, 32, args.repeats) | {"limit": 1.0})
        print(line(rows[-1]))
    result = {"threads": args.threads, "torch": torch.__version__, "machine": platform.processor()}
    missed = [text for row in rows for text in missed_by(row)]
    return verdict("step_speed", result | {"rows": rows}, missed, args.output)


if __name__ == "__main__":
    sys.exit(main())
