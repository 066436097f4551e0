"""Which rank a process is, by the variables of its launcher."""

import pytest

from meshstage.errors import InputError
from meshstage.launch.ranks import Rank, first_host, this_rank

TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "host",
    "MASTER_PORT": "29500",
}
STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gpu[003-004]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def test_torchrun_comes_first():
    """Inside a SLURM step too: launch.py starts torchrun once per node."""
    expected = Rank(3, 1, 4, 1, "env://", "torchrun")
    assert this_rank(TORCHRUN) == this_rank(STEP | TORCHRUN) == this_rank(OPEN_MPI | TORCHRUN)
    assert this_rank(TORCHRUN) == expected


def test_tasks_of_a_slurm_step_meet_at_its_first_node():
    """The port starts at 7 times the digits of job and step, within 15000 to 31999."""
    rank = this_rank(STEP)
    port = 15000 + 47112 * 7 % 17000
    assert (rank.rank, rank.local_rank, rank.world_size) == (5, 1, 8)
    assert rank.meeting == f"tcp://gpu003:{port}"
    assert this_rank(STEP | {"SLURM_PROCID": "0"}).meeting == rank.meeting
    given = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"}
    assert this_rank(STEP | given).meeting == "tcp://10.0.0.1:4000"


def test_a_task_that_sees_only_its_own_gpu_takes_number_0():
    assert this_rank(STEP).gpu == 1
    assert this_rank(STEP | {"SLURM_GPUS_PER_TASK": "1"}).gpu == 0


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
        STEP | {"SLURM_STEP_NUM_TASKS": "1"},
        OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"},
        {"RANK": "3", "WORLD_SIZE": "8"},
    ],
)
def test_a_process_alone_is_no_rank(environment):
    assert this_rank(environment) is None


def test_processes_of_one_mpirun_meet_on_their_node():
    rank = this_rank(OPEN_MPI | {"PMIX_NAMESPACE": "prterun-node-100@1"})
    assert (rank.rank, rank.local_rank, rank.world_size) == (1, 1, 2)
    assert rank.meeting == f"tcp://127.0.0.1:{15000 + 1001 * 7}"


def test_mpirun_in_a_slurm_job_is_not_taken_for_the_step_of_its_daemons():
    """On 3 nodes the 2 daemons of the others are a step of 2 tasks, of 12 processes in all."""
    many = OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "12", "OMPI_COMM_WORLD_RANK": "7"}
    daemons = STEP | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_NODELIST": "gpu[002-004]"}
    rank = this_rank(daemons | many)
    assert (rank.rank, rank.world_size) == (7, 12)
    assert rank.meeting.startswith("tcp://gpu002:")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PMI_SIZE": "4", "PMI_RANK": "1"}, "PMI_SIZE is 4"),
        ({**STEP, "SLURM_PROCID": ""}, "SLURM_PROCID is ''"),
        ({**STEP, "SLURM_STEP_NODELIST": ""}, "set MASTER_ADDR"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "4"}, "MASTER_ADDR=HOST"),
    ],
)
def test_a_launcher_that_cannot_be_joined_is_a_sentence(environment, said):
    with pytest.raises(InputError, match=said):
        this_rank(environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node7", "node7"),
        ("a1,b2", "a1"),
        ("gpu[003-005,007],login", "gpu003"),
        ("rack[1-2]n[01-10]", "rack1n01"),
        ("", ""),
    ],
)
def test_first_host_of_a_list(nodes, first):
    assert first_host(nodes) == first
