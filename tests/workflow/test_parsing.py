"""What Snakemake says before it runs anything."""

import re

import pytest

from workflow.project import Project


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Project:
    """Copy the project: nothing has run in it."""
    return Project.copy(tmp_path_factory.mktemp("clone") / "project")


def test_dry_run_of_a_fresh_clone_shows_every_kept_epoch(clean):
    answer = clean.snakemake("-n")
    assert answer.returncode == 0, answer.stdout
    for epoch in (20, 40, 60, 80):
        assert f"models/mgn/mgn_stage_model_epoch_{epoch:05d}.pt" in answer.stdout
    for epoch in (50, 100, 150, 200):
        assert f"models/mlp/mlp_stage_model_epoch_{epoch:05d}.pt" in answer.stdout
    assert re.search(r"ingest_subject +12\b", answer.stdout)
    assert not (clean.folder / "results").exists()


@pytest.mark.parametrize("option", ["--dag", "--rulegraph", "--lint"])
def test_graphs_and_lint_work(clean, option):
    answer = clean.snakemake(option)
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
