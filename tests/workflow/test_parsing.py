"""What Snakemake says before it runs anything."""

import csv
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from workflow.project import ROOT, Project


@pytest.fixture(scope="module")
def shipped(tmp_path_factory) -> Project:
    """Copy the project as it is: nothing has run in it."""
    return Project.copy(tmp_path_factory.mktemp("clone") / "project")


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Project:
    """Copy the project, to train a plain `mgn` and a plain `mlp`."""
    project = Project.copy(tmp_path_factory.mktemp("plain") / "project")
    project.use_plain_runs()
    return project


def test_dry_run_of_a_fresh_clone_shows_every_kept_epoch(shipped):
    answer = shipped.snakemake("-n")
    assert answer.returncode == 0, answer.stdout
    with (shipped.folder / "config/runs.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert {"mgn", "mlp"} <= {row["run"] for row in rows}
    for row in rows:
        found = re.findall(rf"models/{row['run']}/\w+_stage_model_epoch_(\d+)\.pt", answer.stdout)
        every, epochs = int(row["rmse_log_interval"] or 0), int(row["epochs"] or 0)
        assert {int(epoch) for epoch in found} == (
            {*range(every, epochs, every), epochs} if epochs else set()
        )
    batches = set(re.findall(r"^ingest_(\d+) +1$", answer.stdout, re.MULTILINE))
    assert batches == {"1", "2", "3"}  # ten subjects each
    assert not (shipped.folder / "results").exists()


@pytest.mark.parametrize("option", ["--dag", "--rulegraph", "--lint"])
def test_graphs_and_lint_work(shipped, option):
    answer = shipped.snakemake(option)
    assert answer.returncode == 0, answer.stdout
    if option != "--lint":
        assert "digraph" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--config", "epochs=5"), ["unknown key 'epochs'", "config/config.yaml"]),
        (("--config", "edges=sides"), ["edges is 'sides'", "cells"]),
        (("--config", "subjects=none.tsv"), ["none.tsv"]),
        (("--config", "runs=none.tsv"), ["none.tsv"]),
        (("--config", "resume={mgn_1: {epochs: 80}}"), ["epochs is 80", "already at 80"]),
        (("--config", "cohort=2024_11"), ["cohort is the number 202411", "after --config"]),
        (("results/demo/models/mgn_7/mgn_stage_model.pt",), ["mgn_7 is not listed", "resume:"]),
    ],
)
def test_wrong_configuration_ends_with_a_sentence_and_code_2(clean, arguments, words):
    answer = clean.snakemake("-n", *arguments)
    assert answer.returncode == 2, answer.stdout
    assert "Traceback" not in answer.stdout
    sentence = next(line for line in answer.stdout.splitlines() if line.startswith("error:"))
    for word in words:
        assert word in sentence
    assert not (clean.folder / "results").exists()


def test_run_named_like_a_resumed_one_is_refused(tmp_path):
    project = Project.copy(tmp_path / "project")
    project.write("config/runs.tsv", "run\tnetwork\nx_1\tmgn\n")
    answer = project.snakemake("-n")
    assert answer.returncode == 2
    assert "error: config/runs.tsv, line 2: run is 'x_1'" in answer.stdout


def test_resumed_run_declares_its_own_epochs_and_starts_from_its_parent(clean):
    answer = clean.snakemake(
        "-n",
        "results/demo/models/mgn_1/mgn_stage_model.pt",
        "--config",
        "resume={mgn_1: {epochs: 90, from_epoch: 40, learning_rate: 0.0001}}",
    )
    assert answer.returncode == 0, answer.stdout
    job = answer.stdout.split("rule resume_mgn_1:")[1].split("jobid:")[0]
    assert "results/demo/models/mgn/mgn_stage_model_epoch_00040.pt" in job.split("output:")[0]
    kept = re.findall(r"mgn_1/mgn_stage_model_epoch_(\d+)", job)
    assert [int(epoch) for epoch in kept] == [60, 80, 90]


def test_broken_manifests_do_not_stop_the_parsing(tmp_path):
    """They must reach the check, which lists everybody's problems at once."""
    project = Project.copy(tmp_path / "project")
    project.write("data/mean.vtp", "")
    project.write("data/a/manifest.json", "{not json")
    project.write("data/b/manifest.json", '{"subject_id": "b", "phases": 3}')
    project.write(
        "data/subjects.tsv",
        "manifest\tsplit\na/manifest.json\ttrain\nb/manifest.json\tval\nc/manifest.json\ttest\n",
    )
    answer = project.snakemake(
        "-n", "--config", "cohort=odd", "template=data/mean.vtp", "subjects=data/subjects.tsv"
    )
    assert answer.returncode == 0, answer.stdout
    for stem in ("row-0001", "row-0003"):
        assert f"results/odd/subjects/{stem}/subject.json" in answer.stdout
    assert "results/odd/subjects/b/subject.json" in answer.stdout


# ---------------------------------------------------------------- a network of the user's own

OWN = """
class TrainOwn(TrainPhysicsNeMoBase):
    model_tag = "mine"
"""


@pytest.fixture(scope="module")
def with_own(tmp_path_factory) -> Project:
    """Make a project whose one run is a network of the user's own, and resumed once."""
    project = Project.copy(tmp_path_factory.mktemp("own") / "project")
    project.write("config/nets/own.py", OWN)
    project.write(
        "config/runs.tsv",
        "run\tnetwork\tepochs\trmse_log_interval\toptions\n"
        'one\tnets/own.py:TrainOwn\t6\t4\t{"width": 32}\n',
    )
    return project


def job(output: str, rule: str) -> tuple[str, str]:
    """Give what a dry run says of a rule: its inputs, and the rest of it with the command."""
    text = output.split(f"rule {rule}:")[1].split("\nrule ")[0]
    inputs, _, rest = text.partition("output:")
    return inputs, rest


def test_own_network_is_planned_like_ours(with_own):
    answer = with_own.snakemake("-n", "-p", "--config", "resume={one_1: {epochs: 9}}")
    assert answer.returncode == 0, answer.stdout
    inputs, rest = job(answer.stdout, "train_one")
    assert "config/nets/own.py" in inputs
    outputs = rest.split("log:")[0]
    assert set(re.findall(r"models/one/([^\s,]+)", outputs)) == {
        "mine_stage_model.pt", "mine_stage_model_metadata.json",
        "mine_stage_model_epoch_00004.pt", "mine_stage_model_epoch_00006.pt",
        "pca_mean_template.vtu", "pca_model.json", "training_losses.json",
        "training_validation_rmse.json", "training_validation_rmse.csv",
    }  # fmt: skip
    assert "scripts/train.py --network=" in rest.replace("'", "")
    assert "--network=config/nets/own.py:TrainOwn" in rest
    assert "'--options={\"width\": 32}'" in rest
    inputs, rest = job(answer.stdout, "resume_one_1")
    assert "models/one/mine_stage_model.pt" in inputs and "config/nets/own.py" in inputs
    assert "mine_stage_model_epoch_00009.pt" in rest and "--epochs=9" in rest
    # Nothing is known of what it needs: the check demands neither edges nor tetrahedra.
    assert "--network" not in job(answer.stdout, "check")[1]


def test_own_network_without_its_class_is_one_sentence(with_own):
    with_own.write("other/runs.tsv", "run\tnetwork\none\tnets/own.py:TrainOwn\n")
    answer = with_own.snakemake("-n", "--config", "runs=other/runs.tsv")
    assert answer.returncode == 2
    assert "error: other/runs.tsv, line 2, other/nets/own.py" in answer.stdout


def test_the_check_demands_what_any_run_needs(clean):
    clean.write(
        "more/runs.tsv", "run\tnetwork\tlosses\na\tmlp\t\nb\tmlp\tstrain_energy\nc\tmgn\t\n"
    )
    answer = clean.snakemake("-n", "-p", "--config", "runs=more/runs.tsv")
    assert answer.returncode == 0, answer.stdout
    assert "--network mlp strain_energy mgn" in job(answer.stdout, "check")[1]


def test_what_is_fitted_at_once_declares_exactly_its_files_in_a_small_job(clean):
    """No epoch is kept and no curve drawn; the resources are those of every small rule."""
    clean.write("fitted/runs.tsv", "run\tnetwork\ng\tgp\n")
    options = ("-n", "-p", "--config", "runs=fitted/runs.tsv", "cycle=open")
    answer = clean.snakemake(*options, profile="slurm")
    assert answer.returncode == 0, answer.stdout
    _, rest = job(answer.stdout, "train_g")
    assert set(re.findall(r"models/g/([^\s,]+)", rest.split("log:")[0])) == {
        "meshstage_gp_stage_model.pt", "meshstage_gp_stage_model_metadata.json",
        "pca_mean_template.vtu", "pca_model.json",
    }  # fmt: skip
    assert "scripts/train_gp.py --cycle=open" in rest.replace("'", "")
    assert "--nodes 1 --gpus-per-node 0" in rest
    assert "mem_mb=8000" in rest and "threads:" not in rest and "gpu=" not in rest
    assert "figures/g/viewer.html" in answer.stdout and "training.png" not in answer.stdout


# ---------------------------------------------------------------- folds

FOLDED = "run\tnetwork\tepochs\trmse_log_interval\nmgn\tmgn\t80\t20\npod\tpod\t6\t6\n"


def test_folds_are_planned_with_the_same_rules(clean):
    """One job per fold and run; what is small shares one, on a CPU. Resumed runs are there too."""
    clean.write("folded/runs.tsv", FOLDED)
    options = ("runs=folded/runs.tsv", "folds=3", "refit_shape_model=True", "learning_curve=[5,9]")
    resume = "resume={mgn_1: {epochs: 90}}"
    answer = clean.snakemake("-n", "-p", "--config", *options, resume, profile="slurm")
    assert answer.returncode == 0, answer.stdout
    for fold in (1, 2, 3):
        inputs, rest = job(answer.stdout, f"train_mgn_folds_{fold}")
        home = f"results/demo/folds/{fold}"
        assert f"{home}/stats.json" in inputs and f"{home}/template/template.json" in inputs
        assert f"{home}/models/mgn/mgn_stage_model_epoch_00060.pt" in rest
        command = rest.split("Shell command:")[1]
        trained = set(re.findall(rf"{home}/subjects/demo-(\d+)", command.split("--output")[0]))
        # 25 subjects of train and val, of which 8 or 9 are held out; the test subjects never.
        assert len(trained) in (16, 17) and not trained & {f"{n:03}" for n in range(26, 31)}
        assert f"--output {home}/models/mgn " in command and "--val" not in command
        assert "gpu=2" in rest and "--gpus-per-node 2" in command
        inputs, rest = job(answer.stdout, f"resume_mgn_1_folds_{fold}")
        assert f"{home}/models/mgn/mgn_stage_model.pt" in inputs
        assert f"--output {home}/models/mgn " in rest and "--sibling 1" in rest
    _, rest = job(answer.stdout, "train_pod_folds_1_to_3")
    assert rest.count("scripts/train_pod.py") == 3 and rest.count("--device cpu") == 3
    assert "mem_mb=8000" in rest and "gpu=" not in rest
    _, rest = job(answer.stdout, "evaluate_folds")
    assert "results/demo/evaluation/" in rest and ".oof.csv" in rest
    _, rest = job(answer.stdout, "train_mgn_subsets_5")
    command = rest.split("Shell command:")[1]
    assert len(re.findall("subjects/demo", command.split("--val")[0])) == 5
    for name in ("out_of_fold", "learning_curve"):
        assert f"figures/{name}.png" in answer.stdout


# ---------------------------------------------------------------- where it runs


def run(folder: Path, *arguments: str) -> str:
    answer = subprocess.run(
        ["snakemake", "-n", "-p", "--cores=1", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """Make a folder with a configuration alone."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def test_from_another_folder(clean, elsewhere):
    """Scripts are the project's, results and tables the folder's."""
    output = run(clean.folder, "-s", "Snakefile", "-d", str(elsewhere))
    inputs, rest = job(output, "train_mgn")
    assert " results/demo/stats.json" in inputs
    assert f"python {clean.folder}/scripts/launch.py" in rest
    assert f"{clean.folder}/scripts/train_mgn.py" in rest
    assert f"{clean.folder}/scripts/meshstage/cohort/demo.py" in job(output, "demo_cohort")[0]


def test_as_a_module_of_another_workflow(clean, elsewhere):
    (elsewhere / "other.smk").write_text(
        f'module stage:\n    snakefile: "{clean.folder}/Snakefile"\n'
        "use rule * from stage as stage_*\n"
    )
    output = run(elsewhere, "-s", "other.smk", "stage_all")
    inputs, rest = job(output, "stage_train_mgn")
    assert " results/demo/stats.json" in inputs
    assert f"{clean.folder}/scripts/train_mgn.py" in rest


def test_profiles_of_train_reach_the_rules_of_a_module(clean, elsewhere):
    (elsewhere / "other.smk").write_text(
        f'module stage:\n    snakefile: "{clean.folder}/Snakefile"\n'
        "use rule * from stage as stage_*\n"
    )
    output = run(elsewhere, "-s", "other.smk", "stage_all", "--set-resources", "train:mem_mb=1234")
    assert "mem_mb=1234" in job(output, "stage_train_mgn")[1]


def test_a_cohort_that_was_moved_is_found_again(tmp_path):
    """Manifests are relative to their table, whatever folder Snakemake works in."""
    project = Project.copy(tmp_path / "project")
    project.write("data/a/manifest.json", '{"subject_id": "alpha"}')
    project.write("data/subjects.tsv", "manifest\tsplit\na/manifest.json\ttrain\n")
    project.write("data/mean.vtp", "")
    for folder in ("data", "moved/here"):
        if folder != "data":
            (project.folder / "moved").mkdir()
            (project.folder / "data").rename(project.folder / folder)
        answer = project.snakemake(
            "-n", "--config", "cohort=m", f"template={folder}/mean.vtp",
            f"subjects={folder}/subjects.tsv",
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout
        inputs = job(answer.stdout, "ingest_1")[0]
        assert f"{folder}/a/manifest.json" in inputs
        assert "results/m/subjects/alpha/subject.json" in answer.stdout
