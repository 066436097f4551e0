"""A Gaussian process as a model: fitted at once, used like every other."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from meshstage.config.networks import NETWORKS
from meshstage.errors import InputError
from meshstage.meshes.reading import read_mesh
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.watch import describe, read_status
from meshstage.motion.gaussian_process import GaussianProcess, Kernel
from meshstage.prediction.export import export_model
from meshstage.prediction.loading import load_predictor
from meshstage.prediction.questions import questions_of_manifests
from meshstage.prediction.writing import write_prediction
from meshstage.training.gp import FitGaussianProcess, GaussianProcessNetwork
from small_training import TrainSmall, run

ASKED = np.array([0.0, 0.2, 0.35, 0.9, 1.0])  # of the training are 0, 0.35 and 0.7
FILES = {
    "meshstage_gp_stage_model.pt",
    "meshstage_gp_stage_model_metadata.json",
    "pca_mean_template.vtp",
    "pca_model.json",
}


@pytest.fixture(scope="module")
def fitted(tiny_cohort, tmp_path_factory):
    """Fit once; nobody writes into it."""
    output = tmp_path_factory.mktemp("gp") / "gp"
    run(FitGaussianProcess(), tiny_cohort, output)
    return output


@pytest.fixture(scope="module")
def process(tiny_cohort):
    return GaussianProcess.fit(tiny_cohort.subjects["train"], tiny_cohort.statistics, "closed")


@pytest.fixture(scope="module")
def predictor(fitted):
    return load_predictor(fitted)


def scores_of(cohort):
    return [s.shape_scores for split in ("train", "val", "test") for s in cohort.subjects[split]]


def test_the_directory_is_that_of_a_finished_model(fitted):
    names = {path.name for path in fitted.iterdir() if path.is_file()}
    assert names == {*FILES, "complete.json", "events.jsonl"}
    assert set(json.loads((fitted / "complete.json").read_text())["files"]) == FILES
    # Readable without running code: plain tensors and values alone.
    torch.load(fitted / "meshstage_gp_stage_model.pt", weights_only=True)
    assert describe(read_status(fitted)) == "gp: finished"


def test_metadata_say_what_was_taken_and_how_it_was_chosen(fitted, process):
    metadata = json.loads((fitted / "meshstage_gp_stage_model_metadata.json").read_text())
    errors = metadata["left_out_rmse"]
    assert set(errors) == {"mean", "ridge", "gp"}
    assert errors[metadata["took"]] == min(errors.values())
    assert metadata["took"] == process.took
    assert metadata["cycle"] == "closed"
    assert "epochs" not in metadata


def test_a_second_start_finds_it_complete_and_changes_nothing(tiny_cohort, fitted, caplog):
    before = (fitted / "meshstage_gp_stage_model.pt").stat().st_mtime_ns
    with caplog.at_level("INFO"):
        network, losses, rmse = run(FitGaussianProcess(), tiny_cohort, fitted)
    assert "is complete, nothing to fit" in caplog.text
    assert (losses, rmse) == ([], [])
    assert (fitted / "meshstage_gp_stage_model.pt").stat().st_mtime_ns == before
    stored = load_checkpoint(fitted / "meshstage_gp_stage_model.pt")["model_state_dict"]
    assert all(torch.equal(stored[name], value) for name, value in network.state_dict().items())


def test_a_deleted_file_is_restored(tiny_cohort, tmp_path):
    method = FitGaussianProcess()
    for _ in range(2):  # the same object again: what it found is no setting
        run(method, tiny_cohort, tmp_path / "gp")
        (tmp_path / "gp" / "meshstage_gp_stage_model.pt").unlink()
    run(method, tiny_cohort, tmp_path / "gp")
    load_predictor(tmp_path / "gp")


def test_other_data_and_another_cycle_are_refused(tiny_cohort, fitted):
    with pytest.raises(InputError, match="data of train subject train-4 was"):
        run(FitGaussianProcess(), tiny_cohort, fitted, train=tiny_cohort.subjects["train"][:4])
    method = FitGaussianProcess()
    method.cycle = "open"
    with pytest.raises(InputError, match="cycle was closed and is open"):
        run(method, tiny_cohort, fitted)


def test_it_cannot_be_resumed(tiny_cohort, fitted, tmp_path):
    start = fitted / "meshstage_gp_stage_model.pt"
    with pytest.raises(InputError, match="there are no epochs to go on from; start a new run"):
        run(FitGaussianProcess(), tiny_cohort, tmp_path / "gp_1", resume_from=start)
    assert not (tmp_path / "gp_1").exists()


def test_predictor_and_process_agree(tiny_cohort, predictor, process):
    for scores in (*scores_of(tiny_cohort), np.array([3.0, -4.0])):
        # Both give float32, whose step is 2.4e-7 mm at 4 mm; stages are compared as float32,
        # 3e-8 of a motion of some 10 mm for each unit of stage.
        np.testing.assert_allclose(
            predictor.predict(scores, ASKED), process.predict(scores, ASKED), rtol=0, atol=1e-6
        )
        np.testing.assert_allclose(
            predictor.deviation(scores, ASKED), process.deviation(scores, ASKED), rtol=1e-5,
            atol=1e-6,
        )  # fmt: skip


def test_deviation_follows_a_curved_kernel_too(process):
    """The cohort's own is linear, as `took` says."""
    n_modes, n_pca = process.kernel.length.shape
    half = np.full(n_modes, 0.5)
    kernel = Kernel(half, half, half / 5, np.linspace(1, 3, n_modes * n_pca).reshape(-1, n_pca))
    curved = replace(process, kernel=kernel, took="gp")
    network = GaussianProcessNetwork.of(curved, "closed")
    scores, stages = np.array([[0.3, -0.8], [2.0, 1.0]]), np.array([0.35, 0.7])
    given = torch.from_numpy(scores), torch.from_numpy(stages)
    motions, deviations = network(*given), network.deviation(*given)
    for k, (motion, deviation) in enumerate(zip(motions, deviations, strict=True)):
        expected = curved.predict(scores[k], stages[k : k + 1])[0]
        # Float32 of 3 mm has steps of 2.4e-7 mm; both deviations are float64.
        np.testing.assert_allclose(motion, expected, rtol=0, atol=1e-6)
        own = curved.deviation(scores[k], stages[k : k + 1])[0]
        np.testing.assert_allclose(deviation, own, rtol=1e-9)


def test_nothing_moves_where_no_training_subject_does(tiny_cohort, predictor):
    assert not any(np.any(s.targets[s.stages == 0]) for s in tiny_cohort.subjects["train"])
    for scores in (*scores_of(tiny_cohort), np.array([3.0, -4.0])):
        assert np.abs(predictor.predict(scores, [0.0, 1.0])).max() <= 1e-6


def test_pure_noise_is_a_model_too(tiny_cohort, tmp_path):
    """No field stands out of noise: nothing moves, as the process says."""
    rng = np.random.default_rng(0)
    noisy = [
        replace(s, targets=rng.normal(size=s.targets.shape).astype(np.float32))
        for s in tiny_cohort.subjects["train"][:2]
    ]
    run(FitGaussianProcess(), tiny_cohort, tmp_path / "gp", train=noisy)
    process = GaussianProcess.fit(noisy, tiny_cohort.statistics, "closed")
    assert len(process.modes.fields) == 0
    predictor = load_predictor(tmp_path / "gp")
    predicted = predictor.predict(noisy[0].shape_scores, ASKED)
    np.testing.assert_array_equal(predicted, process.predict(noisy[0].shape_scores, ASKED))
    assert not predicted.any()


def test_deviation_is_written_and_a_network_has_none(tiny_cohort, predictor, tmp_path):
    [question] = questions_of_manifests(predictor, tiny_cohort.manifests["test"])
    targets = predictor.predict(question.shape_scores, question.stages)
    deviation = predictor.deviation(question.shape_scores, question.stages)
    _, meshes = write_prediction(tmp_path, predictor, question, targets, deviation=deviation)
    for mesh, values in zip(meshes, deviation, strict=True):
        np.testing.assert_array_equal(read_mesh(mesh)["displacement_deviation"], values)
    run(TrainSmall(epochs=1), tiny_cohort, tmp_path / "small", epochs=1)
    network = load_predictor(tmp_path / "small", method=TrainSmall())
    assert network.deviation(question.shape_scores, question.stages) is None


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_exported_files_predict_the_same(predictor, tmp_path, suffix):
    # `export_model` reads the file back and refuses one that predicts otherwise.
    assert "differs from the model by at most" in export_model(predictor, tmp_path / f"gp{suffix}")


def test_physicsnemo_has_no_such_network(predictor, tmp_path):
    with pytest.raises(InputError, match=r"PhysicsNeMo's own networks; export it as \.pt2"):
        export_model(predictor, tmp_path / "gp.mdlus")


def test_an_open_cycle_ends_elsewhere(tiny_cohort, tmp_path):
    method = FitGaussianProcess()
    method.cycle = "open"
    run(method, tiny_cohort, tmp_path / "gp")
    predictor = load_predictor(tmp_path / "gp")
    own = GaussianProcess.fit(tiny_cohort.subjects["train"], tiny_cohort.statistics, "open")
    [subject] = tiny_cohort.subjects["test"]
    predicted = predictor.predict(subject.shape_scores, ASKED)
    np.testing.assert_allclose(
        predicted, own.predict(subject.shape_scores, ASKED), rtol=0, atol=1e-6
    )
    assert np.abs(predicted[-1] - predicted[0]).max() > 0.1  # mm


def test_its_tag_is_one_that_other_programs_do_not_take_for_theirs():
    assert NETWORKS["gp"].tag == FitGaussianProcess.model_tag == "meshstage_gp"
