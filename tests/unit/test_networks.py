"""The networks over a shared template, against a plain forward in float64 written here.

The plain forward takes one sample after the other, concatenates ``[edge | source | destination]``
for each edge, and averages with a dense matrix: nothing of ours but the parameters.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from meshstage.errors import InputError
from meshstage.networks import (
    TemplateGraph,
    TemplateMeshGraphNet,
    build_fully_connected,
    build_mesh_graph_net,
    edge_block,
    parts,
)

N_NODES, N_SAMPLES, N_SCORES, N_TARGET = 40, 3, 5, 3
IN_FEATURES = 3 + N_SCORES + 1
ISOLATED = 7

# 3 hops of some 10 chained float64 products each, of width 16: rounding stays below 1e-13; a
# swapped source and destination, or a mean at the wrong end, is off by order 1.
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


class Case:
    """A random directed graph with one isolated node, and inputs of three samples."""

    def __init__(self, n_samples: int = N_SAMPLES, dtype: torch.dtype = torch.float64) -> None:
        random = torch.Generator().manual_seed(3)
        ends = torch.randint(0, N_NODES, (2, 150), generator=random)
        ends = ends[:, (ends != ISOLATED).all(dim=0)]
        self.edge_index = torch.unique(ends, dim=1)  # directed: its reverse is another graph
        n_edges = self.edge_index.shape[1]
        self.edge_features = torch.randn(n_edges, 4, generator=random, dtype=dtype)
        self.coordinates = torch.randn(N_NODES, 3, generator=random, dtype=dtype)
        self.samples = torch.randn(n_samples, N_SCORES + 1, generator=random, dtype=dtype)
        self.weights = torch.randn(n_samples, N_NODES, N_TARGET, generator=random, dtype=dtype)
        self.graph = TemplateGraph(self.edge_index, self.edge_features, N_NODES)

    def flattened(self) -> Tensor:
        """``(B * n_nodes, in_features)``, built sample by sample."""
        rows = [
            torch.cat((self.coordinates, sample.expand(N_NODES, -1)), dim=1)
            for sample in self.samples
        ]
        return torch.cat(rows)


@pytest.fixture(autouse=True)
def _several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the edges of these small graphs as those of large ones are, unevenly."""
    monkeypatch.setattr(parts, "NUMBERS_OF_PART", 1024)  # 64 rows of width 16


def random_network(dtype: torch.dtype = torch.float64, **options: int) -> TemplateMeshGraphNet:
    """Make a network whose norms and biases are random too, so that each of them counts."""
    model = build_mesh_graph_net(IN_FEATURES, N_TARGET, hidden_dim=16, **options).to(dtype)
    random = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random, dtype=dtype) * 0.4
    return model


def plain_forward(model: TemplateMeshGraphNet, case: Case) -> Tensor:
    """Run MeshGraphNet of Pfaff et al. (2021), arXiv:2010.03409, a sample at a time."""
    source, destination = case.edge_index
    arrives = torch.zeros(N_NODES, len(source), dtype=case.coordinates.dtype)
    arrives[destination, torch.arange(len(source))] = 1
    average = arrives / arrives.sum(dim=1, keepdim=True).clamp(min=1)
    predictions = []
    for inputs in case.flattened().split(N_NODES):
        nodes = model.node_encoder.model(inputs)
        edges = model.edge_encoder.model(case.edge_features)
        blocks = list(model.processor.processor_layers)
        for edge_block_, node_block in zip(blocks[::2], blocks[1::2], strict=True):
            joined = torch.cat((edges, nodes[source], nodes[destination]), dim=1)
            edges = edges + edge_block_.edge_mlp.model(joined)
            nodes = nodes + node_block.node_mlp.model(torch.cat((average @ edges, nodes), dim=1))
        predictions.append(model.node_decoder.model(nodes))
    return torch.stack(predictions)


def gradients(model: torch.nn.Module, prediction: Tensor, case: Case) -> dict[str, Tensor]:
    """Gradients of one weighted sum of the predictions, by parameter."""
    model.zero_grad()
    (prediction * case.weights).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Compare gradients relative to the largest entry of each parameter's."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert expected.abs().max() > 0, name  # a parameter that takes part
        torch.testing.assert_close(
            ours[name], expected, rtol=0, atol=1e-10 * expected.abs().max().item(), msg=name
        )


@pytest.mark.parametrize("n_samples", [1, N_SAMPLES])
@pytest.mark.parametrize("options", [{}, {"processor_size": 1, "num_layers": 1}, {"num_layers": 3}])
def test_mesh_graph_net_is_the_plain_forward(options: dict[str, int], n_samples: int) -> None:
    case, model = Case(n_samples), random_network(**options)
    expected = plain_forward(model, case)
    expected_gradients = gradients(model, expected, case)
    for inputs in ((case.coordinates, case.graph, case.samples), (case.flattened(), case.graph)):
        prediction = model(*inputs)
        torch.testing.assert_close(prediction, expected, **CLOSE)
        assert_same_gradients(gradients(model, prediction, case), expected_gradients)


def test_gradients_reach_the_inputs() -> None:
    case, model = Case(), random_network()
    inputs = [case.coordinates, case.samples, case.edge_features]
    for tensor in inputs:
        tensor.requires_grad_()
    expected = torch.autograd.grad((plain_forward(model, case) * case.weights).sum(), inputs)
    graph = TemplateGraph(case.edge_index, case.edge_features, N_NODES)
    prediction = model(case.coordinates, graph, case.samples)
    found = torch.autograd.grad((prediction * case.weights).sum(), inputs)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10 * theirs.abs().max().item())


def test_mesh_graph_net_is_physicsnemos_own() -> None:
    """Needs torch_scatter, which a plain install does not have."""
    pytest.importorskip("torch_scatter")
    from physicsnemo.models.meshgraphnet import MeshGraphNet
    from torch_geometric.data import Batch, Data

    case, model = Case(), random_network()
    batch = Batch.from_data_list(
        [Data(edge_index=case.edge_index, num_nodes=N_NODES) for _ in range(N_SAMPLES)]
    )
    theirs = MeshGraphNet.forward(
        model, case.flattened(), case.edge_features.repeat(N_SAMPLES, 1), batch
    )
    ours = model(case.coordinates, case.graph, case.samples)
    # DESIGN asks for 1e-12 relative in float64.
    torch.testing.assert_close(
        ours.flatten(0, 1), theirs, rtol=0, atol=1e-12 * theirs.abs().max().item()
    )


def test_order_of_edges_changes_nothing() -> None:
    case, model = Case(), random_network()
    order = torch.randperm(case.edge_index.shape[1], generator=torch.Generator().manual_seed(1))
    shuffled = TemplateGraph(case.edge_index[:, order], case.edge_features[order], N_NODES)
    torch.testing.assert_close(
        model(case.coordinates, shuffled, case.samples),
        model(case.coordinates, case.graph, case.samples),
        **CLOSE,
    )


def test_graph_without_edges_leaves_nodes_alone() -> None:
    case, model = Case(), random_network()
    case.edge_index = torch.empty(2, 0, dtype=torch.int64)
    case.edge_features = torch.empty(0, 4, dtype=torch.float64)
    graph = TemplateGraph(case.edge_index, case.edge_features, N_NODES)
    prediction = model(case.coordinates, graph, case.samples)
    torch.testing.assert_close(prediction, plain_forward(model, case), **CLOSE)
    (prediction * case.weights).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("segments", [1, 2, 3, 6])
def test_checkpoint_segments_change_no_gradient(segments: int) -> None:
    """Segments of 3 layers part an edge block from its node block."""
    case = Case()
    plain, parted = random_network(), random_network(num_processor_checkpoint_segments=segments)
    inputs = (case.coordinates, case.graph, case.samples)
    expected = gradients(plain, plain(*inputs), case)
    found = gradients(parted, parted(*inputs), case)
    for name, value in expected.items():
        # The same operations on the same numbers: the same bits.
        assert torch.equal(found[name], value), name


def saved_bytes(model: TemplateMeshGraphNet, case: Case) -> int:
    """Bytes that autograd keeps from forward to backward, parameters and inputs included."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(case.coordinates, case.graph, case.samples)
    return sum(storages.values())


def test_checkpoint_segments_save_memory() -> None:
    case = Case()
    kept = saved_bytes(random_network(), case)
    assert saved_bytes(random_network(num_processor_checkpoint_segments=6), case) < 0.5 * kept


def test_segments_that_do_not_divide_are_named_with_those_that_do() -> None:
    with pytest.raises(InputError, match=r"is 4, .* 6 layers .* choose one of 0, 1, 2, 3, 6$"):
        build_mesh_graph_net(IN_FEATURES, N_TARGET, num_processor_checkpoint_segments=4)
    with pytest.raises(InputError, match="is -1"):
        build_mesh_graph_net(IN_FEATURES, N_TARGET, num_processor_checkpoint_segments=-1)


def test_repeats_are_bit_identical() -> None:
    case, model = Case(dtype=torch.float32), random_network(torch.float32)
    first, second = (
        gradients(model, model(case.coordinates, case.graph, case.samples), case) for _ in range(2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_autocast_keeps_sums_and_norms_in_float32() -> None:
    case, model = Case(dtype=torch.float32), random_network(torch.float32)
    inputs = (case.coordinates, case.graph, case.samples)
    expected = model(*inputs)
    expected_gradients = gradients(model, expected, case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prediction = model(*inputs)
        block = model.processor.processor_layers[0].edge_mlp.model
        edges = torch.randn(case.edge_index.shape[1], 1, 16)
        nodes = torch.randn(N_NODES, N_SAMPLES, 16)
        _, mean = edge_block.edge_block(block, edges, nodes, case.graph, keep_edges=False)
    assert mean.dtype == torch.float32
    # bfloat16 carries 8 bits: 4e-3 a rounding, some 30 of them in a row, added as a random walk
    # in norms of order 1: 2 % of the largest value; 10 % leaves room, garbage is off by 100 %.
    assert torch.isfinite(prediction).all()
    assert (prediction - expected).abs().max() < 0.1 * expected.abs().max()
    found = gradients(model, prediction.float(), case)
    ours, theirs = (
        torch.cat([value.flatten() for value in each.values()])
        for each in (found, expected_gradients)
    )
    assert all(value.dtype == torch.float32 for value in found.values())
    assert torch.nn.functional.cosine_similarity(ours, theirs, dim=0) > 0.98


def test_no_value_is_read_on_the_host() -> None:
    """Meta tensors have no values: .item(), nonzero or a branch on a value would raise."""
    case, model = Case(dtype=torch.float32), random_network(torch.float32).to("meta")
    prediction = model(case.coordinates.to("meta"), case.graph.to("meta"), case.samples.to("meta"))
    prediction.square().mean().backward()
    assert prediction.shape == (N_SAMPLES, N_NODES, N_TARGET)


def test_compiler_traces_the_same_function() -> None:
    """The backend aot_eager traces forward and backward as inductor would, without a compiler."""
    case, model = Case(), random_network()
    inputs = (case.coordinates, case.graph, case.samples)
    expected = gradients(model, model(*inputs), case)
    compiled = torch.compile(model, backend="aot_eager")
    assert_same_gradients(gradients(model, compiled(*inputs), case), expected)


@pytest.fixture
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("ranks") / "store"
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_runs_inside_ddp() -> None:
    case, model = Case(), random_network()
    inputs = (case.coordinates, case.graph, case.samples)
    expected = gradients(model, model(*inputs), case)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    assert_same_gradients(gradients(model, wrapped(*inputs), case), expected)


def test_graph_is_no_part_of_the_state() -> None:
    graph = Case().graph
    assert not graph.state_dict()
    assert {name for name, _ in graph.named_buffers()} == {
        "edge_features",
        "source",
        "destination",
        "inverse_degree",
    }


@pytest.mark.parametrize(
    ("edge_index", "edge_features", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, 4), r"\(2, n_edges\), got \(3, 2\)"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4), r"\(3, width\)"),
        (torch.tensor([[0], [4]]), torch.zeros(1, 4), "nodes 0 to 4, .* nodes 0 to 3"),
        (torch.tensor([[-1], [1]]), torch.zeros(1, 4), "nodes -1 to 1"),
    ],
)
def test_graph_rejects_edges_that_do_not_fit(
    edge_index: Tensor, edge_features: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TemplateGraph(edge_index, edge_features, 4)


@pytest.mark.parametrize("numbers", [parts.NUMBERS_OF_PART, 64, 1])
def test_fully_connected_is_the_plain_forward(
    monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    """Whole, in parts that end within a sample, and a node at a time."""
    monkeypatch.setattr(parts, "NUMBERS_OF_PART", numbers)
    case = Case()
    model = build_fully_connected(IN_FEATURES, N_TARGET, layer_size=16, num_layers=5).double()
    x = case.flattened()
    skip = None
    for index in range(5):  # PhysicsNeMo's: the input of every second layer returns two layers on
        linear = model.layers[index].linear
        x = x @ linear.weight.T + linear.bias
        x = x / (1 + torch.exp(-x))
        if index % 2 == 0:
            x, skip = (x, x) if skip is None else (x + skip, x)
    expected = x @ model.final_layer.linear.weight.T + model.final_layer.linear.bias
    expected = expected.view(N_SAMPLES, N_NODES, N_TARGET)
    expected_gradients = gradients(model, expected, case)
    split = model(case.coordinates, case.samples)
    torch.testing.assert_close(split, expected, **CLOSE)
    assert_same_gradients(gradients(model, split, case), expected_gradients)
    torch.testing.assert_close(model(case.flattened()), expected.flatten(0, 1), **CLOSE)


def test_first_weights_are_initialised_as_physicsnemo_does() -> None:
    """The same seed gives the same network, so that a run can be compared with one of theirs."""
    from physicsnemo.models.meshgraphnet import MeshGraphNet

    torch.manual_seed(42)
    ours = build_mesh_graph_net(IN_FEATURES, N_TARGET, processor_size=2, hidden_dim=8)
    torch.manual_seed(42)
    sizes = ("processor", "node_encoder", "edge_encoder", "node_decoder")
    theirs = MeshGraphNet(
        IN_FEATURES,
        4,
        N_TARGET,
        processor_size=2,
        aggregation="mean",
        **{f"hidden_dim_{name}": 8 for name in sizes},
    )
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
