"""The patient space that a mesh file names, as 3D Slicer writes it: ``SPACE=RAS``."""

import re
from typing import Any

_FIELD = "SPACE"


def keep_space(mesh: Any, data: bytes) -> None:
    """Keep the space that the head of a file's bytes names as the mesh's field data.

    In ``.vtp`` and ``.vtu`` it is field data already; ``.vtk``, ``.ply``, ``.stl`` and ``.obj``
    have it in a comment.
    """
    found = re.search(rb"\bSPACE=([A-Za-z]{2,16})", data[:4096])
    if found and _FIELD not in mesh.field_data:
        mesh.field_data[_FIELD] = [found[1].decode()]


def mesh_space(mesh: Any) -> str | None:
    """Give the space that a mesh names: ``"RAS"``, ``"LPS"``; None if it names none."""
    if _FIELD not in mesh.field_data or not len(mesh.field_data[_FIELD]):
        return None
    return str(mesh.field_data[_FIELD][0]).strip() or None
