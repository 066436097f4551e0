"""Code written for MONAI Physio's training classes runs here as it stands."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv
import torch

from meshstage import TrainPhysicsNeMoBase, WorkflowInferPhysicsNeMo, WorkflowTrainPhysicsNeMo

N_POINTS, N_FEATURES, N_TARGET = 42, 6, 3  # of the tiny cohort: xyz, 2 scores, stage
N_SAMPLES = 15  # 5 training subjects of 3 phases


class Recording(TrainPhysicsNeMoBase):
    """Follows every signature of the contract, and notes what it was called with."""

    model_tag = "recording"
    architecture_name = "tests.Recording"

    def __init__(self, log_level: int | str = logging.INFO) -> None:
        super().__init__(log_level=log_level)
        self.width = 8
        self.epochs = 3
        self.batch_size = 4
        self.rmse_log_interval = 2
        self.loss_log_interval = 1
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def note(self, name: str, **values: Any) -> None:
        self.calls.append((name, values))

    def called(self, name: str) -> list[dict[str, Any]]:
        return [values for called, values in self.calls if called == name]

    def build_model(self, in_features, out_features):
        self.note("build_model", in_features=in_features, out_features=out_features)
        return torch.nn.Sequential(
            torch.nn.Linear(in_features, self.width),
            torch.nn.Tanh(),
            torch.nn.Linear(self.width, out_features),
        )

    def setup_inputs(self, device, template_mesh, template_coords):
        self.note("setup_inputs", device=device, mesh=template_mesh, coords=template_coords)
        self.offset = torch.as_tensor(template_coords, device=device).mean()

    def forward(self, model, node_feats, batch_len):
        self.note("forward", shape=tuple(node_feats.shape), batch_len=batch_len)
        return model(node_feats) + 0 * self.offset

    def checkpoint_fields(self):
        return {"width": self.width}

    def save_artifacts(self, output_dir):
        self.note("save_artifacts", directory=output_dir)
        (output_dir / "own_file.txt").write_text(f"{float(self.offset)}")

    def _compute_loss(self, pred, tgt, batch_len, target_scale, indices):
        self.note(
            "loss",
            shapes=(tuple(pred.shape), tuple(tgt.shape)),
            batch_len=batch_len,
            target_scale=target_scale,
            indices=torch.as_tensor(indices).tolist(),
            targets=tgt.detach().reshape(batch_len, N_POINTS, N_TARGET).clone(),
        )
        return torch.nn.functional.mse_loss(pred, tgt)

    def _on_epoch_start(self, epoch, epochs):
        self.note("epoch", epoch=epoch, epochs=epochs)

    def _log_epoch(self, context, epoch, epochs):
        self.note("log", is_main=context.is_main, epoch=epoch, epochs=epochs)

    def train(self, train_dataset, *arguments, **keywords):
        self.train_dataset = train_dataset
        return super().train(train_dataset, *arguments, **keywords)


@pytest.fixture(scope="module")
def recorded(tiny_cohort, tmp_path_factory):
    method = Recording(log_level=logging.WARNING)
    made = WorkflowTrainPhysicsNeMo(
        train_manifests=tiny_cohort.manifests["train"],
        val_manifests=tiny_cohort.manifests["val"],
        pca_mean_mesh=tiny_cohort.mesh_path,
        output_directory=tmp_path_factory.mktemp("contract") / "model",
        training_method=method,
        log_level="WARNING",
    )
    return method, made.process()


def test_the_base_has_the_published_attributes():
    assert (TrainPhysicsNeMoBase.model_tag, TrainPhysicsNeMoBase.architecture_name) == (
        "base",
        "base",
    )
    assert TrainPhysicsNeMoBase._shuffle_points_within_batch is False

    class Plain(TrainPhysicsNeMoBase):
        def build_model(self, in_features, out_features): ...

        def forward(self, model, node_feats, batch_len): ...

    method = Plain()
    expected = {
        "epochs": 1500,
        "batch_size": 4,
        "learning_rate": 1e-3,
        "rmse_log_interval": 100,
        "loss_log_interval": 10,
        "seed": 42,
        "grad_clip_norm": 1.0,
        "_compile_incompatible": None,
    }
    assert {name: getattr(method, name) for name in expected} == expected
    method.set_epochs(epochs=np.int64(7))
    method.set_batch_size(batch_size=np.int32(2))
    method.set_learning_rate(learning_rate=np.float32(0.5))
    method.set_grad_clip_norm(grad_clip_norm=2)
    method.set_compile_incompatible(reason="graph breaks")
    assert (method.epochs, method.batch_size, method.learning_rate) == (7, 2, 0.5)
    assert (method.grad_clip_norm, method._compile_incompatible) == (2.0, "graph breaks")
    method.set_compile_incompatible(None)
    assert method._compile_incompatible is None
    with pytest.raises(ValueError, match="epochs is 0"):
        method.set_epochs(0)


def test_the_network_is_built_for_the_cohorts_features(recorded):
    method, _ = recorded
    for call in method.called("build_model"):
        assert call == {"in_features": N_FEATURES, "out_features": N_TARGET}


def test_inputs_are_set_up_once_with_the_mesh_and_its_coordinates(recorded, tiny_cohort):
    method, _ = recorded
    [call] = method.called("setup_inputs")
    names = [name for name, _ in method.calls]
    assert names.index("setup_inputs") < names.index("forward")
    assert call["device"] == torch.device("cpu") or torch.device(call["device"]).type == "cuda"
    assert isinstance(call["mesh"], pv.DataSet)
    coords = np.asarray(call["coords"])
    assert coords.shape == (N_POINTS, 3)
    assert coords.dtype == np.float32
    np.testing.assert_array_equal(coords, np.asarray(pv.read(tiny_cohort.mesh_path).points))


def test_forward_gets_rows_sample_by_sample(recorded):
    method, _ = recorded
    for call in method.called("forward"):
        assert call["shape"] == (call["batch_len"] * N_POINTS, N_FEATURES)


def test_losses_see_each_sample_once_per_epoch_under_its_index(recorded):
    """15 samples in batches of 4: 3 full ones and one of 3, in every of 3 epochs."""
    method, _ = recorded
    losses = method.called("loss")
    per_epoch = [losses[start : start + 4] for start in (0, 4, 8)]
    for steps in per_epoch:
        assert sorted(i for step in steps for i in step["indices"]) == list(range(N_SAMPLES))
        assert [step["batch_len"] for step in steps] == [4, 4, 4, 3]
    scale = losses[0]["target_scale"]
    for step in losses:
        rows = step["batch_len"] * N_POINTS
        assert step["shapes"] == ((rows, N_TARGET), (rows, N_TARGET))
        for index, targets in zip(step["indices"], step["targets"], strict=True):
            expected = method.train_dataset.targets([index])[0] / float(scale)
            torch.testing.assert_close(targets, expected, rtol=1e-6, atol=0)  # one rounding


def test_hooks_count_epochs_from_0(recorded):
    method, _ = recorded
    assert method.called("epoch") == [{"epoch": e, "epochs": 3} for e in range(3)]
    assert method.called("log") == [{"is_main": True, "epoch": e, "epochs": 3} for e in range(3)]


def test_artifacts_are_kept_though_their_names_are_not_returned(recorded):
    method, result = recorded
    written = result["output_directory"] / "own_file.txt"
    assert float(written.read_text()) == float(method.offset)
    assert all(isinstance(call["directory"], Path) for call in method.called("save_artifacts"))


def test_the_data_set_has_one_subject_per_sample_and_plain_arrays(recorded, tiny_cohort):
    method, _ = recorded
    dataset = method.train_dataset
    assert len(dataset) == len(dataset.subject_ids) == N_SAMPLES
    assert dataset.subject_ids[:4] == ["train-0"] * 3 + ["train-1"]
    assert (dataset.n_features, dataset.n_target) == (N_FEATURES, N_TARGET)
    features, targets = dataset[4]  # the second phase of the second subject, stage 0.35
    assert isinstance(features, np.ndarray) and isinstance(targets, np.ndarray)
    assert (features.shape, targets.shape) == ((N_POINTS, N_FEATURES), (N_POINTS, N_TARGET))
    statistics, subject = tiny_cohort.statistics, tiny_cohort.subjects["train"][1]
    scores = (subject.shape_scores - statistics.pca_mean) / np.array(statistics.pca_scale)
    # Float32 of numbers around 1.
    np.testing.assert_allclose(features[:, 3:5], np.tile(scores, (N_POINTS, 1)), atol=1e-6)
    np.testing.assert_allclose(features[:, 5], 0.35, atol=1e-7)
    np.testing.assert_allclose(features[:, :3].mean(axis=0), 0, atol=1e-6)
    expected = subject.targets[1] / statistics.target_scale
    np.testing.assert_allclose(targets, expected, atol=1e-6)


def test_the_model_is_asked_through_the_class_that_trained_it(recorded, tiny_cohort):
    """By the weights alone: two layers over normalised features."""
    _, result = recorded
    asked = WorkflowInferPhysicsNeMo(result["output_directory"], Recording())
    assert (asked.n_target, asked.target_array, asked.epoch) == (3, "displacement", None)
    assert asked.checkpoint_file == result["checkpoint"]
    assert asked.template_mesh.n_points == N_POINTS
    payload = torch.load(result["checkpoint"], weights_only=True)
    weights = {key: value.double().numpy() for key, value in payload["model_state_dict"].items()}
    statistics, scores = tiny_cohort.statistics, np.array([0.3, -0.4])
    points = np.asarray(asked.template_mesh.points, np.float64)
    features = np.hstack(
        [
            (points - statistics.coordinate_mean) / statistics.coordinate_scale,
            np.tile((scores - statistics.pca_mean) / statistics.pca_scale, (N_POINTS, 1)),
            np.full((N_POINTS, 1), 0.35),
        ]
    )
    hidden = np.tanh(features @ weights["0.weight"].T + weights["0.bias"])
    expected = (hidden @ weights["2.weight"].T + weights["2.bias"]) * statistics.target_scale
    np.testing.assert_allclose(asked.predict(scores, 0.35), expected, rtol=0, atol=1e-5)
    kept = WorkflowInferPhysicsNeMo(
        model_directory=result["output_directory"], inference_method=Recording(), epoch=2
    )
    assert kept.epoch == 2
    assert kept.checkpoint_file.name == "recording_stage_model_epoch_00002.pt"


def test_a_finished_model_of_another_class_is_not_handed_over(recorded, tiny_cohort):
    """The same tag and settings, another loss: refused, and nothing is trained."""
    from meshstage.errors import InputError

    class Absolute(Recording):
        def _compute_loss(self, pred, tgt, batch_len, target_scale, indices):
            return torch.nn.functional.l1_loss(pred, tgt)

    _, result = recorded
    again = WorkflowTrainPhysicsNeMo(
        tiny_cohort.manifests["train"],
        tiny_cohort.manifests["val"],
        tiny_cohort.mesh_path,
        result["output_directory"],
        training_method=Absolute(),
    )
    with pytest.raises(InputError, match="Absolute"):
        again.process()
