"""Starting a training: command lines, environments, signals and exit codes of all its ranks."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshstage.errors import InputError
from meshstage.launch import plan
from meshstage.launch.plan import Shape

LAUNCH = Path(__file__).resolve().parents[2] / "scripts" / "launch.py"

# ---------------------------------------------------------------- what a profile asks for


@pytest.mark.parametrize(
    ("resources", "nodes", "gpus"),
    [
        ({}, 1, 0),
        ({"gpu": 1}, 1, 1),
        ({"nodes": 1, "gpu": 4}, 1, 4),
        ({"nodes": 2, "gpu": 8}, 2, 4),
        ({"gres": "gpu:2", "nodes": 3}, 3, 2),
        ({"gres": "gpu"}, 1, 1),
        ({"gres": "gpu:a100"}, 1, 1),
        ({"gres": "gpu:a100:4"}, 1, 4),
        ({"gres": "gpu:3g.20gb:2"}, 1, 2),
        ({"gres": "lscratch:100"}, 1, 0),
        ({"nodes": 2, "slurm_extra": "--ntasks-per-node=1 --gpus-per-node=1"}, 2, 1),
        ({"nodes": 2, "slurm_extra": "--gpus-per-node=a100:4 --signal=TERM@60"}, 2, 4),
        # While a dry run, what depends on files is a placeholder.
        ({"nodes": "<TBD>", "gpu": "<TBD>"}, 1, 0),
    ],
)
def test_shape_of_reads_each_form_of_gpus(resources, nodes, gpus):
    assert plan.shape_of(resources) == Shape(nodes, gpus)


def test_gpus_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match="3 GPUs do not divide into 2 nodes"):
        plan.shape_of({"nodes": 2, "gpu": 3})


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 1), (1, -1), (-2, 2)])
def test_impossible_shapes_are_refused(nodes, gpus):
    with pytest.raises(InputError, match="cannot be"):
        Shape(nodes, gpus)


@pytest.mark.parametrize(
    ("limit", "budget"),
    [(0, 0), (1440, 1430), (100, 95), (40, 38), (10, 8), (4, 2), (2, 1), (1, 0.5)],
)
def test_time_budget_keeps_a_margin(limit, budget):
    """5 %, from 2 to 10 minutes, and half of a very short limit."""
    assert plan.time_budget({"runtime": limit}) == budget


def test_no_time_limit_is_no_budget():
    assert plan.time_budget({}) == plan.time_budget({"runtime": "<TBD>"}) == 0


# ---------------------------------------------------------------- environment and commands


def additions(environment, gpus, n_cpus=8):
    return plan.environment_additions(environment, Shape(1, gpus), 1.5, n_cpus, Path("/s"))


@pytest.mark.parametrize(
    ("environment", "gpus", "threads"),
    [
        ({"OMP_NUM_THREADS": "16"}, 4, "4"),
        ({"OMP_NUM_THREADS": "3"}, 2, "1"),
        ({"OMP_NUM_THREADS": "2"}, 4, "1"),  # never none
        ({}, 2, "4"),  # the CPUs that there are
        ({"OMP_NUM_THREADS": "16"}, 1, None),  # one process keeps them all
        ({}, 0, None),
    ],
)
def test_threads_are_divided_among_the_ranks_of_a_node(environment, gpus, threads):
    assert additions(environment, gpus).get("OMP_NUM_THREADS") == threads


def test_each_library_gets_its_share_of_the_threads():
    """Snakemake's shell exports more than OpenMP's variable; one alone would undo the division."""
    added = additions({"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "8", "GOTO_NUM_THREADS": "8"}, 2)
    assert {added[name] for name in added if name.endswith("_NUM_THREADS")} == {"4"}
    assert added.keys() >= {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOTO_NUM_THREADS"}


@pytest.mark.parametrize("gpus", [0, 2])
def test_waiting_threads_sleep_soon_unless_somebody_chose(gpus):
    assert additions({}, gpus)["GOMP_SPINCOUNT"] == "1000"
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        assert "GOMP_SPINCOUNT" not in additions({name: "ACTIVE"}, gpus)


def test_compile_caches_are_on_the_nodes_disk_unless_somebody_chose():
    added = additions({"TRITON_CACHE_DIR": "/mine"}, 1)
    assert added["TORCHINDUCTOR_CACHE_DIR"] == "/s/inductor"
    assert "TRITON_CACHE_DIR" not in added
    assert float(added["MESHSTAGE_STARTED"]) == 1.5


def test_srun_starts_one_task_a_node():
    assert plan.srun_command(Shape(3, 4), ["python", "launch.py"]) == [
        "srun",
        "--nodes=3",
        "--ntasks=3",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        "--overlap",
        "--cpu-bind=none",
        "--mpi=none",
        "--input=none",
        "python",
        "launch.py",
    ]


def test_srun_sees_the_job_and_nothing_of_another_step():
    environment = {
        "SLURM_JOB_ID": "7",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_NTASKS": "1",
        "SLURM_STEP_ID": "0",
        "SRUN_CPUS_PER_TASK": "1",
        "SBATCH_EXPORT": "NONE",
        "PATH": "/bin",
    }
    kept = plan.srun_environment(environment)
    assert kept.keys() == {"SLURM_JOB_ID", "SLURM_CONF", "PATH"}


@pytest.mark.spawn
def test_torchrun_understands_its_arguments():
    from torch.distributed import run as torchrun

    rank = ["python", "train.py", "--epochs", "3"]
    alone = torchrun.parse_args(plan.torchrun_arguments(Shape(1, 2), ["--standalone"], rank))
    assert (alone.standalone, alone.nproc_per_node, alone.max_restarts) == (True, "2", 0)
    assert [alone.training_script, *alone.training_script_args] == rank
    place = plan.member(Shape(3, 2), 1, "n1:15007", "42")
    member = torchrun.parse_args(plan.torchrun_arguments(Shape(3, 2), place, rank))
    assert (member.nnodes, member.node_rank, member.rdzv_backend) == ("3", 1, "static")
    assert (member.master_addr, member.master_port, member.rdzv_id) == ("n1", 15007, "42")


def test_jobs_meet_at_ports_of_their_own():
    ports = [plan.rendezvous_port(str(job), lambda port: True) for job in range(100, 200)]
    assert len(set(ports)) == len(ports)
    # Linux gives connections ports from 32768 on; below 1024 is for root.
    assert all(1024 < port < 32768 for port in ports)


def test_a_port_that_is_taken_is_passed_over():
    first = plan.rendezvous_port("42", lambda port: True)
    assert plan.rendezvous_port("42", lambda port: port > first + 1) == first + 2
    with pytest.raises(InputError, match="no free port"):
        plan.rendezvous_port("42", lambda port: False)


@pytest.mark.parametrize("value", [None, "", "n1"])
def test_a_node_that_does_not_know_its_number_says_so(value):
    environment = {} if value is None else {"SLURM_NODEID": value}
    with pytest.raises(InputError, match="SLURM_NODEID"):
        plan.node_number(environment)


@pytest.mark.parametrize(
    ("codes", "received", "code"),
    [
        ([], (), 0),
        ([0, 0], (), 0),
        ([75, 75], (), 75),
        ([75, -signal.SIGTERM], (), 75),  # torchrun ended one that was slow to leave
        ([-signal.SIGUSR1, -signal.SIGUSR1], (signal.SIGUSR1,), 75),  # before training began
        ([-signal.SIGUSR1], (), 138),
        ([1, 75], (), 1),
        ([75, 3], (), 3),
        ([1, 2], (), 2),  # one refused its input, another broke because it left
        ([-signal.SIGSEGV, -signal.SIGTERM], (), 139),
        ([-signal.SIGKILL, -signal.SIGTERM], (), 137),
        ([-signal.SIGKILL, 1], (), 1),
        ([-signal.SIGTERM], (), 143),
    ],
)
def test_exit_codes_are_joined(codes, received, code):
    assert plan.exit_code(codes, received) == code


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, "exit code 2"),
        (75, "goes on"),
        (-9, "SIGKILL"),
        (143, "SIGTERM"),
        (255, "exit code 255"),
    ],
)
def test_exit_codes_are_described(code, words):
    assert words in plan.describe_code(code)


# ---------------------------------------------------------------- the script itself

RANK = """
import json, os, signal, sys, time
from pathlib import Path

folder, *codes = sys.argv[1:]
rank = int(os.environ.get("RANK", "0"))
got = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: got.append(number))
names = ("WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS", "MESHSTAGE_STARTED", "MASTER_PORT")
told = {name: os.environ.get(name) for name in names} | {"pid": os.getpid()}
path = Path(folder) / f"rank_{rank}.json"
path.with_suffix(".part").write_text(json.dumps(told))
path.with_suffix(".part").rename(path)
if codes[0] != "wait":
    # No rank may end before all have begun: torchrun ends those that are late.
    while len(list(Path(folder).glob("rank_*.json"))) < int(os.environ.get("WORLD_SIZE", "1")):
        time.sleep(0.05)
    sys.exit(int(codes[rank]))
while not got:
    time.sleep(0.05)
sys.exit(75)
"""


@pytest.fixture
def launch(tmp_path):
    """Start launch.py with ranks that tell about themselves; gives a starter and the folder."""
    (tmp_path / "rank.py").write_text(RANK)
    told = tmp_path / "told"
    told.mkdir()

    def start(*arguments, codes=("wait",), environment=None):
        command = [sys.executable, LAUNCH, *arguments, "--", tmp_path / "rank.py", told, *codes]
        base = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMP_"))}
        return subprocess.Popen(
            [str(part) for part in command],
            env=base | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start, told


def wait_for_ranks(told, count):
    end = time.monotonic() + 120
    while len(files := sorted(told.glob("rank_*.json"))) < count:
        assert time.monotonic() < end, "the ranks did not start"
        time.sleep(0.05)
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.spawn
@pytest.mark.parametrize("code", [0, 2, 75])
def test_one_process_is_plain_python(launch, code):
    start, told = launch
    before = time.monotonic()
    process = start("--gpus-per-node", "1", codes=(str(code),))
    assert process.wait(60) == code
    [rank] = wait_for_ranks(told, 1)
    assert rank["pid"] == process.pid  # no process between Snakemake and the training
    assert rank["WORLD_SIZE"] is None
    assert before < float(rank["MESHSTAGE_STARTED"]) < time.monotonic()


@pytest.mark.spawn
@pytest.mark.parametrize(("codes", "code"), [(("0", "0"), 0), (("2", "2"), 2), (("75", "75"), 75)])
def test_ranks_of_one_node(launch, codes, code):
    start, told = launch
    process = start("--gpus-per-node", "2", codes=codes, environment={"OMP_NUM_THREADS": "6"})
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    ranks = wait_for_ranks(told, 2)
    assert [rank["LOCAL_RANK"] for rank in ranks] == ["0", "1"]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {"2"}
    assert {rank["OMP_NUM_THREADS"] for rank in ranks} == {"3"}


@pytest.mark.spawn
def test_log_names_the_rank_that_was_killed(launch):
    start, told = launch
    process = start("--gpus-per-node", "2")
    os.kill(wait_for_ranks(told, 2)[1]["pid"], signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "rank 1 of this node died of SIGKILL" in output


@pytest.mark.spawn
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals_reach_the_ranks(launch, number):
    start, told = launch
    process = start("--gpus-per-node", "2")
    wait_for_ranks(told, 2)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "the same command goes on" in output


@pytest.mark.spawn
def test_signal_before_the_ranks_begin_loses_nothing(launch):
    start, _ = launch
    process = start("--gpus-per-node", "2")
    time.sleep(0.7)  # Python is up, torch is being imported
    process.terminate()
    assert process.wait(60) in (75, -signal.SIGTERM)


@pytest.mark.spawn
def test_ranks_do_not_outlive_a_launcher_that_is_killed(launch):
    start, told = launch
    process = start("--gpus-per-node", "2")
    pids = [rank["pid"] for rank in wait_for_ranks(told, 2)]
    process.kill()
    process.wait()
    end = time.monotonic() + 10
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < end, "a rank lives on"
        time.sleep(0.1)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.spawn
def test_two_trainings_on_one_machine_do_not_meet(tmp_path):
    """Each has two ranks of its own, numbered from 0."""
    processes = []
    for name in ("first", "second"):
        (folder := tmp_path / name).mkdir()
        (folder / "rank.py").write_text(RANK)
        command = [sys.executable, LAUNCH, "--gpus-per-node=2", "--", folder / "rank.py", folder]
        processes.append(subprocess.Popen([*map(str, command), "wait"]))
    ranks = [wait_for_ranks(tmp_path / name, 2) for name in ("first", "second")]
    assert len({rank["pid"] for both in ranks for rank in both}) == 4
    for process in processes:
        process.terminate()
    assert [process.wait(60) for process in processes] == [75, 75]


def test_dry_run_prints_and_starts_nothing(launch):
    start, told = launch
    output, _ = start("--dry-run", "--gpus-per-node=2").communicate(timeout=60)
    words = shlex.split(output)
    assert words[0] == "env"
    assert "torchrun" in words and "--nproc-per-node=2" in words and "--standalone" in words
    output, _ = start("--dry-run").communicate(timeout=60)
    assert shlex.split(output)[-4:-2] == [sys.executable, str(told.parent / "rank.py")]
    assert not list(told.iterdir())


# ---------------------------------------------------------------- several nodes, without SLURM

# Runs the command of each node here, and kills the other when one has failed: its own code is
# then that of the killed one, as the real one's is.
SRUN = """
import os, subprocess, sys, time
words = sys.argv[1:]
first = next(i for i, word in enumerate(words) if not word.startswith("--"))
nodes = [
    subprocess.Popen(words[first:], env=os.environ | {"SLURM_NODEID": str(node)})
    for node in range(2)
]
while None in [node.poll() for node in nodes] and not any(node.returncode for node in nodes):
    time.sleep(0.05)
for node in nodes:
    if any(other.returncode for other in nodes):
        node.kill()
codes = [node.wait() for node in nodes]
sys.exit(137 if any(codes) else 0)
"""
SQUEUE = """
[ -z "$NO_SQUEUE" ] || { echo gone >&2; exit 1; }
echo 'n[1-2]'
"""
SCONTROL = """
case "$2" in
hostnames) printf 'n1\\nn2\\n';;
show) echo "NodeName=$4 NodeAddr=127.0.0.1 NodeHostName=$4";;
esac
"""


@pytest.fixture
def fake_slurm(tmp_path):
    """Stand-ins for srun, squeue and scontrol; gives the environment that finds them."""
    folder = tmp_path / "bin"
    folder.mkdir()

    for name, text in {
        "srun": f"#!{sys.executable}{SRUN}",
        "squeue": f"#!/bin/sh{SQUEUE}",
        "scontrol": f"#!/bin/sh{SCONTROL}",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "42"}


@pytest.mark.spawn
@pytest.mark.parametrize(
    ("codes", "code"), [(["0"] * 4, 0), (["75"] * 4, 75), (["0"] * 3 + ["2"], 2)]
)
def test_ranks_of_two_nodes(launch, fake_slurm, codes, code):
    """The nodes' own codes are reported past srun, which says 137 (killed)."""
    start, told = launch
    process = start("--nodes=2", "--gpus-per-node=2", codes=codes, environment=fake_slurm)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == code, output
    ranks = wait_for_ranks(told, 4)
    assert {rank["WORLD_SIZE"] for rank in ranks} == {"4"}
    assert sorted(rank["LOCAL_RANK"] for rank in ranks) == ["0", "0", "1", "1"]


def test_dry_run_of_two_nodes_prints_srun(launch, fake_slurm):
    start, _ = launch
    process = start("--dry-run", "--nodes=2", "--gpus-per-node=2", environment=fake_slurm)
    words = shlex.split(process.communicate(timeout=60)[0])
    assert words[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    meet = next(word for word in words if word.startswith("--meet="))
    assert meet.startswith("--meet=127.0.0.1:")


@pytest.mark.spawn
def test_one_node_of_a_job_is_a_step_of_its_own(launch, fake_slurm):
    """SLURM's cgroups signal the first process of a step and none of its children."""
    start, told = launch
    process = start("--dry-run", "--gpus-per-node=2", environment=fake_slurm)
    words = shlex.split(process.communicate(timeout=60)[0])
    assert words[:4] == ["srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1"]
    assert "--overlap" in words and "--report=HOST:PORT" in words
    assert not [word for word in words if word.startswith("--meet")]
    # What srun starts is that one node, and starts no other step.
    given = words[words.index("--nodes=1", 4) :]
    inside = start(
        "--dry-run", *given[: given.index("--")], codes=(), environment=fake_slurm
    ).communicate(timeout=60)[0]
    assert "--standalone" in inside and "srun" not in shlex.split(inside)
    # Without srun there is no step to be had.
    (told.parent / "bin/srun").unlink()
    bare = fake_slurm | {"PATH": f"{told.parent}/bin"}
    output, _ = start("--dry-run", "--gpus-per-node=2", environment=bare).communicate(timeout=60)
    assert "--standalone" in output


@pytest.mark.parametrize(
    ("change", "nodes", "sentence"),
    [
        ({"SLURM_JOB_ID": ""}, 2, "several nodes need a SLURM job"),
        ({"NO_SQUEUE": "1"}, 2, "cannot learn the nodes of this SLURM job"),
        ({"PATH": "/nowhere"}, 2, "cannot learn the nodes of this SLURM job"),
        ({}, 3, "has 2 nodes"),
    ],
)
def test_nodes_that_cannot_be_named_are_an_error(launch, fake_slurm, change, nodes, sentence):
    start, _ = launch
    process = start(f"--nodes={nodes}", "--gpus-per-node=2", environment=fake_slurm | change)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert sentence in output
    assert "Traceback" not in output


# ---------------------------------------------------------------- several in one process

TOGETHER = LAUNCH.with_name("together.py")
TELLS = """import os, sys
print(sys.argv[1], os.getpid(), "meshstage.pages" in sys.modules)
code = sys.argv[2]
os.kill(os.getpid(), 9) if code == "9" else sys.exit(int(code))
"""


def together(tmp_path: Path, *codes: str) -> subprocess.CompletedProcess:
    script = tmp_path / "tells.py"
    script.write_text(TELLS)
    commands = [["--then", str(script), f"n{n}", code] for n, code in enumerate(codes)]
    words = [word for command in commands for word in command][1:]
    command = [sys.executable, str(TOGETHER), "--load", "meshstage.pages", "--", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_scripts_run_together_in_turn_each_in_a_process_of_its_own(tmp_path):
    answer = together(tmp_path, "0", "0", "0")
    assert answer.returncode == 0, answer.stderr
    names, processes, imported = zip(*map(str.split, answer.stdout.splitlines()), strict=True)
    assert names == ("n0", "n1", "n2")
    assert len(set(processes)) == 3 and set(imported) == {"True"}


@pytest.mark.parametrize(
    ("codes", "code"), [(("0", "75", "0"), 75), (("75", "2", "1"), 2), (("0", "9", "0"), 137)]
)
def test_one_script_that_fails_does_not_stop_those_after_it(tmp_path, codes, code):
    answer = together(tmp_path, *codes)
    assert answer.returncode == code
    assert [line.split()[0] for line in answer.stdout.splitlines()] == ["n0", "n1", "n2"]
    assert "tells.py n" in answer.stderr


def test_a_signal_ends_the_script_that_runs_and_starts_no_other(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text("import time, sys; print(sys.argv[1], flush=True); time.sleep(60)")
    words = [str(script), "first", "--then", str(script), "second"]
    command = [sys.executable, str(TOGETHER), "--", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "first\n"
        process.send_signal(signal.SIGTERM)
        # Nothing is lost: the same command goes on.
        assert process.wait() == 75
        assert process.stdout.read() == ""
