"""Training steps on a device for ``gpu_check.py``: ours, ours compiled, and a plain loop's."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from alternating import alternate
from physicsnemo.models.mlp import FullyConnected
from reference_step import host_features, reference_mesh_graph_net, repeat_graph
from step_speed import IN_FEATURES, N_TARGET, Variant, inputs, surface
from torch import Tensor, nn

from meshstage.networks import TemplateGraph, build_fully_connected, build_mesh_graph_net
from meshstage.training.step import backward, make_optimizer, optimizer_step


class Problem:
    """One network and one batch, for ours on the device and the reference step beside it."""

    def __init__(self, network: str, n_points: int, batch: int, hidden: int) -> None:
        torch.manual_seed(0)
        self.network, self.batch = network, batch
        n_rows = max(2, round((n_points / 2) ** 0.5))
        self.edge_index = surface(n_rows, n_points // n_rows)
        self.n_points = n_rows * (n_points // n_rows)
        self.edge_features = torch.randn(self.edge_index.shape[1], 4)
        self.coordinates, self.samples, self.targets = inputs(self.n_points, batch)
        if network == "mgn":
            self.model: nn.Module = build_mesh_graph_net(IN_FEATURES, N_TARGET, hidden_dim=hidden)
        else:
            self.model = build_fully_connected(IN_FEATURES, N_TARGET, layer_size=4 * hidden)

    def ours(self, device: torch.device) -> Callable[[nn.Module], Tensor]:
        """Put on the device what training keeps there; give a function from model to targets."""
        coordinates, samples = self.coordinates.to(device), self.samples.to(device)
        if self.network == "mlp":
            return lambda model: model(coordinates, samples)
        graph = TemplateGraph(self.edge_index, self.edge_features, self.n_points).to(device)
        return lambda model: model(coordinates, graph, samples)

    def reference(
        self, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> Callable[[nn.Module], Tensor]:
        """Give the same function in the reference's arithmetic, from features on the host."""
        graph = repeat_graph(
            self.edge_index.to(device),
            self.edge_features.to(device, dtype),
            self.n_points,
            self.batch,
        )

        def predict(model: nn.Module) -> Tensor:
            features = host_features(self.coordinates, self.samples).to(device, dtype)
            if self.network == "mlp":
                targets = FullyConnected.forward(model, features)
            else:
                targets = reference_mesh_graph_net(model, features, graph)
            return targets.view(self.batch, self.n_points, -1)

        return predict

    def copy(self, device: torch.device, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Make another network with the same weights."""
        return deepcopy(self.model).to(device, dtype)


class Ours(Variant):
    """The step as the training loop makes it: nothing of it is read by the host."""

    def __init__(self, model: nn.Module, predict: Callable[[], Tensor], targets: Tensor) -> None:
        super().__init__(model, predict, targets)
        self.parameters = list(model.parameters())
        self.optimizer = make_optimizer(self.parameters, 1e-3)

    def step(self) -> None:
        """Make one optimizer step."""
        backward(nn.functional.mse_loss(self.predict().float(), self.targets), 1.0)
        optimizer_step(self.optimizer, self.parameters, 1.0)


class Reference(Variant):
    """The step as a plain loop makes it; ``targets`` lie on the host."""

    def step(self) -> None:
        """Make one optimizer step."""
        self.optimizer.zero_grad(set_to_none=True)
        predictions = self.predict().float()
        loss = nn.functional.mse_loss(predictions, self.targets.to(predictions.device))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        float(loss.detach())


def in_bf16(predict: Callable[[nn.Module], Tensor], model: nn.Module, device: torch.device) -> Any:
    """Call a prediction as training does where bf16 is chosen."""
    with torch.autocast(device.type, torch.bfloat16):
        return predict(model)


def steps(problem: Problem, device: torch.device, compiled: bool) -> dict[str, Variant]:
    """Make the variants of a step in bf16."""
    ours, reference, targets = problem.ours(device), problem.reference(device), problem.targets
    models = [problem.copy(device) for _ in range(3)]
    variants: dict[str, Variant] = {
        "reference": Reference(models[0], lambda: in_bf16(reference, models[0], device), targets),
        "ours": Ours(models[1], lambda: in_bf16(ours, models[1], device), targets.to(device)),
    }
    if compiled:
        torch.compiler.reset()
        models[2].compile()
        variants["compiled"] = Ours(
            models[2], lambda: in_bf16(ours, models[2], device), targets.to(device)
        )
    return variants


def speed(
    problem: Problem, device: torch.device, compiled: bool, repeats: int
) -> dict[str, str | float]:
    """Time the variants of a step in turn; what one cannot do stands in place of its numbers."""
    variants = steps(problem, device, compiled)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    row: dict[str, str | float] = {"points": problem.n_points, "batch": problem.batch}
    for name, variant in list(variants.items()):
        try:
            row[f"{name}_gbytes"] = peak_gbytes(variant, device)
        except Exception as error:  # out of memory, or whatever a compiler raises
            row[f"{name}_failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
            del variants[name]
            torch.cuda.empty_cache()
    turns = alternate({n: v.step for n, v in variants.items()}, repeats, 3, synchronize)
    for name in variants:
        row[f"{name}_ms"] = turns.median_ms(name)
    for over, under in (("reference", "ours"), ("ours", "compiled")):
        if over in variants and under in variants:
            row[f"{over}/{under}"] = turns.ratio(over, under)
    return row


def peak_gbytes(variant: Variant, device: torch.device) -> float:
    """Memory that a step adds at its peak; the first, which makes the optimizer's, left out."""
    variant.step()
    if device.type != "cuda":
        return variant.saved_bytes() / 1e9
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    variant.step()
    return (torch.cuda.max_memory_allocated(device) - before) / 1e9
