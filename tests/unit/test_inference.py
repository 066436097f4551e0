"""Asking a model: which files are read, what is refused, what is warned of, in bounded memory."""

import copy
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import pyvista as pv
import torch

from meshstage.cohort.demo import make_demo_cohort
from meshstage.errors import ContinueLater, InputError
from meshstage.figures.records import read_training
from meshstage.files import read_json, write_json
from meshstage.models.checkpoint import load_checkpoint
from meshstage.prediction import predictor as predictor_module
from meshstage.prediction.loading import load_predictor
from meshstage.prediction.questions import (
    question_of_scores,
    questions_of_manifests,
    stages_asked,
)
from meshstage.prediction.writing import write_prediction
from meshstage.workflow import WorkflowTrainPhysicsNeMo
from model_directories import PlainReader
from small_models import small_method
from small_training import make_mgn, run

PCA = np.array([0.3, -0.4])


@pytest.fixture
def mlp(small_models):
    return load_predictor(small_models.directory("mlp"))


@pytest.fixture
def writable(small_models, tmp_path):
    """Copy the MeshGraphNet's directory."""
    shutil.copytree(small_models.directory("mgn"), tmp_path / "mgn")
    return tmp_path / "mgn"


def test_scores_and_stages_outside_of_training_are_warned_of(mlp, tiny_cohort):
    scores = np.stack([subject.shape_scores for subject in tiny_cohort.subjects["train"]])
    low, high = scores.min(axis=0), scores.max(axis=0)
    assert mlp.warnings(low, [0.0, 0.7]) == mlp.warnings(high, [0.35]) == []
    [first] = mlp.warnings([high[0] + 1.5, low[1]], [0.1])
    assert "shape score 1" in first
    assert "1.5 standard deviations outside" in first
    [second] = mlp.warnings([low[0], low[1] - 0.25], [0.1])
    assert "shape score 2" in second
    assert "0.25 standard deviations outside" in second
    [stage] = mlp.warnings(low, [0.2, 0.9])  # trained from 0 to 0.7
    assert stage == "stage 0.9 is 0.2 outside of the training range [0, 0.7]"


@pytest.mark.parametrize("stage", [-0.1, 1.0001, float("nan"), float("inf")])
def test_stage_outside_of_0_to_1_is_refused(mlp, stage):
    with pytest.raises(InputError, match="not within 0 and 1"):
        mlp.predict(PCA, [0.5, stage])


def test_scores_that_the_model_does_not_take_are_refused(mlp):
    with pytest.raises(InputError, match=r"3 shape scores, but the model .* takes 2"):
        mlp.predict([1.0, 2.0, 3.0], [0.5])
    with pytest.raises(InputError, match="not finite"):
        mlp.predict([1.0, float("nan")], [0.5])


def test_no_stages_give_no_predictions(mlp):
    assert mlp.predict(PCA, []).shape == (0, 42, 3)


def test_best_epoch_is_the_one_with_least_validation_rmse(small_models):
    log = small_models.results["mgn"]["val_rmse_log"]
    best = min(log, key=lambda entry: entry["val_rmse"])["epoch"]
    predictor = load_predictor(small_models.directory("mgn"), "best")
    assert predictor.checkpoint.name == f"mgn_stage_model_epoch_{best:05d}.pt"


@pytest.mark.parametrize("epoch", ["1.5", 1.5, "last"])
def test_what_is_no_epoch_is_a_sentence(small_models, epoch):
    with pytest.raises(InputError, match=f"epoch is {epoch!r}; give a whole number, or best"):
        load_predictor(small_models.directory("mlp"), epoch)


def test_epoch_that_was_not_kept_is_a_sentence(small_models):
    with pytest.raises(InputError, match="epoch 9 was not kept; kept here are: 1, 2, 3"):
        load_predictor(small_models.directory("mgn"), 9)


def test_best_epoch_of_the_parent_is_named(writable):
    path = writable / "mgn_stage_model_metadata.json"
    metadata = read_json(path) | {"best_epoch": 7, "resumed_from": "models/mgn/final.pt"}
    write_json(path, metadata)
    with pytest.raises(InputError, match=r"best epoch, 7, .*models/mgn/final\.pt"):
        load_predictor(writable, "best")


def test_nothing_validated_has_no_best_epoch(writable):
    path = writable / "mgn_stage_model_metadata.json"
    write_json(path, read_json(path) | {"best_epoch": None})
    log = writable / "training_validation_rmse.json"
    write_json(log, [entry | {"val_rmse": None} for entry in read_json(log)])
    with pytest.raises(InputError, match="no best epoch"):
        load_predictor(writable, "best")


@pytest.mark.parametrize("layout", ["results", "api"])
def test_run_in_progress_is_asked_by_its_kept_epochs(tiny_cohort, tmp_path, layout):
    """What a training leaves in ``live/`` after two of four epochs says all that a model says."""

    def stop(epoch, epochs):
        if epoch == 2:  # the third
            raise ContinueLater("it is in progress")

    trainer, directory = make_mgn(), tmp_path / "models" / "mgn"
    trainer.rmse_log_interval, trainer._on_epoch_start = 1, stop
    with pytest.raises(ContinueLater):
        run(trainer, tiny_cohort, directory, epochs=4)
    template = (tmp_path if layout == "results" else directory) / "template"
    shutil.copytree(tiny_cohort.template_directory, template)
    predictor = load_predictor(directory)
    assert predictor.checkpoint == directory / "live/mgn_stage_model_epoch_00002.pt"
    weights = load_checkpoint(predictor.checkpoint)["model_state_dict"]
    assert all(torch.equal(weights[k], v) for k, v in predictor.network.state_dict().items())
    train = tiny_cohort.subjects["train"]
    assert predictor.metadata["train_subject_ids"] == [subject.id for subject in train]
    assert predictor.metadata["target_is_displacement"]
    assert predictor.stages_trained == sorted({float(s) for t in train for s in t.stages})
    assert any("shape score 1" in text for text in predictor.warnings(np.full(2, 99.0), [0.5]))
    log = read_json(directory / "live/training_validation_rmse.json")
    best = min(log, key=lambda entry: entry["val_rmse"])["epoch"]
    assert load_predictor(directory, "best").checkpoint.stem.endswith(f"{best:05d}")
    losses, entries, best_epoch = read_training(directory)  # and it can be plotted
    assert (len(losses), entries, best_epoch) == (2, log, best)


def test_folder_without_model_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="no model is here"):
        load_predictor(tmp_path)


def test_other_template_is_refused(writable):
    pv.Icosphere(nsub=2).save(writable / "pca_mean_template.vtp")
    with pytest.raises(InputError, match="not the one that the model was trained on"):
        load_predictor(writable)


def test_template_that_is_missing_is_a_sentence(writable):
    (writable / "pca_mean_template.vtp").unlink()
    with pytest.raises(InputError, match="no template"):
        load_predictor(writable)


@pytest.mark.parametrize("spoil", ["remove", "truncate", "exchange"])
def test_graph_that_is_spoilt_is_a_sentence(writable, spoil):
    path = writable / "shared_edge_features.pt"
    if spoil == "remove":
        path.unlink()
    elif spoil == "truncate":
        path.write_bytes(path.read_bytes()[:100])
    else:
        shutil.copy(writable / "shared_edge_index.pt", path)
    with pytest.raises(InputError, match="graph"):
        load_predictor(writable)


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
def test_parts_predict_what_the_whole_predicts(small_models, monkeypatch, tag):
    """Parts of 1 sample, and of 10 of the 42 points for the MLP."""
    predictor = load_predictor(small_models.directory(tag))
    stages = np.linspace(0, 1, 7)
    whole = predictor.predict(PCA, stages)
    monkeypatch.setattr(predictor_module, "_ROWS_AT_ONCE", 10)
    # Other sizes of products may sum in another order: float32 rounding at a scale of 6 mm.
    np.testing.assert_allclose(predictor.predict(PCA, stages), whole, rtol=0, atol=1e-5)


def test_large_template_goes_through_in_bounded_parts(mlp):
    """The network never sees more rows than stated; 42 points at the border of two parts."""
    large = replace(mlp, method=copy.copy(mlp.method))
    inputs = mlp.method.inputs
    large.method.inputs = inputs.at(inputs.coordinates.repeat(180_000 // 42 + 1, 1)[:180_000])
    seen = []
    mlp.network.register_forward_hook(
        lambda network, inputs, output: seen.append(output.shape[0] * output.shape[1])
    )
    predicted = large.predict(PCA, np.linspace(0, 1, 10))
    assert sum(seen) == 10 * 180_000
    assert max(seen) <= predictor_module._ROWS_AT_ONCE == 100_000
    own = mlp.predict(PCA, [0.0, 1.0])
    border = slice(99_960, 100_002)
    np.testing.assert_allclose(predicted[[0, -1], border], own, rtol=0, atol=1e-5)


def test_stages_of_one_subject_are_batched(small_models):
    """100 stages of 42 points and 240 edges are fewer rows than one part holds."""
    predictor, calls = load_predictor(small_models.directory("mgn")), []
    predictor.network.register_forward_hook(lambda *_: calls.append(1))
    predictor.predict(PCA, np.linspace(0, 1, 100))
    assert len(calls) == 1


def test_one_whole_number_asks_for_as_many_even_stages(mlp):
    """Stage 1 of a closed cycle is its stage 0; an open motion has both ends."""
    assert stages_asked(mlp, [4.0]) == [0.0, 0.25, 0.5, 0.75]
    opened = replace(mlp, method=copy.copy(mlp.method))
    opened.method.cycle = "open"
    assert stages_asked(opened, [3.0]) == [0.0, 0.5, 1.0]
    for stages in (None, [1.0], [0.0], [2.5], [0.5, 3.0]):
        assert stages_asked(mlp, stages) is stages


# ------------------------------------------------------------------ subjects and files


def test_prediction_moves_the_subjects_own_points(mlp, tiny_cohort, tmp_path):
    manifest = tiny_cohort.manifests["test"][0]
    [question] = questions_of_manifests(mlp, [manifest])
    targets = mlp.predict(question.shape_scores, question.stages)
    animation, meshes = write_prediction(tmp_path, mlp, question, targets)
    assert [path.name for path in meshes] == [
        "phase_000_stage_0.0.vtp",
        "phase_001_stage_0.35.vtp",
        "phase_002_stage_0.7.vtp",
    ]
    reference = pv.read(manifest.parent / "reference.vtp").points
    reader = PlainReader(mlp.directory, "mlp")
    for path, stage in zip(meshes, (0.0, 0.35, 0.7), strict=True):
        mesh = pv.read(path)
        expected = reader.predict(question.shape_scores, stage)
        np.testing.assert_allclose(mesh.point_data["displacement"], expected, rtol=0, atol=1e-5)
        # Points of 20 mm are float32 in the reference file: 2e-6 mm.
        np.testing.assert_allclose(mesh.points, reference + expected, rtol=0, atol=2e-5)
        assert mesh.n_cells == 80
    played = pv.get_reader(animation)
    assert played.time_values == [0.0, 0.35, 0.7]


def test_close_stages_do_not_collide(mlp, tiny_cohort, tmp_path):
    [question] = questions_of_manifests(mlp, tiny_cohort.manifests["test"], [0.291, 0.295, 0.291])
    targets = mlp.predict(question.shape_scores, question.stages)
    _, meshes = write_prediction(tmp_path, mlp, question, targets)
    assert len({path.name for path in meshes}) == 3


def test_second_prediction_leaves_nothing_of_the_first(mlp, tiny_cohort, tmp_path):
    """Viewers group files by name: an old stage among the new ones would be played with them."""
    for stages in ([0.1, 0.2, 0.3], [0.7]):
        [question] = questions_of_manifests(mlp, tiny_cohort.manifests["test"], stages)
        (tmp_path / question.stem).mkdir(exist_ok=True)
        (tmp_path / question.stem / "notes.txt").write_text("mine")
        write_prediction(tmp_path, mlp, question, mlp.predict(question.shape_scores, stages))
    left = sorted(path.name for path in (tmp_path / question.stem).iterdir())
    assert left == ["notes.txt", "phase_000_stage_0.7.vtp", f"{question.stem}.pvd"]


def test_scores_alone_reconstruct_the_shape(mlp, tiny_cohort, tmp_path):
    """By the formula: mean + sum of score * sqrt(eigenvalue) * component."""
    write_json(tmp_path / "pca.json", PCA.tolist())
    question = question_of_scores(mlp, tmp_path / "pca.json", [0.5])
    model = json.loads((tiny_cohort.mesh_path.parent / "pca_model.json").read_text())
    expected = pv.read(tiny_cohort.mesh_path).points.astype(float)
    for score, value, component in zip(PCA, model["eigenvalues"], model["components"], strict=True):
        expected += score * value**0.5 * np.reshape(component, (-1, 3))
    np.testing.assert_allclose(question.points, expected, rtol=0, atol=1e-9)


def test_manifest_without_targets_takes_the_training_stages(mlp, tiny_cohort, tmp_path):
    write_json(tmp_path / "pca.json", PCA.tolist())
    manifest = {"subject_id": "new", "pca_coefficients": "pca.json"}
    write_json(tmp_path / "manifest.json", manifest)
    [question] = questions_of_manifests(mlp, [tmp_path / "manifest.json"])
    assert question.stages.tolist() == [0.0, 0.35, 0.7]


def test_problems_of_all_manifests_come_together(mlp, tiny_cohort, tmp_path):
    write_json(tmp_path / "long.json", [1.0, 2.0, 3.0])
    write_json(tmp_path / "a.json", {"subject_id": "a", "pca_coefficients": "long.json"})
    write_json(tmp_path / "b.json", {"subject_id": "b", "pca_coefficients": "missing.json"})
    other = pv.Icosphere(radius=20.0, nsub=1)
    other.faces = np.roll(other.faces.reshape(-1, 4)[:, [0, 2, 3, 1]], 1, axis=0).ravel()
    other.save(tmp_path / "other.vtp")
    write_json(tmp_path / "good.json", PCA.tolist())
    described = {"pca_coefficients": "good.json", "fitted_reference_mesh": "other.vtp"}
    write_json(tmp_path / "c.json", {"subject_id": "c", **described})
    good = tiny_cohort.manifests["test"][0]
    paths = [tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json", good, good]
    with pytest.raises(InputError) as caught:
        questions_of_manifests(mlp, paths)
    sentences = [problem.sentence() for problem in caught.value.problems]
    for part, sentence in zip(
        ("takes 2", "missing.json", "other cells", "stands in two"), sentences, strict=True
    ):
        assert part in sentence


def test_stages_asked_for_are_refused_before_manifests_are_read(mlp, tmp_path):
    with pytest.raises(InputError, match=r"stage 1\.5 is not within"):
        questions_of_manifests(mlp, [tmp_path / "not-there.json"], [0.5, 1.5])


def test_volume_reference_goes_with_a_model_of_its_surface(tmp_path):
    """Each point of the surface is found in the template volume by its coordinates alone."""
    cohort = tmp_path / "cohort"
    make_demo_cohort(cohort, n_subjects=2, n_phases=2, resolution=6, seed=1)
    manifests = [cohort / f"demo-00{k}" / "manifest.json" for k in (1, 2)]
    result = WorkflowTrainPhysicsNeMo(
        manifests,
        [],
        cohort / "pca_mean.vtu",
        tmp_path / "model",
        use_template_surface=True,
        training_method=small_method("mlp", epochs=1),
    ).process()
    predictor = load_predictor(result["output_directory"])
    volume = pv.read(cohort / "pca_mean.vtu")
    assert len(predictor.points) < volume.n_points
    distance = np.linalg.norm(predictor.points[:, None] - volume.points[None], axis=2)
    assert distance.min(axis=1).max() == 0
    [question] = questions_of_manifests(predictor, manifests[1:])
    reference = pv.read(manifests[1].parent / "reference.vtu").points
    np.testing.assert_array_equal(question.points, reference[distance.argmin(axis=1)])
