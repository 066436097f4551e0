"""Whether meshes are in correspondence: point i the same place in all, and no other mistakes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from meshstage.cohort.geometry import FAR_IN_SIZE, fit_pose, size, size_factor
from meshstage.errors import Problem, Severity
from meshstage.meshes.cells import Cells
from meshstage.meshes.renumbering import describe_difference

# Half of all edges longer or shorter by half than usual: no organ, but points in another order.
_USUAL_FACTOR = 1.5
# One edge in a hundred three times as long: some points are swapped, or the fit is bad there.
_FAR_FACTOR, _FAR_EDGES = 3.0, 0.01
# Files of float32 keep 7 digits.
_SAME = 1e-5


@dataclass(frozen=True)
class Shape:
    """The points and cells of one mesh, and whose it is.

    Parameters
    ----------
    subject : str
    file : str
    points : (n_points, 3) float64 array, mm
    cells : Cells
    phase : str, optional
        None of a reference.
    """

    subject: str
    file: str
    points: np.ndarray
    cells: Cells
    phase: str | None = None

    def problem(self, what: str, todo: str, is_error: bool = True) -> Problem:
        """Tell something of this mesh."""
        severity: Severity = "error" if is_error else "warning"
        return Problem(what, todo, self.file, self.subject, self.phase, severity)


def usual_shape(shapes: Sequence[Shape]) -> Shape:
    """Give the first shape with the points and cells that most have."""
    known: list[Cells] = []
    kinds = []
    for shape in shapes:
        index = next((k for k, cells in enumerate(known) if cells.same_as(shape.cells)), None)
        if index is None:
            index = len(known)
            known.append(shape.cells)
        kinds.append((len(shape.points), index))
    return shapes[kinds.index(Counter(kinds).most_common(1)[0][0])]


def other_mesh(shape: Shape, usual: Shape) -> Problem | None:
    """Tell that a mesh has other points or cells than most."""
    todo = "bring all meshes into correspondence, point by point"
    n_points, wanted = len(shape.points), len(usual.points)
    if n_points != wanted:
        what = f"has {n_points} points, the mesh of most subjects ({usual.file}) has {wanted}"
    elif not shape.cells.same_as(usual.cells):
        difference = describe_difference(shape.cells, usual.cells, n_points)
        what = f"{difference}: the template is what most subjects have, as {usual.file}"
    else:
        return None
    return shape.problem(what, todo)


def reference_problems(shapes: Sequence[Shape], usual: Shape, edges: np.ndarray) -> list[Problem]:
    """Compare the references of all subjects.

    Parameters
    ----------
    shapes : sequence of Shape
    usual : Shape
        From `usual_shape`.
    edges : (n_edges, 2) int64 array
        Of its cells.

    Returns
    -------
    list of Problem
        One per subject and cause; what follows from another cause is not told.
    """
    problems, fitting = [], []
    for shape in shapes:
        problem = other_mesh(shape, usual)
        problems += [problem] if problem else []
        fitting += [] if problem else [shape]
    sizes = np.array([size(shape.points) for shape in fitting])
    middle = float(np.median(sizes))
    for shape, own in zip(fitting, sizes, strict=True):
        problems += _other_unit(shape, float(own), middle, "most subjects")
    sound = [
        s for s, own in zip(fitting, sizes, strict=True) if size_factor(own, middle) < FAR_IN_SIZE
    ]
    mirrored = _mirrored(sound)
    problems += mirrored
    blamed = {problem.subject for problem in mirrored}
    sound = [shape for shape in sound if shape.subject not in blamed]
    lengths = np.array([_lengths(shape.points, edges) / size(shape.points) for shape in sound])
    if len(sound) and len(edges):
        usual_lengths = np.median(lengths, axis=0)
        for shape, own in zip(sound, lengths, strict=True):
            problems += _shuffled(shape, own, usual_lengths, "in most subjects")
    problems += _twins(sound, lengths)
    return problems


def phase_problems(shape: Shape, reference: Shape, edges: np.ndarray) -> list[Problem]:
    """Compare a phase with its subject's reference; at most one problem."""
    if problem := other_mesh(shape, reference):
        return [problem]
    own, usual = size(shape.points), size(reference.points)
    if found := _other_unit(shape, own, usual, "the reference"):
        return found
    pose = fit_pose(shape.points, reference.points)
    if pose and pose.mirrored_residual < 0.5 * pose.residual:
        return [shape.problem("is mirrored against the reference", "check left and right")]
    if not len(edges):
        return []
    lengths = _lengths(reference.points, edges)
    return _shuffled(shape, _lengths(shape.points, edges), lengths, "in the reference")


def _other_unit(shape: Shape, own: float, usual: float, whose: str) -> list[Problem]:
    factor = size_factor(own, usual)
    if factor < FAR_IN_SIZE:
        return []
    how = "smaller" if own < usual else "larger"
    what = f"is {factor:.4g} times {how} than {whose} ({own:.4g} and {usual:.4g} mm RMS from the "
    what += "centre)"
    return [shape.problem(what, "bring all meshes to millimetres")]


def _mirrored(shapes: Sequence[Shape]) -> list[Problem]:
    """Blame the hand that fewer subjects have."""
    if not shapes:
        return []
    poses = [fit_pose(shape.points, shapes[0].points) for shape in shapes]
    # Half: a flat mesh is fitted as well by either hand, one that is no mirror image worse.
    other = [bool(pose and pose.mirrored_residual < 0.5 * pose.residual) for pose in poses]
    blamed = 2 * sum(other) <= len(other)
    what = "the reference is mirrored against most subjects"
    todo = "check left and right, and that all axes mean the same in all files"
    return [
        shape.problem(what, todo)
        for shape, is_other in zip(shapes, other, strict=True)
        if is_other == blamed and any(other)
    ]


def _lengths(points: np.ndarray, edges: np.ndarray) -> np.ndarray:
    lengths: np.ndarray = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    return lengths


def _shuffled(shape: Shape, lengths: np.ndarray, usual: np.ndarray, where: str) -> list[Problem]:
    """Compare the lengths of edges: points in another order make all of them wrong."""
    least = 1e-9 * max(float(usual.max()), float(lengths.max()), 1e-300)
    factors = np.exp(np.abs(np.log(np.maximum(lengths, least) / np.maximum(usual, least))))
    middle, far = float(np.median(factors)), float((factors > _FAR_FACTOR).mean())
    if middle > _USUAL_FACTOR:
        what = f"its points are not where the cells expect them: half of the edges are {middle:.2g}"
        what += f" times longer or shorter than {where} (vertices in another order)"
        return [shape.problem(what, "bring it into correspondence, point by point")]
    if far > _FAR_EDGES:
        what = f"{far:.1%} of the edges are {_FAR_FACTOR:g} times longer or shorter than {where}"
        todo = "look whether some points are swapped, or the registration failed there"
        return [shape.problem(what, todo, is_error=False)]
    return []


def _twins(shapes: Sequence[Shape], lengths: np.ndarray) -> Iterator[Problem]:
    """Find one shape under two subjects, wherever it lies: equal size and equal edges."""
    sizes = np.array([size(shape.points) for shape in shapes])
    order = np.argsort(sizes, kind="stable")
    for a, b in pairwise(order):
        near = sizes[b] - sizes[a] <= _SAME * sizes[b]
        if near and np.abs(lengths[a] - lengths[b]).max(initial=0.0) <= _SAME:
            first, second = sorted([a, b])
            other = shapes[first]
            what = f"the reference has the shape of subject {other.subject} ({other.file}): one "
            what += "subject stands twice (duplicates)"
            yield shapes[second].problem(what, "leave one out")
