"""DeepONet and transformers: PhysicsNeMo's own output, and the whole way of a model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from meshstage.config.runs import read_runs
from meshstage.errors import InputError
from meshstage.prediction.export import export_model
from meshstage.prediction.loading import load_predictor
from meshstage.training.base import TrainPhysicsNeMoBase
from small_models import different_weights
from small_training import MORE, make_more, run

N_NODES, N_SAMPLES, N_FEATURES, N_TARGET = 40, 3, 6, 3

NOT_WRITTEN = {("transolver", ".onnx"), ("geotransolver", ".onnx")}

# Two blocks of some ten chained float64 products of width 16: rounding stays below 1e-13.
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


# ---------------------------------------------------------------- one forward


def random_network(name: str) -> Any:
    """Make a network whose norms and biases are random too, so that each of them counts."""
    model = make_more(name).build_model(3 + N_FEATURES, N_TARGET).double()
    random = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random, dtype=torch.float64) * 0.4
    return model


def random_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates, features of samples, and weights of a loss."""
    random = torch.Generator().manual_seed(3)
    shapes = ((N_NODES, 3), (N_SAMPLES, N_FEATURES), (N_SAMPLES, N_NODES, N_TARGET))
    one, two, three = (torch.randn(s, generator=random, dtype=torch.float64) for s in shapes)
    return one, two, three


def gradients(model: Any, predicted: Tensor, weights: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    (predicted * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(model: Any, found: Tensor, expected: Tensor, weights: Tensor) -> None:
    torch.testing.assert_close(found, expected, **CLOSE)
    ours, theirs = (gradients(model, predicted, weights) for predicted in (found, expected))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["transolver", "flare"])
def test_transformers_give_what_physicsnemo_gives(name) -> None:
    """Their own forward on the same parameters, with the coordinates repeated per sample."""
    model, (nodes, samples, weights) = random_network(name), random_inputs()
    of_points = samples[:, None].expand(-1, N_NODES, -1)
    own = type(model).__bases__[0].forward
    expected = own(model, of_points, embedding=nodes.expand(N_SAMPLES, -1, -1))
    assert_same(model, model(nodes, samples), expected, weights)


def test_geotransolver_gives_what_physicsnemo_gives() -> None:
    """Its own forward; every parameter counts, as ranks need it that average all gradients."""
    model, (nodes, samples, weights) = random_network("geotransolver"), random_inputs()
    repeated = nodes.expand(N_SAMPLES, -1, -1)
    own = type(model).__bases__[0].forward
    expected = own(model, repeated, global_embedding=samples[:, None], geometry=repeated)
    assert_same(model, model(nodes, samples), expected, weights)
    assert (
        gradients(model, model(nodes, samples), weights).keys()
        == dict(model.named_parameters()).keys()
    )


def test_deeponet_is_the_decoded_product_of_branch_and_trunk() -> None:
    """Lu et al. (2021), doi:10.1038/s42256-021-00302-5, a sample and a point at a time."""
    model, (nodes, samples, weights) = random_network("deeponet"), random_inputs()
    rows = [
        model.decoder(model.branch1(sample[None]) * model.trunk(node[None]))
        for sample in samples
        for node in nodes
    ]
    expected = torch.cat(rows).unflatten(0, (N_SAMPLES, N_NODES))
    assert_same(model, model(samples, nodes), expected, weights)


# ---------------------------------------------------------------- the way of a model


@pytest.fixture(scope="module", params=MORE)
def trained(request, tiny_cohort, tmp_path_factory) -> tuple[Any, TrainPhysicsNeMoBase, Path]:
    """Train four epochs; the method and the network are as the training left them."""
    method = make_more(request.param)
    output = tmp_path_factory.mktemp("trained") / str(request.param)
    network, losses, _ = run(method, tiny_cohort, output)
    assert losses[-1] < losses[0]
    return network, method, output


def test_predictor_computes_what_was_trained(trained, tiny_cohort) -> None:
    network, method, output = trained
    predictor = load_predictor(output)
    [subject, *_] = tiny_cohort.subjects["val"]
    scores = np.tile(subject.shape_scores, (len(subject.stages), 1))
    pca, stage = method.inputs.samples(scores, subject.stages)
    with torch.inference_mode():
        batch = method.predict_batch(network, pca, stage)
        rows = method.forward(network, method.inputs.rows(pca, stage), len(stage))
    predicted = predictor.predict(subject.shape_scores, subject.stages)
    scale = predictor.statistics.target_scale
    np.testing.assert_array_equal(predicted, (batch * scale).numpy())
    torch.testing.assert_close(rows, batch.flatten(0, 1), rtol=1e-5, atol=1e-6)  # float32


def test_resuming_gives_the_weights_of_one_go(trained, tiny_cohort, tmp_path) -> None:
    _, method, output = trained
    name, final = output.name, f"{method.tag}_stage_model.pt"
    run(make_more(name), tiny_cohort, tmp_path / "cut", epochs=2)
    run(make_more(name), tiny_cohort, tmp_path / "cut_1", resume_from=tmp_path / "cut" / final)
    assert different_weights(tmp_path / "cut_1" / final, output / final) == []


@pytest.mark.parametrize("ending", [".pt2", ".onnx", ".mdlus"])
def test_exports(trained, tmp_path, ending) -> None:
    """The export itself compares, and refuses another prediction or other weights."""
    path = tmp_path / f"model{ending}"
    if (trained[2].name, ending) in NOT_WRITTEN:
        with pytest.raises(InputError, match=r"torch cannot write .* ONNX; export it as \.pt2"):
            export_model(load_predictor(trained[2]), path)
        assert list(tmp_path.iterdir()) == []
        return
    export_model(load_predictor(trained[2]), path)
    if ending == ".mdlus":
        import physicsnemo

        read = type(physicsnemo.Module.from_checkpoint(str(path)))
        assert f"{read.__module__}.{read.__name__}".startswith("physicsnemo.")


def test_base_and_stage_encoding_go_with_it(trained, tiny_cohort, tmp_path) -> None:
    method = make_more(trained[2].name)
    method.set_base("ridge")
    method.set_stage_encoding("cyclic")
    run(method, tiny_cohort, tmp_path / "m", epochs=1)
    assert method.tag == f"meshstage_{trained[2].name}"
    assert load_predictor(tmp_path / "m").method.base == "ridge"


# ---------------------------------------------------------------- wrong settings


def test_heads_divide_the_width_before_anything_is_trained(tiny_cohort, tmp_path) -> None:
    table = tmp_path / "runs.tsv"
    table.write_text("run\tnetwork\thidden_dim\tnum_heads\na\tflare\t64\t8\nb\tflare\t10\t\n")
    with pytest.raises(InputError, match="line 3: hidden_dim is 10, which num_heads 4"):
        read_runs(table)
    method = make_more("transolver")
    setattr(method, "num_heads", 3)  # noqa: B010  as a user sets it
    with pytest.raises(InputError, match="hidden_dim is 16, which num_heads 3"):
        run(method, tiny_cohort, tmp_path / "m")
    assert not (tmp_path / "m").exists()
