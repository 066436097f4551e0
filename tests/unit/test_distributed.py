"""Ranks of one training: the same steps as one rank with their batches together, and no hang."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from test_training_exact import assert_equal_models

from meshstage.errors import InputError
from meshstage.files import read_json
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.names import checkpoint_name
from meshstage.training.distributed import DistributedContext, distributed_context
from rank_checks import Cohort
from small_training import MORE, TrainSmall, arguments, run

TESTS = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.spawn


def torchrun(ranks: int, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as ranks, on a free port that torchrun finds."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "scripts")])
    return subprocess.run(
        [*start, f"--nproc-per-node={ranks}", *command],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | environment,
        timeout=300,
    )


@pytest.fixture(scope="module", params=[2, 3])
def checked(request, tmp_path_factory):
    """Run all checks once with this number of ranks."""
    output = tmp_path_factory.mktemp(f"ranks_{request.param}")
    done = torchrun(request.param, str(TESTS / "rank_checks.py"), str(output))
    assert done.returncode == 0, done.stderr[-3000:]
    return request.param, output, json.loads((output / "results.json").read_text())


def test_gradients_of_ranks_are_those_of_one_rank_with_all_samples(checked):
    """To 1e-12 in float64: the sums differ in order alone."""
    _, _, results = checked
    assert set(results["gradients"]) == {"1_4", "3_4", "15_4", "31_4", "31_1"}
    for name, found in results["gradients"].items():
        assert found["steps"][0] == found["steps"][1], name
        assert found["worst"] < 1e-12, (name, found)
        assert found["loss"][0] == pytest.approx(found["loss"][1], rel=1e-12), name


def test_evaluation_is_shared_and_sees_each_sample_once(checked):
    _, _, results = checked
    ranks, alone = results["rmse"]
    assert ranks[0]["epoch"] == alone[0]["epoch"] == 1
    for split in ("train_rmse", "val_rmse"):
        assert ranks[0][split] == pytest.approx(alone[0][split], rel=1e-12)


def test_rank_0_decides_for_all(checked):
    n_ranks, _, results = checked
    for said in results["decide"]:
        assert said == [
            "rank 0 decides",
            "InputError: first (and 1 more problem)\na  b\n1  2",
            "ContinueLater: later",
            str(0b1011),
            str([1.5 * n_ranks, n_ranks * (n_ranks - 1) / 2]),
            "[]",
        ]


def test_a_nan_on_one_rank_is_skipped_by_all(checked):
    _, _, results = checked
    assert results["skipped_steps"] == 1
    assert np.isfinite(results["skips"]).all()


def test_four_epochs_and_six_more_are_ten(checked):
    _, output, _ = checked
    assert_equal_models(output / "straight", output / "more", "mlp")


with_two_ranks = pytest.mark.parametrize("checked", [2], indirect=True)


@with_two_ranks
@pytest.mark.parametrize("network", ["mgn", "mlp", *MORE])
def test_physicsnemo_networks_go_on_exactly(checked, network):
    _, output, _ = checked
    assert_equal_models(output / f"{network}_straight", output / f"{network}_more", network)


@with_two_ranks
def test_segments_computed_twice_change_no_bit(checked):
    _, output, _ = checked
    assert_equal_models(output / "mgn_straight", output / "mgn_segments", "mgn")


def test_a_signal_to_one_rank_takes_all_home_and_they_go_on_exactly(checked):
    n_ranks, output, _ = checked
    said = {(output / f"left_cut_{rank}.txt").read_text() for rank in range(n_ranks)}
    assert len(said) == 1 and "SIGUSR1" in said.pop()
    assert_equal_models(output / "straight", output / "cut", "mlp")


def test_schedule_decay_noise_and_average_are_the_same_on_any_ranks(checked):
    """Alone with all samples together, and cut in the middle of an epoch."""
    _, output, results = checked
    # The sums of 13 samples differ in order alone, 1e-16 in float64; 30 steps of Adam, which
    # divides by the root of a small square, enlarge that. A wrong rate or noise moves weights
    # by 1e-4 and more.
    assert max(results["learning"]) < 1e-10
    assert_equal_models(output / "learning_straight", output / "learning_cut", "mlp")


def test_another_number_of_ranks_goes_on_in_the_middle_of_an_epoch(checked, tmp_path):
    """What is left of the epoch is shared anew: each sample once, and the lineage tells."""
    n_ranks, output, _ = checked
    live = load_checkpoint(max((output / "other_ranks" / "live").glob("recovery_*")))
    assert live["training_state"]["done"] == 12
    cohort = Cohort(tmp_path / "cohort", [2, 3, 2, 3, 3])
    seen = []

    trainer = TrainSmall(rmse_log_interval=3, batch_size=2)
    compute_loss = trainer._compute_loss

    def watched(*arguments):
        seen.extend(arguments[-1].tolist())
        return compute_loss(*arguments)

    trainer._compute_loss = watched
    run(trainer, cohort, output / "other_ranks", epochs=10)
    rest = 13 - live["training_state"]["done"]
    assert len(seen) == rest + 13 * (9 - live["epoch"])
    assert len(set(seen[:rest])) == rest
    final = load_checkpoint(output / "other_ranks" / checkpoint_name("mlp"))["training_state"]
    assert final["segments"][0]["ranks"] == [n_ranks, 1]
    # Other batches, other noise, the same learning: losses as those of the straight run.
    straight = json.loads((output / "straight" / "training_losses.json").read_text())
    np.testing.assert_allclose(final["losses"], straight, rtol=0.05)


# ---------------------------------------------------------------- whole programs


@pytest.fixture(scope="module")
def plain(tiny_cohort, tmp_path_factory):
    """Train with plain python where SLURM's variables speak of 8 tasks."""
    output = tmp_path_factory.mktemp("plain") / "model"
    slurm = {
        "SLURM_JOB_ID": "4711",
        "SLURM_NTASKS": "8",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "3",
        "SLURM_NNODES": "2",
        "SLURM_NODELIST": "node[1-2]",
        # Left by another launcher, and not all that torchrun sets.
        "RANK": "3",
        "WORLD_SIZE": "8",
    }
    done = subprocess.run(
        [sys.executable, *arguments(tiny_cohort, output)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | slurm,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return output, done.stderr


def test_plain_python_in_a_slurm_job_runs_alone(plain):
    output, log = plain
    metadata = json.loads((output / "mlp_stage_model_metadata.json").read_text())
    assert metadata["ranks"] == 1
    assert log.count("epoch 2/3") == 1  # 1 is not logged: neither judged nor a tenth


def test_one_rank_of_torchrun_equals_plain_python_bit_for_bit(plain, tiny_cohort, tmp_path):
    done = torchrun(1, *arguments(tiny_cohort, tmp_path / "model"))
    assert done.returncode == 0, done.stderr
    assert_equal_models(plain[0], tmp_path / "model", "mlp")


def test_two_ranks_log_once_and_an_exception_on_one_ends_both(plain, tiny_cohort, tmp_path):
    """The failing rank's traceback is in its own file; the next start goes on and finishes."""
    output = tmp_path / "model"
    done = torchrun(2, *arguments(tiny_cohort, output), FAIL_ON_RANK="1", STEP_SECONDS="0.01")
    assert done.returncode != 0
    report = output / "traceback_rank_1.txt"
    # Seconds: nobody waits for a rank that is gone (collectives would give up after 30 minutes).
    assert time.time() - report.stat().st_mtime < 30
    assert "this rank was told to fail" in report.read_text()
    assert "_train_step" in report.read_text()

    done = torchrun(2, *arguments(tiny_cohort, output))
    assert done.returncode == 0, done.stderr
    assert not list(output.glob("traceback*"))
    # Rank 0 alone writes and logs.
    assert done.stderr.count("epoch 2/3") == 1
    events = [json.loads(line) for line in (output / "events.jsonl").open()]
    started = [number for number, event in enumerate(events) if event["event"] == "start"]
    assert len(started) == 2
    epochs = [e["epoch"] for e in events[started[1] :] if e["event"] == "epoch"]
    assert epochs == list(range(events[started[1]]["epoch"] + 1, 4))
    assert len(list((output / "tensorboard").iterdir())) == 2  # one a start


SLURM_STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "node7",
}


def start_two(tiny_cohort, output, common, *names):
    """Start the training program twice, each with its own number in these variables."""
    with socket.create_server(("", 0)) as server:  # other tests may run beside this one
        common = common | {"MASTER_PORT": str(server.getsockname()[1])}
    return [
        subprocess.Popen(
            [sys.executable, *arguments(tiny_cohort, output)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | common | dict.fromkeys(names, str(rank)),
        )
        for rank in range(2)
    ]


def test_tasks_of_srun_and_processes_of_mpirun_train_one_model_together(tiny_cohort, tmp_path):
    of_mpi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    numbers = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    slurm = tmp_path / "slurm"
    started = {
        slurm: start_two(tiny_cohort, slurm, SLURM_STEP, "SLURM_PROCID", "SLURM_LOCALID"),
        tmp_path / "mpi": start_two(tiny_cohort, tmp_path / "mpi", of_mpi, *numbers),
    }
    for output, processes in started.items():
        logs = [process.communicate(timeout=300)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], logs
        assert read_json(output / "mlp_stage_model_metadata.json")["ranks"] == 2
        assert "".join(logs).count("epoch 2/3") == 1  # rank 0 alone writes and logs
    assert_equal_models(*started, "mlp")


# ---------------------------------------------------------------- without torchrun


def test_without_torchrun_there_is_no_process_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    with distributed_context("cpu") as context:
        assert context == DistributedContext(torch.device("cpu"), 0, 0, 1)
        assert not torch.distributed.is_initialized()
        assert context.decide(lambda: 3) == 3
        assert context.any_of(5) == 5
        context.barrier()


def test_a_gpu_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="finds no GPU here"), distributed_context("cuda"):
        pass


def test_more_ranks_than_gpus_are_told(monkeypatch):
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    too_many = pytest.raises(InputError, match="local rank 1 has no GPU of its own")
    with too_many, distributed_context("auto"):
        pass
