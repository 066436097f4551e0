"""What starts a training: commands and environment for one process, one node or several.

Pure functions: they read the environment that they are given and start nothing.
"""

import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshstage.errors import EXIT_BAD_INPUT, EXIT_CONTINUE_LATER, InputError

# What a launcher passes on to its ranks, which then save and leave, and as which. SIGINT is
# not among them: Ctrl-C ends at once.
FORWARDED: dict[int, int] = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGUSR1: signal.SIGUSR1,
    signal.SIGHUP: signal.SIGTERM,  # a terminal that was closed
}

# Below Linux' ephemeral ports (32768 and up), from which any connection may take one.
_PORTS = range(15000, 32000)

# Snakemake exports these and OMP_NUM_THREADS = threads of the rule, for all ranks together. One
# that is left undivided makes the threads of the ranks wait for each other, spinning: two ranks
# on two cores needed 6.7 s for an epoch with MKL_NUM_THREADS=2, and 0.45 s with 1.
_THREADS_TOO = {
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
}

# How long a thread of GNU OpenMP, which torch's wheels bring, spins before it sleeps: some 0.05 ms
# instead of 15 ms. On cores that others use as well, steps were 5 to 11 times slower without it
# (docs/performance.md); on quiet ones the next operation comes before the thread has gone to sleep.
_SPIN_COUNT = "1000"

# What identifies the allocation. The rest describes the step that srun would nest in, and
# would add to or contradict the options given to it.
_KEPT_OF_SLURM = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_CONF"}


@dataclass(frozen=True)
class Shape:
    """How many processes a training has.

    Parameters
    ----------
    nodes : int
        Machines.
    gpus : int
        GPUs per node, one process each; 0 is one process without one.

    Raises
    ------
    InputError
        If there is no node, or a negative number of GPUs.
    """

    nodes: int
    gpus: int

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus < 0:
            raise InputError(
                f"{self.nodes} nodes of {self.gpus} GPUs cannot be; give at least one node, and "
                "0 GPUs or more"
            )

    @property
    def ranks_per_node(self) -> int:
        """Processes per node."""
        return max(1, self.gpus)


def shape_of(resources: Mapping[str, Any]) -> Shape:
    """Read nodes and GPUs per node from a Snakemake job's resources.

    Parameters
    ----------
    resources : mapping
        With what the profiles set: ``nodes`` (1 without it) and the GPUs in one of the forms
        that the SLURM plugin turns into options: ``--gpus-per-node`` in ``slurm_extra``,
        ``gres: gpu:2`` (per node), or ``gpu`` (in all).

    Raises
    ------
    InputError
        If ``gpu`` does not divide into the nodes.
    """
    nodes = _integer(resources.get("nodes"), 1)
    for text, form in (
        (resources.get("slurm_extra"), r"--gpus-per-node[= ](?:[\w.-]+:)?(\d+)"),
        (resources.get("gres"), r"^gpu(?::[\w.-]*[A-Za-z_][\w.-]*)?(?::(\d+))?$"),
    ):
        if found := re.search(form, str(text or "")):
            return Shape(nodes, int(found.group(1) or 1))
    gpus = _integer(resources.get("gpu"), 0)
    if gpus % nodes:
        raise InputError(
            f"{gpus} GPUs do not divide into {nodes} nodes; set the profile's resources nodes "
            "and gpu, or --gpus-per-node in slurm_extra"
        )
    return Shape(nodes, gpus // nodes)


def time_budget(resources: Mapping[str, Any]) -> float:
    """Minutes after which a training has left by itself; 0 where the job has no time limit.

    The margin is 5 % of the limit, at least 2 and at most 10 minutes: between the start of
    the job and that of the launcher, Snakemake starts twice (seconds on a laptop, a minute on
    a slow shared file system), and after the last step come the save, which the training
    itself allows for, and the end of all ranks. Of a limit under 4 minutes, half is margin.
    """
    limit = _integer(resources.get("runtime"), 0)
    return limit - min(limit / 2, 10.0, max(2.0, 0.05 * limit))


def _integer(value: Any, default: int) -> int:
    """Take a number of a resource; while a dry run, some are placeholders."""
    return int(value) if isinstance(value, int | float) else default


def environment_additions(
    environment: Mapping[str, str], shape: Shape, started: float, n_cpus: int, scratch: Path
) -> dict[str, str]:
    """Say what the ranks of one node need to find in their environment.

    Parameters
    ----------
    environment : mapping
        The launcher's own.
    shape : Shape
    started : float
        ``time.monotonic()`` at the launcher's start; a time budget counts from there.
    n_cpus : int
        CPUs of this node that the launcher may use.
    scratch : Path
        A folder on this node's own disk.
    """
    additions = {"MESHSTAGE_STARTED": repr(started)}
    if shape.ranks_per_node > 1:
        given = environment.get("OMP_NUM_THREADS", "")
        threads = int(given) if given.isdigit() else n_cpus
        share = str(max(1, threads // shape.ranks_per_node))
        additions["OMP_NUM_THREADS"] = share
        additions |= dict.fromkeys(_THREADS_TOO & environment.keys(), share)
    if not environment.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        additions["GOMP_SPINCOUNT"] = _SPIN_COUNT
    # Compilers make thousands of small files and lock them: neither is for a shared disk.
    for name, folder in (
        ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
        ("TRITON_CACHE_DIR", "triton"),
    ):
        if name not in environment:
            additions[name] = str(scratch / folder)
    return additions


def python_command(command: list[str]) -> list[str]:
    """Command of one process alone."""
    return [sys.executable, *command]


def torchrun_arguments(shape: Shape, place: list[str], rank_command: list[str]) -> list[str]:
    """Arguments of ``torch.distributed.run`` for the ranks of one node.

    Parameters
    ----------
    shape : Shape
    place : list of str
        ``standalone()`` or ``member(...)``.
    rank_command : list of str
        Program and arguments of each rank.
    """
    return [
        *place,
        f"--nproc-per-node={shape.ranks_per_node}",
        # A training that failed once fails again; what can go on is resubmitted.
        "--max-restarts=0",
        # The launcher itself forwards the others: torchrun would lose the ranks' exit codes.
        "--signals-to-handle=SIGINT,SIGQUIT",
        "--no-python",
        *rank_command,
    ]


def standalone() -> list[str]:
    """Options of torchrun for one node: its own store, on any free port."""
    return ["--standalone"]


def member(shape: Shape, node: int, endpoint: str, job: str) -> list[str]:
    """Options of torchrun for node number ``node`` of several, which meet at ``endpoint``."""
    host, _, port = endpoint.rpartition(":")
    return [
        f"--nnodes={shape.nodes}",
        f"--node-rank={node}",
        "--rdzv-backend=static",
        f"--rdzv-id={job}",
        f"--master-addr={host}",
        f"--master-port={port}",
    ]


def srun_command(shape: Shape, task_command: list[str]) -> list[str]:
    """Command that starts ``task_command`` once on each node of the job.

    CPUs and GPUs are not named: a step that names none gets all of the job's on each node.
    """
    return [
        "srun",
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        # Also inside another step of the job (an interactive one), which holds its CPUs.
        "--overlap",
        # One task would be bound to one core, and all ranks with it.
        "--cpu-bind=none",
        # The ranks meet through torchrun: no process manager of MPI is needed.
        "--mpi=none",
        "--input=none",
        *task_command,
    ]


def srun_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment for srun: its options come from the command line alone."""
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT_OF_SLURM or not name.startswith(("SLURM_", "SRUN_", "SBATCH_"))
    }


def rendezvous_port(job: str, is_free: Callable[[int], bool]) -> int:
    """Pick the port where the nodes of a job meet.

    It starts from the job's number, so that jobs that share a machine look at different
    ports, and takes the first that is free.

    Raises
    ------
    InputError
        If a hundred in a row are taken.
    """
    start = int(re.sub(r"\D", "", job) or 0) * 7
    for offset in range(100):
        port = _PORTS[(start + offset) % len(_PORTS)]
        if is_free(port):
            return port
    raise InputError(
        f"no free port among 100 from {_PORTS[start % len(_PORTS)]} for the nodes to meet"
    )


def node_number(environment: Mapping[str, str]) -> int:
    """Give the number of this node among the step's, from 0.

    Raises
    ------
    InputError
        If srun did not say.
    """
    text = environment.get("SLURM_NODEID", "")
    if not text.isdigit():
        raise InputError(
            f"this is one node of several, but SLURM_NODEID is {text!r}: only srun can start it"
        )
    return int(text)


def exit_code(codes: Sequence[int], received: Iterable[int] = ()) -> int:
    """Join the exit codes of processes that ended together, the first to fail first.

    Parameters
    ----------
    codes : sequence of int
        As ``subprocess`` gives them: negative for a signal.
    received : iterable of int
        Signals that were forwarded: a rank that had not yet begun to train dies of one, which
        loses nothing.

    Returns
    -------
    int
        75 only if no rank failed by itself; that of a rank that refused its input (2) before
        that of one that broke because another had left.
    """
    lost_nothing = {EXIT_CONTINUE_LATER, *(-number for number in received)}
    failed = [code for code in codes if code and code not in lost_nothing]
    # torchrun ends the ranks that are left when one has failed: their codes tell nothing.
    causes = [code for code in failed if code not in (-signal.SIGTERM, -signal.SIGKILL)]
    if EXIT_BAD_INPUT in causes:
        return EXIT_BAD_INPUT
    if causes:
        return causes[0] if causes[0] > 0 else 128 - causes[0]
    if EXIT_CONTINUE_LATER in codes or (any(codes) and not failed):
        return EXIT_CONTINUE_LATER
    return 128 - failed[0] if failed else 0


def describe_code(code: int) -> str:
    """Say what an exit code means, for the log; a signal's is negative, or 128 more."""
    code = 128 - code if code < 0 else code
    if code == EXIT_CONTINUE_LATER:
        return "left early with everything saved; the same command goes on"
    if code > 128 and code - 128 in set(signal.Signals):
        return f"died of {signal.Signals(code - 128).name}"
    return f"failed with exit code {code}"
