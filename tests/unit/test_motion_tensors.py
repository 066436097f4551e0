"""Motion models in torch predict what their own ``predict`` does."""

from typing import Any

import numpy as np
import pytest
import torch

from judged import MadeSubject, made_statistics
from meshstage.motion.baselines import MODELS
from meshstage.motion.cycle import encode as encode_numpy
from meshstage.motion.cycle import interpolation as interpolate_numpy
from meshstage.training.motion_tensors import MOTION_TENSORS, MotionTensors, encode, interpolation

N_POINTS = 7
FIELDS = np.random.default_rng(5).normal(size=(2, N_POINTS, 3))
# Exact in float32, in which known stages are compared.
STAGES = np.arange(17) / 16


def subjects(n: int, cycle: str) -> list[Any]:
    """Make motions of some mm, curved in the scores and zero at stage 0."""
    stages = np.arange(8) / 8 if cycle == "closed" else np.linspace(0, 1, 9)
    made = []
    for index in range(n):
        scores = np.random.default_rng([7, index]).normal(size=2)
        beat, turn = 1 - np.cos(2 * np.pi * stages), np.sin(2 * np.pi * stages)
        amounts = np.stack([(1 + scores[0]) * beat, scores[1] ** 2 * turn], axis=1)
        targets = np.tensordot(amounts, FIELDS, axes=1).astype(np.float32)
        made.append(MadeSubject(f"s{index}", stages, scores, targets))
    return made


def pair(kind: str, cycle: str, n: int = 9) -> tuple[Any, MotionTensors]:
    train = subjects(n, cycle)
    fitted = MODELS[kind][1].fit(train, made_statistics(train), cycle)
    return fitted, MOTION_TENSORS[kind].of(fitted, cycle)


@pytest.mark.parametrize("cycle", ["closed", "open"])
@pytest.mark.parametrize("kind", list(MOTION_TENSORS))
def test_torch_predicts_what_numpy_does(kind: str, cycle: str) -> None:
    fitted, module = pair(kind, cycle)
    scores = np.array([[0.0, 0.0], [1.5, -0.5], [-3.0, 2.0]])
    for row in scores:
        expected = fitted.predict(row, STAGES)
        found = module(torch.tensor(np.tile(row, (len(STAGES), 1))), torch.tensor(STAGES))
        assert found.dtype == torch.float64
        # What numpy gives is rounded to float32: 2^-24 of motions of at most some 30 mm.
        size = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-7 * size)


@pytest.mark.parametrize("kind", list(MOTION_TENSORS))
def test_a_batch_mixes_subjects_and_stages(kind: str) -> None:
    _, module = pair(kind, "closed")
    scores, stages = torch.randn(6, 2, dtype=torch.float64), torch.rand(6)
    together = module(scores, stages)
    for row in range(6):
        alone = module(scores[row : row + 1], stages[row : row + 1])[0]
        # Sums of some dozens of float64 terms of at most some 100 mm, in another order.
        torch.testing.assert_close(alone, together[row], rtol=0, atol=1e-10)


def test_one_subject_without_modes_is_its_own_mean_in_torch_too() -> None:
    """No mode may be left then."""
    fitted, module = pair("gp", "closed", n=1)
    assert len(fitted.scale) == 0
    found = module(torch.zeros(17, 2), torch.tensor(STAGES))
    np.testing.assert_allclose(found, fitted.predict(np.zeros(2), STAGES), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", list(MOTION_TENSORS))
def test_a_module_can_be_made_again_from_its_state(kind: str) -> None:
    _, module = pair(kind, "closed")
    again = MOTION_TENSORS[kind](module.state_dict(), "closed")
    where = torch.randn(4, 2), torch.rand(4)
    assert torch.equal(again(*where), module(*where))


@pytest.mark.parametrize("kind", list(MOTION_TENSORS))
def test_a_trace_takes_any_batch(kind: str) -> None:
    _, module = pair(kind, "closed")
    batch = torch.export.Dim("batch", min=1)
    example = (torch.zeros(2, 2), torch.zeros(2))
    shapes = ({0: batch}, {0: batch})
    traced = torch.export.export(module, example, dynamic_shapes=shapes).module()
    for n in (1, 5):
        where = torch.randn(n, 2), torch.rand(n)
        torch.testing.assert_close(traced(*where), module(*where), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cycle", ["closed", "open"])
@pytest.mark.parametrize("known", [[0.5], [0.125, 0.25, 0.75], [0.0, 0.5, 1.0]])
def test_interpolation_and_encoding_are_those_of_numpy(known: list[float], cycle: str) -> None:
    if cycle == "closed" and known[-1] == 1.0:
        known = known[:-1]  # a closed cycle's grid has no 1: it is 0
    expected, _ = interpolate_numpy(np.array(known), STAGES, cycle)
    found = interpolation(torch.tensor(known, dtype=torch.float64), torch.tensor(STAGES), cycle)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        encode(torch.tensor(STAGES), 3, cycle), encode_numpy(STAGES, 3, cycle), rtol=0, atol=1e-12
    )


def test_a_known_stage_that_float32_rounds_gets_its_own_value_alone() -> None:
    known = torch.tensor([0.0, 0.1, 0.3], dtype=torch.float64)
    found = interpolation(known, torch.tensor([0.1, 0.3]), "closed")
    assert torch.equal(found, torch.tensor([[0, 1, 0], [0, 0, 1]], dtype=torch.float64))
