"""Mesh files that meshio reads: Gmsh, Abaqus, XDMF. It is optional, and imported when needed."""

import re
from pathlib import Path
from typing import Any

from meshstage.files import shorten
from meshstage.meshes.signatures import check_start, refusal


def read_gmsh(path: Path, data: bytes) -> Any:
    """Read Gmsh's ``.msh`` of versions 2 and 4, as text or binary."""
    return _read("gmsh", path)


def read_abaqus(path: Path, data: bytes) -> Any:
    """Read nodes and elements of an Abaqus input file."""
    return _read("abaqus", path)


def read_xdmf(path: Path, data: bytes) -> Any:
    """Read one grid of XDMF, with the HDF5 or binary files that it names."""
    return _read("xdmf", path)


def _read(kind: str, path: Path) -> Any:
    try:
        import meshio
    except ImportError:
        raise refusal(
            f"is read by meshio, which is not installed ({path.suffix.lower()})",
            "pip install meshio, or save it as .vtu",
        ) from None
    import pyvista as pv

    try:
        # Its readers are called by name: `meshio.read` ends the process over a bad file.
        mesh = getattr(meshio, kind).read(str(path))
    # Of a damaged file whatever its parser runs into comes back: KeyError, struct.error, OSError.
    except Exception as error:
        reason = f" ({shorten(' '.join(str(error).split()), 100)})" if str(error) else ""
        raise refusal(f"cannot be read by meshio, it is damaged or incomplete{reason}") from None
    if not mesh.cells:
        raise refusal("holds no cells", "save the elements too")
    # Programs write boundary elements beside those of the volume: cells of one dimension stay.
    dimension = max(block.dim for block in mesh.cells)
    kept = [index for index, block in enumerate(mesh.cells) if block.dim == dimension]
    return pv.from_meshio(
        meshio.Mesh(
            mesh.points,
            [mesh.cells[index] for index in kept],
            point_data=mesh.point_data,
            cell_data={
                name: [blocks[index] for index in kept] for name, blocks in mesh.cell_data.items()
            },
        )
    )


def check_gmsh(path: Path, data: bytes) -> None:
    """Check that a Gmsh file begins and ends as one."""
    check_start(path, data)
    if not data.lstrip().startswith((b"$MeshFormat", b"$Comments")):
        raise refusal("is no Gmsh file (it does not begin with $MeshFormat)", "save it with Gmsh")
    if b"$EndElements" not in data:
        raise refusal("is truncated: it ends before $EndElements", "copy or write the file again")


def check_abaqus(path: Path, data: bytes) -> None:
    """Check that a file is an Abaqus input file with nodes and elements."""
    check_start(path, data)
    for keyword in (b"NODE", b"ELEMENT"):
        if not re.search(rb"(?mi)^\s*\*\s*" + keyword + rb"\b", data):
            word = keyword.decode()
            raise refusal(
                f"is no Abaqus input file with a mesh, or truncated: it has no line *{word}"
            )


def check_xdmf(path: Path, data: bytes) -> None:
    """Check that an XDMF file is whole."""
    check_start(path, data)
    if b"<Xdmf" not in data:
        raise refusal("is no XDMF file (not a valid mesh file)")
    if data.rfind(b"</Xdmf") < 0:
        raise refusal("is truncated: it ends before </Xdmf>", "copy or write the file again")
