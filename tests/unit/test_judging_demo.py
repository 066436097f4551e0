"""The judging chain on the demo cohort: ingested files in; tables, pictures and a page out."""

import base64
import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from judged import made_predictor
from meshstage.cohort.demo import make_demo_cohort
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import compute_statistics, write_statistics
from meshstage.cohort.subject import load_subject
from meshstage.cohort.template import build_template
from meshstage.judging.evaluation import Evaluation, evaluate_model, write_evaluation
from meshstage.meshes.reading import write_mesh
from meshstage.motion.baselines import read_baselines

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
IDS = [f"demo-00{k}" for k in range(1, 6)]
ERROR_MM = {"demo-004": 0.5, "demo-005": 1.0}  # 0.25 mm of all others; val and test last


def call(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ingested demo subjects, baselines by the script, a predictor that is off by a known way."""
    folder = tmp_path_factory.mktemp("demo")
    make_demo_cohort(folder / "cohort", n_subjects=5, n_phases=4, resolution=4, seed=1)
    template = build_template(folder / "cohort" / "pca_mean.vtu", folder / "template")
    subjects = []
    for name in IDS:
        ingest_subject(folder / "cohort" / name / "manifest.json", template, folder / name)
        subjects.append(load_subject(folder / name))
    train = subjects[:3]
    write_statistics(folder / "stats.json", compute_statistics(template, train), template, train)
    done = call(
        "fit_baselines.py",
        *("--template", folder / "template", "--stats", folder / "stats.json"),
        *("--train", *(s.directory for s in train), "--val", subjects[3].directory),
        *("--output", folder / "baselines.json"),
    )
    assert done.returncode == 0, done.stderr
    errors = [np.full_like(s.targets, ERROR_MM.get(s.id, 0.25) / np.sqrt(3)) for s in subjects]
    predictor: Any = made_predictor(
        template.mesh(),
        subjects,
        errors,
        train_subject_ids=IDS[:3],
        val_subject_ids=IDS[3:4],
    )
    baselines = read_baselines(folder / "baselines.json")
    evaluation = evaluate_model(predictor, subjects, baselines, region="region")
    write_evaluation(
        folder / "evaluation" / "made.csv",
        Evaluation(evaluation.rows, {"run": "made", **evaluation.summary}),
    )
    for subject in subjects:
        entries = []
        targets = predictor.predict(subject.shape_scores, subject.stages)
        for k, stage in enumerate(subject.stages):
            mesh = template.mesh()
            mesh.point_data["displacement"] = targets[k]
            mesh.points = subject.reference + targets[k]
            write_mesh(folder / "predictions" / subject.stem / f"{k}.vtu", mesh)
            entries.append(f'<DataSet timestep="{float(stage)!r}" file="{k}.vtu"/>')
        text = f"<VTKFile><Collection>{''.join(entries)}</Collection></VTKFile>"
        (folder / "predictions" / subject.stem / "all.pvd").write_text(text)
    return folder


def test_rows_of_the_demo(results: Path) -> None:
    with (results / "evaluation" / "made.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["subject_id"] for row in rows] == [name for name in IDS for _ in range(4)]
    last = rows[-1]
    # Moved by one vector everywhere: all of it is error, and the shape is unchanged.
    for column in ("rmse_mm", "mean_error_mm", "max_error_mm", "rmse_region_1_mm"):
        assert float(last[column]) == pytest.approx(1.0, rel=1e-5)
    assert float(last["weighted_rmse_mm"]) == pytest.approx(1.0, rel=1e-5)
    assert float(last["volume_error_percent"]) == pytest.approx(0, abs=1e-4)
    assert last["inverted_cells"] == last["inverted_cells_true"] == "0"
    # A surface that is shifted by 1 mm is nowhere farther away.
    assert 0 < float(last["assd_mm"]) < float(last["hd95_mm"]) <= 1 + 1e-5


def test_baselines_of_the_demo(results: Path) -> None:
    about = json.loads((results / "baselines.json").read_text())
    assert set(about["train_subjects"]) == set(IDS[:3])
    train, val = about["rmse"]["train"], about["rmse"]["val"]
    assert train["ridge"] < train["stage_mean"] < train["zero"]
    summary = json.loads((results / "evaluation" / "made.json").read_text())
    for split, values in (("train", train), ("val", val)):
        for name, rmse in summary["splits"][split]["baselines"].items():
            assert rmse["rmse_mm"] == pytest.approx(values[name], rel=1e-6)


@pytest.mark.spawn
def test_scripts_make_tables_pictures_and_page(results: Path, tmp_path: Path) -> None:
    evaluation = results / "evaluation" / "made.json"
    subjects = ("--subjects", *(results / name for name in IDS))
    shown = (
        *("--template", results / "template", "--evaluation", evaluation),
        *("--predictions", results / "predictions", *subjects),
    )
    for group, arguments in (
        ("evaluation", ("--evaluations", evaluation)),
        ("meshes", shown),
        ("viewer", (*shown, "--baselines", results / "baselines.json")),
    ):
        done = call("plot.py", group, *arguments, "--output", tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Warn" not in done.stderr + done.stdout
    with Image.open(tmp_path / "cycle.gif") as animation:
        assert animation.n_frames == 4
    for name in ("error_by_stage.png", "error_by_subject.png", "meshes.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 300
    gif = base64.b64encode((tmp_path / "cycle.gif").read_bytes()).decode()
    assert gif in (tmp_path / "cycle.html").read_text()
    page = (tmp_path / "viewer.html").read_text()
    assert "best: demo-004 (validation)" in page and "worst: demo-005 (test)" in page
    assert len((tmp_path / "runs.tsv").read_text().splitlines()) == 4


@pytest.mark.spawn
def test_a_region_that_is_not_there_is_found_before_the_training(results: Path) -> None:
    subjects = ("--subjects", *(results / name for name in IDS))
    check = ("check_cohort.py", "--template", results / "template", *subjects)
    assert call(*check, "--region", "region").returncode == 0
    done = call(*check, "--region", "reggion")
    assert done.returncode == 2
    assert "the template has no array 'reggion' for regions (it has: region" in done.stderr


@pytest.mark.spawn
@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("evaluate.py", ("--model", "m", "--subjects", "s", "--output", "o.csv"), "s/subject.json"),
        ("plot.py", ("training", "--model", "m", "--output", "o"), "no training_losses.json"),
        ("plot.py", ("evaluation", "--evaluations", "e.json", "--output", "o"), "e.json"),
        ("watch.py", ("m",), "there is no events.jsonl here"),
        (
            "fit_baselines.py",
            ("--template", "t", "--stats", "s", "--train", "d", "--output", "o.json"),
            "t",
        ),
    ],
)
def test_missing_input_is_one_sentence(
    tmp_path: Path, script: str, arguments: tuple[str, ...], message: str
) -> None:
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
