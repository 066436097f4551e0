"""The workflow from raw meshes: `prepare:` in config.yaml, and nothing else."""

import json

import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

from meshstage.cohort.demo import make_demo_cohort
from meshstage.meshes.reading import read_mesh, write_mesh
from workflow.project import Project

PREPARED = "results/mine/prepared"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    """Hold ten hearts of four phases, each turned, in a folder per subject, without arrays."""
    folder = tmp_path_factory.mktemp("prepared")
    project = Project.copy(folder / "project")
    make_demo_cohort(folder / "demo", n_subjects=10, n_phases=4, resolution=3, seed=1)
    for number, manifest in enumerate(sorted(folder.glob("demo/*/manifest.json"))):
        turn = Rotation.random(random_state=number)
        for phase in json.loads(manifest.read_text())["phases"]:
            mesh = read_mesh(manifest.with_name(phase["mesh"]))
            mesh.clear_data()
            mesh.points = turn.apply(np.asarray(mesh.points, np.float64)) + 10.0 * number
            percent = round(100 * phase["stage"])
            path = project.folder / "meshes" / f"P{number:02d}" / f"{percent}.vtu"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_mesh(path, mesh)
    config = {
        "cohort": "mine",
        "prepare": {
            "meshes": "meshes",
            "pattern": r"(?P<subject>\w+)/(?P<phase>\d+)\.vtu",
            "stage": "percent",
            "split": "0.6/0.2/0.2",
        },
        "runs": "config/runs.tsv",
    }
    project.write("config/config.yaml", yaml.safe_dump(config))
    project.write("config/runs.tsv", "run\tnetwork\ngp\tgp\n")
    return project


def test_a_dry_run_shows_subjects_before_any_mesh_is_read(project):
    answer = project.snakemake("-n")
    assert answer.returncode == 0, answer.stdout
    assert "rule prepare" in answer.stdout
    for number in range(10):
        assert f"{PREPARED}/p{number:02d}+1/manifest.json" in answer.stdout.lower()


def test_a_model_is_trained_and_judged_from_raw_meshes(project):
    wanted = "results/mine/evaluation/gp.json"
    answer = project.snakemake(wanted)
    assert answer.returncode == 0, answer.stdout
    summary = json.loads((project.folder / wanted).read_text())
    assert summary["splits"].keys() == {"train", "val", "test"}
    table = (project.folder / PREPARED / "subjects.tsv").read_text().split()
    assert [table.count(split) for split in ("train", "val", "test")] == [6, 2, 2]
    check = json.loads((project.folder / "results/mine/check/cohort.json").read_text())
    assert not [p for p in check["problems"] if p["severity"] == "error"]
    assert (project.folder / PREPARED / "modes.png").stat().st_size > 10_000

    again = project.snakemake("-n", wanted)
    assert "Nothing to be done" in again.stdout
    mesh = read_mesh(project.folder / "meshes/P00/0.vtu")
    mesh.points = mesh.points * 1.01
    write_mesh(project.folder / "meshes/P00/0.vtu", mesh)
    again = project.snakemake("-n", wanted)
    assert "rule prepare" in again.stdout


def test_a_wrong_section_is_one_sentence(project):
    answer = project.snakemake("-n", "--config", "prepare={meshes: nowhere, pattern: x}")
    assert answer.returncode == 2
    assert "error: nowhere" in answer.stdout
    answer = project.snakemake("-n", "--config", "template=a.vtu")
    assert "`prepare` makes template and subjects, but template is given too" in answer.stdout
