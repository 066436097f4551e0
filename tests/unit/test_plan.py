"""The order of samples, and who takes which in what step."""

import numpy as np
import pytest

from meshstage.training.plan import epoch_order, epoch_plan, rank_batch


def test_order_is_a_permutation_of_seed_and_epoch_alone():
    orders = {(s, e): tuple(epoch_order(s, e, 50)) for s in (1, 2) for e in (1, 2)}
    assert all(sorted(order) == list(range(50)) for order in orders.values())
    assert len(set(orders.values())) == 4  # 50! permutations: equal ones would be no accident
    assert tuple(epoch_order(1, 2, 50)) == orders[1, 2]


@pytest.mark.parametrize("n_samples", [1, 2, 3, 15, 31, 32])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 4, 40])
def test_ranks_step_as_one_rank_with_their_batches_together(n_samples, world_size, batch_size):
    order = epoch_order(0, 1, n_samples)
    batch = rank_batch(n_samples, batch_size, world_size)
    plans = [epoch_plan(order, batch, rank, world_size) for rank in range(world_size)]
    alone = epoch_plan(order, rank_batch(n_samples, batch_size * world_size, 1))

    assert {len(plan) for plan in plans} == {len(alone)}
    for together, one in zip(zip(*plans, strict=True), alone, strict=True):
        real = np.concatenate([step.indices[: step.n_real] for step in together])
        assert list(real) == list(one.indices[: one.n_real])
        assert {step.n_global for step in together} == {len(real)}
    seen = np.concatenate([step.indices[: step.n_real] for plan in plans for step in plan])
    assert sorted(seen) == list(range(n_samples))


def test_padding_keeps_shapes_and_repeats_a_sample_of_the_same_step():
    """5 samples for 3 ranks with batch 1: the second step has two real ones, the last rank none."""
    order = np.array([4, 2, 0, 3, 1])
    last = [epoch_plan(order, 1, rank, 3)[1] for rank in range(3)]
    assert [(list(step.indices), step.n_real, step.n_global) for step in last] == [
        ([3], 1, 2),
        ([1], 1, 2),
        ([3], 0, 2),
    ]


def test_a_rank_loads_at_most_its_share_of_the_cohort():
    assert rank_batch(n_samples=5, batch_size=32, world_size=2) == 3
    assert rank_batch(n_samples=5, batch_size=2, world_size=2) == 2
