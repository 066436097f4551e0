"""Training with a strain energy: the loss against a slow computation, counts, warm-up, refusals."""

import contextlib
import json
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv
import torch
from torch import Tensor

from meshstage.cohort.demo import make_demo_cohort
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import Statistics, compute_statistics
from meshstage.cohort.subject import Subject, load_subject
from meshstage.cohort.template import Template, build_template
from meshstage.errors import ContinueLater, InputError
from meshstage.losses.term import LossTerm
from meshstage.mechanics import elasticity
from meshstage.mechanics.bodies import make_bodies
from meshstage.mechanics.elements import Tetrahedra, find_tetrahedra
from meshstage.meshes.cells import canonical_cells
from meshstage.meshes.reading import read_mesh
from meshstage.models.checkpoint import load_checkpoint
from meshstage.prediction.loading import load_predictor
from meshstage.prediction.questions import Question
from meshstage.prediction.stress import tissue_of
from meshstage.prediction.writing import write_prediction
from meshstage.training.distributed import DistributedContext
from meshstage.training.inputs import NetworkInputs
from meshstage.training.mgn import TrainPhysicsNeMoMGN
from meshstage.training.objective import Objective, prepare_terms
from meshstage.training.physics import TrainPhysicsNeMoPhysicsInformedMotion
from meshstage.training.samples import PhaseSampleDataset

MU, LAME = 7.0, 60.0  # kPa; none of the defaults
WEIGHTS = (2e-3, 0.3)  # of the energy (1/kPa) and of the volume penalty


@dataclass(frozen=True)
class Hearts:
    """Four demo ventricles of 38 points and 90 tetrahedra: 2 to train, 1 to validate, 1 to test."""

    folder: Path
    template: Template
    subjects: list[Subject]
    statistics: Statistics


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Hearts:
    folder = tmp_path_factory.mktemp("hearts")
    make_demo_cohort(folder / "raw", n_subjects=4, n_phases=3, resolution=3, seed=5)
    mesh = read_mesh(folder / "raw" / "pca_mean.vtu")
    mesh.cell_data["stiffness"] = np.linspace(5.0, 20.0, mesh.n_cells)  # kPa
    mesh.save(folder / "raw" / "pca_mean.vtu")
    template = build_template(folder / "raw" / "pca_mean.vtu", folder / "template")
    subjects = []
    for index in range(4):
        name = f"demo-{index + 1:03d}"
        ingest_subject(folder / "raw" / name / "manifest.json", template, folder / name)
        subjects.append(load_subject(folder / name))
    return Hearts(folder, template, subjects, compute_statistics(template, subjects[:2]))


class Recorder(TrainPhysicsNeMoPhysicsInformedMotion):
    """A tiny network whose predictions are large from the start; keeps what it is told."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.set_hidden_dim(8)
        self.set_processor_size(1)
        self.set_num_layers(1)
        self.set_mechanics(MU, LAME, *WEIGHTS)
        self.rmse_log_interval = 2
        self.precision = "fp64"
        for name, value in settings.items():
            getattr(self, f"set_{name}", lambda v, n=name: setattr(self, n, v))(value)
        self.steps: list[tuple[int, Tensor, Tensor, list[int], float]] = []
        self.validated: list[tuple[int, Tensor, list[int]]] = []
        self._epoch = 0

    def forward_batch(self, model: torch.nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        return 30 * super().forward_batch(model, pca, stage)  # enough to invert elements

    def _on_epoch_start(self, epoch: int, epochs: int) -> None:
        self._epoch = epoch + 1

    def _compute_loss(self, *arguments: Any) -> Tensor:
        self._data = super()._compute_loss(*arguments)
        self._targets = arguments[1]
        return self._data

    def make_loss(self, name: str) -> LossTerm:
        term = super().make_loss(name)
        recorder = self

        class Recorded(type(term)):  # type: ignore[misc]
            def __call__(self, predictions, indices, split):
                loss, values = super().__call__(predictions, indices, split)
                recorder._keep(predictions, indices, split, loss)
                return loss, values

        term.__class__ = Recorded
        return term

    def _keep(self, predictions: Tensor, indices: Tensor, split: str, physics: Tensor) -> None:
        kept = predictions.detach().clone()
        if split == "val":
            self.validated.append((self._epoch, kept, indices.tolist()))
        else:
            targets = self._targets.unflatten(0, kept.shape[:2]).clone()
            loss = (self._data + physics).item()
            self.steps.append((self._epoch, kept, targets, indices.tolist(), loss))


def train(
    trainer: TrainPhysicsNeMoMGN,
    hearts: Hearts,
    output: Path,
    epochs: int = 2,
    resume_from: Path | None = None,
    **others: Any,
) -> list[float]:
    """Train on the first two subjects; ``others`` replaces subjects, template or statistics."""
    subjects = others.get("subjects", hearts.subjects[:2])
    val = others.get("val", hearts.subjects[2:3])
    _, losses, _ = trainer.train(
        PhaseSampleDataset(subjects),
        PhaseSampleDataset(val) if val else None,
        others.get("statistics", hearts.statistics),
        DistributedContext(),
        epochs,
        output,
        others.get("template", hearts.template),
        hearts.template.points,
        resume_from=resume_from,
    )
    return losses


def events(output: Path, name: str = "epoch") -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (output / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == name]


def corners_of(template: Template) -> np.ndarray:
    """Tetrahedra, straight from the mesh."""
    return np.asarray(template.mesh().cells_dict[pv.CellType.TETRA])


def slow_strain(
    reference: np.ndarray,
    moved: np.ndarray,
    corners: np.ndarray,
    mu: np.ndarray | float = MU,
    used: np.ndarray | None = None,
) -> tuple[float, float, int]:
    """Mean energy density, mean (J - 1)^2 and inverted elements, an element at a time."""
    energies, penalties, volumes, n_inverted = [], [], [], 0
    small = elasticity.J_SMALL
    for element, points in enumerate(corners):
        if used is not None and not used[element]:
            continue
        at_rest = (reference[points[1:]] - reference[points[0]]).T
        now = (moved[points[1:]] - moved[points[0]]).T
        f = now @ np.linalg.inv(at_rest)
        j, stiffness = np.linalg.det(f), np.broadcast_to(mu, len(corners))[element]
        kept = max(j, small)
        log = np.log(kept)
        density = stiffness / 2 * (np.sum(f * f) - 3) - stiffness * log + LAME / 2 * log**2
        density += (j - kept) * (LAME * log - stiffness) / kept
        energies.append(density)
        penalties.append((j - 1) ** 2)
        volumes.append(abs(np.linalg.det(at_rest)) / 6)
        n_inverted += j <= 0
    return (
        float(np.average(energies, weights=volumes)),
        float(np.average(penalties, weights=volumes)),
        n_inverted,
    )


def check_losses(trainer: Recorder, hearts: Hearts, strain: Callable[..., Any], ramp: float = 1.0):
    """Compare each step's loss with the slow one; return sums by epoch of the slow values."""
    scale = hearts.statistics.target_scale
    sums: dict[int, np.ndarray] = {}
    for epoch, predictions, targets, indices, loss in trainer.steps:
        rows = []
        for prediction, target, index in zip(predictions, targets, indices, strict=True):
            subject = hearts.subjects[index // 3]  # 3 phases each
            moved = subject.reference + prediction.numpy() * scale
            energy, penalty, inverted = strain(subject.reference, moved)
            data = float((prediction - target).square().mean())
            physics = ramp * (WEIGHTS[0] * energy + WEIGHTS[1] * penalty)
            rows.append([1, data, physics, energy, penalty, inverted])
        total = np.array(rows)
        # Both are float64; the determinant of an element loses some 4 digits of 16.
        assert loss == pytest.approx(total[:, 1:3].sum(axis=1).mean(), rel=1e-9)
        sums[epoch] = sums.get(epoch, 0) + total.sum(axis=0)
    return sums


# ---------------------------------------------------------------- the loss


@pytest.fixture(scope="module")
def trained(hearts: Hearts, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorder, Path]:
    output = tmp_path_factory.mktemp("trained") / "physics"
    trainer = Recorder(mu_array="stiffness")
    train(trainer, hearts, output, epochs=3)
    return trainer, output


def stiffness(template: Template) -> np.ndarray:
    return np.linspace(5.0, 20.0, template.n_cells)


def test_loss_and_epoch_values_equal_a_slow_computation(hearts, trained):
    """With each subject's own reference, stiffness by element, and inverted elements."""
    trainer, output = trained
    corners, mu = corners_of(hearts.template), stiffness(hearts.template)
    sums = check_losses(trainer, hearts, lambda r, m: slow_strain(r, m, corners, mu))
    for line in events(output):
        n, data, physics, energy, penalty, inverted = sums[line["epoch"]]
        assert n == 6  # every sample once
        assert line["data_loss"] == pytest.approx(data / n)
        assert line["physics_loss"] == pytest.approx(physics / n)
        assert line["energy_kpa"] == pytest.approx(energy / n)
        assert line["volume_penalty"] == pytest.approx(penalty / n)
        assert line["inverted_elements"] == inverted  # of this epoch alone
        assert line["loss"] == pytest.approx(line["data_loss"] + line["physics_loss"])
    assert sums[1][-1] > 0, "no element was inverted: this tests nothing"


def test_validation_tells_energy_and_inverted_elements(hearts, trained):
    trainer, output = trained
    corners, mu = corners_of(hearts.template), stiffness(hearts.template)
    subject, scale = hearts.subjects[2], hearts.statistics.target_scale
    by_epoch = {line["epoch"]: line for line in events(output)}
    assert "val_energy_kpa" not in by_epoch[1]  # nothing was validated there
    for epoch in (2, 3):
        rows = [
            slow_strain(subject.reference, subject.reference + p.numpy() * scale, corners, mu)
            for at, predictions, _ in trainer.validated
            if at == epoch
            for p in predictions
        ]
        assert len(rows) == 3
        energy, _, inverted = np.array(rows).T
        assert by_epoch[epoch]["val_energy_kpa"] == pytest.approx(energy.mean())
        assert by_epoch[epoch]["val_inverted_elements"] == inverted.sum()


def test_the_log_line_gives_data_and_physics_apart(hearts, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    train(Recorder(), hearts, tmp_path / "m")
    (line,) = [r.getMessage() for r in caplog.records if "epoch 2/2" in r.getMessage()]
    for name in ("data_loss", "physics_loss", "energy_kpa", "inverted_elements", "val_energy_kpa"):
        assert name in line


def test_one_evaluation_a_step_for_the_whole_batch(hearts, tmp_path, monkeypatch):
    shapes = []
    original = elasticity.deformation_gradient

    def counting(displacement, *others):
        shapes.append(tuple(displacement.shape))
        return original(displacement, *others)

    monkeypatch.setattr(elasticity, "deformation_gradient", counting)
    train(Recorder(batch_size=3), hearts, tmp_path / "m", epochs=1, val=[])
    assert shapes == [(3, 38, 3)] * 2


def test_nothing_of_the_loss_waits_for_a_value_on_the_host(hearts, tmp_path):
    """Fake tensors have no values: reading one raises, as it would stop the host on a GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    trainer = TrainPhysicsNeMoPhysicsInformedMotion()
    dataset = PhaseSampleDataset(hearts.subjects[:2])
    trainer.inputs = NetworkInputs(
        hearts.statistics, hearts.template.points, torch.device("cpu"), torch.float32
    )
    (term,) = prepare_terms(trainer, hearts.template, dataset, None, hearts.statistics, True)
    term.to(torch.device("cpu"), torch.float32)
    with FakeTensorMode() as mode:
        for name in ("corners", "inverse", "volumes", "mu"):
            object.__setattr__(term._bodies, name, mode.from_tensor(getattr(term._bodies, name)))
        term._body_of = {k: mode.from_tensor(v) for k, v in term._body_of.items()}
        predictions = torch.empty(4, 38, 3, requires_grad=True)
        loss, _ = Objective(trainer, [term])(
            predictions, torch.empty(4, 38, 3), torch.empty(4, dtype=torch.int64)
        )
        loss.backward()
        with pytest.raises(Exception, match="_local_scalar_dense"):
            loss.item()  # what this test relies on


def test_bfloat16_does_not_reach_the_strain(hearts):
    elements = find_tetrahedra(hearts.template.cells, Path())
    subject = hearts.subjects[0]
    bodies = make_bodies(
        elements, [subject], [subject.reference], np.array(MU), LAME, "error", tell=False
    ).to(torch.device("cpu"), torch.float32)
    displacement = torch.tensor(subject.targets[1]).to(torch.bfloat16)
    which = torch.zeros(1, dtype=torch.int64)
    outside = bodies.strain(displacement.float()[None], which)
    with torch.autocast("cpu", torch.bfloat16):
        inside = bodies.strain(displacement[None], which)
    assert inside.energy.dtype == inside.volume.dtype == torch.float32
    assert torch.equal(inside.energy, outside.energy)
    assert torch.equal(inside.volume, outside.volume)


# ---------------------------------------------------------------- warm-up and resuming


def ramps(output: Path) -> list[float]:
    return [
        line["physics_loss"]
        / (WEIGHTS[0] * line["energy_kpa"] + WEIGHTS[1] * line["volume_penalty"])
        for line in events(output)
    ]


def test_warm_up_rises_from_0_and_goes_on_after_a_resume(hearts, tmp_path):
    straight = train(Recorder(lambda_physics_warmup=4), hearts, tmp_path / "a", epochs=6)
    assert ramps(tmp_path / "a") == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1])
    kept = tmp_path / "a" / "physics_informed_motion_stage_model_epoch_00002.pt"
    assert load_checkpoint(kept)["lambda_physics"] == WEIGHTS[0]  # the target, not the ramp's
    resumed = train(
        Recorder(lambda_physics_warmup=4), hearts, tmp_path / "b", epochs=6, resume_from=kept
    )
    assert ramps(tmp_path / "b") == pytest.approx([0.5, 0.75, 1, 1])
    assert resumed == straight  # bit for bit


def test_a_loss_may_change_when_a_model_is_resumed_but_not_within_a_run(hearts, tmp_path):
    train(Recorder(), hearts, tmp_path / "a", epochs=2)
    kept = tmp_path / "a" / "physics_informed_motion_stage_model_epoch_00002.pt"
    train(Recorder(lambda_physics=1e-4), hearts, tmp_path / "b", epochs=4, resume_from=kept)
    with pytest.raises(InputError, match=r"hidden_dim"):
        train(Recorder(hidden_dim=4), hearts, tmp_path / "c", epochs=4, resume_from=kept)

    trainer = Recorder()
    trainer.deadline = 1.0  # long ago, on the clock of time.monotonic()
    with pytest.raises(ContinueLater):
        train(trainer, hearts, tmp_path / "d", epochs=2)
    with pytest.raises(InputError, match=r"lambda_physics was 0.002 and is 0.0001"):
        train(Recorder(lambda_physics=1e-4), hearts, tmp_path / "d", epochs=2)


def test_an_epoch_that_is_cut_short_counts_every_sample_once(hearts, tmp_path, monkeypatch):
    """Values of epochs after leaving at every step in turn equal those of one go."""
    train(Recorder(batch_size=2), hearts, tmp_path / "a")
    n_starts = 0
    while not (tmp_path / "b" / "complete.json").exists():
        trainer = Recorder(batch_size=2)
        original = trainer._compute_loss

        def loss(*arguments, trainer=trainer, original=original):
            if trainer.steps:
                signal.raise_signal(signal.SIGTERM)
            return original(*arguments)

        monkeypatch.setattr(trainer, "_compute_loss", loss)
        with contextlib.suppress(ContinueLater):
            train(trainer, hearts, tmp_path / "b")
        n_starts += 1
        assert n_starts < 10
    assert n_starts > 2
    for one, other in zip(events(tmp_path / "a"), events(tmp_path / "b"), strict=True):
        assert one["inverted_elements"] == other["inverted_elements"]
        # The sums of a mean are added in another order.
        assert one["energy_kpa"] == pytest.approx(other["energy_kpa"], rel=1e-12)
        assert one["loss"] == other["loss"]


def test_physics_goes_on_from_a_mesh_graph_net_and_is_one_when_asked(hearts, tmp_path):
    mgn = TrainPhysicsNeMoMGN()
    for trainer in (mgn, physics := TrainPhysicsNeMoPhysicsInformedMotion()):
        trainer.set_hidden_dim(8)
        trainer.set_processor_size(1)
        trainer.set_num_layers(1)
    train(mgn, hearts, tmp_path / "mgn", epochs=1)
    origin = tmp_path / "mgn" / "mgn_stage_model.pt"
    train(physics, hearts, tmp_path / "p", epochs=2, resume_from=origin)
    predictor = load_predictor(tmp_path / "p")
    assert predictor.metadata["lambda_physics"] == physics.lambda_physics
    subject = hearts.subjects[3]
    found = predictor.predict(subject.shape_scores, subject.stages)
    assert found.shape == subject.targets.shape
    payload = load_checkpoint(tmp_path / "p" / "physics_informed_motion_stage_model.pt")
    assert payload["architecture"] == load_checkpoint(origin)["architecture"]
    assert not any("lambda" in key for key in payload["model_state_dict"])


def test_weights_of_zero_train_exactly_as_a_mesh_graph_net(hearts, tmp_path):
    losses = []
    for trainer in (TrainPhysicsNeMoMGN(), TrainPhysicsNeMoPhysicsInformedMotion()):
        trainer.set_hidden_dim(8)
        if isinstance(trainer, TrainPhysicsNeMoPhysicsInformedMotion):
            trainer.set_mechanics(MU, LAME, 0.0, 0.0)
        losses.append(train(trainer, hearts, tmp_path / trainer.model_tag, epochs=2))
    assert losses[0] == losses[1]


# ---------------------------------------------------------------- elements and references


def test_reversed_tetrahedra_are_reoriented_with_a_notice(hearts, tmp_path, caplog):
    trainer = Recorder()
    expected = train(Recorder(), hearts, tmp_path / "a")
    cells = hearts.template.cells
    order = cells.connectivity.reshape(-1, 4)[:, [1, 0, 2, 3]].ravel()
    template = replace(hearts.template, cells=replace(cells, connectivity=order))
    assert not caplog.records
    found = train(trainer, hearts, tmp_path / "b", template=template)
    assert "all 90 tetrahedra are numbered the other way round: reoriented" in caplog.text
    # Only rounding differs, which 2 epochs of training cannot blow up to this.
    assert found == pytest.approx(expected, rel=1e-6)


def with_reference(subject: Subject, reference: np.ndarray) -> Subject:
    return replace(subject, reference=reference)


def tangled(subject: Subject, corners: np.ndarray) -> tuple[Subject, np.ndarray]:
    """Push one point far to the other side of its neighbours; give the elements that invert."""
    reference = subject.reference.copy()
    reference[5] += 1.6 * (reference.mean(axis=0) - reference[5])
    at = reference[corners]
    bad = np.linalg.det(at[:, 1:] - at[:, :1]) <= 0
    assert 0 < bad.sum() < len(bad) / 2
    return with_reference(subject, reference), np.flatnonzero(bad)


def test_inverted_elements_of_a_reference_are_listed_by_id(hearts, tmp_path):
    corners = corners_of(hearts.template)
    subject, bad = tangled(hearts.subjects[1], corners)
    with pytest.raises(InputError) as raised:
        train(Recorder(), hearts, tmp_path / "m", subjects=[hearts.subjects[0], subject])
    (problem,) = raised.value.problems
    assert problem.subject == "demo-002"
    assert f"{len(bad)} of 90 tetrahedra" in problem.what
    assert problem.what.endswith("cell " + ", ".join(map(str, bad)))
    assert "--on-bad-elements drop" in problem.todo
    assert not (tmp_path / "m").exists()


def test_flat_elements_of_a_reference_are_listed_by_id(hearts, tmp_path):
    corners = corners_of(hearts.template)
    reference = hearts.subjects[1].reference.copy()
    a, b, c, d = corners[17]
    reference[d] = (reference[a] + reference[b] + reference[c]) / 3  # in the plane of the others
    subject = with_reference(hearts.subjects[1], reference)
    with pytest.raises(InputError, match=r"inverted or flat: cell .*\b17\b"):
        train(Recorder(), hearts, tmp_path / "m", subjects=[hearts.subjects[0], subject])


def test_dropped_elements_cost_nothing_and_no_reference_moves(hearts, tmp_path, caplog):
    corners = corners_of(hearts.template)
    subject, bad = tangled(hearts.subjects[1], corners)
    before = subject.reference.copy()
    trainer = Recorder(on_bad_elements="drop")
    subjects = [hearts.subjects[0], subject]
    train(trainer, hearts, tmp_path / "m", subjects=subjects, val=[])
    assert f"subject demo-002: {len(bad)} of 90" in caplog.text
    assert np.array_equal(subject.reference, before)
    used = np.ones(len(corners), bool)
    used[bad] = False

    def strain(reference: np.ndarray, moved: np.ndarray) -> tuple[float, float, int]:
        own = used if reference is subject.reference else None
        return slow_strain(reference, moved, corners, used=own)

    everyone = replace(hearts, subjects=[*subjects, *hearts.subjects[2:]])
    sums = check_losses(trainer, everyone, strain)
    for line in events(tmp_path / "m"):
        assert line["inverted_elements"] == sums[line["epoch"]][-1]


def test_a_reference_of_bad_elements_alone_is_refused(hearts, tmp_path):
    flat = hearts.subjects[1].reference * [1.0, 1.0, 0.0]
    subjects = [hearts.subjects[0], with_reference(hearts.subjects[1], flat)]
    with pytest.raises(InputError, match=r"90 of 90 tetrahedra .* mend the reference"):
        train(Recorder(on_bad_elements="drop"), hearts, tmp_path / "m", subjects=subjects)


def test_one_element_of_one_subject(hearts, tmp_path):
    corners = corners_of(hearts.template)[40:41]
    trainer = Recorder(elements=corners)
    train(trainer, hearts, tmp_path / "m", subjects=hearts.subjects[:1], val=[])
    assert len(trainer.steps) == 2  # 3 phases in a batch of 4, twice
    check_losses(trainer, hearts, lambda r, m: slow_strain(r, m, corners))


def test_reference_meshes_that_are_set_are_measured_against(hearts, tmp_path):
    corners = corners_of(hearts.template)
    others = {s.id: 1.1 * s.reference for s in hearts.subjects[:2]}
    trainer = Recorder(reference_meshes=others)
    train(trainer, hearts, tmp_path / "m", val=[])
    everyone = [with_reference(s, others[s.id]) for s in hearts.subjects[:2]]
    check_losses(
        trainer,
        replace(hearts, subjects=everyone),
        lambda r, m: slow_strain(r, m, corners),
    )


# ---------------------------------------------------------------- refusals


def refused(hearts: Hearts, output: Path, trainer: Recorder | None = None, **others: Any) -> str:
    with pytest.raises(InputError) as raised:
        train(trainer or Recorder(), hearts, output, **others)
    assert not output.exists()
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


def test_a_template_without_tetrahedra_is_one_sentence(hearts, tmp_path):
    surface = canonical_cells(hearts.template.mesh().extract_surface(algorithm="dataset_surface"))
    template = replace(hearts.template, cells=surface)
    sentence = refused(hearts, tmp_path / "m", template=template)
    assert "pca_mean_template.vtu: has no linear tetrahedron" in sentence


def test_a_target_that_is_not_three_wide_is_one_sentence(hearts, tmp_path):
    statistics = replace(hearts.statistics, n_target=1, target_array="pressure")
    assert "'pressure' has 1 component," in refused(hearts, tmp_path / "m", statistics=statistics)


def test_a_target_that_moves_nothing_is_one_sentence(hearts, tmp_path):
    subjects = [hearts.subjects[0], replace(hearts.subjects[1], is_displacement=False)]
    sentence = refused(hearts, tmp_path / "m", subjects=subjects)
    assert "in subject demo-002" in sentence and "phase minus reference" in sentence


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("mu_kpa", 0.0, "mu_kpa is 0.0"),
        ("mu_kpa", float("nan"), "mu_kpa is nan"),
        ("lambda_lame_kpa", -1.0, "lambda_lame_kpa is -1.0"),
        ("lambda_physics", float("inf"), "lambda_physics is inf"),
        ("lambda_volume", -0.1, "lambda_volume is -0.1"),
        ("lambda_physics_warmup", -1, "lambda_physics_warmup is -1"),
        ("on_bad_elements", "move", "'move', it must be one of error, drop"),
        ("elements", np.zeros((3, 3), int), "shape (3, 3)"),
    ],
)
def test_impossible_settings_are_refused(name, value, words):
    with pytest.raises(InputError) as raised:
        Recorder(**{name: value})
    assert words in str(raised.value)


def test_settings_that_do_not_fit_the_template_are_refused(hearts, tmp_path):
    output = tmp_path / "m"
    sentence = refused(hearts, output, Recorder(mu_array="hardness"))
    assert "'hardness'" in sentence and "stiffness" in sentence
    assert "0 to 37" in refused(hearts, output, Recorder(elements=np.array([[0, 1, 2, 38]])))
    missing = Recorder(reference_meshes={"demo-001": hearts.subjects[0].reference})
    assert "demo-002, demo-003" in refused(hearts, output, missing)


def test_a_shear_modulus_that_is_not_above_0_names_the_cell(hearts, tmp_path):
    mesh = hearts.template.mesh()
    mesh.cell_data["stiffness"][11] = 0.0
    mesh.save(tmp_path / "t.vtu")
    template = replace(hearts.template, mesh_path=tmp_path / "t.vtu")
    sentence = refused(hearts, tmp_path / "m", Recorder(mu_array="stiffness"), template=template)
    assert "1 tetrahedra" in sentence and "cell 11" in sentence


# ---------------------------------------------------------------- predict --stress


def test_stress_of_a_prediction_lies_on_the_cells(hearts, trained, tmp_path):
    """Of a uniaxial stretch of 1.2 in x, by the closed form, with the model's own tissue."""
    _, output = trained
    predictor = load_predictor(output)
    tissue = tissue_of(predictor)
    reference = hearts.subjects[3].reference
    question = Question("s", "s", reference, np.zeros(4), np.array([0.5]))
    targets = (reference * [0.2, 0.0, 0.0])[None]
    _, (path,) = write_prediction(tmp_path, predictor, question, targets, tissue)
    cells = read_mesh(path).cell_data
    stretch, mu = 1.2, stiffness(hearts.template)
    across = np.full(90, LAME * np.log(stretch) / stretch)
    along = mu / stretch * (stretch**2 - 1) + across
    zero = np.zeros(90)
    # Written in float32: 2^-24 of 30 kPa.
    np.testing.assert_allclose(
        cells["cauchy_stress_kpa"],
        np.stack([along, across, across, zero, zero, zero], axis=1),
        rtol=0,
        atol=4e-6,
    )
    np.testing.assert_allclose(cells["von_mises_kpa"], along - across, rtol=0, atol=4e-6)
    np.testing.assert_allclose(cells["J"], stretch, rtol=1e-6)
    np.testing.assert_allclose(cells["first_principal_stretch"], stretch, rtol=1e-6)


def test_six_components_are_in_the_order_of_vtk(hearts, trained):
    """Shear in the plane of two axes alone has stress in that one component off the diagonal."""
    tissue = tissue_of(load_predictor(trained[1]))
    reference = hearts.subjects[3].reference
    for component, (row, column) in {3: (0, 1), 4: (1, 2), 5: (0, 2)}.items():
        moved = np.zeros_like(reference)
        moved[:, row] = 0.3 * reference[:, column]
        stress = tissue.cell_arrays(reference, moved)["cauchy_stress_kpa"]
        np.testing.assert_allclose(
            stress[:, component], 0.3 * stiffness(hearts.template), rtol=1e-5
        )
        others = [k for k in (3, 4, 5) if k != component]
        np.testing.assert_allclose(stress[:, others], 0.0, atol=1e-5)


def test_cells_without_a_stress_have_none(hearts, trained):
    """What is inverted, flat in the reference, or no tetrahedron, is NaN where it has no value."""
    tissue = tissue_of(load_predictor(trained[1]))
    one = replace(
        tissue,
        elements=Tetrahedra(np.array([[0, 1, 2, 3], [4, 5, 6, 7]]), np.array([0, 2])),
        n_cells=3,
        mu=np.array(MU),
    )
    corner = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])  # mm
    reference = np.concatenate([corner, corner * [1, 1, 0]])  # the second is flat
    arrays = one.cell_arrays(reference, reference * [0.0, 0.0, -2.0])  # the first turns over
    assert np.isnan(arrays["cauchy_stress_kpa"]).all()
    assert np.isnan(arrays["von_mises_kpa"]).all()
    assert arrays["J"][0] == -1.0
    assert arrays["first_principal_stretch"][0] == pytest.approx(1.0)
    assert np.isnan(arrays["J"][1:]).all() and np.isnan(arrays["first_principal_stretch"][1:]).all()


def test_stress_of_what_moves_no_points_is_refused(trained):
    predictor = load_predictor(trained[1])
    predictor.metadata["target_is_displacement"] = False
    with pytest.raises(InputError, match="no displacement"):
        tissue_of(predictor)
