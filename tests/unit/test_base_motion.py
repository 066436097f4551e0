"""Encoded stages and bases: trained, resumed, predicted and exported as one function."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from judged import MadeSubject
from meshstage.config.networks import tag_of
from meshstage.config.runs import read_runs
from meshstage.errors import InputError
from meshstage.motion.baselines import MODELS
from meshstage.motion.cycle import encode
from meshstage.prediction.export import export_model
from meshstage.prediction.loading import load_predictor
from meshstage.prediction.predictor import Predictor
from meshstage.training.base import TrainPhysicsNeMoBase
from meshstage.training.inputs import NetworkInputs, feature_names
from small_models import different_weights
from small_training import TrainSmall, make_mlp, run

STAGES = np.array([0.0, 0.35, 0.5, 1.0])
SETTINGS: dict[str, dict[str, Any]] = {
    "encoded": {"stage_encoding": "cyclic"},
    "base": {"base": "ridge", "stage_encoding": "cyclic", "cycle": "open"},
    "pod": {"layer_size": 16, "batch_size": 4},
}


def make_pod() -> TrainPhysicsNeMoBase:
    from meshstage.training.pod import TrainPhysicsNeMoPOD

    return TrainPhysicsNeMoPOD()


def make(name: str) -> TrainPhysicsNeMoBase:
    method = make_pod() if name == "pod" else make_mlp()
    method.rmse_log_interval = 2
    for key, value in SETTINGS[name].items():
        getattr(method, f"set_{key}")(value)
    return method


@pytest.fixture(scope="session", params=SETTINGS)
def trained(request, tiny_cohort, tmp_path_factory) -> tuple[Any, TrainPhysicsNeMoBase, Any, Path]:
    """Train four epochs; the method and the network are as the training left them."""
    method = make(request.param)
    output = tmp_path_factory.mktemp("trained") / str(request.param)
    network, _, log = run(method, tiny_cohort, output)
    return network, method, log, output


def test_predictor_computes_what_was_judged(trained, tiny_cohort) -> None:
    network, method, log, output = trained
    assert method.tag.startswith("meshstage_")
    assert (output / f"{method.tag}_stage_model.pt").is_file()
    predictor = load_predictor(output)
    square, n = 0.0, 0
    for subject in tiny_cohort.subjects["val"]:
        predicted = predictor.predict(subject.shape_scores, subject.stages)
        pca, stage = method.inputs.samples(
            np.tile(subject.shape_scores, (len(subject.stages), 1)), subject.stages
        )
        with torch.inference_mode():
            own = method.predict_batch(network, pca, stage) * predictor.statistics.target_scale
        np.testing.assert_array_equal(predicted, own.numpy())
        square += float(np.square(predicted - subject.targets, dtype=float).sum())
        n += predicted.shape[0] * predicted.shape[1]
    # float32 targets and predictions of some mm: 1e-7 of each, by the thousand averaged.
    np.testing.assert_allclose(np.sqrt(square / n), log[-1]["val_rmse"], rtol=1e-5)


def test_resuming_gives_the_weights_of_one_go(trained, tiny_cohort, tmp_path) -> None:
    _, method, _, output = trained
    name, final = output.name, f"{method.tag}_stage_model.pt"
    run(make(name), tiny_cohort, tmp_path / "cut", epochs=2)
    run(make(name), tiny_cohort, tmp_path / "cut_1", resume_from=tmp_path / "cut" / final)
    assert different_weights(tmp_path / "cut_1" / final, output / final) == []
    one, other = (
        torch.load(path / final, weights_only=True)["fixed_tensors"]
        for path in (tmp_path / "cut_1", output)
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("ending", [".pt2", ".onnx"])
def test_exported_files_predict_the_same(trained, tmp_path, ending) -> None:
    """The export itself compares, and refuses another prediction."""
    assert "at most" in export_model(load_predictor(trained[3]), tmp_path / f"model{ending}")


def test_the_network_alone_is_no_export(trained, tmp_path) -> None:
    with pytest.raises(InputError, match="the network alone is not this model"):
        export_model(load_predictor(trained[3]), tmp_path / "model.mdlus")


def test_another_base_or_encoding_is_not_resumed(trained, tiny_cohort, tmp_path) -> None:
    _, its_method, _, output = trained
    method = make_mlp()
    method.set_stage_encoding("cyclic")
    method.set_base("stage_mean")
    with pytest.raises(InputError, match="does not fit this training") as raised:
        run(method, tiny_cohort, tmp_path / "m", 9, output / f"{its_method.tag}_stage_model.pt")
    assert "base" in str(raised.value)


# ---------------------------------------------------------------- closed forms


class _Zero(TrainSmall):
    """Gives zeros."""

    def forward(self, model: torch.nn.Module, node_feats: Any, batch_len: int) -> Any:
        return 0 * model(node_feats)


def prepared(cohort: Any, kind: str) -> TrainPhysicsNeMoBase:
    method = _Zero(base=kind)
    train = cohort.subjects["train"]
    method.fixed_tensors = method.fit_fixed(train, cohort.statistics)
    points = cohort.template.points
    method.make_inputs(cohort.statistics, points, torch.device("cpu"), torch.float32)
    return method


@pytest.mark.parametrize("kind", ["stage_mean", "ridge", "gp"])
def test_a_network_of_zeros_leaves_the_base(tiny_cohort, kind) -> None:
    train, statistics = tiny_cohort.subjects["train"], tiny_cohort.statistics
    method, base = prepared(tiny_cohort, kind), MODELS[kind][1].fit(train, statistics, "closed")
    network = method.build_model(method.inputs.n_features, statistics.n_target)
    scores = np.array([0.7, -1.1])
    pca, stage = method.inputs.samples(np.tile(scores, (4, 1)), STAGES)
    with torch.inference_mode():
        found = method.predict_batch(network, pca, stage) * statistics.target_scale
    # Scores are fed as float32, 1e-7 of some units; motions are some mm.
    np.testing.assert_allclose(found, base.predict(scores, STAGES), rtol=0, atol=2e-6)


def test_residual_scale_is_what_the_base_leaves(tiny_cohort) -> None:
    train, statistics = tiny_cohort.subjects["train"], tiny_cohort.statistics
    method = prepared(tiny_cohort, "stage_mean")
    mean = np.mean([subject.targets for subject in train], axis=0, dtype=float)
    left = np.stack([subject.targets - mean for subject in train])
    expected = np.sqrt(np.mean(left**2)) / statistics.target_scale
    found = float(method.fixed_tensors["base.residual_scale"])
    np.testing.assert_allclose(found, expected, rtol=1e-5)  # the mean is kept in float32


def test_trust_is_one_within_the_training_subjects_and_gone_twice_as_far(tiny_cohort) -> None:
    method, statistics = prepared(tiny_cohort, "ridge"), tiny_cohort.statistics
    scores = np.stack([subject.shape_scores for subject in tiny_cohort.subjects["train"]])
    normalised = statistics.normalise_scores(scores)
    farthest = normalised[np.linalg.norm(normalised, axis=1).argmax()]
    own = torch.tensor(normalised, dtype=torch.float32)
    assert torch.equal(method.trust(own), torch.ones(len(own), dtype=torch.float64))
    ways = torch.tensor(np.outer([1.5, 2.0, 7.0], farthest))
    # The radius is a millionth larger, see `BaseMotion.trust`.
    torch.testing.assert_close(
        method.trust(ways), torch.tensor([0.5, 0, 0], dtype=torch.float64), rtol=0, atol=1e-5
    )


def test_far_from_the_training_scores_the_base_predicts_and_it_is_said(
    trained, tiny_cohort
) -> None:
    predictor: Predictor = load_predictor(trained[3])
    if predictor.method.base == "none":
        assert not [line for line in predictor.warnings([9, 9], [0.5]) if "base" in line]
        return
    train, far = tiny_cohort.subjects["train"], np.array([9.0, 9.0])
    ridge = MODELS["ridge"][1].fit(train, tiny_cohort.statistics, "open")
    expected = ridge.predict(far, STAGES)
    np.testing.assert_allclose(
        predictor.predict(far, STAGES), expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )
    assert any("counts 0%, the rest is the base (ridge)" in w for w in predictor.warnings(far, []))


@pytest.mark.parametrize("cycle", ["closed", "open"])
def test_an_encoded_stage_is_what_the_motion_models_use(tiny_cohort, cycle) -> None:
    statistics = tiny_cohort.statistics
    inputs = NetworkInputs(
        statistics, tiny_cohort.template.points, torch.device("cpu"), torch.float32,
        "cyclic", cycle,
    )  # fmt: skip
    pca, stage = inputs.samples(np.zeros((4, 2)), STAGES)
    found = inputs.features(pca, stage)[:, 2:]
    np.testing.assert_allclose(found, encode(STAGES, 3, cycle), rtol=0, atol=1e-6)
    assert inputs.n_features == inputs.rows(pca, stage).shape[1] == 3 + 2 + 6
    assert len(feature_names(statistics, "cyclic", cycle)) == 11


@pytest.mark.parametrize("base", ["none", "stage_mean"])
def test_modes_of_a_pod_hold_what_it_learns(tiny_cohort, base) -> None:
    """Amounts that project a target move the mesh to it; amounts of zero, to the mean."""
    train, statistics = tiny_cohort.subjects["train"], tiny_cohort.statistics
    method = make_pod()
    method.set_base(base)
    method.fixed_tensors = fixed = method.fit_fixed(train, statistics)
    cpu, points = torch.device("cpu"), tiny_cohort.template.points
    method.make_inputs(statistics, points, cpu, torch.float32)
    method.setup_inputs(cpu, tiny_cohort.template.mesh(), points.astype(np.float32))
    subject, fields = train[0], fixed["modes.fields"].flatten(1)
    pca, stage = method.inputs.samples(
        np.tile(subject.shape_scores, (len(subject.stages), 1)), subject.stages
    )
    learned = torch.tensor(subject.targets, dtype=torch.float64) / statistics.target_scale
    if base != "none":
        left = learned - method._base(pca.double(), stage.double())
        learned = left / fixed["base.residual_scale"]
    amounts = (learned - fixed["modes.mean"]).flatten(1) @ fields.T / fixed["modes.spread"]
    found = method.predict_batch(lambda features: amounts, pca, stage) * statistics.target_scale
    # A millionth of the variance is left out of the modes: a thousandth of the motions' size.
    size = float(np.sqrt(np.mean(np.square(subject.targets, dtype=float))))
    error = np.sqrt(np.mean(np.square(found.numpy() - subject.targets)))
    assert error < 3e-3 * size
    nothing = method.forward_batch(lambda features: 0 * amounts, pca, stage)
    torch.testing.assert_close(nothing[0].double(), fixed["modes.mean"], rtol=0, atol=1e-6)
    # Over all training samples an amount has a mean of 0 and a variance of 1, so at most 1 each.
    assert float(amounts.abs().max()) < np.sqrt(sum(len(s.stages) for s in train))


def test_subjects_that_do_not_move_have_no_modes(tiny_cohort) -> None:
    still = MadeSubject("still", STAGES, np.zeros(2), np.zeros((4, 42, 3), np.float32))
    with pytest.raises(InputError, match="no modes"):
        make_pod().fit_fixed([still], tiny_cohort.statistics)


# ---------------------------------------------------------------- names


def test_what_is_not_plain_has_a_tag_of_its_own(tmp_path) -> None:
    assert tag_of("mgn", {"base": "none", "stage_encoding": "raw", "cycle": "open"}) == "mgn"
    assert tag_of("mgn", {"base": "ridge"}) == "meshstage_mgn"
    table = tmp_path / "runs.tsv"
    table.write_text(
        "run\tnetwork\tbase\tstage_encoding\na\tmgn\t\t\nb\tmlp\tgp\t\nc\tphysics\t\tcyclic\n"
        "d\tpod\t\traw\n"
    )
    found = [run.tag for run in read_runs(table).values()]
    assert found == ["mgn", "meshstage_mlp", "meshstage_physics_informed_motion", "meshstage_pod"]
