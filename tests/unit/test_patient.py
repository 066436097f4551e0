"""New patients: what scores and alignments are found, and predictions brought back to them."""

import json
import shutil

import numpy as np
import pytest
import pyvista as pv
from scipy.spatial.transform import Rotation

from meshstage.cohort.alignment import read_alignment, write_alignment
from meshstage.cohort.manifest import read_shape_scores
from meshstage.cohort.shape_model import read_shape_model
from meshstage.errors import InputError
from meshstage.files import read_json, write_json
from meshstage.mechanics.elements import find_tetrahedra
from meshstage.meshes.cells import canonical_cells
from meshstage.meshes.reading import write_mesh
from meshstage.prediction.patient_space import check_alignments, in_patient_space
from meshstage.prediction.questions import Question
from meshstage.prediction.stress import Tissue
from meshstage.preparation.patient import read_shape_space, score_mesh
from meshstage.preparation.procrustes import generalised_procrustes, transform_points
from meshstage.preparation.scoring import score_points
from meshstage.workflow import WorkflowInferPhysicsNeMo
from scripts_in_process import run_script
from small_cohort import ball

SCORES = np.array([1.2, -0.7])


def motion(scale: float = 1.0) -> np.ndarray:
    """Give a patient's position, (4, 4): turned about an odd axis, and far away."""
    matrix = np.eye(4)
    matrix[:3, :3] = scale * Rotation.from_rotvec([0.9, -1.4, 0.6]).as_matrix()
    matrix[:3, 3] = [120.0, -45.0, 900.0]
    return matrix


@pytest.fixture(scope="module")
def space(small_models):
    return read_shape_space(small_models.directory("mlp"))


@pytest.fixture(scope="module")
def modes(space):
    return space.model.modes(2)


def shape_of(space, scores=SCORES):
    return space.mean + np.tensordot(scores, space.model.modes(len(scores)), axes=1)


def mesh_of(space, points):
    mesh = space.mesh.copy()
    mesh.points = points
    return mesh


# ------------------------------------------------------------------ the formula


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_scores_are_the_conditional_mean_of_a_gaussian(space, modes, noise):
    """By the other form of the posterior: C M' (M M' + noise^2 / W)^-1 d with C = 1."""
    generator = np.random.default_rng(3)
    points = shape_of(space) + generator.normal(size=space.mean.shape)
    weights = generator.uniform(0.2, 3.0, len(points))
    matrix = modes.reshape(2, -1).T
    covariance = matrix @ matrix.T + np.diag(noise**2 / np.repeat(weights, 3))
    expected = matrix.T @ np.linalg.solve(covariance, (points - space.mean).ravel())
    found = score_points(points, space.mean, modes, "none", weights, noise)
    np.testing.assert_allclose(found.shape_scores, expected, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(found.matrix, np.eye(4))


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_whole_shape_is_projected(space, modes, noise):
    """Components are orthonormal: a score is a dot product. Noise of 1e-6 mm takes 1e-13 of it."""
    points = shape_of(space) + np.random.default_rng(4).normal(size=space.mean.shape)
    offset = (points - space.mean).ravel()
    expected = space.model.components @ offset / np.sqrt(space.model.eigenvalues)
    found = score_points(points, space.mean, modes, "none", noise=noise)
    np.testing.assert_allclose(found.shape_scores, expected, rtol=0, atol=1e-10)
    left = np.linalg.norm(points - shape_of(space, found.shape_scores), axis=1)
    assert found.residual == pytest.approx(np.sqrt((left**2).mean()))


@pytest.mark.parametrize(("align", "scale"), [("rigid", 1.0), ("similarity", 0.8)])
def test_shape_that_was_moved_has_the_same_scores(align, scale):
    """Modes that no motion imitates: what was put in comes out, to the end of the rounds."""
    generator = np.random.default_rng(2)
    mean, modes = generator.normal(scale=20.0, size=(30, 3)), generator.normal(size=(2, 30, 3))
    points = transform_points(motion(scale), mean + np.tensordot(SCORES, modes, axes=1))
    found = score_points(points, mean, modes, align)
    np.testing.assert_allclose(found.shape_scores, SCORES, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.matrix @ motion(scale), np.eye(4), rtol=0, atol=1e-6)
    assert found.residual < 1e-8


@pytest.mark.parametrize("align", ["rigid", "similarity"])
def test_subjects_of_an_aligned_cohort_keep_their_scores(align):
    """There: Procrustes onto the mean and one projection; here: from anywhere, alternately."""
    generator = np.random.default_rng(11)
    shapes = generator.normal(scale=20.0, size=(30, 3)) + generator.normal(size=(6, 30, 3))
    matrices, mean = generalised_procrustes(shapes, align)
    aligned = [transform_points(m, s) for m, s in zip(matrices, shapes, strict=True)]
    offsets = (aligned - mean).reshape(6, -1)
    _, lengths, components = np.linalg.svd(offsets, full_matrices=False)
    spread = lengths[:5] / np.sqrt(5)  # six shapes: five modes
    modes = (spread[:, None] * components[:5]).reshape(5, 30, 3)
    for shape, offset in zip(shapes, offsets, strict=True):
        found = score_points(transform_points(motion(), shape), mean, modes, align)
        expected = components[:5] @ offset / spread
        np.testing.assert_allclose(found.shape_scores, expected, rtol=0, atol=1e-7)


def test_a_tenth_of_the_points_tells_scores_within_the_bound(space, modes):
    """Exact data only shrink: |b' - b| <= |b| / (1 + s^2 / noise^2), s the least singular value."""
    seen = np.random.default_rng(5).choice(len(space.mean), 5, replace=False)  # of 42
    part, noise = modes[:, seen], 0.1
    points = shape_of(space)[seen]
    least = np.linalg.svd(part.reshape(2, -1), compute_uv=False).min()
    bound = np.linalg.norm(SCORES) / (1 + least**2 / noise**2)
    found = score_points(points, space.mean[seen], part, "none", noise=noise)
    assert np.linalg.norm(found.shape_scores - SCORES) <= bound < 0.1
    # An unknown pose takes away what rotations and translations of these points can imitate; the
    # bound is of first order in the change, hence twice.
    centred = points - points.mean(axis=0)
    rigid = [np.tile(axis, (5, 1)) for axis in np.eye(3)]
    rigid += [np.cross(axis, centred) for axis in np.eye(3)]
    basis = np.linalg.qr(np.stack(rigid).reshape(6, -1).T)[0]
    free = part.reshape(2, -1).T - basis @ (basis.T @ part.reshape(2, -1).T)
    least = np.linalg.svd(free, compute_uv=False).min()
    bound = 2 * np.linalg.norm(SCORES) / (1 + least**2 / noise**2)
    moved = transform_points(motion(), points)
    found = score_points(moved, space.mean[seen], part, "rigid", noise=noise)
    assert np.linalg.norm(found.shape_scores - SCORES) <= bound < 0.5


def test_without_points_that_tell_a_mode_it_stays_at_its_mean(space, modes):
    """The prior's mean is 0: a mode that moves none of the points seen has that score."""
    still = np.stack([modes[0], np.zeros_like(modes[1])])
    for noise in (0.0, 1.0):
        found = score_points(shape_of(space), space.mean, still, "none", noise=noise)
        assert found.shape_scores[1] == pytest.approx(0.0, abs=1e-12)


def test_weights_of_zero_and_point_ids_say_the_same(space):
    generator = np.random.default_rng(6)
    seen = generator.permutation(len(space.mean))[:20]
    points = transform_points(motion(), shape_of(space))
    spoilt = points + generator.normal(scale=50.0, size=points.shape)
    spoilt[seen] = points[seen]
    weights = np.zeros(len(points))
    weights[seen] = 1.0
    one = score_mesh(space, mesh_of(space, spoilt), weights=weights)
    other = score_mesh(space, pv.PolyData(points[seen]), point_ids=seen)
    np.testing.assert_allclose(one.shape_scores, other.shape_scores, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.matrix, other.matrix, rtol=0, atol=1e-6)


# ------------------------------------------------------------------ what is refused


def test_meshes_that_are_not_the_templates_are_sentences(space):
    points = shape_of(space)
    with pytest.raises(InputError, match="has 12 points, the model's template has 42"):
        score_mesh(space, pv.Icosahedron())
    other = mesh_of(space, points)
    other.faces = other.faces.reshape(-1, 4)[::-1].ravel()
    with pytest.raises(InputError, match="has other cells than the model's template"):
        score_mesh(space, other)
    with pytest.raises(InputError, match="not finite"):
        score_mesh(space, mesh_of(space, np.where(points > 15, np.nan, points)))
    with pytest.raises(InputError, match="bring the mesh to millimetres"):
        score_mesh(space, mesh_of(space, points / 1000))


def test_mirrored_mesh_is_a_sentence():
    """Random points: a sphere is its own mirror image."""
    points = np.random.default_rng(8).normal(scale=20.0, size=(30, 3))
    modes = np.random.default_rng(9).normal(size=(2, 30, 3))
    score_points(points @ motion()[:3, :3].T, points, modes)
    with pytest.raises(InputError, match="is mirrored against the template"):
        score_points(points * [-1, 1, 1], points, modes)


def test_parts_that_tell_nothing_are_sentences(space, modes):
    points, ids = shape_of(space), np.arange(42)
    with pytest.raises(InputError, match=r"2 points count, .* three points off a line"):
        score_mesh(space, mesh_of(space, points), weights=(ids < 2).astype(float))
    with pytest.raises(InputError, match="no point counts"):
        score_mesh(space, mesh_of(space, points), align="none", weights=np.zeros(42))
    with pytest.raises(InputError, match="a weight is negative"):
        score_mesh(space, mesh_of(space, points), weights=ids - 1.0)
    with pytest.raises(InputError, match="weights are"):
        score_mesh(space, mesh_of(space, points), weights=np.ones(3))
    for wrong, match in (
        (ids + 1, "not within 0 and 41"),
        (ids // 2, "stands twice"),
        (ids[:4], "not one whole number per point"),
        (ids.astype(float), "not one whole number per point"),
    ):
        with pytest.raises(InputError, match=match):
            score_mesh(space, mesh_of(space, points), point_ids=wrong)


def test_model_without_a_shape_model_is_a_sentence(small_models, tmp_path):
    shutil.copytree(small_models.directory("mlp"), tmp_path / "mlp")
    path = tmp_path / "mlp" / "pca_model.json"
    model = read_json(path)
    write_json(path, {k: v[:1] for k, v in model.items()})
    with pytest.raises(InputError, match="takes 2 shape scores, its shape model has 1 modes"):
        read_shape_space(tmp_path / "mlp")
    path.unlink()
    with pytest.raises(InputError, match=r"has no pca_model\.json"):
        read_shape_space(tmp_path / "mlp")


def test_alignment_is_read_back_and_never_mirrors(tmp_path):
    path = tmp_path / "alignment.json"
    write_alignment(path, "similarity", {"a": motion(0.5)})
    np.testing.assert_array_equal(read_alignment(path).matrix("a"), motion(0.5))
    with pytest.raises(InputError, match="no transform of this subject"):
        read_alignment(path).matrix("b")
    for wrong in (
        motion() * -1,
        np.diag([-1.0, 1, 1, 1]),
        np.diag([1.0, 2, 1, 1]),
        np.ones((4, 4)),
    ):
        write_alignment(path, "rigid", {"a": wrong})
        with pytest.raises(InputError, match=r"is not a alignment\.json|is not an alignment"):
            read_alignment(path)


# ------------------------------------------------------------------ the model, and the way back


@pytest.mark.parametrize("tag", ["mgn", "mlp"])
def test_reference_of_a_training_subject_has_its_scores(small_models, tiny_cohort, tag):
    model = WorkflowInferPhysicsNeMo(small_models.directory(tag))
    for manifest in tiny_cohort.manifests["train"]:
        scored = model.score(manifest.parent / "reference.vtp")
        expected = read_shape_scores(manifest.parent / "pca.json")
        np.testing.assert_allclose(scored.shape_scores, expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(scored.matrix, np.eye(4), rtol=0, atol=1e-5)


@pytest.fixture
def patient(tiny_cohort, tmp_path):
    """Write the test subject's reference as a scanner has it: turned and far away."""
    mesh = pv.read(tiny_cohort.manifests["test"][0].parent / "reference.vtp")
    mesh.points = transform_points(motion(), np.asarray(mesh.points, np.float64))
    write_mesh(tmp_path / "patient-7.vtp", mesh)
    return tmp_path / "patient-7.vtp"


def predicted(folder):
    meshes = [pv.read(path) for path in sorted(folder.glob("phase_*.vtp"))]
    assert meshes
    return meshes


def test_prediction_comes_back_to_the_patient(small_models, tiny_cohort, patient, tmp_path):
    """The subject predicted where the cohort lies, then moved as the patient was."""
    model = small_models.directory("mlp")
    original = tiny_cohort.manifests["test"][0]
    predict = ["predict.py", "--model", model, "--stages", 4]
    assert run_script(*predict, "--manifest", original, "--output", tmp_path / "direct") == 0
    score = ["score_subject.py", "--model", model, "--mesh", patient]
    assert run_script(*score, "--output", tmp_path) == 0
    manifest = tmp_path / "patient-7" / "manifest.json"
    for space in ("template", "patient"):
        options = ["--manifest", manifest, "--space", space, "--output", tmp_path / space]
        assert run_script(*predict, *options) == 0
    options = ["--reference", patient, "--output", tmp_path / "alone"]
    assert run_script(*predict, *options) == 0
    direct = predicted(next((tmp_path / "direct").iterdir()))
    there = [predicted(tmp_path / name / "patient-7") for name in ("template", "patient", "alone")]
    assert len(direct) == 4
    for one, at_template, at_patient, alone in zip(direct, *there, strict=True):
        # Scores differ by 1e-8; targets are float32 numbers of some 5 mm.
        np.testing.assert_allclose(at_template.points, one.points, rtol=0, atol=1e-5)
        moved = transform_points(motion(), np.asarray(one.points))
        np.testing.assert_allclose(at_patient.points, moved, rtol=0, atol=1e-5)
        turned = one.point_data["displacement"] @ motion()[:3, :3].T
        np.testing.assert_allclose(at_patient.point_data["displacement"], turned, atol=1e-5)
        np.testing.assert_array_equal(alone.points, at_patient.points)
        # By the alignment that was written, to the last digits.
        matrix = read_alignment(manifest.parent / "alignment.json").matrix("patient-7")
        back = transform_points(np.linalg.inv(matrix), np.asarray(at_template.points))
        np.testing.assert_allclose(at_patient.points, back, rtol=0, atol=1e-10)


def test_part_of_a_mesh_is_predicted_from_its_scores(small_models, space, tmp_path):
    """A part has no reference: what moves is the shape that its scores describe."""
    seen = np.arange(0, 42, 2)
    part = pv.PolyData(transform_points(motion(), shape_of(space))[seen])
    part.point_data["id"] = seen
    write_mesh(tmp_path / "part.vtp", part)
    options = ["--model", small_models.directory("mlp"), "--mesh", tmp_path / "part.vtp"]
    options += ["--point-ids", "id", "--noise", 0.001, "--output", tmp_path]
    assert run_script("score_subject.py", *options) == 0
    manifest = json.loads((tmp_path / "part" / "manifest.json").read_text())
    assert "fitted_reference_mesh" not in manifest
    # Shrunk by noise^2 / s^2, s^2 some half of the eigenvalues (40 and 20): 1e-7.
    scores = read_shape_scores(tmp_path / "part" / "pca.json")
    np.testing.assert_allclose(scores, SCORES, rtol=0, atol=1e-5)


def test_patients_of_one_name_or_without_the_array_are_sentences(
    small_models, space, patient, tmp_path, capsys
):
    options = ["--model", small_models.directory("mlp"), "--output", tmp_path / "out", "--mesh"]
    assert run_script("score_subject.py", *options, patient, patient) == 2
    assert "two of these meshes are called patient-7" in capsys.readouterr().err
    assert run_script("score_subject.py", *options, patient, "--weights", "seen") == 2
    assert "has no point array 'seen'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def question(matrix):
    generator = np.random.default_rng(1)
    points = generator.normal(size=(5, 3))
    return Question("p", "p", points, np.zeros(2), np.array([0.0, 0.5]), matrix)


def test_vectors_turn_displacements_scale_and_numbers_stay():
    asked, generator = question(motion(2.0)), np.random.default_rng(2)
    vectors, deviation = generator.normal(size=(2, 5, 3)), np.ones((2, 5))
    rotation = motion()[:3, :3]
    back, turned, spread = in_patient_space(asked, vectors, deviation, is_displacement=True)
    # Twice as large in the template's space: half of it in the patient's.
    np.testing.assert_allclose(turned, vectors @ rotation / 2, atol=1e-12)
    np.testing.assert_allclose(spread, 0.5)
    np.testing.assert_allclose(transform_points(motion(2.0), back.points), asked.points, atol=1e-10)
    _, turned, spread = in_patient_space(asked, vectors, deviation, is_displacement=False)
    np.testing.assert_allclose(turned, vectors @ rotation, atol=1e-12)
    np.testing.assert_array_equal(spread, deviation)
    numbers = vectors[:, :, :1]
    _, same, nothing = in_patient_space(asked, numbers, None, is_displacement=False)
    assert same is numbers and nothing is None


def test_stress_is_turned_and_what_has_no_direction_stays():
    """Cauchy stress of the moved body is R S R'; a scale of all lengths changes no stress."""
    body = ball()
    elements = find_tetrahedra(canonical_cells(body), "ball")
    tissue = Tissue(elements, body.n_cells, np.array(10.0), 100.0)
    points = np.asarray(body.points, np.float64)
    moved = points * [[0.1, -0.05, 0.2]] + points[:, [1, 2, 0]] * 0.05
    asked = Question("b", "b", points, np.zeros(1), np.zeros(1), motion(2.0))
    back, turned, _ = in_patient_space(asked, moved[None], None, is_displacement=True)
    before, after = tissue.cell_arrays(points, moved), tissue.cell_arrays(back.points, turned[0])
    rotation = motion()[:3, :3].T
    for one, other in zip(before["cauchy_stress_kpa"], after["cauchy_stress_kpa"], strict=True):
        tensors = [v[[0, 3, 5, 3, 1, 4, 5, 4, 2]].reshape(3, 3) for v in (one, other)]
        # float32 numbers of some 30 kPa
        np.testing.assert_allclose(rotation @ tensors[0] @ rotation.T, tensors[1], atol=1e-4)
    for name in ("von_mises_kpa", "J", "first_principal_stretch"):
        np.testing.assert_allclose(before[name], after[name], rtol=1e-5)


def test_subject_without_an_alignment_is_a_sentence():
    check_alignments([question(motion())])
    with pytest.raises(InputError, match="subject p: nothing says where the patient's own space"):
        check_alignments([question(None)])


def test_shape_model_of_the_cohort_is_that_of_the_model(small_models, tiny_cohort, space):
    model = read_shape_model(tiny_cohort.mesh_path.with_name("pca_model.json"), 42)
    np.testing.assert_array_equal(space.model.components, model.components)
