"""Start one launcher on each node of a SLURM job, and join their exit codes."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from meshstage.errors import InputError
from meshstage.launch import plan, processes
from meshstage.launch.plan import Shape


def can_start_steps() -> bool:
    """Whether this is a SLURM job in which srun can be called.

    There a training is a step of its own: SLURM's cgroups pass a signal on to the process that
    srun started, and to none of its children (only SIGKILL is for all), and what Snakemake's own
    srun started is another Snakemake, which waits.
    """
    return "SLURM_JOB_ID" in os.environ and shutil.which("srun") is not None


def this_job() -> str:
    """Give the number of the SLURM job that this process runs in.

    Raises
    ------
    InputError
        If it runs in none.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        raise InputError(
            "several nodes need a SLURM job, and SLURM_JOB_ID is not set here; submit this with "
            "sbatch, or with Snakemake's profile for several nodes"
        )
    return job


def first_node_address(job: str, nodes: int) -> str:
    """Give the network address of a job's first node.

    SLURM is asked, since Snakemake's plugin removes every variable but the job's number.

    Raises
    ------
    InputError
        If SLURM does not answer, or the job has fewer nodes.
    """
    names = _ask("squeue", "--noheader", "--jobs", job, "--format", "%N").strip()
    hosts = _ask("scontrol", "show", "hostnames", names).split() if names else []
    if len(hosts) < nodes:
        raise InputError(
            f"SLURM job {job} has {len(hosts)} nodes ({names or 'none named'}), and {nodes} are "
            "wanted; ask for as many in the profile (resources nodes and tasks)"
        )
    answer = _ask("scontrol", "--oneliner", "show", "node", hosts[0])
    found = re.search(r"\bNodeAddr=(\S+)", answer)
    return found.group(1) if found else hosts[0]


def _ask(*command: str) -> str:
    """Run a query of SLURM."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise InputError(
            f"cannot learn the nodes of this SLURM job: {' '.join(command)}: {reason}"
        ) from error


def is_free_port(port: int) -> bool:
    """Whether nothing on this machine listens on a TCP port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def run_on_nodes(shape: Shape, task_command: Callable[[str], list[str]]) -> int:
    """Run a command once on each node.

    Parameters
    ----------
    shape : Shape
    task_command : callable
        Gives the command, from the address where it should ``report`` its exit code: as soon
        as one task fails srun kills the rest, and its own code is then the highest of all,
        that of the killed ones.
    """
    with _collecting() as (address, reported):
        processes.children_end_with_this()
        process = subprocess.Popen(task_command(address), env=plan.srun_environment(os.environ))
        # srun passes SIGUSR1 on to its tasks, and kills them on SIGTERM.
        signals: dict[int, int] = dict.fromkeys(plan.FORWARDED, signal.SIGUSR1)
        with processes.forwarding(lambda: [process.pid], signals):
            code = process.wait()
    if code == 0:
        return 0
    return plan.exit_code(reported) or plan.exit_code([code])


@contextmanager
def _collecting() -> Iterator[tuple[str, list[int]]]:
    """Listen for exit codes: gives the address to send them to, and the list they come to."""
    codes: list[int] = []
    with socket.create_server(("", 0)) as server:

        def collect() -> None:
            with contextlib.suppress(OSError):  # the server is closed at the end
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError, ValueError):
                        connection.settimeout(5)
                        codes.append(int(connection.recv(16)))

        threading.Thread(target=collect, daemon=True).start()
        yield f"{socket.gethostname()}:{server.getsockname()[1]}", codes


def report(address: str, code: int) -> None:
    """Send this node's exit code to the launcher that started it, if it can be reached."""
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), timeout=5) as connection,
    ):
        connection.sendall(str(code).encode())
