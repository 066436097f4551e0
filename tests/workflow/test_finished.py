"""A training that has finished is not lost, whatever becomes of its job; without any profile."""

import subprocess
from pathlib import Path

import pytest

from meshstage.cohort.demo import make_demo_cohort
from meshstage.models.directory import find_model
from meshstage.models.watch import read_status
from workflow.project import Project

pytestmark = [pytest.mark.spawn, pytest.mark.timeout(600)]

CONFIG = "cohort: c\ntemplate: cohort/pca_mean.vtu\nsubjects: config/subjects.tsv\n"
CONFIG += "runs: config/runs.tsv\n"
SUBJECTS = "manifest\tsplit\n../cohort/demo-001/manifest.json\ttrain\n"
SUBJECTS += "../cohort/demo-002/manifest.json\ttrain\n"
RUNS = "run\tnetwork\tepochs\trmse_log_interval\tlayer_size\n"
RUNS += "dies\tmlp\t2\t1\t8\nlacks\tmlp\t2\t1\t8\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    project = Project.copy(tmp_path_factory.mktemp("finished") / "project")
    make_demo_cohort(project.folder / "cohort", n_subjects=2, n_phases=3, resolution=3, seed=1)
    for name, text in (
        ("config/config.yaml", CONFIG),
        ("config/subjects.tsv", SUBJECTS),
        ("config/runs.tsv", RUNS),
    ):
        project.write(name, text)
    project.use_small_network()
    return project


def start(project: Project, run: str) -> subprocess.CompletedProcess[str]:
    """Ask for a model as somebody does who knows no profile."""
    return subprocess.run(
        [
            "snakemake",
            "--cores=1",
            "--latency-wait=1",
            f"results/c/models/{run}/mlp_stage_model.pt",
        ],
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def assert_kept(model: Path) -> bytes:
    """Look at a finished model whose outputs Snakemake has deleted; give its weights' file."""
    assert not (model / "mlp_stage_model.pt").exists()
    assert read_status(model).state == "finished"
    assert find_model(model).checkpoint() == model / "live/mlp_stage_model.pt"
    return (model / "live/mlp_stage_model.pt").read_bytes()


def assert_goes_on(project: Project, run: str, weights: bytes) -> None:
    """Start again: nothing is trained, and the model is there."""
    model = project.folder / "results/c/models" / run
    events = (model / "events.jsonl").read_bytes()
    answer = start(project, run)
    assert answer.returncode == 0, answer.stdout
    log = (project.folder / f"logs/c/train_{run}.txt").read_text(encoding="utf-8")
    assert "is complete, nothing to train" in log
    assert (model / "mlp_stage_model.pt").read_bytes() == weights
    assert (model / "events.jsonl").read_bytes() == events


def test_a_training_that_dies_after_its_end(project):
    project.write("die", "")
    answer = start(project, "dies")
    assert answer.returncode == 1
    assert "Removing output files of failed job train_dies" in answer.stdout, answer.stdout
    weights = assert_kept(project.folder / "results/c/models/dies")
    (project.folder / "die").unlink()
    assert_goes_on(project, "dies", weights)


def test_a_training_that_never_writes_a_declared_file(project):
    rule = project.folder / "workflow/rules/train.smk"
    text = rule.read_text(encoding="utf-8")
    declared = "update([file for scope in scopes for file in model_outputs(model, scope)])"
    assert declared in text
    never = 'f"{RESULTS}/models/{model}/never.txt"'
    more = declared.replace("update([file", "update([*[file").replace(")])", f")], {never}])")
    project.write("workflow/rules/train.smk", text.replace(declared, more))
    for _ in range(2):  # the second time nothing is trained, and nothing lost either
        answer = start(project, "lacks")
        assert answer.returncode == 1
        assert "MissingOutputException" in answer.stdout, answer.stdout
        weights = assert_kept(project.folder / "results/c/models/lacks")
    project.write("workflow/rules/train.smk", text)
    assert_goes_on(project, "lacks", weights)
