"""A real SLURM on this machine: two nodes with two make-believe GPUs each, in one folder.

It runs as root and needs Debian's packages ``slurm-wlm`` and ``munge``. Nothing outside the
folder is written, no port is fixed, and only the daemons started here are stopped. By hand::

    python tests/slurm/cluster.py bash
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo", "salloc")
NODES = ("n1", "n2")

# Most clusters track the processes of a job by cgroups, which changes who hears a signal.
HAS_CGROUPS = os.access("/sys/fs/cgroup/freezer/cgroup.procs", os.W_OK)

# Time limits are enforced every 30 s. SLURM counts whole minutes, and processes get KillWait
# between SIGTERM and SIGKILL. The scheduler looks every second, and at once when a job comes.
# `config_overrides`: the nodes claim more CPUs than there are.
SLURM_CONF = """\
ClusterName=meshstage
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0,bf_interval=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=20
MinJobAge=600
GresTypes=gpu
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs() -> list[str]:
    """List the programs of SLURM and munge that this machine lacks."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in (*DAEMONS, *CLIENTS) if not shutil.which(name, path=path)]


def _free_ports(count: int) -> list[int]:
    with_sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in with_sockets]
    for each in with_sockets:
        each.close()
    return ports


def _write_files(folder: Path) -> None:
    """Write the configuration, the key, and clients that find the configuration.

    The clients are wrapped, since the plugin removes SLURM_CONF from a job's environment.
    """
    controller_port, *node_ports = _free_ports(1 + len(NODES))
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 "
        "RealMemory=16000 Gres=gpu:2 State=UNKNOWN"
        for name, port in zip(NODES, node_ports, strict=True)
    )
    (folder / "slurm.conf").write_text(
        SLURM_CONF.format(
            host=host,
            folder=folder,
            controller_port=controller_port,
            nodes=nodes,
            names=",".join(NODES),
            tracking="cgroup" if HAS_CGROUPS else "linuxproc",
        )
    )
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "gres.conf").write_text(
        "".join(f"NodeName={name} Name=gpu File=/dev/tty[0-1]\n" for name in NODES)
    )
    for name in ("state", "bin", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    for name in CLIENTS:
        wrapper = folder / "bin" / name
        wrapper.write_text(
            f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which(name)} "$@"\n'
        )
        wrapper.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)


def _daemons(folder: Path) -> list[list[str]]:
    munged = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    munged += [f"--socket={folder}/munge.socket"]
    configuration = ["-D", "-f", f"{folder}/slurm.conf"]
    return [
        munged,
        ["slurmctld", *configuration],
        *(["slurmd", *configuration, "-N", node] for node in NODES),
    ]


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in reversed(processes):
        process.terminate()
    for process in reversed(processes):
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        process.kill()
        process.wait()


def _end_jobs(folder: Path) -> None:
    """Cancel every job, and wait: the processes of a job do not end with the daemons."""
    subprocess.run([folder / "bin/scancel", "--user=root"], timeout=60, check=True)
    for _ in range(60):
        answer = subprocess.run(
            [folder / "bin/squeue", "--noheader"], capture_output=True, timeout=60, check=True
        )
        if not answer.stdout.strip():
            return
        time.sleep(1)


@contextmanager
def cluster() -> Iterator[Path]:
    """Run the daemons for as long as the block lasts; gives the folder with ``bin``."""
    # A short path: the name of a unix socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    _write_files(folder)
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in _daemons(folder):
            # A session of its own: Ctrl-C in the terminal reaches the tests alone.
            processes.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdout=(folder / "daemons.txt").open("ab"),
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
            time.sleep(0.5)
        _wait_until_idle(folder, processes)
        yield folder
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            _end_jobs(folder)
        _stop(processes)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_idle(folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    command = [folder / "bin/sinfo", "--noheader", "--Node", "--format", "%t"]
    states: list[str] = []
    for _ in range(60):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        states = answer.stdout.split()
        if states == ["idle"] * len(NODES):
            return
        if any(process.poll() is not None for process in processes):
            break
        time.sleep(1)
    logs = "\n".join(
        f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
        for path in (folder / "daemons.txt", *folder.glob("*.log"))
    )
    raise RuntimeError(f"the nodes are {states} and not idle:\n{logs}")


if __name__ == "__main__":
    with cluster() as home:
        path = f"{home / 'bin'}:{os.environ['PATH']}"
        print(f"{home}; leave to stop", file=sys.stderr)
        subprocess.run(sys.argv[1:] or ["bash"], env=os.environ | {"PATH": path}, check=False)
