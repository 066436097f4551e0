"""The Python API: the rules' chain in one process."""

import inspect
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import pyvista as pv
import torch

import meshstage
from meshstage.cohort.demo import make_demo_cohort
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import compute_statistics, read_statistics, write_statistics
from meshstage.cohort.subject import load_subjects
from meshstage.cohort.template import build_template, load_template
from meshstage.errors import InputError
from meshstage.files import read_json, write_json
from meshstage.training.distributed import DistributedContext
from meshstage.training.samples import PhaseSampleDataset
from meshstage.workflow import WorkflowInferPhysicsNeMo, WorkflowTrainPhysicsNeMo
from model_directories import PlainReader
from small_models import different_weights, small_method

ROOT = Path(__file__).resolve().parents[2]
PCA = [0.3, -0.4]


def workflow(tiny_cohort, output, epochs=2, tag="mlp", val=True, **options):
    return WorkflowTrainPhysicsNeMo(
        tiny_cohort.manifests["train"],
        tiny_cohort.manifests["val"] if val else [],
        tiny_cohort.mesh_path,
        output,
        training_method=small_method(tag, epochs),
        **options,
    )


def test_signature_is_the_published_one():
    parameters = inspect.signature(WorkflowTrainPhysicsNeMo).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        "train_manifests": inspect.Parameter.empty,
        "val_manifests": inspect.Parameter.empty,
        "pca_mean_mesh": inspect.Parameter.empty,
        "output_directory": inspect.Parameter.empty,
        "use_template_surface": False,
        "resume_from": None,
        "training_method": None,
        "log_level": logging.INFO,
    }


def test_wrong_arguments_raise_what_python_has_for_them(tiny_cohort, tmp_path):
    manifests, mesh = tiny_cohort.manifests["train"], tiny_cohort.mesh_path
    with pytest.raises(ValueError, match="train_manifests is empty"):
        WorkflowTrainPhysicsNeMo([], [], mesh, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.vtp"):
        WorkflowTrainPhysicsNeMo(manifests, [], tmp_path / "nowhere.vtp", tmp_path)
    with pytest.raises(TypeError, match="TrainPhysicsNeMoBase, got str"):
        WorkflowTrainPhysicsNeMo(manifests, [], mesh, tmp_path, training_method="mgn")
    with pytest.raises(ValueError, match="cache_max_samples is -1"):
        WorkflowTrainPhysicsNeMo(manifests, [], mesh, tmp_path).set_cache_size(-1)
    with pytest.raises(ValueError, match="log_level is 'LOUD', it must be one of"):
        WorkflowTrainPhysicsNeMo(manifests, [], mesh, tmp_path, log_level="LOUD")


def test_log_level_is_a_number_or_a_name(tiny_cohort, tmp_path):
    for level in (logging.WARNING, "WARNING", "warning"):
        made = WorkflowTrainPhysicsNeMo(
            tiny_cohort.manifests["train"],
            [],
            tiny_cohort.mesh_path,
            tmp_path,
            training_method=small_method("mlp"),
            log_level=level,
        )
        assert made.log_level == logging.WARNING


def test_names_of_the_api_come_from_the_package_which_loads_nothing_by_itself():
    """PyTorch takes seconds, PhysicsNeMo tens of them."""
    code = (
        "import sys, meshstage\n"
        "heavy = {'torch', 'physicsnemo', 'pyvista', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print(*meshstage.__all__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == {
        "WorkflowTrainPhysicsNeMo",
        "WorkflowInferPhysicsNeMo",
        "TrainPhysicsNeMoBase",
        "TrainPhysicsNeMoMGN",
        "TrainPhysicsNeMoMLP",
        "TrainPhysicsNeMoPhysicsInformedMotion",
        "PhaseSampleDataset",
        "DistributedContext",
    }
    for name in done.stdout.split():
        assert getattr(meshstage, name).__name__ == name
    with pytest.raises(ImportError, match="NoSuchName"):
        from meshstage import NoSuchName  # noqa: F401


def test_default_method_is_a_mesh_graph_net(tiny_cohort, tmp_path):
    made = WorkflowTrainPhysicsNeMo(
        tiny_cohort.manifests["train"], [], tiny_cohort.mesh_path, tmp_path
    )
    assert made.training_method.model_tag == "mgn"


def test_result_names_what_was_written(small_models):
    for tag, result in small_models.results.items():
        assert result["checkpoint"].name == f"{tag}_stage_model.pt"
        assert result["checkpoint"].parent == result["output_directory"]
        assert read_json(result["metadata"])["epochs"] == 3
        assert len(result["training_loss"]) == 3
        assert [entry["epoch"] for entry in result["val_rmse_log"]] == [1, 2, 3]
        assert result["val_rmse_log"][-1]["val_rmse"] > 0


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
def test_weights_are_those_of_the_scripts_steps(small_models, tiny_cohort, tmp_path, tag):
    """Step by step as the scripts do, each through its files: not one bit differs."""
    build_template(tiny_cohort.mesh_path, tmp_path / "template")
    directories = {"train": [], "val": []}
    for split, found in directories.items():
        for manifest in tiny_cohort.manifests[split]:
            found.append(tmp_path / "subjects" / manifest.parent.name)
            ingest_subject(manifest, load_template(tmp_path / "template"), found[-1])
    template = load_template(tmp_path / "template")
    train, val = (load_subjects(directories[split]) for split in ("train", "val"))
    statistics = compute_statistics(template, train)
    write_statistics(tmp_path / "stats.json", statistics, template, train)
    method = small_method(tag)
    method.train(
        PhaseSampleDataset(train),
        PhaseSampleDataset(val),
        read_statistics(tmp_path / "stats.json"),
        DistributedContext(),
        method.epochs,
        tmp_path / "model",
        template,
        template.points,
    )
    by_steps = tmp_path / "model" / f"{tag}_stage_model.pt"
    assert different_weights(by_steps, small_models.results[tag]["checkpoint"]) == []
    # And they were trained at all.
    first = by_steps.with_name(f"{tag}_stage_model_epoch_00001.pt")
    assert different_weights(by_steps, first)


def test_private_copies_change_no_bit(small_models, tiny_cohort, tmp_path):
    made = workflow(tiny_cohort, tmp_path / "mlp", epochs=3)
    made.set_cache_size(4)
    assert (
        different_weights(made.process()["checkpoint"], small_models.results["mlp"]["checkpoint"])
        == []
    )


def test_repeated_call_trains_nothing_again(tiny_cohort, tmp_path):
    made = workflow(tiny_cohort, tmp_path / "mlp")
    first = made.process()
    assert made.checkpoint_file == first["checkpoint"]
    assert made.metadata_file == first["metadata"]
    assert made.training_loss == first["training_loss"]
    assert made.val_rmse_log == first["val_rmse_log"]
    written = first["checkpoint"].stat().st_mtime_ns
    again = workflow(tiny_cohort, tmp_path / "mlp").process()
    assert again == first
    assert first["checkpoint"].stat().st_mtime_ns == written


def test_resumed_training_goes_into_numbered_siblings(small_models, tiny_cohort, tmp_path):
    first = workflow(tiny_cohort, tmp_path / "mlp").process()
    for number in (1, 2):
        resumed = workflow(
            tiny_cohort, tmp_path / "mlp", epochs=3, resume_from=first["checkpoint"]
        ).process()
        assert resumed["output_directory"] == tmp_path / f"mlp_{number}"
        assert resumed["training_loss"][:2] == first["training_loss"]
        # 2 and 1 epochs are 3, to the bit.
        through = small_models.results["mlp"]["checkpoint"]
        assert different_weights(resumed["checkpoint"], through) == []


def test_checkpoint_that_is_not_there_takes_no_number(tiny_cohort, tmp_path):
    with pytest.raises(InputError, match=r"gone\.pt"):
        workflow(tiny_cohort, tmp_path / "mlp", resume_from=tmp_path / "gone.pt").process()
    assert list(tmp_path.iterdir()) == []


def test_without_validation_its_rmse_is_none(tiny_cohort, tmp_path):
    result = workflow(tiny_cohort, tmp_path / "mlp", val=False).process()
    assert [entry["val_rmse"] for entry in result["val_rmse_log"]] == [None, None]


def test_all_problems_of_a_cohort_come_together_and_nothing_is_trained(tiny_cohort, tmp_path):
    good = tiny_cohort.manifests["train"]
    (tmp_path / "broken.json").write_text("{")
    manifest = read_json(good[0])
    absolute = {key: str(good[0].parent / manifest[key]) for key in ("pca_coefficients",)}
    manifest |= absolute | {"subject_id": "lost", "fitted_reference_mesh": "lost.vtp"}
    write_json(tmp_path / "lost.json", manifest)
    made = WorkflowTrainPhysicsNeMo(
        [*good, tmp_path / "broken.json", tmp_path / "lost.json"],
        [good[1]],
        tiny_cohort.mesh_path,
        tmp_path / "model",
        training_method=small_method("mlp"),
    )
    with pytest.raises(InputError) as caught:
        made.process()
    told = "\n".join(problem.sentence() for problem in caught.value.problems)
    assert "broken.json" in told
    assert "lost.vtp" in told
    assert "twice" in told  # one manifest trains and validates
    assert not list((tmp_path / "model").glob("*.pt"))
    assert not (tmp_path / "model" / "live").exists()


# ------------------------------------------------------------------ asking


@pytest.fixture(scope="module")
def asked(small_models):
    return WorkflowInferPhysicsNeMo(small_models.directory("mlp"))


def test_predict_gives_one_phase(asked, small_models):
    targets = asked.predict(PCA, 0.35)
    assert (targets.shape, targets.dtype) == ((42, 3), np.float32)
    expected = PlainReader(small_models.directory("mlp"), "mlp").predict(np.array(PCA), 0.35)
    np.testing.assert_allclose(targets, expected, rtol=0, atol=1e-5)  # float32 at 6 mm


def test_predict_warns_outside_of_the_training_range(asked, tiny_cohort, caplog):
    scores = tiny_cohort.subjects["train"][0].shape_scores
    with caplog.at_level(logging.WARNING):
        asked.predict(scores, 0.35)
        assert caplog.text == ""
        asked.predict(scores, 0.95)
    assert "outside of the training range [0, 0.7]" in caplog.text


def test_epoch_is_chosen(small_models):
    directory = small_models.directory("mlp")
    first, last = (
        WorkflowInferPhysicsNeMo(directory, epoch=epoch).predict(PCA, 0.5) for epoch in (1, 3)
    )
    assert np.abs(first - last).max() > 1e-3
    np.testing.assert_array_equal(last, WorkflowInferPhysicsNeMo(directory).predict(PCA, 0.5))


def test_predicted_mesh_is_the_template_with_targets(asked, tiny_cohort):
    targets = asked.predict(PCA, 0.35)
    mesh = asked.predicted_mesh(targets)
    np.testing.assert_array_equal(mesh.point_data["displacement"], targets)
    np.testing.assert_array_equal(mesh.points, tiny_cohort.template.points)
    mesh.points += 1  # a copy: the next one is not moved
    np.testing.assert_array_equal(asked.predicted_mesh(targets).points, tiny_cohort.template.points)
    with pytest.raises(InputError, match=r"\(41, 3\).*\(42, 3\)"):
        asked.predicted_mesh(targets[1:])


def test_process_writes_a_subject(asked, tiny_cohort, tmp_path):
    manifest = tiny_cohort.manifests["test"][0]
    result = asked.process(manifest, output_directory=tmp_path)
    assert result["subject_id"] == "test-0"
    assert [path.exists() for path in result["predicted_meshes"]] == [True] * 3
    assert result["animation"] == tmp_path / "test-0" / "test-0.pvd"
    moved = pv.read(result["predicted_meshes"][1])
    reference = pv.read(manifest.parent / "reference.vtp")
    by = moved.points - reference.points
    np.testing.assert_allclose(moved.point_data["displacement"], by, rtol=0, atol=2e-5)


def test_process_writes_beside_the_model_by_default(small_models, tiny_cohort, tmp_path):
    shutil.copytree(small_models.directory("mlp"), tmp_path / "mlp")
    model = WorkflowInferPhysicsNeMo(str(tmp_path / "mlp"))
    result = model.process(str(tiny_cohort.manifests["test"][0]), stages=[0.5])
    [mesh] = result["predicted_meshes"]
    assert mesh == tmp_path / "mlp" / "predictions" / "test-0" / "phase_000_stage_0.5.vtp"


def test_example_of_the_documentation_runs(tmp_path, monkeypatch):
    """The README's block, or that of docs/api.md, word for word on the demo cohort."""
    make_demo_cohort(tmp_path / "results/demo/cohort", 30, n_phases=2, resolution=4, seed=42)
    monkeypatch.chdir(tmp_path)
    pages = [path for name in ("README.md", "docs/api.md") if (path := ROOT / name).exists()]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        if "WorkflowTrainPhysicsNeMo" in block
    ]
    assert blocks
    assert set(blocks) == {blocks[0]}, "README.md and docs/api.md show the same example"
    names = {}
    exec(blocks[0], names)
    assert names["targets"].shape == (names["mesh"].n_points, 3)
    assert len(names["files"]["predicted_meshes"]) == 3
    assert names["files"]["animation"].exists()


# ------------------------------------------------------------------ under torchrun

UNDER_TORCHRUN = """
import json, os, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from meshstage.workflow import WorkflowTrainPhysicsNeMo
from small_training import TrainSmall
manifests, mesh, output = json.loads(sys.argv[3]), sys.argv[4], Path(sys.argv[5])
told = []
for epochs, start in ((2, None), (4, output / "run" / "mlp_stage_model.pt")):
    method = TrainSmall(batch_size=2)
    method.set_epochs(epochs)
    made = WorkflowTrainPhysicsNeMo(
        manifests[:-1], manifests[-1:], mesh, output / "run",
        resume_from=start, training_method=method,
    )
    result = made.process()
    told.append({key: str(value) for key, value in result.items()})
(output / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(told))
"""


@pytest.mark.spawn
def test_every_rank_calls_and_rank_0_writes(tiny_cohort, tmp_path):
    """Two trainings one after the other in the same two ranks: each has a group of its own."""
    (tmp_path / "program.py").write_text(UNDER_TORCHRUN)
    manifests = [str(path) for path in (*tiny_cohort.manifests["train"][:2],)]
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
            *(tmp_path / "program.py", ROOT / "scripts", ROOT / "tests"),
            *(f'["{manifests[0]}", "{manifests[1]}"]', tiny_cohort.mesh_path, tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    main, other = (read_json(tmp_path / f"rank-{rank}.json") for rank in (0, 1))
    for own, theirs, name in zip(main, other, ("run", "run_1"), strict=True):
        assert own["output_directory"] == theirs["output_directory"] == str(tmp_path / name)
        assert own["checkpoint"] == str(tmp_path / name / "mlp_stage_model.pt")
        assert (theirs["checkpoint"], theirs["metadata"]) == ("None", "None")
        assert own["training_loss"] == theirs["training_loss"]
        assert own["val_rmse_log"] == theirs["val_rmse_log"]
    payload = torch.load(tmp_path / "run_1" / "mlp_stage_model.pt", weights_only=True)
    assert payload["epoch"] == 4
    # One rank says what happens.
    assert answer.stderr.count("epoch 4/4") == 1
