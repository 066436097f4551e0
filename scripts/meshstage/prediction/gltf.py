"""A predicted cycle as one glTF file, for slides and web pages: a morph target per stage."""

from pathlib import Path
from typing import Any

import numpy as np
import pygltflib
import pyvista as pv

from meshstage.errors import InputError, Problem
from meshstage.files import atomic
from meshstage.meshes.arrays import non_finite
from meshstage.meshes.surface import triangles_of
from meshstage.prediction.predictor import Predictor
from meshstage.prediction.questions import Question

CYCLE_SECONDS = 2.4
# glTF counts in metres and has y up; organs have mm and z up.
_METRES_PER_MM = 0.001
_Z_UP = [-(0.5**0.5), 0.0, 0.0, 0.5**0.5]


class _Buffer:
    """Collects arrays and tells where they are."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.views: list[pygltflib.BufferView] = []
        self.accessors: list[pygltflib.Accessor] = []

    def add(self, values: np.ndarray, kind: str, target: int | None = None) -> int:
        """Add float32 or uint32 rows; gives the number of their accessor."""
        single = values.dtype == np.uint32
        component = pygltflib.UNSIGNED_INT if single else pygltflib.FLOAT
        rows = values.reshape(len(values), -1)
        self.views.append(
            pygltflib.BufferView(
                buffer=0, byteOffset=len(self.data), byteLength=values.nbytes, target=target
            )
        )
        self.accessors.append(
            pygltflib.Accessor(
                bufferView=len(self.views) - 1,
                componentType=component,
                count=len(values),
                type=kind,
                min=rows.min(axis=0).tolist(),
                max=rows.max(axis=0).tolist(),
            )
        )
        self.data += values.tobytes()  # four bytes each: every view is aligned
        return len(self.accessors) - 1


def check_shown(predictor: Predictor) -> None:
    """Refuse a model whose predictions nobody could see move.

    Raises
    ------
    InputError
        If its target moves no mesh, or its template has no surface.
    """
    what = None
    if not predictor.moves_meshes:
        what = f"the target {predictor.target_array!r} moves no mesh"
    elif not len(triangles_of(predictor.mesh)):
        what = "the template has no surface to show"
    if what:
        raise InputError(Problem(what, "leave out --gltf"))


def write_cycle(path: Path, predictor: Predictor, question: Question, targets: np.ndarray) -> None:
    """Write a predicted subject; see `write_gltf`.

    Parameters
    ----------
    path : Path
        Ends in ``.glb``.
    predictor : Predictor
    question : Question
    targets : (n_stages, n_points, 3) array, mm

    Raises
    ------
    InputError
        If a prediction is not finite.
    """
    stages, order = np.unique(question.stages, return_index=True)  # times must rise
    moved = question.points + targets[order]
    if problem := non_finite(moved.reshape(len(moved), -1), "the prediction"):
        raise InputError(problem)
    closed = predictor.method.cycle == "closed"
    write_gltf(path, predictor.mesh, question.points, stages, moved, closed)


def write_gltf(
    path: Path, mesh: Any, points: np.ndarray, stages: np.ndarray, moved: np.ndarray, closed: bool
) -> None:
    """Write the surface of a mesh and its motion as binary glTF 2.0 (``.glb``).

    Parameters
    ----------
    path : Path
    mesh : pyvista mesh
        The template, whose surface is taken.
    points : (n_points, 3) array, mm
        The undeformed mesh.
    stages : (n_stages,) array in [0, 1], rising
    moved : (n_stages, n_points, 3) array, mm
        Where the points are at each stage.
    closed : bool
        Whether the first stage comes again one cycle later, so that the animation repeats.

    References
    ----------
    Khronos Group, glTF 2.0 Specification, sections 3.7.2.2 (morph targets) and 3.11 (animations).
    """
    triangles = triangles_of(mesh)
    used, faces = np.unique(triangles, return_inverse=True)
    faces = faces.reshape(-1, 3).astype(np.uint32)
    shapes = [_rows(shape[used], faces) for shape in (points, *moved)]
    buffer, vertices = _Buffer(), pygltflib.ARRAY_BUFFER
    (rest, normals), deformed = shapes[0], shapes[1:]
    attributes = pygltflib.Attributes(
        POSITION=buffer.add(rest, pygltflib.VEC3, vertices),
        NORMAL=buffer.add(normals, pygltflib.VEC3, vertices),
    )
    targets = [
        {
            "POSITION": buffer.add(shape - rest, pygltflib.VEC3, vertices),
            "NORMAL": buffer.add(turned - normals, pygltflib.VEC3, vertices),
        }
        for shape, turned in deformed
    ]
    indices = buffer.add(faces.ravel(), pygltflib.SCALAR, pygltflib.ELEMENT_ARRAY_BUFFER)
    times, weights = _keyframes(stages, closed)
    sampler = pygltflib.AnimationSampler(
        input=buffer.add(times, pygltflib.SCALAR), output=buffer.add(weights, pygltflib.SCALAR)
    )
    material = pygltflib.Material(
        doubleSided=True,
        pbrMetallicRoughness=pygltflib.PbrMetallicRoughness(
            baseColorFactor=[0.8, 0.35, 0.3, 1.0], metallicFactor=0.0, roughnessFactor=0.6
        ),
    )
    primitive = pygltflib.Primitive(
        attributes=attributes, indices=indices, material=0, targets=targets
    )
    still = [0.0] * len(targets)
    names = {"targetNames": [f"stage {stage:.4g}" for stage in stages]}
    document = pygltflib.GLTF2(
        scene=0,
        scenes=[pygltflib.Scene(nodes=[0])],
        nodes=[pygltflib.Node(mesh=0, rotation=_Z_UP, scale=[_METRES_PER_MM] * 3)],
        meshes=[pygltflib.Mesh(primitives=[primitive], weights=still, extras=names)],
        materials=[material],
        animations=[
            pygltflib.Animation(
                name="cycle",
                samplers=[sampler],
                channels=[
                    pygltflib.AnimationChannel(
                        sampler=0, target=pygltflib.AnimationChannelTarget(node=0, path="weights")
                    )
                ],
            )
        ],
        accessors=buffer.accessors,
        bufferViews=buffer.views,
        buffers=[pygltflib.Buffer(byteLength=len(buffer.data))],
    )
    document.set_binary_blob(bytes(buffer.data))
    with atomic(path) as temporary:
        temporary.write_bytes(b"".join(document.save_to_bytes()))


def _rows(points: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give points and unit normals as float32."""
    surface = pv.PolyData.from_regular_faces(points, faces.astype(int))
    with_normals = surface.compute_normals(
        cell_normals=False, split_vertices=False, consistent_normals=False
    )
    normals = np.asarray(with_normals.point_data["Normals"], np.float32)
    return np.ascontiguousarray(points, np.float32), normals


def _keyframes(stages: np.ndarray, closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Give times in seconds, and for each time one weight per stage: 1 at its own."""
    weights = np.eye(len(stages), dtype=np.float32)
    times = stages
    if closed and stages[-1] < stages[0] + 1:
        times, weights = np.append(stages, stages[0] + 1), np.concatenate([weights, weights[:1]])
    return (CYCLE_SECONDS * times).astype(np.float32), weights.ravel()
