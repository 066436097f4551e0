"""Trainings on a real SLURM: ranks, nodes, cancelled, limited, requeued, nested, failing."""

import json
import os
import shlex
import signal
import statistics

import pytest

from slurm.cluster import HAS_CGROUPS, cluster, missing_programs
from slurm.project import SNAKEMAKE, Project, end_heads, wait_for

pytestmark = pytest.mark.timeout(1800)

# Long enough to be interrupted in the middle: some 7 s of training on two idle cores.
EPOCHS = 14
ONE_NODE = {"nodes": 1, "gpu": 2}


@pytest.fixture(scope="session")
def programs():
    """Run the cluster; gives the folder of its sbatch and the like."""
    missing = missing_programs()
    if missing or os.getuid() != 0:
        reason = f"no SLURM here: {', '.join(missing) or 'this user is not root'}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}; make slurm-test installs it")
        pytest.skip(reason)
    with cluster() as folder:
        yield folder / "bin"
        end_heads()


@pytest.fixture(scope="session")
def prepared(programs, tmp_path_factory) -> Project:
    """Ingest the cohort: four subjects, each a batch, in two SLURM jobs of up to three batches."""
    project = Project.create(tmp_path_factory.mktemp("slurm") / "prepared", programs)
    project.write_runs(EPOCHS, "straight", "cancelled", "requeued", "killed")
    rules = project.directory / "workflow/rules/common.smk"
    rules.write_text(rules.read_text().replace("BATCH = 10\n", "BATCH = 1\n"))
    project.write_profile("slurm", ONE_NODE, **{"group-components": {"ingest": 3}})
    subjects = [f"results/tiny/subjects/demo-{n:03d}/subject.json" for n in range(1, 5)]
    project.finish(project.start(*subjects))
    project.call("snakemake", "--profile=profiles/local", "--", "results/tiny/stats.json")
    groups = list(project.directory.glob(".snakemake/slurm_logs/group_ingest*/**/*.log"))
    assert len(groups) == 2, project.logs()
    return project


@pytest.fixture(scope="session")
def straight(prepared) -> Project:
    """Train on one node without any trouble."""
    project = prepared.copy("straight")
    project.finish(project.start(project.target("straight")))
    return project


def assert_same_weights(first, second):
    """Compare bit for bit: as many ranks and threads add the same numbers in the same order."""
    import torch

    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_one_node_runs_a_rank_a_gpu(straight):
    assert straight.metadata("straight")["ranks"] == 2
    assert straight.epochs("straight") == list(range(1, EPOCHS + 1))


def test_two_nodes_run_two_ranks_each_also_after_being_cancelled(prepared):
    project = prepared.copy("wide")
    project.write_runs(EPOCHS, "wide")
    project.write_profile("slurm-multinode", {"nodes": 2, "tasks": 2})
    head = project.start(project.target("wide"))
    project.wait_for_epochs("wide", 2)
    project.call("scancel", project.job("wide"))
    project.finish(head, code=1)
    if HAS_CGROUPS:
        assert len(project.events("wide", "leave")) == 1
    project.finish(project.start(project.target("wide")))
    assert project.metadata("wide")["ranks"] == 4
    assert project.epochs("wide") == list(range(1, EPOCHS + 1))


def test_cancelled_training_goes_on(prepared, straight):
    project = prepared.copy("cancelled")
    head = project.start(project.target("cancelled"))
    project.wait_for_epochs("cancelled", 2)
    project.call("scancel", project.job("cancelled"))
    project.finish(head, code=1)
    if HAS_CGROUPS:  # else srun hears the signal too, and kills
        assert [e["reason"] for e in project.events("cancelled", "leave")] == ["SIGTERM"]
    assert len(project.epochs("cancelled")) < EPOCHS

    project.finish(project.start(project.target("cancelled")))
    assert project.epochs("cancelled") == list(range(1, EPOCHS + 1))
    assert_same_weights(project.weights("cancelled"), straight.weights("straight"))


def test_time_limit_shorter_than_the_training(prepared, straight):
    # 2 minutes of SLURM are a budget of 1 minute, from which the start takes its part. The
    # epochs alone take half as long again, by the measure of the straight training, which may
    # have had less of the machine. SLURM's own warning, a minute early, would come before.
    epoch_seconds = statistics.median(straight.metadata("straight")["epoch_seconds"])
    epochs = round(90 / epoch_seconds)
    project = prepared.copy("limited")
    project.write_runs(epochs, "limited")
    project.write_profile("slurm", ONE_NODE | {"runtime": 2, "slurm_extra": None}, retries=8)
    project.finish(project.start(project.target("limited")))
    reasons = {event["reason"] for event in project.events("limited", "leave")}
    assert "the time budget" in reasons
    assert project.epochs("limited") == list(range(1, epochs + 1))


def test_requeued_training_goes_on(prepared, straight):
    project = prepared.copy("requeued")
    head = project.start(project.target("requeued"))
    project.wait_for_epochs("requeued", 2)
    job = project.job("requeued")
    project.call("scontrol", "requeue", job)
    # SLURM holds a requeued job for two minutes.
    state = ["squeue", "--noheader", "--format=%T", "--job", job]
    wait_for(lambda: project.call(*state).strip() == "PENDING", "the end of the job's first life")
    project.call("scontrol", "update", f"JobId={job}", "StartTime=now")
    project.finish(head)
    assert len(project.events("requeued", "start")) == 2
    if HAS_CGROUPS:
        assert len(project.events("requeued", "leave")) == 1
    assert sorted(set(project.epochs("requeued"))) == list(range(1, EPOCHS + 1))
    assert_same_weights(project.weights("requeued"), straight.weights("straight"))


def test_failing_training_leaves_its_log_and_its_live_folder(prepared, straight):
    project = prepared.copy("killed")
    head = project.start(project.target("killed"))
    live = project.model("killed") / "live"
    wait_for(lambda: list(live.glob("recovery_*.pt")), "a recovery checkpoint of killed")
    owner = json.loads((project.model("killed") / "owner.json").read_text())
    os.kill(owner["pid"], signal.SIGKILL)
    project.finish(head, code=1)
    log = project.directory / "logs/tiny/train_killed.txt"
    assert "rank 0 of this node died of SIGKILL" in log.read_text()
    assert list(project.directory.glob(".snakemake/slurm_logs/rule_train_killed/*.log"))
    assert list(live.glob("recovery_*.pt"))

    project.finish(project.start(project.target("killed")))
    assert_same_weights(project.weights("killed"), straight.weights("straight"))


def test_snakemake_inside_a_job(prepared):
    project = prepared.copy("nested")
    project.write_runs(2, "nested")
    command = shlex.join([*SNAKEMAKE, "--profile=profiles/test", "--", project.target("nested")])
    job = project.call("sbatch", "--parsable", "--output=outer.txt", "--wrap", command).strip()

    def ended() -> str:
        state = project.call("squeue", "--noheader", "--states=all", "--format=%T", "--job", job)
        return state.strip() if state.strip() not in ("PENDING", "RUNNING", "COMPLETING") else ""

    state = wait_for(ended, "the end of the outer job", 400)
    outer = (project.directory / "outer.txt").read_text()
    assert state == "COMPLETED", f"{outer}\n{project.logs()}"
    assert project.metadata("nested")["ranks"] == 2


def test_head_that_dies_leaves_a_job_that_can_be_found(prepared):
    project = prepared.copy("orphaned")
    project.write_runs(1000, "orphaned")  # it still runs when the second has started
    head = project.start(project.target("orphaned"))
    project.wait_for_epochs("orphaned", 2)
    head.kill()
    head.wait()
    job = project.job("orphaned")  # by the command of docs/cluster.md

    assert "--unlock" in project.call("snakemake", "--profile=profiles/test", check=False)
    project.call("snakemake", "--unlock")
    project.finish(project.start(project.target("orphaned")), code=1)
    log = (project.directory / "logs/tiny/train_orphaned.txt").read_text()
    assert f"SLURM job {job}" in log
    assert not project.events("orphaned", "leave")  # the first was left alone

    project.call("scancel", job)
    wait_for(lambda: project.events("orphaned", "leave"), "the end of the first")
