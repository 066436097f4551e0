"""The table of metrics: each row gives a metric's column, unit, pooling, function and heading.

A new metric is a row of `POINT_METRICS` or `MESH_METRICS`, and the function that the row names.
The CSV files, their summaries, the table of all runs and ``docs/files.md`` follow from the table.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyvista as pv

from meshstage.judging import metrics
from meshstage.meshes.surface import triangles_of
from meshstage.motion.residuals import square_errors

Value = float | int | None
Pooling = Literal["root mean square", "mean", "largest", "sum"]

KEYS = ("subject_id", "split", "phase", "stage")
TARGET = "target"  # a unit: millimetres if the targets are displacements, else not known
FLOOR = "floor"  # stands where a baseline's name stands


@dataclass(frozen=True)
class Shape:
    """What the metrics need of the template, worked out once.

    Parameters
    ----------
    mesh : pyvista mesh
    triangles : (n_triangles, 3) array of int
        Of its surface.
    is_closed : bool
        Whether the triangles enclose a volume.
    corners : pair of arrays, optional
        Of `metrics.corner_tetrahedra`.
    regions : dict
        Name to the (n_in_region,) indices of its points.
    """

    mesh: pv.DataSet
    triangles: np.ndarray
    is_closed: bool
    corners: tuple[np.ndarray, np.ndarray] | None
    regions: dict[str, np.ndarray]

    @classmethod
    def of(cls, mesh: pv.DataSet, regions: dict[str, np.ndarray]) -> "Shape":
        """Work out the surface and the corners of a template's cells."""
        triangles = triangles_of(mesh)
        closed = metrics.is_closed(triangles)
        return cls(mesh, triangles, closed, metrics.corner_tetrahedra(mesh), regions)

    def weights(self, reference: np.ndarray) -> np.ndarray:
        """Area or volume at each point of a subject's reference, (n_points,)."""
        moved = self.mesh.copy(deep=False)
        moved.points = np.asarray(reference, np.float64)
        return metrics.point_weights(moved)


@dataclass(frozen=True)
class Sample:
    """One subject at one phase: the truth, what was predicted, and what metrics share.

    Parameters
    ----------
    shape : Shape
    reference : (n_points, 3) array, mm
    weights : (n_points,) array
        Of `Shape.weights`.
    truth, predicted : (n_points, n_target) array, units of the target
    """

    shape: Shape
    reference: np.ndarray
    weights: np.ndarray
    truth: np.ndarray
    predicted: np.ndarray

    @cached_property
    def square(self) -> np.ndarray:
        """Squared length of the error at each point, (n_points,)."""
        return square_errors(self.predicted, self.truth)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Length of the error at each point, (n_points,)."""
        return np.sqrt(self.square)

    @cached_property
    def true_points(self) -> np.ndarray:
        """Points moved by the truth, (n_points, 3) mm; of a displacement only."""
        return self.reference + self.truth

    @cached_property
    def predicted_points(self) -> np.ndarray:
        """Points moved by the prediction, (n_points, 3) mm; of a displacement only."""
        return self.reference + self.predicted

    @cached_property
    def surface_distances(self) -> tuple[float, float] | tuple[None, None]:
        """Give ASSD and HD95, mm."""
        points = self.predicted_points, self.true_points
        return metrics.surface_distances(*points, self.shape.triangles) or (None, None)

    @cached_property
    def volumes(self) -> tuple[float, float] | None:
        """True and predicted volume, ml; None for a surface that is not closed."""
        if not self.shape.is_closed:
            return None
        true, predicted = (
            metrics.enclosed_volume(points, self.shape.triangles) / 1000  # 1 ml = 1000 mm^3
            for points in (self.true_points, self.predicted_points)
        )
        return true, predicted


@dataclass(frozen=True)
class Metric:
    """A row of the table.

    Parameters
    ----------
    name : str
        Of the column, without the unit. Where there is a column per component or region,
        ``{label}`` stands for which.
    unit : str
        `TARGET`, or the column's ending; empty if there is none.
    pooling : str
        How the values of many samples become one.
    about : str
        The column's description in ``docs/files.md``.
    compute : function
        From a `Sample`, and the label if there is a column per component or region, to the value;
        None where the sample has none.
    heading : str
        In the table of all runs; a metric without one is not shown there.
    per : str
        "component" or "region" if there is a column for each.
    skill : str
        Column of the skill over the mean motion. A metric with one is computed for the mean
        motion as well.
    """

    name: str
    unit: str
    pooling: Pooling
    about: str
    compute: Callable[..., Value]
    heading: str = ""
    per: Literal["", "component", "region"] = ""
    skill: str = ""

    def column(self, unit: str | None, label: str = "") -> str:
        """Name of the column, for targets in a unit ("mm", or None if it is not known)."""
        return with_unit(self.name.format(label=label), self.unit_of(unit))

    def unit_of(self, unit: str | None) -> str | None:
        """Give the unit of the values, for targets in a unit; None or empty without one."""
        return unit if self.unit == TARGET else self.unit


@dataclass(frozen=True)
class Column:
    """A metric's column in one evaluation, and beside it those of the mean motion.

    Parameters
    ----------
    metric : Metric
    name : str
    labels : tuple of str
        The component or region, if the metric has a column for each.
    of_mean, skill : str
        Columns of the mean motion's own value and of the skill over it; empty without.
    """

    metric: Metric
    name: str
    labels: tuple[str, ...] = ()
    of_mean: str = ""
    skill: str = ""

    def value(self, sample: Sample) -> Value:
        """Compute the metric for one sample."""
        return self.metric.compute(sample, *self.labels)


def with_unit(name: str, unit: str | None) -> str:
    """Name of a column with its unit.

    >>> with_unit("rmse", "mm"), with_unit("rmse", None)
    ('rmse_mm', 'rmse')
    """
    return f"{name}_{unit}" if unit else name


def baseline_column(name: str, unit: str | None) -> str:
    """Column of the RMSE of a baseline, or of the `FLOOR`."""
    return with_unit(f"rmse_{name}", unit)


def skill_column(name: str) -> str:
    """Column of the skill over a baseline."""
    return f"skill_{name}"


def component_names(n_target: int) -> list[str]:
    """Names of a target's components.

    >>> component_names(3), component_names(2)
    (['x', 'y', 'z'], ['0', '1'])
    """
    return list("xyz") if n_target == 3 else [str(k) for k in range(n_target)]


def columns_of(
    rows: Iterable[Metric], unit: str | None, n_target: int, regions: Iterable[str]
) -> list[Column]:
    """List the columns of some metrics in an evaluation.

    Parameters
    ----------
    rows : iterable of Metric
    unit : str, optional
        Of the target.
    n_target : int
        Components of the target.
    regions : iterable of str
        Names of the regions.
    """
    labels: dict[str, Sequence[str]] = {
        "": [""],
        "component": component_names(n_target),
        "region": list(regions),
    }
    return [
        Column(
            metric,
            metric.column(unit, label),
            (label,) if metric.per else (),
            with_unit(f"{metric.name.format(label=label)}_stage_mean", unit)
            if metric.skill
            else "",
            metric.skill.format(label=label),
        )
        for metric in rows
        for label in labels[metric.per]
    ]


def _weighted_rmse(sample: Sample) -> float | None:
    total = sample.weights.sum()
    return float(np.sqrt(sample.weights @ sample.square / total)) if total > 0 else None


def _rmse_of_component(sample: Sample, name: str) -> float:
    k = component_names(sample.truth.shape[1]).index(name)
    return metrics.rmse(square_errors(sample.predicted[:, [k]], sample.truth[:, [k]]))


def _rmse_of_region(sample: Sample, name: str) -> float:
    return metrics.rmse(sample.square[sample.shape.regions[name]])


def _volume_error(sample: Sample) -> float | None:
    if sample.volumes is None or sample.volumes[0] <= 0:
        return None
    true, predicted = sample.volumes
    return 100 * (predicted - true) / true


def _absolute_volume_error(sample: Sample) -> float | None:
    error = _volume_error(sample)
    return None if error is None else abs(error)


def _inverted(sample: Sample, points: np.ndarray) -> int | None:
    corners = sample.shape.corners
    return None if corners is None else metrics.count_inverted(points, sample.reference, corners)


RMSE = Metric(
    "rmse",
    TARGET,
    "root mean square",
    "root of the mean squared length of the points' errors",
    lambda s: metrics.rmse(s.square),
    heading="RMSE",
    skill="skill_stage_mean",
)

# What follows from the errors at the points, whatever the target is.
POINT_METRICS = (
    Metric(
        "mean_error",
        TARGET,
        "mean",
        "mean length of the points' errors",
        lambda s: float(s.lengths.mean()),
    ),
    Metric(
        "p95_error",
        TARGET,
        "mean",
        "95th percentile of the lengths of the points' errors",
        lambda s: float(np.percentile(s.lengths, 95)),
        heading="95th percentile",
    ),
    Metric(
        "max_error",
        TARGET,
        "largest",
        "largest length of a point's error",
        lambda s: float(s.lengths.max()),
        heading="largest error",
    ),
    Metric(
        "rmse_{label}",
        TARGET,
        "root mean square",
        "RMSE of one component of the target (`x`, `y`, `z`; numbers from 0 if it is not 3 wide)",
        _rmse_of_component,
        per="component",
        skill="skill_{label}_stage_mean",
    ),
    Metric(
        "weighted_rmse",
        TARGET,
        "root mean square",
        "RMSE with each point weighted by its share of the reference's area or volume",
        _weighted_rmse,
        skill="skill_weighted_stage_mean",
    ),
    Metric(
        "rmse_{label}",
        TARGET,
        "root mean square",
        "RMSE over the points of one region (setting `region`), named `{array}_{value}`",
        _rmse_of_region,
        per="region",
        skill="skill_{label}_stage_mean",
    ),
)

# What follows from the moved meshes; missing unless the target is a displacement.
MESH_METRICS = (
    Metric(
        "assd",
        "mm",
        "mean",
        "average symmetric surface distance, weighted by area",
        lambda s: s.surface_distances[0],
        heading="ASSD",
    ),
    Metric(
        "hd95",
        "mm",
        "mean",
        "larger of the two directed 95th percentiles of the surface distance, weighted by area",
        lambda s: s.surface_distances[1],
        heading="HD95",
    ),
    Metric(
        "volume_true",
        "ml",
        "mean",
        "volume that the true surface encloses; empty for open surfaces, as in the next three",
        lambda s: s.volumes and s.volumes[0],
    ),
    Metric(
        "volume_predicted",
        "ml",
        "mean",
        "volume that the predicted surface encloses",
        lambda s: s.volumes and s.volumes[1],
    ),
    Metric(
        "volume_error",
        "percent",
        "mean",
        "predicted minus true volume, in percent of the true volume",
        _volume_error,
    ),
    Metric(
        "volume_absolute_error",
        "percent",
        "mean",
        "its absolute value",
        _absolute_volume_error,
        heading="volume error",
    ),
    Metric(
        "inverted_cells",
        "",
        "sum",
        "predicted cells with a corner turned inside out or flat; empty without linear solid cells",
        lambda s: _inverted(s, s.predicted_points),
        heading="inverted cells",
    ),
    Metric(
        "inverted_cells_true",
        "",
        "sum",
        "the same, of the true mesh",
        lambda s: _inverted(s, s.true_points),
    ),
)
