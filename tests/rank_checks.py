"""What ranks of one training must agree on: run by torchrun, checked by test_distributed.py.

Called as ``torchrun ... rank_checks.py OUTPUT``; rank 0 writes ``OUTPUT/results.json``. Starting
ranks takes seconds, so that one start does everything.
"""

import contextlib
import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from judged import MadeSubject, made_statistics
from meshstage.cohort.template import build_template
from meshstage.errors import ContinueLater, InputError, Problem
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.training import loop
from meshstage.training.distributed import DistributedContext, distributed_context
from small_training import MORE, TrainSmall, make_mgn, make_mlp, make_more, run

FINAL = checkpoint_name("mlp")


class Cohort:
    """Subjects of 1 to 3 phases on a tetrahedron's surface, made up alike on every rank."""

    def __init__(self, folder: Path, phases: list[int]) -> None:
        import pyvista as pv

        from meshstage.meshes.reading import write_mesh

        folder.mkdir(parents=True, exist_ok=True)
        write_mesh(folder / "mean.vtp", pv.Tetrahedron())
        self.template = build_template(folder / "mean.vtp", folder / "template")
        generator = np.random.default_rng(5)
        train = [
            MadeSubject(
                id=f"s{index}",
                stages=np.linspace(0, 1, n + 1)[:n],
                shape_scores=generator.standard_normal(2),
                targets=generator.standard_normal((n, self.template.n_points, 3)).astype("f4"),
            )
            for index, n in enumerate(phases)
        ]
        self.subjects = {"train": train, "val": train[:1]}
        self.statistics = made_statistics(train)


class Recording:
    """Takes the place of the optimizer step: keeps gradients, moves nothing."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def __call__(self, optimizer: Any, parameters: Any, clip_norm: float) -> torch.Tensor:
        self.gradients.append(torch.cat([p.grad.flatten().clone() for p in parameters]))
        optimizer.zero_grad()
        return torch.tensor(False)


def gradients(
    cohort: Cohort, context: DistributedContext, batch: int, output: Path
) -> tuple[list[torch.Tensor], float]:
    """Gradients of each step of one epoch at the same weights, and the epoch's loss."""
    recording, kept = Recording(), loop.optimizer_step
    loop.optimizer_step = recording
    try:
        trainer = TrainSmall(precision="fp64", batch_size=batch)
        _, losses, _ = run(trainer, cohort, output, epochs=1, context=context)
    finally:
        loop.optimizer_step = kept
    return recording.gradients, losses[0]


def check_gradients(context: DistributedContext, output: Path) -> dict[str, Any]:
    """Compare R ranks and batch B with one rank and R * B; the seen samples are the gradients'."""
    results = {}
    for n_samples, batch in ((1, 4), (3, 4), (15, 4), (31, 4), (31, 1)):
        name = f"{n_samples}_{batch}"
        cohort = Cohort(output / f"cohort_{name}_{context.rank}", [1] * n_samples)
        ours, loss = gradients(cohort, context, batch, output / f"ranks_{name}")
        alone = output / f"alone_{name}_{context.rank}"
        total = batch * context.world_size
        theirs, one_loss = gradients(cohort, DistributedContext(), total, alone)
        results[name] = {
            "steps": [len(ours), len(theirs)],
            "worst": max(
                float((a - b).abs().max() / b.abs().max())
                for a, b in zip(ours, theirs, strict=True)
            ),
            "loss": [loss, one_loss],
        }
    return results


def check_rmse(context: DistributedContext, output: Path) -> list[Any]:
    """Evaluate with the samples shared among ranks, and on each rank alone."""
    cohort = Cohort(output / f"rmse_{context.rank}", [2, 3, 2])
    logs = []
    for where, ranks in (("ranks", context), (f"alone_{context.rank}", DistributedContext())):
        # A learning rate that moves nothing visible: the weights are those of the seed.
        trainer = TrainSmall(precision="fp64", learning_rate=1e-30, batch_size=2)
        *_, log = run(trainer, cohort, output / f"rmse_{where}", epochs=1, context=ranks)
        logs.append(log)
    return logs


def interrupt(trainer: TrainSmall, context: DistributedContext) -> None:
    """Send the last rank a signal in its 11th step."""
    forward_batch, steps = trainer.forward_batch, []

    def forward(model: torch.nn.Module, *arguments: Any) -> torch.Tensor:
        # In each step, also where a rank has no real sample; not when ranks are set up.
        if torch.is_grad_enabled() and getattr(model, "module", model).training:
            steps.append(1)
        # Step 3 of epoch 3 with two ranks, 2 of epoch 4 with three: 12 samples of 13.
        if len(steps) == 11 and context.rank == context.world_size - 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return forward_batch(model, *arguments)

    trainer.forward_batch = forward  # type: ignore[method-assign]


def check_exact(context: DistributedContext, output: Path) -> None:
    """4 + 6 epochs and 10; the same cut in the middle by a signal to the last rank alone."""
    cohort = Cohort(output / f"exact_{context.rank}", [2, 3, 2, 3, 3])  # 13 samples
    settings: dict[str, Any] = {"rmse_log_interval": 3, "batch_size": 2}
    run(TrainSmall(**settings), cohort, output / "straight", epochs=10, context=context)
    run(TrainSmall(**settings), cohort, output / "four", epochs=4, context=context)
    last = output / "four" / FINAL
    run(
        TrainSmall(**settings),
        cohort,
        output / "more",
        epochs=10,
        context=context,
        resume_from=last,
    )

    for where in ("cut", "other_ranks"):
        trainer = TrainSmall(**settings)
        interrupt(trainer, context)
        try:
            run(trainer, cohort, output / where, epochs=10, context=context)
        except ContinueLater as error:
            (output / f"left_{where}_{context.rank}.txt").write_text(str(error))
    run(TrainSmall(**settings), cohort, output / "cut", epochs=10, context=context)


def check_learning(context: DistributedContext, output: Path) -> float:
    """Train with all that helps learning: in one go, cut, and alone; give the worst."""
    cohort = Cohort(output / f"learning_{context.rank}", [2, 3, 2, 3, 3])  # 13 samples
    settings: dict[str, Any] = {
        "schedule": "cosine", "weight_decay": 0.1, "score_noise": 0.3, "ema": 0.9,
        "teacher": "gp", "synthetic_subjects": 3, "rmse_log_interval": 3, "precision": "fp64",
    }  # fmt: skip
    straight, cut = output / "learning_straight", output / "learning_cut"
    model, *_ = run(TrainSmall(**settings, batch_size=2), cohort, straight, 10, context=context)
    trainer = TrainSmall(**settings, batch_size=2)
    interrupt(trainer, context)
    with contextlib.suppress(ContinueLater):
        run(trainer, cohort, cut, epochs=10, context=context)
    run(TrainSmall(**settings, batch_size=2), cohort, cut, epochs=10, context=context)
    trainer = TrainSmall(**settings, batch_size=2 * context.world_size)
    alone, *_ = run(trainer, cohort, output / f"learning_alone_{context.rank}", epochs=10)
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def check_networks(context: DistributedContext, output: Path) -> None:
    """Train PhysicsNeMo's networks 4 + 6 epochs and 10, and a MeshGraphNet with segments."""
    cohort = Cohort(output / f"networks_{context.rank}", [2, 3, 2, 3, 3])
    makers = {"mgn": make_mgn, "mlp": make_mlp}
    makers |= {name: functools.partial(make_more, name) for name in MORE}
    for name, make in makers.items():
        straight, four, more = (output / f"{name}_{part}" for part in ("straight", "four", "more"))
        run(make(), cohort, straight, epochs=10, context=context)
        run(make(), cohort, four, epochs=4, context=context)
        last = four / checkpoint_name(name)
        run(make(), cohort, more, epochs=10, context=context, resume_from=last)
    run(make_mgn(segments=2), cohort, output / "mgn_segments", epochs=10, context=context)


def check_skips(context: DistributedContext, output: Path) -> list[float]:
    """Train 31 samples, one per rank and step; of a NaN target the last rank alone hears."""
    cohort = Cohort(output / f"skips_{context.rank}", [1] * 31)
    order = loop.epoch_order(42, 1, 31)
    bad = order[context.world_size * 3 - 1]  # of the third step, the last rank's
    cohort.subjects["train"][bad].targets[:] = np.nan
    trainer = TrainSmall(batch_size=1)
    trainer.max_skipped_fraction = 0.2
    seen: list[float] = []

    class Watching(TrainSmall):
        def _compute_loss(self, *arguments: Any) -> torch.Tensor:
            loss = super()._compute_loss(*arguments)
            seen.append(float(loss.detach()))
            return loss

    trainer = Watching(batch_size=1, max_skipped_fraction=0.2)
    model, losses, _ = run(trainer, cohort, output / "skips", epochs=1, context=context)
    assert np.isnan(seen[2]) == (context.rank == context.world_size - 1), seen
    assert all(torch.isfinite(p).all() for p in model.parameters())
    return losses


def check_decide(context: DistributedContext) -> list[str]:
    """Collect what reaches this rank of what rank 0 decides, or raises."""
    said = [str(context.decide(lambda: f"rank {context.rank} decides"))]
    for error in (
        InputError(Problem("first"), Problem("second"), table="a  b\n1  2"),
        ContinueLater("later"),
    ):

        def fail(error: Exception = error) -> None:
            if context.rank == 0:
                raise error
            raise AssertionError("only rank 0 is asked")

        try:
            context.decide(fail)
        except (InputError, ContinueLater) as caught:
            said.append(f"{type(caught).__name__}: {caught}")
    said.append(str(context.any_of(0b1000 if context.rank == 0 else 0b0011)))
    said.append(str(context.sum(torch.tensor([1.5, context.rank])).tolist()))
    said.append(str(context.sum(torch.zeros(0)).tolist()))
    return said


def everywhere(context: DistributedContext, value: Any) -> list[Any]:
    """Collect a value of each rank."""
    values: list[Any] = [None] * context.world_size
    torch.distributed.all_gather_object(values, value)
    return values


def main(output: Path) -> None:
    with distributed_context("cpu") as context:
        results = {
            "ranks": [context.rank, context.local_rank, context.world_size],
            "gradients": check_gradients(context, output),
            "rmse": check_rmse(context, output),
            "decide": everywhere(context, check_decide(context)),
            "skips": check_skips(context, output),
            "learning": everywhere(context, check_learning(context, output)),
        }
        check_exact(context, output)
        if context.world_size == 2:
            check_networks(context, output)
        state = load_checkpoint(output / "skips" / FINAL)["training_state"]
        results["skipped_steps"] = state["skipped_steps"]
        context.barrier()
        if context.is_main:
            (output / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
