"""Which rank of a training this process is, from what its launcher put into the environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from meshstage.errors import InputError
from meshstage.launch.plan import rendezvous_port

_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """One of the processes that train together.

    Parameters
    ----------
    rank, local_rank, world_size : int
        Number among all processes, number on this node, number of processes.
    gpu : int
        Number of its GPU among those that this process sees.
    meeting : str
        URL of PyTorch's rendezvous.
    launcher : str
        What started it, in words.
    """

    rank: int
    local_rank: int
    world_size: int
    gpu: int
    meeting: str
    launcher: str


def this_rank(environment: Mapping[str, str]) -> Rank | None:
    """Find the rank that a launcher gave to this process; None for a process alone.

    torchrun's variables come first, then those of a SLURM step of several tasks, then Open MPI's.
    An allocation by itself says nothing: a plain ``python`` in it runs alone.

    Raises
    ------
    InputError
        If there is a launcher of several processes that this program cannot join.
    """
    if "TORCHELASTIC_RUN_ID" in environment or all(name in environment for name in _TORCHRUN):
        rank, local_rank, world_size = _integers(environment, "torchrun", *_TORCHRUN[:3])
        return Rank(rank, local_rank, world_size, local_rank, "env://", "torchrun")
    tasks = _count(environment, "SLURM_STEP_NUM_TASKS")
    processes = _count(environment, "OMPI_COMM_WORLD_SIZE")
    # Open MPI starts its daemons as a step of SLURM, one task per node, and its processes see the
    # variables of both: the counts differ unless every node has one process.
    if tasks > 1 and processes in (1, tasks):
        return _of_slurm(environment, tasks)
    if processes > 1:
        return _of_open_mpi(environment, processes)
    if (others := _count(environment, "PMI_SIZE")) > 1:
        raise InputError(
            f"PMI_SIZE is {others}: a launcher started {others} processes that cannot be joined, "
            "and each would train a model of its own; start them with torchrun, with srun or with "
            "Open MPI's mpirun"
        )
    return None


def _of_slurm(environment: Mapping[str, str], tasks: int) -> Rank:
    launcher = f"a SLURM step of {tasks} tasks"
    rank, local_rank = _integers(environment, launcher, "SLURM_PROCID", "SLURM_LOCALID")
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    alone = environment.get("SLURM_STEP_NUM_NODES") == "1"
    address = environment.get("MASTER_ADDR") or ("127.0.0.1" if alone else first_host(nodes))
    if not address:
        raise InputError(
            f"{launcher}, but SLURM_STEP_NODELIST does not name its nodes; set MASTER_ADDR to the "
            "node of task 0, or start with torchrun"
        )
    job = f"{environment.get('SLURM_JOB_ID', '')}.{environment.get('SLURM_STEP_ID', '')}"
    # With GPUs bound to tasks, each task sees its own as number 0.
    gpu = 0 if "SLURM_GPUS_PER_TASK" in environment else local_rank
    return Rank(rank, local_rank, tasks, gpu, _meeting(environment, address, job), launcher)


def _of_open_mpi(environment: Mapping[str, str], processes: int) -> Rank:
    launcher = f"mpirun's {processes} processes"
    rank, local_rank = _integers(
        environment, launcher, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"
    )
    one_node = _count(environment, "OMPI_COMM_WORLD_LOCAL_SIZE") == processes
    nodes = environment.get("SLURM_JOB_NODELIST", "")
    address = environment.get("MASTER_ADDR") or ("127.0.0.1" if one_node else first_host(nodes))
    if not address:
        raise InputError(
            f"{launcher} on several nodes, and nothing tells where rank 0 is; "
            "start with mpirun -x MASTER_ADDR=HOST, or with torchrun"
        )
    names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID")
    job = next((environment[name] for name in names if name in environment), "")
    return Rank(
        rank, local_rank, processes, local_rank, _meeting(environment, address, job), launcher
    )


def _meeting(environment: Mapping[str, str], address: str, job: str) -> str:
    # All ranks compute the same port, so none may look which are free.
    port = environment.get("MASTER_PORT") or str(rendezvous_port(job, lambda _: True))
    host = f"[{address}]" if ":" in address else address
    return f"tcp://{host}:{port}"


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else 1


def _integers(environment: Mapping[str, str], launcher: str, *names: str) -> list[int]:
    """Read variables that a launcher sets.

    Raises
    ------
    InputError
        If one is missing or is no number.
    """
    for name in names:
        if not environment.get(name, "").isdigit():
            raise InputError(
                f"{launcher}: {name} is {environment.get(name)!r}, so this process does not know "
                "its rank; start with torchrun"
            )
    return [int(environment[name]) for name in names]


def first_host(nodes: str) -> str:
    """Give the first host of SLURM's short list of nodes.

    >>> first_host("rack[1-2]n[007-010,012],login")
    'rack1n007'
    """
    found = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", found.group() if found else "")
