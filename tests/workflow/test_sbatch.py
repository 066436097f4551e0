"""What the SLURM profiles ask sbatch for, recorded by a stand-in; and what they share."""

import csv
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from workflow.project import ROOT, Project

MODEL = "results/demo/models/mgn/mgn_stage_model.pt"
PROFILES = ("local", "slurm", "slurm-multinode")

# sbatch refuses every job, so that nothing runs and Snakemake ends at once; or takes it, and then
# squeue has a word for what became of it.
STAND_INS = {
    "sbatch": (
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "with open(os.environ['RECORD'], 'a') as stream:\n"
        "    stream.write(json.dumps(sys.argv[1:]) + chr(10))\n"
        "print(1) if 'BECAME' in os.environ else sys.exit('no job is wanted')\n"
    ),
    "sinfo": "#!/bin/sh\necho 'gpu*'\n",
    "scontrol": "#!/bin/sh\necho 'MaxArraySize = 1001'\necho 'MinJobAge = 600 sec'\n",
    "sacct": "#!/bin/sh\nexit 1\n",
    "squeue": '#!/bin/sh\necho "1|${BECAME:?}"\n',
    "scancel": "#!/bin/sh\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    """Make a project in which all is done but the training; its data are empty files."""
    project = Project.copy(tmp_path_factory.mktemp("sbatch") / "project")
    project.use_plain_runs()
    with (project.folder / "config/subjects.tsv").open(encoding="utf-8") as stream:
        rows = [Path(row["manifest"]).parent for row in csv.DictReader(stream, delimiter="\t")]
    for folder in rows:
        project.write(f"results/demo/subjects/{folder.name}/subject.json", "{}")
    for name in ("template/template.json", "stats.json"):
        project.write(f"results/demo/{name}", "{}")
    # The gate stands for all that is before it, if it is the newest.
    for age, name in enumerate(("check/passed.txt", "check/cohort.html", "check/cohort.json")):
        project.write(f"results/demo/{name}", "{}")
        newest = time.time() + 10 - age
        os.utime(project.folder / "results/demo" / name, (newest, newest))
    for name, text in STAND_INS.items():
        project.write(f"bin/{name}", text)
        (project.folder / "bin" / name).chmod(0o755)
    return project


def profile_of(name: str) -> dict:
    return yaml.safe_load((ROOT / "profiles" / name / "profile.yaml").read_text())


def start(
    project: Project, profile: dict, rule: str, *targets: str, **environment: str
) -> tuple[subprocess.CompletedProcess, list[list[str]]]:
    """Make what a rule, or several with spaces between, make; gives the answer and each sbatch."""
    project.write("profiles/test/profile.yaml", yaml.safe_dump(profile))
    record = project.folder / "sbatch.txt"
    record.unlink(missing_ok=True)
    path = f"{project.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    rules = rule.split()
    options = ["--profile=profiles/test", "--retries=0", "--latency-wait=1"]
    options.append("--slurm-init-seconds-before-status-checks=1")
    answer = subprocess.run(
        ["snakemake", *options, "--allowed-rules", *rules, "--", *targets],
        cwd=project.folder,
        env=os.environ | {"PATH": path, "RECORD": str(record)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert all(f"rule {name}:" in answer.stdout for name in rules), answer.stdout
    lines = record.read_text().splitlines() if record.exists() else []
    return answer, [json.loads(line) for line in lines]


def submitted(project: Project, profile: dict, rule: str, *targets: str) -> list[list[str]]:
    """Submit what a rule makes, and give the arguments of each sbatch but the command."""
    _, calls = start(project, profile, rule, *targets)
    return [[word for word in call if not word.startswith("--wrap")] for call in calls]


def asked_of_train(
    project: Project, profile: dict, job: tuple[str, str] = ("train_mgn", MODEL), **train
) -> set[str]:
    """Options of the one sbatch that a training is, long ones and `-t 60` as one word."""
    settings = profile["set-resources"]["train"]
    settings.update(train)
    profile["set-resources"]["train"] = {k: v for k, v in settings.items() if v is not None}
    [call] = submitted(project, profile, *job)
    words = " ".join(call).replace(" -", "\n-").splitlines()
    ours = ("-t", "--mem", "--nodes", "--ntasks", "--cpus", "--gpus", "--gres", "--signal")
    return {word for word in words if word.startswith((*ours, "--requeue", "-A", "-p"))}


def test_one_node(project):
    assert asked_of_train(project, profile_of("slurm")) == {
        *("-p gpu", "-t 1440", "--mem 64000", "--requeue", "--signal=TERM@60"),
        *("--nodes=1", "--gpus=2", "--cpus-per-task=16"),
    }


def test_a_network_of_ones_own_is_a_job_like_any_other(project):
    project.write("own/net.py", "class TrainNet:\n    pass\n")
    project.write("own/runs.tsv", "run\tnetwork\nmine\tnet.py:TrainNet\n")
    job = ("train_mine", "results/demo/models/mine/own_stage_model.pt")
    profile = profile_of("slurm") | {"config": ["runs=own/runs.tsv"]}
    assert asked_of_train(project, profile, job) == asked_of_train(project, profile_of("slurm"))


def test_several_nodes(project):
    """One launcher a node, and each node has its GPUs: they cannot be spread unevenly."""
    assert asked_of_train(project, profile_of("slurm-multinode")) == {
        *("-p gpu", "-t 1440", "--mem 64000", "--requeue", "--signal=TERM@60"),
        *("--nodes=2", "--ntasks=2", "--ntasks-per-node=1"),
        *("--gpus-per-node=2", "--cpus-per-task=16"),
    }


def test_one_gpu_a_node(project):
    extra = "'--ntasks-per-node=1 --gpus-per-node=1'"
    asked = asked_of_train(
        project, profile_of("slurm-multinode"), nodes=4, tasks=4, slurm_extra=extra
    )
    assert {"--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "--gpus-per-node=1"} <= asked


def test_no_gpu(project):
    asked = asked_of_train(project, profile_of("slurm"), gpu=None)
    assert {"--nodes=1", "--ntasks=1", "--cpus-per-task=16"} <= asked
    assert not [word for word in asked if "gpu" in word and word != "-p gpu"]


def test_an_entry_of_one_run_goes_before_that_of_all(project):
    profile = profile_of("slurm")
    profile["set-resources"]["train_mgn"] = {"gpu": 4}
    assert {"--gpus=4", "--nodes=1", "-t 1440"} <= asked_of_train(project, profile)


def test_a_resumed_run_asks_for_the_same(project):
    """`train` stands for the rules of resumed runs too."""
    for name in ("mgn_stage_model.pt", "complete.json"):
        project.write(f"results/demo/models/mgn/{name}", "{}")
    config = project.folder / "config/config.yaml"
    before = config.read_text()
    project.write(
        "config/config.yaml", before.replace("resume: {}", "resume: {mgn_1: {epochs: 120}}")
    )
    target = "results/demo/models/mgn_1/mgn_stage_model.pt"
    [call] = submitted(project, profile_of("slurm"), "resume_mgn_1", target)
    assert {"--nodes=1", "--gpus=2", "--cpus-per-task=16", "--signal=TERM@60"} <= set(call)
    config.write_text(before)
    shutil.rmtree(project.folder / "results/demo/models/mgn")


def test_unknown_end_of_a_job_is_a_failure_without_its_model(project):
    """The plugin takes UNKNOWN for success; what tells is whether the model is there."""
    answer, calls = start(project, profile_of("slurm"), "train_mgn", MODEL, BECAME="UNKNOWN")
    assert len(calls) == 1, answer.stdout
    assert answer.returncode == 1
    assert "MissingOutputException" in answer.stdout, answer.stdout


def test_subjects_are_ingested_many_a_job(project):
    """Thirty subjects are three batches; in groups of two batches, two jobs of one CPU each."""
    profile = profile_of("slurm") | {"group-components": {"ingest": 2}}
    profile["resources"] = {"at_once": 1}
    folders = list((project.folder / "results/demo/subjects").iterdir())
    assert len(folders) == 30
    for folder in folders:
        project.write(f"results/demo/cohort/{folder.name}/manifest.json", "{}")
    targets = [f"results/demo/subjects/{folder.name}/targets.npy" for folder in folders]
    calls = submitted(project, profile, "ingest_1 ingest_2 ingest_3", *targets)
    assert len(calls) == 2
    for call in calls:
        assert "--cpus-per-task=1" in call
        assert call[call.index("--mem") + 1] == "2000"  # of one batch at a time
    # 100 minutes for each batch: two batches take two turns.
    assert sorted(int(call[call.index("-t") + 1]) for call in calls) == [100, 200]


def test_tables_wait_in_no_queue(project):
    for model in ("mgn", "mlp"):
        project.write(f"results/demo/evaluation/{model}.json", "{}")
    table = "results/demo/figures/runs.html"
    assert submitted(project, profile_of("slurm"), "plot_evaluation", table) == []
    log = project.folder / "logs/demo/plot_evaluation.txt"
    assert "not an evaluation" in log.read_text()  # it ran here, and `{}` is none


# ---------------------------------------------------------------- dry run, and the files


@pytest.mark.parametrize("profile", PROFILES)
def test_dry_run_without_slurm_shows_every_file(tmp_path, project, profile):
    for name in ("bash", "sh", "env", "git", "which"):
        if program := shutil.which(name):
            (tmp_path / name).symlink_to(program)
    path = f"{tmp_path}:{Path(sys.executable).parent}"
    assert shutil.which("sbatch", path=path) is None
    answer = subprocess.run(
        ["snakemake", "-n", "--profile", f"profiles/{profile}"],
        cwd=project.folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    for epoch in (20, 40, 60):
        assert f"models/mgn/mgn_stage_model_epoch_{epoch:05d}.pt" in answer.stdout + answer.stderr


def test_the_profile_for_several_nodes_differs_in_train_alone():
    one, several = profile_of("slurm"), profile_of("slurm-multinode")
    for profile in (one, several):
        del profile["set-resources"]["train"]
        del profile["set-threads"]["train"]
    assert one == several


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_keep_and_rerun_what_is_incomplete_and_explain_every_entry(name):
    assert profile_of(name)["rerun-incomplete"] is True
    assert profile_of(name)["keep-incomplete"] is True
    lines = (ROOT / "profiles" / name / "profile.yaml").read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if line and not line.startswith((" ", "#")):
            assert above.startswith("#") or "#" in line, f"{line} has no comment"


@pytest.mark.parametrize("name", ["slurm", "slurm-multinode"])
def test_no_task_geometry_for_every_job(name):
    """A job with GPUs would get `tasks` as a number of tasks a GPU."""
    assert "tasks" not in profile_of(name)["default-resources"]
