"""How the cells of a mesh differ from a template's: in their order, or altogether."""

import numpy as np

from meshstage.meshes.cells import Cells


def describe_difference(cells: Cells, template: Cells, n_points: int) -> str:
    """Say how cells differ from the template's: another order, or other cells.

    Parameters
    ----------
    cells, template : Cells
        Not the same, for the same number of points.
    n_points : int
    """
    if cells.n_cells != template.n_cells:
        return f"has {cells.n_cells} cells, the template has {template.n_cells}"
    if _sorted_cells(cells) == _sorted_cells(template):
        return "has the template's cells, but their order, or that of the points in them, differs"
    if np.array_equal(_signature(cells, n_points), _signature(template, n_points)):
        return "is the template's mesh renumbered: the order of points or cells differs"
    first = _first(cells, template)
    return f"has other cells than the template (connectivity differs, first at {first})"


def _sorted_cells(cells: Cells) -> list[tuple[int, tuple[int, ...]]]:
    parts = np.split(cells.connectivity, cells.offsets[1:-1])
    return sorted(
        (int(kind), tuple(sorted(part.tolist())))
        for kind, part in zip(cells.types, parts, strict=True)
    )


def _signature(cells: Cells, n_points: int) -> np.ndarray:
    """Colours of points that no renumbering changes (Weisfeiler-Lehman), sorted.

    Each round mixes into a point's colour the colours of the cells it lies in. Equal signatures
    mean the same mesh but for numbering, except for highly regular meshes.
    """
    sizes = np.diff(cells.offsets)
    cell_of = np.repeat(np.arange(cells.n_cells), sizes)
    colour = np.ones(n_points, dtype=np.uint64)
    for _ in range(8):
        of_cells = cells.types.astype(np.uint64)
        np.add.at(of_cells, cell_of, _mix(colour[cells.connectivity]))
        of_points = _mix(colour)
        np.add.at(of_points, cells.connectivity, _mix(of_cells[cell_of]))
        colour = of_points
    return np.sort(colour)


def _mix(values: np.ndarray) -> np.ndarray:
    """Scramble 64-bit numbers (the finaliser of splitmix64, Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _first(cells: Cells, template: Cells) -> str:
    for index in range(cells.n_cells):
        own, wanted = (
            c.connectivity[c.offsets[index] : c.offsets[index + 1]].tolist()
            for c in (cells, template)
        )
        if own != wanted or cells.types[index] != template.types[index]:
            return f"cell {index}: points {own}, the template's {wanted}"
    return "a polyhedron's faces"
