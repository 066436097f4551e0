"""Folds through the whole workflow: the one thing that plans and scripts alone do not show."""

import csv

import pytest

from meshstage.files import read_json
from small_cohort import SUBJECTS, write_cohort
from workflow.project import Project

RESULTS = "results/spheres"


@pytest.fixture(scope="module")
def folded(tmp_path_factory) -> Project:
    """Run four spheres in two folds with a shape model each, up to the error out of fold."""
    project = Project.copy(tmp_path_factory.mktemp("folded") / "project")
    (project.folder / "data").mkdir()
    write_cohort(project.folder / "data")
    project.write("config/runs.tsv", "run\tnetwork\ngp\tgp\n")
    project.write(
        "config/config.yaml",
        "cohort: spheres\ntemplate: data/pca_mean.vtp\nsubjects: data/subjects.tsv\n"
        "runs: config/runs.tsv\nfolds: 2\nrefit_shape_model: true\n",
    )
    answer = project.snakemake(f"{RESULTS}/evaluation/gp.oof.json")
    assert answer.returncode == 0, answer.stdout
    return project


def test_each_subject_is_judged_by_the_model_that_has_not_seen_it(folded):
    results = folded.folder / RESULTS
    with (results / "evaluation/gp.oof.csv").open(encoding="utf-8") as stream:
        fold_of = {row["subject_id"]: row["fold"] for row in csv.DictReader(stream)}
    assert list(fold_of) == list(SUBJECTS)
    for fold in ("1", "2"):
        unseen = [name for name, number in fold_of.items() if number == fold]
        home = results / "folds" / fold
        metadata = read_json(home / "models/gp/meshstage_gp_stage_model_metadata.json")
        for trained in (metadata, read_json(home / "stats.json")["train_subjects"]):
            trained = trained.get("train_subject_ids", trained)
            assert sorted([*trained, *unseen]) == sorted(SUBJECTS)
        judged = read_json(home / "evaluation/gp.json")["subjects"]
        assert sorted(subject["subject_id"] for subject in judged) == sorted(unseen)
        # Of two subjects' shapes there is one mode; the mesh files were read once, for all folds.
        assert len(read_json(home / "template/pca_model.json")["eigenvalues"]) == 1
        assert (home / "subjects/alpha/targets.npy").resolve() == (
            results / "subjects/alpha/targets.npy"
        )


def test_nothing_is_done_twice(folded):
    answer = folded.snakemake("-n", f"{RESULTS}/evaluation/gp.oof.json")
    assert "Nothing to be done" in answer.stdout
