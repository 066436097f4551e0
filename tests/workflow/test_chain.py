"""The whole chain through Snakemake, once, on the demo cohort with tiny networks."""

import csv
import io
import json
import os
import re
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from browser import Browser
from meshstage.meshes.reading import read_mesh, write_mesh
from meshstage.workflow import WorkflowTrainPhysicsNeMo
from small_models import different_weights
from workflow.project import Project

RUNS = (
    "run\tnetwork\tepochs\tbatch_size\tlearning_rate\trmse_log_interval\tprocessor_size\t"
    "hidden_dim\tlayer_size\tnum_layers\n"
    "small-mgn\tmgn\t3\t16\t{learning_rate}\t2\t1\t8\t\t\n"
    "small-mlp\tmlp\t3\t\t\t2\t\t\t16\t2\n"
    "gauss\tgp\n"
)
MODEL = "results/demo/models/small-mgn"
# The whole chain on 30 subjects: some 4 minutes on two idle cores.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Project:
    """Train and judge both networks; the tests below look at the same folder, in order."""
    project = Project.copy(tmp_path_factory.mktemp("chain") / "project")
    project.write("config/runs.tsv", RUNS.format(learning_rate=""))
    answer = project.snakemake()
    assert answer.returncode == 0, answer.stdout
    return project


def weights_of(project: Project) -> bytes:
    return (project.folder / MODEL / "mgn_stage_model.pt").read_bytes()


def test_every_declared_file_is_there_and_nobody_owns_the_run(trained):
    files = {path.name for path in (trained.folder / MODEL).iterdir()}
    assert {
        "mgn_stage_model.pt",
        "mgn_stage_model_epoch_00002.pt",
        "mgn_stage_model_epoch_00003.pt",
        "mgn_stage_model_metadata.json",
        "pca_mean_template.vtu",
        "pca_model.json",
        "shared_edge_index.pt",
        "shared_edge_features.pt",
        "training_losses.json",
        "training_validation_rmse.json",
        "training_validation_rmse.csv",
        "complete.json",
        "events.jsonl",
    } <= files
    assert "owner.json" not in files


def test_evaluation_has_one_row_a_subject_and_phase(trained):
    path = trained.folder / "results/demo/evaluation/small-mgn.csv"
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    assert len(rows) == 30 * 8
    assert {row["split"] for row in rows} == {"train", "val", "test"}
    # The table agrees with what training itself measured on the same samples and weights:
    # both sum float32 errors in float64, in another order.
    history = json.loads((trained.folder / MODEL / "training_validation_rmse.json").read_text())
    for split in ("train", "val"):
        squares = [float(row["rmse_mm"]) ** 2 for row in rows if row["split"] == split]
        assert np.sqrt(np.mean(squares)) == pytest.approx(history[-1][f"{split}_rmse"], rel=1e-5)


def test_what_is_fitted_at_once_is_judged_and_predicts_like_a_network(trained):
    results = trained.folder / "results/demo"
    # Of the files of a training it has the final model and its metadata alone.
    assert not list((results / "models/gauss").glob("training_*"))
    judged = json.loads((results / "evaluation/gauss.json").read_text(encoding="utf-8"))
    baselines = judged["splits"]["test"]["baselines"]
    # The baseline of this name is the same process, fitted on the same subjects.
    assert abs(baselines["gp"]["skill"]) < 1e-5
    mesh = read_mesh(results / "predictions/gauss/demo-026/phase_003_stage_0.375.vtu")
    assert (mesh.point_data["displacement_deviation"] > 0).any()
    assert (results / "figures/gauss/viewer.html").stat().st_size > 0


def test_predictions_are_moved_meshes_of_held_out_subjects(trained):
    folder = trained.folder / "results/demo/predictions/small-mgn"
    assert {path.name for path in folder.iterdir()} == {f"demo-{n:03d}" for n in range(21, 31)}
    mesh = read_mesh(folder / "demo-026" / "phase_003_stage_0.375.vtu")
    reference = read_mesh(trained.folder / "results/demo/cohort/demo-026/reference.vtu")
    moved = np.asarray(reference.points, np.float64) + mesh.point_data["displacement"]
    # Both files hold float32: eps 6e-8 times 80 mm, twice.
    np.testing.assert_allclose(mesh.points, moved, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("run", "tag"), [("small-mgn", "mgn"), ("small-mlp", "mlp")])
def test_python_api_finds_the_same_weights(trained, tmp_path, run, tag):
    """The same settings and data, in one process: the same bits."""
    from meshstage.training.mgn import TrainPhysicsNeMoMGN
    from meshstage.training.mlp import TrainPhysicsNeMoMLP

    if tag == "mgn":
        method = TrainPhysicsNeMoMGN()
        method.set_processor_size(1)
        method.set_hidden_dim(8)
        method.set_batch_size(16)
    else:
        method = TrainPhysicsNeMoMLP()
        method.set_layer_size(16)
        method.set_num_layers(2)
    method.set_epochs(3)
    method.rmse_log_interval = 2
    cohort = trained.folder / "results/demo/cohort"
    manifests = [cohort / f"demo-{number:03d}/manifest.json" for number in range(1, 26)]
    threads = torch.get_num_threads()
    # As many as the rule's job had: sums are split by threads.
    torch.set_num_threads(min(4, os.cpu_count() or 1))
    try:
        WorkflowTrainPhysicsNeMo(
            train_manifests=manifests[:20],
            val_manifests=manifests[20:],
            pca_mean_mesh=cohort / "pca_mean.vtu",
            output_directory=tmp_path / "model",
            training_method=method,
        ).process()
    finally:
        torch.set_num_threads(threads)
    name = f"{tag}_stage_model.pt"
    ours = trained.folder / "results/demo/models" / run / name
    assert different_weights(ours, tmp_path / "model" / name) == []


def test_second_start_has_nothing_to_do(trained):
    answer = trained.snakemake()
    assert answer.returncode == 0
    assert "Nothing to be done" in answer.stdout


@pytest.fixture(scope="module")
def report(trained) -> Path:
    """Make the report and unpack it."""
    answer = trained.snakemake("--report", "report.zip")
    assert answer.returncode == 0, answer.stdout
    with zipfile.ZipFile(trained.folder / "report.zip") as packed:
        packed.extractall(trained.folder / "unpacked")
    return trained.folder / "unpacked/report/report.html"


RESULTS_OF = {
    "Data": ["check of the cohort", "settings, data, versions"],
    "Judgement": ["error by stage", "error by subject", "table of all runs"],
    "Meshes": 3 * ["3-D, to be turned by hand", "best, median and worst", "one cycle"],
    "Training": 2 * ["loss and RMSE"],
}


def looked_at(browser, number: int, path: Path) -> np.ndarray:
    """Open the n-th result of the category that is shown; gives the part beside the menu."""
    eye = "a[iconname=eye]"
    browser.wait_for(f"document.querySelectorAll('{eye}').length > {number}")
    browser.evaluate(f"document.querySelectorAll('{eye}')[{number}].click()")
    # The first picture is the logo.
    shown = "[...document.querySelectorAll('iframe, img')].at(-1)"
    browser.wait_for(f"{shown}.tagName === 'IFRAME' || {shown}.naturalWidth > 300")
    time.sleep(0.5)  # what is in a frame of another file cannot be asked whether it is loaded
    left = int(browser.evaluate(f"{shown}.getBoundingClientRect().left"))
    picture = Image.open(io.BytesIO(browser.screenshot(path))).convert("L")
    return np.asarray(picture)[:, left:].astype(int)


@pytest.mark.parametrize("category", RESULTS_OF)
def test_report_opens_without_a_network_and_shows_every_figure(report, tmp_path, category):
    with Browser(tmp_path / "profile") as browser:
        browser.open(report)
        browser.wait_for("document.body.innerText.includes('Begin with Judgement')")
        browser.click("a, button, span, li", category)
        for number, name in enumerate(RESULTS_OF[category]):
            browser.wait_for(f"document.body.innerText.includes({name!r})")
            picture = looked_at(browser, number, tmp_path / f"{number}.png")
            # Words and lines are there: an empty frame has none, a missing file a few.
            assert (picture < 200).sum() > 1000, name
            if name.startswith("3-D"):
                browser.drag((450, 250), (600, 300))
                shot = browser.screenshot(tmp_path / "turned.png")
                turned = np.asarray(Image.open(io.BytesIO(shot)).convert("L")).astype(int)
                turned = turned[:, -picture.shape[1] :]
                assert (np.abs(turned - picture) > 30).sum() > 5000
        # Snakemake's own page uses a development build of its style sheet, and says so.
        assert [line for line in browser.console if "cdn.tailwindcss.com" not in line] == []
        assert {url.split(":")[0] for url in browser.requests} <= {"file", "data"}


def test_report_explains_each_figure(report):
    """Captions with the run's name in them, and the table of what the runs were made of."""
    text = report.read_text(encoding="utf-8")
    for words in ("Error of each subject, the worst of a split on top", "small-mgn</strong>"):
        assert words in text
    page = next(report.parent.glob("data/raw/*/parameters.html")).read_text(encoding="utf-8")
    assert "30 subjects (20 train, 5 val, 5 test), 240 phases: 0 errors, 0 warnings." in page
    assert f"<th>torch</th><td>{torch.__version__.split('+')[0]}" in page
    assert '<tr class="differs"><th>layer size</th><td>-</td><td>16</td><td>-</td></tr>' in page


def append(path, text):
    """Change a file: Snakemake compares small files by content, so a touch is none."""
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def test_edited_manifest_and_code_of_training_retrain_nothing(trained):
    append(trained.folder / "results/demo/cohort/demo-001/manifest.json", "\n")
    append(trained.folder / "scripts/meshstage/training/loop.py", "# a comment\n")
    answer = trained.snakemake("-n")
    ingests = set(re.findall(r"rule (ingest_\d+):", answer.stdout))
    assert ingests == {"ingest_1"}  # the batch of the subject, and no other
    assert "rule train_" not in answer.stdout
    assert trained.snakemake().returncode == 0


def test_edited_script_reruns_its_rule_and_no_training(trained):
    append(trained.folder / "scripts/evaluate.py", "# a comment\n")
    answer = trained.snakemake("-n")
    assert "rule evaluate:" in answer.stdout
    assert "rule train_" not in answer.stdout
    assert "rule ingest_" not in answer.stdout


def test_forced_rerun_of_a_finished_model_is_complete_and_changes_no_byte(trained):
    before = weights_of(trained)
    answer = trained.snakemake("--forcerun", "train_small-mgn", "--", f"{MODEL}/mgn_stage_model.pt")
    assert answer.returncode == 0, answer.stdout
    log = (trained.folder / "logs/demo/train_small-mgn.txt").read_text(encoding="utf-8")
    assert "is complete, nothing to train" in log
    assert weights_of(trained) == before


def test_changed_setting_is_refused_and_loses_nothing(trained):
    before = weights_of(trained)
    trained.write("config/runs.tsv", RUNS.format(learning_rate="0.01"))
    answer = trained.snakemake(f"{MODEL}/mgn_stage_model.pt")
    assert answer.returncode == 1
    assert "learning_rate was 0.001 and is 0.01" in answer.stdout
    assert "a finished model stands here" in answer.stdout
    assert weights_of(trained) == before
    assert (trained.folder / MODEL / "mgn_stage_model_epoch_00002.pt").exists()
    trained.write("config/runs.tsv", RUNS.format(learning_rate=""))


def test_resumed_run_is_a_sibling_that_inherits_statistics_and_history(trained):
    target = "results/demo/models/small-mgn_1/mgn_stage_model.pt"
    resume = "resume={small-mgn_1: {epochs: 5, learning_rate: 0.0001}}"
    answer = trained.snakemake(target, "--config", resume)
    assert answer.returncode == 0, answer.stdout
    folder = (trained.folder / target).parent
    assert folder.is_dir(), answer.stdout
    metadata, first = (
        json.loads((path / "mgn_stage_model_metadata.json").read_text(encoding="utf-8"))
        for path in (folder, trained.folder / MODEL)
    )
    assert metadata["coordinate_scale"] == first["coordinate_scale"]
    assert [part["from_epoch"] for part in metadata["lineage"]] == [0, 3]
    assert metadata["lineage"][1]["learning_rate"] == 1e-4
    assert metadata["resumed_from"].endswith("small-mgn/mgn_stage_model.pt")
    losses, before = (
        json.loads((path / "training_losses.json").read_text())
        for path in (folder, trained.folder / MODEL)
    )
    assert len(losses) == 5
    assert losses[:3] == before


def test_changed_data_is_found_by_content(trained):
    """One phase of a training subject moves by half a millimetre more: evaluate says so."""
    cohort = trained.folder / "results/demo/cohort/demo-001"
    mesh = read_mesh(cohort / "phase_003.vtu")
    mesh.points = mesh.points + 0.5
    mesh.point_data["displacement"] = mesh.point_data["displacement"] + np.float32(0.5)
    write_mesh(cohort / "phase_003.vtu", mesh)
    append(cohort / "manifest.json", "\n")
    answer = trained.snakemake("results/demo/evaluation/small-mgn.json")
    assert answer.returncode == 1, answer.stdout
    sentences = [line for line in answer.stdout.splitlines() if "error:" in line]
    assert any("demo-001" in line for line in sentences), answer.stdout
