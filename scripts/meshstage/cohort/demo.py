"""An idealised left ventricle that beats by a closed formula: a cohort to try everything on.

The wall is the shell between two ellipsoids with a common long axis (z, apex down), cut by a plane
at the base. Shapes are linear in a few modes, so that the principal components describe them
exactly. The motion is contraction, wall thickening, base-to-apex shortening and twist. How much of
each, and when, depends on the shape scores, not only linearly.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyvista as pv

from meshstage.errors import InputError, Problem, raise_if_any
from meshstage.files import write_json, write_text
from meshstage.meshes.reading import write_mesh

# Rounded from a healthy adult heart at end-diastole: 48 mm cavity, 10 mm wall, 92 mm long.
ENDOCARDIUM_RADIUS_MM = 24.0
ENDOCARDIUM_HALF_LENGTH_MM = 62.0
WALL_MM = 10.0
BASE_HEIGHT_MM = 20.0  # the plane of the base, above the widest ring

N_MODES = 4
LARGEST_SCORE = 2.0  # drawn from a normal distribution, redrawn beyond: no freak hearts
TARGET_ARRAY = "displacement"


@dataclass(frozen=True)
class Wall:
    """The mean wall as a mesh.

    Parameters
    ----------
    points : (n_points, 3) array, mm
    tetrahedra : (n_cells, 4) array of int
        Positively oriented: ``det(p1 - p0, p2 - p0, p3 - p0) > 0``.
    depth : (n_points,) array
        Place in the wall: 0 on the endocardium (inside), 1 on the epicardium (outside).
    region : (n_points,) array of int
        1 basal, 2 mid, 3 apical: equal thirds of the height.
    """

    points: np.ndarray
    tetrahedra: np.ndarray
    depth: np.ndarray
    region: np.ndarray

    def mesh(self, points: np.ndarray) -> pv.UnstructuredGrid:
        """Make a mesh of this wall's tetrahedra with other points, (n_points, 3) in mm."""
        return pv.UnstructuredGrid({pv.CellType.TETRA: self.tetrahedra}, points)


def build_wall(resolution: int) -> Wall:
    """Mesh the mean wall with tetrahedra.

    Parameters
    ----------
    resolution : int
        Rings from apex to base, at least 3; twice as many points on a ring, about a quarter as
        many layers across the wall.

    Returns
    -------
    Wall
        With ``(1 + 2 resolution**2) * (layers + 1)`` points: one on the axis for the apex, so
        that no tetrahedron degenerates there.
    """
    n_layers, n_around = _n_layers(resolution), 2 * resolution
    depth_of_layer = np.linspace(0.0, 1.0, n_layers + 1)
    latitude = np.append(0.0, np.repeat(np.arange(1, resolution + 1) / resolution, n_around))
    angle = np.append(0.0, np.tile(np.arange(n_around) * (2 * np.pi / n_around), resolution))
    layers = [_layer(depth, latitude, angle) for depth in depth_of_layer]
    points = np.concatenate(layers)
    prisms = _triangles(resolution, n_around)
    tetrahedra = _orient(points, _extrude(prisms, len(latitude), n_layers))
    thirds = np.floor(3 * _height(points)).clip(0, 2).astype(np.int32)
    return Wall(points, tetrahedra, np.repeat(depth_of_layer, len(latitude)), 3 - thirds)


def _n_layers(resolution: int) -> int:
    return max(1, (resolution + 2) // 4)


def _layer(depth: float, latitude: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Points of one ellipsoid: latitude 0 at the apex, 1 on the plane of the base."""
    radius = ENDOCARDIUM_RADIUS_MM + depth * WALL_MM
    half_length = ENDOCARDIUM_HALF_LENGTH_MM + depth * WALL_MM
    polar = latitude * np.arccos(-BASE_HEIGHT_MM / half_length)
    ring = radius * np.sin(polar)
    return np.stack([ring * np.cos(angle), ring * np.sin(angle), -half_length * np.cos(polar)], 1)


def _triangles(resolution: int, n_around: int) -> np.ndarray:
    """Triangles of one layer: a fan at the apex (point 0), then two a quadrangle."""
    here = np.arange(n_around)
    beside = (here + 1) % n_around
    triangles = [np.stack([np.zeros_like(here), 1 + here, 1 + beside], 1)]
    for ring in range(resolution - 1):
        low, high = 1 + ring * n_around, 1 + (ring + 1) * n_around
        triangles.append(np.stack([low + here, high + here, high + beside], 1))
        triangles.append(np.stack([low + here, high + beside, low + beside], 1))
    return np.concatenate(triangles)


def _extrude(triangles: np.ndarray, n_layer_points: int, n_layers: int) -> np.ndarray:
    """Split the prisms between the layers into three tetrahedra each.

    Each prism is split along the order of its triangle's point numbers, so that two prisms cut
    the face that they share along the same diagonal: the simplicial prism of Kuhn's triangulation.
    """
    a, b, c = np.sort(triangles, axis=1).T
    tetrahedra = []
    for layer in range(n_layers):
        low, high = layer * n_layer_points, (layer + 1) * n_layer_points
        tetrahedra.append(np.stack([low + a, low + b, low + c, high + c], 1))
        tetrahedra.append(np.stack([low + a, low + b, high + b, high + c], 1))
        tetrahedra.append(np.stack([low + a, high + a, high + b, high + c], 1))
    return np.concatenate(tetrahedra)


def _orient(points: np.ndarray, tetrahedra: np.ndarray) -> np.ndarray:
    corners = points[tetrahedra]
    negative = np.linalg.det(corners[:, 1:] - corners[:, :1]) < 0
    return np.where(negative[:, None], tetrahedra[:, [0, 1, 3, 2]], tetrahedra)


def _height(points: np.ndarray) -> np.ndarray:
    """Height above the lowest point as a part of the whole height, (n_points,)."""
    z = points[:, 2]
    return (z - z.min()) / (z.max() - z.min())


def shape_model(wall: Wall) -> tuple[np.ndarray, np.ndarray]:
    """Give the principal components of the demo's shapes.

    A shape is the mean plus normally distributed amounts of four fields: size, length, thickness
    of the wall and ellipticity of the rings. Each leaves an ellipsoidal shell with a flat base.

    Returns
    -------
    eigenvalues : (4,) array, mm^2
        Falling.
    components : (4, 3 n_points) array
        Orthonormal, ordered x0 y0 z0 x1 ...
    """
    x, y, z = wall.points.T
    zero = np.zeros_like(x)
    # The parametric radius sin(polar) cos(angle), since each layer's ring has its own radius.
    radius = ENDOCARDIUM_RADIUS_MM + wall.depth * WALL_MM
    fields = np.stack(
        [
            0.08 * np.stack([x, y, z], 1),
            0.07 * np.stack([zero, zero, z], 1),
            1.2 * (wall.depth / radius)[:, None] * np.stack([x, y, zero], 1),
            0.04 * np.stack([x, -y, zero], 1),
        ]
    ).reshape(N_MODES, -1)
    mixing, spread, components = np.linalg.svd(fields, full_matrices=False)
    largest = mixing[np.abs(mixing).argmax(axis=0), np.arange(N_MODES)]
    return spread**2, components * np.sign(largest)[:, None]


def reference_points(
    wall: Wall, eigenvalues: np.ndarray, components: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """Shape a subject: mean + sum of score * sqrt(eigenvalue) * component, (n_points, 3) in mm."""
    offset = (scores * np.sqrt(eigenvalues)) @ components
    return wall.points + offset.reshape(-1, 3)


def displacement(
    reference: np.ndarray, depth: np.ndarray, scores: np.ndarray, stage: float
) -> np.ndarray:
    """Move a subject's wall: the closed formula of the demo's motion.

    With activation ``g``, height ``h`` (0 apex, 1 base) and depth ``d`` (0 inside, 1 outside)::

        g      = sin(pi stage)^2 * (1 + skew * sin(2 pi stage))
        radius *= 1 - g * contraction * (1 - thickening * d)
        angle  += g * (twist_apex * (1 - h) + twist_base * h)
        height *= 1 - g * shortening        (above the apex, which stays)

    Parameters
    ----------
    reference : (n_points, 3) array, mm
    depth : (n_points,) array
        Place in the wall, as in :class:`Wall`.
    scores : (4,) array
        Shape scores in standard deviations.
    stage : float
        Place in the cycle; 0 and 1 are end-diastole, where nothing has moved.

    Returns
    -------
    (n_points, 3) array, mm
    """
    s = np.asarray(scores, dtype=float)
    contraction = 0.27 + 0.1 * np.tanh(s[0]) - 0.03 * np.sin(s[1] * s[2])
    thickening = 0.6 + 0.1 * np.tanh(s[2])
    shortening = 0.14 + 0.05 * np.tanh(s[1]) + 0.02 * np.cos(2 * s[0])
    twist_apex = 0.25 + 0.12 * np.sin(s[3])
    twist_base = -0.08 - 0.02 * np.tanh(s[0] * s[1])
    skew = 0.4 + 0.3 * np.tanh(s[1] + s[3])

    activation = np.sin(np.pi * stage) ** 2 * (1 + skew * np.sin(2 * np.pi * stage))
    height = _height(reference)
    ring = 1 - activation * contraction * (1 - thickening * depth)
    turn = activation * (twist_apex * (1 - height) + twist_base * height)
    x, y, z = reference.T
    return np.stack(
        [
            ring * (x * np.cos(turn) - y * np.sin(turn)) - x,
            ring * (x * np.sin(turn) + y * np.cos(turn)) - y,
            activation * shortening * (z.min() - z),
        ],
        axis=1,
    )


def draw_scores(seed: int, subject: int) -> np.ndarray:
    """Draw shape scores, (4,) in standard deviations, of one subject, whoever else there is."""
    generator = np.random.default_rng([seed, subject])
    scores = generator.standard_normal(N_MODES)
    while (beyond := np.abs(scores) > LARGEST_SCORE).any():
        scores[beyond] = generator.standard_normal(int(beyond.sum()))
    return scores


@dataclass(frozen=True)
class DemoSubject:
    """One subject of the demo, without files: what an ingested one has, but for rounding.

    Parameters
    ----------
    shape_scores : (4,) array, standard deviations
    reference : (n_points, 3) array, mm
    stages : (n_phases,) array
        ``i / n_phases``.
    targets : (n_phases, n_points, 3) float32 array, mm
    """

    shape_scores: np.ndarray
    reference: np.ndarray
    stages: np.ndarray
    targets: np.ndarray


def make_subject(
    wall: Wall, model: tuple[np.ndarray, np.ndarray], seed: int, subject: int, n_phases: int
) -> DemoSubject:
    """Shape and move one subject; ``model`` is what :func:`shape_model` gave."""
    scores = draw_scores(seed, subject)
    reference = reference_points(wall, *model, scores)
    stages = np.arange(n_phases) / n_phases
    targets = [displacement(reference, wall.depth, scores, stage) for stage in stages]
    return DemoSubject(scores, reference, stages, np.array(targets, np.float32))


def splits(n_subjects: int) -> list[str]:
    """Share subjects among train, val and test: a sixth each to val and test, the last ones."""
    held_out = max(1, n_subjects // 6)
    n_val = held_out if n_subjects >= 2 else 0
    n_test = held_out if n_subjects >= 3 else 0
    n_train = n_subjects - n_val - n_test
    return ["train"] * n_train + ["val"] * n_val + ["test"] * n_test


def make_demo_cohort(
    output: Path, n_subjects: int, n_phases: int, resolution: int, seed: int
) -> None:
    """Write a cohort: template, shape model, subjects with phases, and ``subjects.tsv``.

    Parameters
    ----------
    output : Path
        Folder; files of the same name in it are replaced.
    n_subjects, n_phases : int
        Stages are ``i / n_phases``.
    resolution : int
        See :func:`build_wall`.
    seed : int
        The same seed gives the same bytes.

    Raises
    ------
    InputError
        If a number is too small to make a cohort of.
    """
    raise_if_any(
        Problem(f"{name} must be at least {least}, got {value}", "choose a larger number")
        for name, value, least in (
            ("the number of subjects", n_subjects, 1),
            ("the number of phases", n_phases, 1),
            ("the resolution", resolution, 3),
            ("the seed", seed, 0),
        )
        if value < least
    )
    if output.exists() and not output.is_dir():
        raise InputError(Problem("the output is not a folder", "choose another", str(output)))
    wall = build_wall(resolution)
    model = eigenvalues, components = shape_model(wall)
    mean = wall.mesh(wall.points)
    mean.point_data["region"] = wall.region
    mean.point_data["wall_depth"] = wall.depth
    write_mesh(output / "pca_mean.vtu", mean)
    write_json(
        output / "pca_model.json",
        {"eigenvalues": eigenvalues.tolist(), "components": components.tolist()},
    )
    rows = ["manifest\tsplit"]
    for index, split in enumerate(splits(n_subjects)):
        subject_id = f"demo-{index + 1:03d}"
        subject = make_subject(wall, model, seed, index, n_phases)
        _write_subject(output / subject_id, subject_id, wall, subject)
        rows.append(f"{subject_id}/manifest.json\t{split}")
    write_text(output / "subjects.tsv", "\n".join(rows) + "\n")


def _write_subject(folder: Path, subject_id: str, wall: Wall, subject: DemoSubject) -> None:
    write_mesh(folder / "reference.vtu", wall.mesh(subject.reference))
    write_json(folder / "pca.json", subject.shape_scores.tolist())
    phases: list[dict[str, str | float]] = []
    for index, (stage, moved_by) in enumerate(zip(subject.stages, subject.targets, strict=True)):
        name = f"phase_{index:03d}.vtu"
        phase = wall.mesh((subject.reference + moved_by).astype(np.float32))
        phase.point_data[TARGET_ARRAY] = moved_by
        phases.append({"mesh": name, "stage": float(stage)})
        write_mesh(folder / name, phase)
    write_json(
        folder / "manifest.json",
        {
            "subject_id": subject_id,
            "fitted_reference_mesh": "reference.vtu",
            "pca_coefficients": "pca.json",
            "target_array": TARGET_ARRAY,
            "phases": phases,
        },
    )
