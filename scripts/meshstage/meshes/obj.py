"""A reader of Wavefront OBJ: VTK's own makes a point for each pair of a vertex and its normal."""

from pathlib import Path
from typing import Any

import numpy as np

from meshstage.meshes.signatures import refusal

_LEAST = {b"p": 1, b"l": 2, b"f": 3}  # points of a cell


def read_obj(path: Path, data: bytes) -> Any:
    """Read the vertices (``v``) in order, and the cells ``p``, ``l`` and ``f`` that join them.

    Normals, texture coordinates, groups and materials are left out.

    Raises
    ------
    InputError
        If a line of a vertex or cell cannot be read.
    """
    import pyvista as pv

    points: list[list[bytes]] = []
    cells: dict[bytes, list[int]] = {kind: [] for kind in _LEAST}
    lines = data.replace(b"\\\r\n", b" ").replace(b"\\\n", b" ").splitlines()
    for line in lines:
        kind, *words = line.partition(b"#")[0].split() or [b""]
        try:
            if kind == b"v":
                x, y, z = words[:3]  # a weight or a colour may follow
                points.append([x, y, z])
            elif kind in cells:
                # "7/3/5" is vertex 7 with texture 3 and normal 5; -1 is the last vertex so far.
                given = [int(word.partition(b"/")[0]) for word in words]
                if len(given) < _LEAST[kind]:
                    raise ValueError
                cells[kind] += [len(given), *(i + len(points) if i < 0 else i - 1 for i in given)]
        except ValueError:
            shown = line[:60].decode("utf-8", "replace")
            raise refusal(f"is damaged: the line {shown!r} cannot be read") from None
    try:
        coordinates = np.array(points).astype(np.float64)
    except ValueError as error:
        raise refusal(f"is damaged: a vertex cannot be read ({error})") from None
    verts, joined, faces = (np.array(ids, dtype=np.int64) for ids in cells.values())
    return pv.PolyData(coordinates, verts=verts, lines=joined, faces=faces)
