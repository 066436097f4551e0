"""Precision, compilation, recomputed segments: what may change speed and not what is learned."""

import json
import os

import numpy as np
import pytest
import torch
from test_training_exact import make_mgn
from torch import nn

from meshstage.errors import InputError
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.training.compiling import compile_network
from meshstage.training.distributed import DistributedContext
from meshstage.training.inputs import NetworkInputs
from meshstage.training.rmse import root_mean_square_error
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.step import Feed, backward, resolve_precision
from small_training import TrainSmall, run

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def metadata(output):
    return json.loads(next(output.glob("*_metadata.json")).read_text())


def weights(output, tag="mlp"):
    return load_checkpoint(output / checkpoint_name(tag))["model_state_dict"]


def test_auto_is_fp32_on_a_cpu_and_bf16_where_a_gpu_has_it(monkeypatch):
    assert resolve_precision("auto", CPU) == "fp32"
    for has_it, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has_it=has_it: has_it)
        assert resolve_precision("auto", CUDA) == expected


def test_fp64_trains_and_saves_doubles(tiny_cohort, tmp_path):
    """Both precisions learn the same to what float32 rounding makes of 8 steps."""
    _, single, _ = run(TrainSmall(), tiny_cohort, tmp_path / "single", epochs=2)
    _, double, _ = run(TrainSmall(precision="fp64"), tiny_cohort, tmp_path / "double", epochs=2)
    assert {value.dtype for value in weights(tmp_path / "double").values()} == {torch.float64}
    assert metadata(tmp_path / "double")["precision"] == "fp64"
    np.testing.assert_allclose(single, double, rtol=1e-5)
    assert single != double
    # A finished one comes back in its own precision.
    model, *_ = run(TrainSmall(precision="fp64"), tiny_cohort, tmp_path / "double", epochs=2)
    assert torch.equal(model[0].weight, weights(tmp_path / "double")["0.weight"])


@pytest.mark.parametrize("make", [TrainSmall, make_mgn])
def test_bf16_computes_in_bf16_and_keeps_weights_and_loss_in_fp32(tiny_cohort, tmp_path, make):
    """Three digits agree; the eighth bit of bfloat16 is 0.4 % of each product."""
    losses = {}
    for precision in ("fp32", "bf16"):
        trainer = make()
        trainer.precision, trainer.learning_rate = precision, 1e-6
        _, losses[precision], _ = run(trainer, tiny_cohort, tmp_path / precision, epochs=1)
    assert losses["bf16"] != losses["fp32"]
    np.testing.assert_allclose(losses["bf16"], losses["fp32"], rtol=0.02)
    dtypes = {value.dtype for value in weights(tmp_path / "bf16", trainer.model_tag).values()}
    assert dtypes == {torch.float32}


def test_a_share_of_a_double_loss_is_a_double():
    """1/3 in float32 is wrong from the eighth digit on: ranks would not agree to 1e-12."""
    parameter = nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
    backward(parameter * 2, 1 / 3)
    assert float(parameter.grad) == 2 / 3


# ---------------------------------------------------------------- torch.compile


def test_compile_is_off_on_a_cpu_unless_it_is_asked_for(tiny_cohort, tmp_path):
    for choice in ("off", "auto"):
        run(TrainSmall(compile=choice), tiny_cohort, tmp_path / choice, epochs=1)
        assert metadata(tmp_path / choice)["compile"] == "eager"


def test_compile_on_trains_the_same(tiny_cohort, tmp_path, monkeypatch):
    """Inductor's C++ code, which reorders float32 sums, in CI: compiling it takes a minute."""
    if os.environ.get("CI") != "true":
        compile_module = nn.Module.compile
        monkeypatch.setattr(nn.Module, "compile", lambda m: compile_module(m, backend="aot_eager"))
    run(TrainSmall(), tiny_cohort, tmp_path / "eager", epochs=1)
    run(TrainSmall(compile="on"), tiny_cohort, tmp_path / "compiled", epochs=1)
    assert metadata(tmp_path / "compiled")["compile"] == "compiled"
    for key, value in weights(tmp_path / "eager").items():
        torch.testing.assert_close(weights(tmp_path / "compiled")[key], value, rtol=0, atol=1e-5)


def test_compile_on_is_refused_of_a_network_that_cannot(tiny_cohort, tmp_path):
    trainer = TrainSmall(compile="on")
    trainer.set_compile_incompatible("it sorts")
    with pytest.raises(InputError, match=r"cannot be compiled \(it sorts\)"):
        run(trainer, tiny_cohort, tmp_path / "m", epochs=1)


class Compiled(nn.Linear):
    """Stands in for what a compiler makes of a network: other numbers, or an exception."""

    factor = 1.0

    def compile(self):
        if self.factor == 0:
            raise RuntimeError("no compiler here\nand more")
        self._compiled_call_impl = lambda x: nn.Linear.forward(self, x) * self.factor


@pytest.mark.parametrize(
    ("factor", "outcome"),
    [
        (1.0, "compiled"),
        (1.00001, "compiled"),
        (1.01, "eager, since compiling failed (loss or gradients differ"),
        (float("nan"), "eager, since compiling failed (loss or gradients differ"),
        (0.0, "eager, since compiling failed (RuntimeError: no compiler here)"),
    ],
)
def test_auto_compares_with_eager_and_falls_back(factor, outcome):
    """On CUDA only; the comparison itself runs anywhere."""
    network = Compiled(3, 2)
    network.factor = factor
    inputs = torch.randn(5, 3)

    def loss():
        return network(inputs).square().mean()

    eager = float(loss().detach())
    said = compile_network(network, "auto", None, CUDA, "fp32", loss)
    assert said.startswith(outcome)
    assert float(loss().detach()) == pytest.approx(eager * (factor**2 if said == "compiled" else 1))
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_outcome_of_compiling_is_kept_and_warned_of(tiny_cohort, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(
        "meshstage.training.loop.compile_network", lambda *a: "eager, since compiling failed (x)"
    )
    run(TrainSmall(compile="auto"), tiny_cohort, tmp_path / "m", epochs=1)
    assert metadata(tmp_path / "m")["compile"] == "eager, since compiling failed (x)"
    assert "torch.compile: eager, since compiling failed (x)" in caplog.text


# ---------------------------------------------------------------- recomputed segments


@pytest.mark.parametrize("segments", [1, 2, 4])
def test_segments_change_no_bit_of_the_training(tiny_cohort, tmp_path, segments):
    """The same operations run again in the backward pass, in the same order."""
    for number in (0, segments):
        trainer = make_mgn()
        trainer.set_num_processor_checkpoint_segments(number)
        run(trainer, tiny_cohort, tmp_path / str(number), epochs=1)
    for key, value in weights(tmp_path / "0", "mgn").items():
        assert torch.equal(weights(tmp_path / str(segments), "mgn")[key], value)


def test_segments_must_divide_the_layers(tiny_cohort, tmp_path):
    trainer = make_mgn()
    trainer.set_num_processor_checkpoint_segments(3)
    with pytest.raises(InputError, match=r"3, which does not divide the 4 .* choose one of 0, 1"):
        run(trainer, tiny_cohort, tmp_path / "m", epochs=1)


def test_segments_may_change_under_way(tiny_cohort, tmp_path):
    """They are a matter of memory: a resumed run may use others."""
    run(make_mgn(), tiny_cohort, tmp_path / "first", epochs=1)
    trainer = make_mgn()
    trainer.set_num_processor_checkpoint_segments(2)
    final = tmp_path / "first" / checkpoint_name("mgn")
    run(trainer, tiny_cohort, tmp_path / "on", epochs=2, resume_from=final)


# ---------------------------------------------------------------- RMSE


def test_rmse_is_the_documented_formula_in_target_units(tiny_cohort):
    """sqrt(sum over points and components of error^2 / points), over both phases and subjects."""
    dataset = PhaseSampleDataset(tiny_cohort.subjects["val"])
    statistics = tiny_cohort.statistics
    points = tiny_cohort.template.points
    feed = Feed(dataset, NetworkInputs(statistics, points, CPU, torch.float64), 0.5)
    wrong_by = np.array([0.3, -0.4, 1.2])  # mm: 1.3 long
    calls = []

    def predict(pca, stage):
        first = calls[-1] * 4
        exact = dataset.targets(range(first, first + len(stage))).double()
        return (exact + torch.from_numpy(wrong_by)) / statistics.target_scale

    value = root_mean_square_error(
        feed, predict, 4, DistributedContext(), lambda: calls.append(len(calls))
    )
    assert value == pytest.approx(1.3, rel=1e-6)  # targets are float32
    assert len(calls) == 2  # 6 samples in batches of 4
