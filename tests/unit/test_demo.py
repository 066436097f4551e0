"""The demo cohort against the closed forms it claims to follow."""

import cmath
import hashlib
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import pyvista as pv

from meshstage.cohort import demo

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("demo")
    demo.make_demo_cohort(output, n_subjects=6, n_phases=5, resolution=5, seed=7)
    return output


def read_model(cohort: Path) -> tuple[np.ndarray, np.ndarray]:
    model = json.loads((cohort / "pca_model.json").read_text())
    return np.array(model["eigenvalues"]), np.array(model["components"])


def tetrahedron_volumes(points: np.ndarray, tetrahedra: np.ndarray) -> np.ndarray:
    a, b, c, d = (points[tetrahedra[:, k]].astype(float) for k in range(4))
    return np.einsum("ij,ij->i", np.cross(b - a, c - a), d - a) / 6


def moved_point(
    point: np.ndarray, depth: float, s: list[float], stage: float, low: float, high: float
) -> np.ndarray:
    """Move one point by the formula of the docstring, in polar form."""
    g = math.sin(math.pi * stage) ** 2
    g *= 1 + (0.4 + 0.3 * math.tanh(s[1] + s[3])) * math.sin(2 * math.pi * stage)
    h = (point[2] - low) / (high - low)
    radius, angle = cmath.polar(complex(point[0], point[1]))
    contraction = 0.27 + 0.1 * math.tanh(s[0]) - 0.03 * math.sin(s[1] * s[2])
    radius *= 1 - g * contraction * (1 - (0.6 + 0.1 * math.tanh(s[2])) * depth)
    twist_apex, twist_base = 0.25 + 0.12 * math.sin(s[3]), -0.08 - 0.02 * math.tanh(s[0] * s[1])
    ring = cmath.rect(radius, angle + g * (twist_apex * (1 - h) + twist_base * h))
    shortening = 0.14 + 0.05 * math.tanh(s[1]) + 0.02 * math.cos(2 * s[0])
    return np.array([ring.real, ring.imag, low + (point[2] - low) * (1 - g * shortening)])


def ellipsoid_below(x: float, y: float, z: float, height: float) -> float:
    """Volume of the ellipsoid with these semi-axes below the plane z = height."""
    # Slices are ellipses of area pi x y (1 - t^2 / z^2), integrated over t from -z to height.
    return math.pi * x * y * (2 * z / 3 + height - height**3 / (3 * z**2))


def shell_volume(points: np.ndarray, depth: np.ndarray) -> float:
    """Volume between the two ellipsoids that the inner and outer points lie on."""
    volumes = []
    for layer in (points[depth == 0], points[depth == 1]):
        inverse_squares, residual, _, _ = np.linalg.lstsq(layer**2, np.ones(len(layer)))
        # On the ellipsoid to rounding, or the analytic volume would not be this shape's.
        assert residual < 1e-20
        volumes.append(ellipsoid_below(*inverse_squares**-0.5, height=points[:, 2].max()))
    return volumes[1] - volumes[0]


def test_files_displace_by_the_formula(cohort: Path) -> None:
    depth = pv.read(cohort / "pca_mean.vtu").point_data["wall_depth"]
    largest = 0.0
    for folder in sorted(cohort.glob("demo-*")):
        scores = json.loads((folder / "pca.json").read_text())
        reference = pv.read(folder / "reference.vtu").points
        low, high = reference[:, 2].min(), reference[:, 2].max()
        for phase in json.loads((folder / "manifest.json").read_text())["phases"]:
            mesh = pv.read(folder / phase["mesh"])
            expected = np.stack(
                [
                    moved_point(point, d, scores, phase["stage"], low, high)
                    for point, d in zip(reference, depth, strict=True)
                ]
            )
            # float32 rounds numbers below 128 mm to 2^-18 mm = 4e-6 mm; the array and the
            # points are rounded once each.
            np.testing.assert_allclose(mesh.points, expected, rtol=0, atol=8e-6)
            array = mesh.point_data["displacement"]
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, expected - reference, rtol=0, atol=8e-6)
            largest = max(largest, np.abs(array).max())
    assert largest > 5  # mm: a heart beats by about 10 mm, the check above is not about zeros


def test_nothing_has_moved_at_both_ends_of_the_cycle() -> None:
    wall = demo.build_wall(4)
    scores = np.array([1.0, -1.0, 0.5, 2.0])
    assert not demo.displacement(wall.points, wall.depth, scores, 0.0).any()
    # sin(pi)^2 = 1.5e-32 of an amplitude of 20 mm.
    np.testing.assert_allclose(
        demo.displacement(wall.points, wall.depth, scores, 1.0), 0, rtol=0, atol=1e-30
    )


@pytest.mark.parametrize("scores", [(0, 0, 0, 0), (2, -1, 1.5, -2)])
def test_wall_volume_converges_to_the_analytic_shell(scores: tuple[float, ...]) -> None:
    volumes = []
    for resolution in (8, 16):
        wall = demo.build_wall(resolution)
        model = demo.shape_model(wall)
        # The modes depend a little on where the points lie: one analytic volume per mesh.
        points = demo.reference_points(wall, *model, np.array(scores, dtype=float))
        analytic = shell_volume(points, wall.depth)
        volumes.append(tetrahedron_volumes(points, wall.tetrahedra).sum() / analytic)
    error = 1 - np.array(volumes)
    # A chord of the angle a lies within the arc: the area of a polygon of 2R corners is short by
    # (pi / R)^2 / 6, 2.6 % at R = 8, for either ellipsoid, and their difference by as much
    # again along the meridian and by the radii's ratio: below 10 %. It falls with R^2.
    assert 0 < error[1] < error[0] < 0.1
    assert error[0] / error[1] == pytest.approx(4, rel=0.02)
    # What is left after removing the R^-2 term is of order R^-4, (2.6 %)^2 = 7e-4.
    assert (4 * volumes[1] - volumes[0]) / 3 == pytest.approx(1, abs=7e-4)


def test_mean_wall_is_the_ellipsoid_of_the_constants() -> None:
    wall = demo.build_wall(6)
    expected = ellipsoid_below(34, 34, 72, 20) - ellipsoid_below(24, 24, 62, 20)
    # Solving three normal equations of 73 points loses some ten of 16 digits' last places.
    assert shell_volume(wall.points, wall.depth) == pytest.approx(expected, rel=1e-12)
    assert set(wall.region) == {1, 2, 3}
    assert wall.points[wall.region == 1, 2].min() > wall.points[wall.region == 3, 2].max()


@pytest.mark.parametrize("resolution", [3, 4, 8])
def test_wall_is_one_closed_conforming_body(resolution: int) -> None:
    wall = demo.build_wall(resolution)
    corners = itertools.combinations(range(4), 3)
    faces = np.sort(np.concatenate([wall.tetrahedra[:, list(k)] for k in corners]), axis=1)
    faces, times = np.unique(faces, axis=0, return_counts=True)
    assert set(times) == {1, 2}
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [0, 2]], faces[:, [1, 2]]])
    n_edges = len(np.unique(edges, axis=0))
    # A bowl is a ball: Euler characteristic 1; a mismatched diagonal adds faces to it.
    assert len(wall.points) - n_edges + len(faces) - len(wall.tetrahedra) == 1
    outside = faces[times == 1]
    border = np.sort(np.concatenate([outside[:, [0, 1]], outside[:, [0, 2]], outside[:, [1, 2]]]))
    assert (np.unique(border, axis=0, return_counts=True)[1] == 2).all()


def test_no_tetrahedron_inverts_over_all_scores_and_stages() -> None:
    wall = demo.build_wall(5)
    model = demo.shape_model(wall)
    values = (-demo.LARGEST_SCORE, 0.0, demo.LARGEST_SCORE)
    for scores in itertools.product(values, repeat=demo.N_MODES):
        reference = demo.reference_points(wall, *model, np.array(scores))
        still = tetrahedron_volumes(reference, wall.tetrahedra)
        assert still.min() > 0
        for stage in (0.2, 0.35, 0.5, 0.7):
            moved = reference + demo.displacement(reference, wall.depth, np.array(scores), stage)
            # Systole narrows the cavity to about half of its area: a fifth is far from inversion.
            assert (tetrahedron_volumes(moved, wall.tetrahedra) / still).min() > 0.2


def test_shape_model_describes_the_references_exactly(cohort: Path) -> None:
    eigenvalues, components = read_model(cohort)
    assert (np.diff(eigenvalues) < 0).all()
    # Rounding of 300 products of numbers below 1, or of 150 mm.
    np.testing.assert_allclose(components @ components.T, np.eye(4), rtol=0, atol=1e-13)
    mean = pv.read(cohort / "pca_mean.vtu").points
    for folder in sorted(cohort.glob("demo-*")):
        scores = np.array(json.loads((folder / "pca.json").read_text()))
        assert np.abs(scores).max() <= demo.LARGEST_SCORE
        shape = mean + ((scores * np.sqrt(eigenvalues)) @ components).reshape(-1, 3)
        np.testing.assert_allclose(
            pv.read(folder / "reference.vtu").points, shape, rtol=0, atol=1e-12
        )


def test_modes_carry_the_variance_of_the_four_shape_changes() -> None:
    wall = demo.build_wall(4)
    eigenvalues, components = demo.shape_model(wall)
    x, y, z = wall.points.T
    size, length, ellipticity = x**2 + y**2 + z**2, z**2, x**2 + y**2
    # A point of the ring of radius r = 24 + 10 d moves by 1.2 d sin(polar).
    thickness = (x**2 + y**2) * (1.2 * wall.depth / (24 + 10 * wall.depth)) ** 2
    total = (0.08**2 * size + 0.07**2 * length + 0.04**2 * ellipticity + thickness).sum()
    assert eigenvalues.sum() == pytest.approx(total, rel=1e-12)
    # A positive score of the first mode, mostly size, makes a larger heart.
    assert (components[0].reshape(-1, 3) * wall.points).sum() > 0


def test_same_seed_same_bytes_and_subjects_do_not_depend_on_their_number(tmp_path: Path) -> None:
    def digest(seed: int, n_subjects: int) -> dict[str, str]:
        output = tmp_path / f"{seed}-{n_subjects}-{len(list(tmp_path.iterdir()))}"
        demo.make_demo_cohort(output, n_subjects, n_phases=2, resolution=3, seed=seed)
        files = sorted(path for path in output.rglob("*") if path.is_file())
        return {
            str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }

    first = digest(1, 3)
    assert first == digest(1, 3)
    more, other = digest(1, 4), digest(2, 3)
    subjects = [name for name in first if name.startswith("demo-")]
    assert all(first[name] == more[name] for name in subjects)
    assert all(first[name] != other[name] for name in subjects if name.endswith("pca.json"))


@pytest.mark.parametrize(
    ("n_subjects", "expected"), [(1, (1, 0, 0)), (2, (1, 1, 0)), (3, (1, 1, 1)), (12, (8, 2, 2))]
)
def test_splits(n_subjects: int, expected: tuple[int, ...]) -> None:
    splits = demo.splits(n_subjects)
    assert tuple(splits.count(name) for name in ("train", "val", "test")) == expected
    assert len(splits) == n_subjects


def test_subjects_table_names_the_manifests(cohort: Path) -> None:
    lines = (cohort / "subjects.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    assert lines[0] == "manifest\tsplit"
    assert [split for _, split in rows] == ["train"] * 4 + ["val", "test"]
    assert all((cohort / manifest).is_file() for manifest, _ in rows)
    stages = [p["stage"] for p in json.loads((cohort / rows[0][0]).read_text())["phases"]]
    assert stages == [0, 0.2, 0.4, 0.6, 0.8]


@pytest.mark.spawn
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--subjects", "0", "the number of subjects must be at least 1, got 0"),
        ("--phases", "-1", "the number of phases must be at least 1, got -1"),
        ("--resolution", "2", "the resolution must be at least 3, got 2"),
        ("--seed", "-5", "the seed must be at least 0, got -5"),
    ],
)
def test_bad_numbers_end_with_a_sentence_and_write_nothing(
    tmp_path: Path, option: str, value: str, message: str
) -> None:
    script = REPOSITORY / "scripts" / "make_demo_cohort.py"
    command = [sys.executable, str(script), "--output", str(tmp_path / "out"), option, value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
