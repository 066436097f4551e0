"""Predicted motion on the grid of an image: displacement fields in mm, in LPS as ITK has it."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from meshstage.errors import InputError, Problem, at
from meshstage.files import atomic, file_problem
from meshstage.prediction.deformation import default_decay, fade, fit_motion
from meshstage.prediction.reading import Motion

Space = Literal["lps", "ras"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grid:
    """Where the voxels of an image are.

    Parameters
    ----------
    size : (3,) int array
    spacing : (3,) float64, mm
    origin : (3,) float64, mm, LPS
        Centre of the first voxel.
    direction : (3, 3) float64
        Column k is the direction of image axis k, in LPS.
    """

    size: np.ndarray
    spacing: np.ndarray
    origin: np.ndarray
    direction: np.ndarray

    def indices(self, points: np.ndarray) -> np.ndarray:
        """Give continuous voxel indices (n, 3) of points (n, 3), mm, LPS."""
        found: np.ndarray = (points - self.origin) @ np.linalg.inv(self.direction).T / self.spacing
        return found

    def positions(self) -> np.ndarray:
        """Give the centres of all voxels (n, 3), mm, LPS; the first index runs fastest."""
        z, y, x = np.indices(tuple(self.size[::-1].tolist())).reshape(3, -1)
        steps = np.column_stack([x, y, z]) * self.spacing
        found: np.ndarray = steps @ self.direction.T + self.origin
        return found

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Say which points lie in the image, (n,) bool."""
        index = self.indices(points)
        return np.all((index >= -0.5) & (index <= self.size - 0.5), axis=1)

    def around(self, points: np.ndarray, margin: float, pitch: float) -> "Grid":
        """Make a grid of every n-th voxel that reaches ``margin`` mm beyond points everywhere.

        Its voxels are as far apart as ``pitch`` mm allows; it may be larger than this one.
        """
        spacing = self.spacing * np.maximum(1, np.floor(pitch / self.spacing))
        index = self.indices(points) * self.spacing / spacing
        low = np.floor(index.min(axis=0) - margin / spacing)
        high = np.ceil(index.max(axis=0) + margin / spacing)
        origin = self.origin + self.direction @ (low * spacing)
        return Grid((high - low + 1).astype(int), spacing, origin, self.direction)

    def image(self, values: np.ndarray) -> Any:
        """Make a SimpleITK image of values (n,) or (n, 3) at `positions`."""
        import SimpleITK as sitk

        array = values.reshape(*self.size[::-1], *values.shape[1:])
        image = sitk.GetImageFromArray(array, isVector=values.ndim > 1)
        image.SetSpacing(self.spacing.tolist())
        image.SetOrigin(self.origin.tolist())
        image.SetDirection(self.direction.ravel().tolist())
        return image


def read_grid(path: Path) -> Grid:
    """Read where an image's voxels are; the voxels themselves are not read.

    Raises
    ------
    InputError
        If SimpleITK cannot read the file, or it has not three dimensions.
    """
    import SimpleITK as sitk

    if problem := file_problem(path):
        raise InputError(problem)
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        reader.ReadImageInformation()
    except RuntimeError:
        what, todo = "is no image that SimpleITK reads", "save it as .nii.gz, .mha or .nrrd"
        raise InputError(Problem(what, todo, str(path))) from None
    if reader.GetDimension() != 3:
        what = f"has {reader.GetDimension()} dimensions, a displacement field has 3"
        raise InputError(Problem(what, "give the image of one phase", str(path)))
    return Grid(
        np.array(reader.GetSize()),
        np.array(reader.GetSpacing()),
        np.array(reader.GetOrigin()),
        np.array(reader.GetDirection()).reshape(3, 3),
    )


def to_lps(vectors: np.ndarray, space: Space) -> np.ndarray:
    """Turn points or vectors (..., 3) of a space into LPS."""
    return vectors * [-1.0, -1.0, 1.0] if space == "ras" else vectors


def check_overlap(points: np.ndarray, grid: Grid, space: Space) -> None:
    """Refuse an image that shows nothing of a mesh, and warn of one that shows a part.

    Parameters
    ----------
    points : (n, 3) array, mm
        In LPS already.
    grid : Grid
    space : "lps" or "ras"
        What the mesh was taken for.

    Raises
    ------
    InputError
        If no vertex lies in the image.
    """
    inside = grid.holds(points).mean()
    if inside == 0:
        other = "lps" if space == "ras" else "ras"
        flipped = grid.holds(to_lps(points, "ras")).any()
        raise InputError(
            Problem(
                f"the image does not overlap with the mesh, whose space is taken for {space}",
                f"its vertices lie in the image with --mesh-space {other}"
                if flipped
                else "predict in the image's space (--space patient), or give the image of it",
            )
        )
    if inside < 1:
        _log.warning("%.0f %% of the vertices lie outside of the image", 100 * (1 - inside))


def displacement_fields(
    motion: Motion, grid: Grid, space: Space, decay: float | None, inverse: bool
) -> tuple[Any, Iterator[tuple[str, Any, Any]]]:
    """Interpolate motion in space, and its inverse, on a grid around the organ.

    The grid has the image's axes. It reaches as far as the motion does, whatever part of it the
    image shows, and is as fine as the vertices lie: `resample` brings it onto the image.

    Parameters
    ----------
    motion : Motion
    grid : Grid
        Of the image, which shows the organ at rest.
    space : "lps" or "ras"
        Of the motion's points and vectors.
    decay : float, mm, optional
        Where motion has faded, see `meshstage.prediction.deformation.fade`; by default
        `default_decay`.
    inverse : bool
        Whether to invert.

    Returns
    -------
    weight : SimpleITK image of float64
        From 0 to 1: how much of the interpolated motion counts.
    fields : iterator of (name, forward, inverse or None)
        SimpleITK images of vectors, mm, LPS. The forward field lies at rest:
        ``moved = x + forward(x)``. The inverse lies where the organ has moved to:
        ``rest = y + inverse(y)``.

    Raises
    ------
    InputError
        If the vertices lie in one plane, or the mesh has no surface.
    """
    import SimpleITK as sitk

    mesh = motion.mesh.copy()
    mesh.points = points = to_lps(motion.points, space)
    vectors = to_lps(motion.displacements, space)
    decay = default_decay(points, vectors) if decay is None else decay
    interpolated, spacing = fit_motion(points, vectors)
    # Linear between nodes: at a tenth of the decay the weight is within 0.8 % (6 / 8 / 100).
    around = grid.around(points, decay, min(spacing / 2, decay / 10))
    positions = around.positions()
    weight = fade(positions, mesh, decay)
    near = weight > 0
    moved = np.zeros((len(vectors), len(positions), 3))
    of_phases = interpolated(positions[near]).reshape(-1, len(vectors), 3)
    moved[:, near] = np.moveaxis(of_phases * weight[near, None, None], 1, 0)
    _log.info("motion fades over %.3g mm; nodes are %.3g mm apart", decay, around.spacing.max())

    def fields() -> Iterator[tuple[str, Any, Any]]:
        for name, values, wanted in zip(motion.names, moved, vectors, strict=True):
            forward = around.image(values)
            _report(f"{name}: forward", sample(forward, points) - wanted)
            back = None
            if inverse:
                back = sitk.InvertDisplacementField(forward, 100, 0.01, 0.001)
                _report(f"{name}: inverse", sample(back, points + wanted) + wanted)
            yield name, forward, back

    return around.image(weight), fields()


def _report(what: str, errors: np.ndarray) -> None:
    lengths = np.linalg.norm(errors, axis=1)
    _log.info("%s: at the vertices within %.3g mm (mean %.3g)", what, lengths.max(), lengths.mean())


def sample(field: Any, points: np.ndarray) -> np.ndarray:
    """Interpolate a field of vectors linearly at points (n, 3), mm, LPS; 0 outside of it."""
    import SimpleITK as sitk
    from scipy.ndimage import map_coordinates

    values = sitk.GetArrayViewFromImage(field)
    direction = np.array(field.GetDirection()).reshape(3, 3)
    size, spacing, origin = (
        np.array(v) for v in (field.GetSize(), field.GetSpacing(), field.GetOrigin())
    )
    index = Grid(size, spacing, origin, direction).indices(points).T[::-1]
    return np.column_stack([map_coordinates(values[..., k], index, order=1) for k in range(3)])


def resample(image: Any, grid: Grid) -> Any:
    """Bring a field or weight onto the grid of an image, as float32; 0 outside of it."""
    import SimpleITK as sitk

    is_vector = image.GetNumberOfComponentsPerPixel() > 1
    return sitk.Resample(
        image,
        grid.size.tolist(),
        sitk.Transform(),
        sitk.sitkLinear,
        grid.origin.tolist(),
        grid.spacing.tolist(),
        grid.direction.ravel().tolist(),
        0.0,
        sitk.sitkVectorFloat32 if is_vector else sitk.sitkFloat32,
    )


def write_image(path: Path, image: Any) -> None:
    """Write an image atomically, compressed, in the format of the path's ending."""
    import SimpleITK as sitk

    with at(path), atomic(path) as temporary:
        sitk.WriteImage(image, str(temporary), True)
