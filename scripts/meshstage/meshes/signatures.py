"""Looks at the bytes of a mesh file before its reader does, which may not tell what is wrong.

Each check takes the path (for messages) and the whole file, and raises an `InputError` without a
file: `read_mesh` adds it.
"""

import re
from pathlib import Path
from xml.parsers import expat

from meshstage.errors import InputError, Problem
from meshstage.files import file_problem

_OTHER_KINDS = [
    (rb"version https://git-lfs", "a Git LFS pointer", "run 'git lfs pull'"),
    (rb"(?i)\s*(<!doctype html|<html)", "an HTML page", "download the mesh again"),
    (rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd", "compressed as a whole", "unpack it"),
    (rb"PK\x03\x04", "a zip archive or .npz file", "unpack it, name the mesh"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8|II\*\0|MM\0\*", "a picture", "name the mesh"),
    (rb"%PDF", "a PDF document", "name the mesh"),
    (rb"\x93NUMPY", "a NumPy array", "name the mesh"),
    (rb"\x89HDF", "an HDF5 file", "save it as .vtp or .vtu"),
]
_XML_KINDS = {
    "PolyData": ".vtp", "UnstructuredGrid": ".vtu",
    "PPolyData": ".pvtp", "PUnstructuredGrid": ".pvtu",
}  # fmt: skip


def refusal(what: str, todo: str = "write the file again") -> InputError:
    """Make the error of a file that is not used."""
    return InputError(Problem(what, todo))


def check_start(path: Path, data: bytes) -> None:
    """Refuse an empty file, and kinds of files that are no meshes, by name."""
    if not data[:2048].strip(b"\0 \t\r\n"):
        raise refusal(f"is empty ({len(data)} bytes)")
    for pattern, kind, todo in _OTHER_KINDS:
        if re.match(pattern, data[:2048]):
            raise refusal(f"is {kind}, not a valid mesh file", todo)


def check_not_sent_as_text(data: bytes) -> None:
    """Refuse a binary file in which each line feed follows a carriage return.

    Windows' text mode, and transfers as text, put one there, inside numbers too.
    """
    first = data.find(b"\n")
    # Almost every file is told by its first line; counting reads all of it.
    if first > 0 and data[first - 1 : first] == b"\r" and data.count(b"\n") == data.count(b"\r\n"):
        raise refusal(
            "is a binary file that was transferred as text: each line feed became CR LF",
            "transfer or write it again in binary mode",
        )


def check_xml(path: Path, data: bytes) -> None:
    """Check that VTK XML is whole and of the kind that its ending says."""
    check_start(path, data)
    root = _elements(data, first_only=True)
    if not root or root[0][0] != "VTKFile":
        legacy = data[:2048].lstrip().lower().startswith(b"# vtk")
        todo = "rename it to .vtk: it is a legacy VTK file" if legacy else "save it as VTK XML"
        raise refusal("is not VTK XML (not a valid mesh file)", todo)
    kind = root[0][1].get("type", "nothing that it names")
    if kind not in _XML_KINDS:
        raise refusal(
            f"holds {kind}, not a surface or unstructured grid", "save it as .vtp or .vtu"
        )
    if _XML_KINDS[kind] != path.suffix.lower():
        raise refusal(
            f"holds {kind}, which does not go with the ending {path.suffix.lower()}",
            f"rename it to {_XML_KINDS[kind]}",
        )
    if data.rfind(b"</VTKFile") < 0:
        raise refusal("is truncated: it ends before </VTKFile>", "copy or write the file again")
    appended = data.find(b"<AppendedData")
    if appended >= 0 and b"raw" in data[appended : appended + 100]:
        check_not_sent_as_text(data)


def _elements(data: bytes, first_only: bool) -> list[tuple[str, dict[str, str]]]:
    """List the XML elements (name, attributes) as far as the file is XML."""
    found: list[tuple[str, dict[str, str]]] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: found.append((name, attributes))
    step = 1 << 16  # the first element of a large file is in its first part
    try:
        for start in range(0, len(data), step):
            parser.Parse(data[start : start + step])
            if first_only and found:
                break
    except expat.ExpatError:
        pass  # of the elements after it VTK's reader tells
    return found


def check_parallel_xml(path: Path, data: bytes) -> None:
    """Check a parallel file and each of its pieces: VTK leaves out those that it cannot read."""
    check_xml(path, data)
    for name, attributes in _elements(data, first_only=False):
        if name == "Piece" and "Source" in attributes:
            _check_piece(path, attributes["Source"])


def _check_piece(path: Path, source: str) -> None:
    piece = path.parent / source
    what = f"cannot be read: its piece {source}"
    if problem := file_problem(piece):
        raise refusal(f"{what}: {problem.what}", "copy the pieces too")
    if piece.suffix.lower() not in (".vtp", ".vtu"):
        raise refusal(f"{what} is not .vtp or .vtu")
    try:
        check_xml(piece, piece.read_bytes())
    except InputError as error:
        raise refusal(f"{what} {error.problems[0].what}") from None


def check_legacy(path: Path, data: bytes) -> None:
    """Check the head of a legacy VTK file; whether it is whole its reader tells."""
    check_start(path, data)
    if not re.match(rb"\s*# vtk DataFile", data[:2048], re.IGNORECASE):
        xml = b"<VTKFile" in data[:2048]
        todo = "rename it to .vtp or .vtu" if xml else "save the mesh again"
        raise refusal("is not a legacy VTK file", todo)
    if not is_ascii_legacy(data):
        check_not_sent_as_text(data)


def is_ascii_legacy(data: bytes) -> bool:
    """Tell from the third line of a legacy VTK file whether numbers are written as text."""
    lines = data[:2048].split(b"\n", 3)
    return len(lines) > 2 and lines[2].strip().upper() == b"ASCII"


def check_stl(path: Path, data: bytes) -> None:
    """Check that a binary STL file has its size, and an ASCII one its end."""
    check_start(path, data)
    if len(data) >= 84 and len(data) == 84 + 50 * int.from_bytes(data[80:84], "little"):
        return  # binary, and whole
    if not data[:2048].lstrip().lower().startswith(b"solid"):
        raise refusal("is no STL file, or truncated: its size is not what it declares")
    if b"endsolid" not in data[-1024:].lower():
        raise refusal("is truncated: it ends before 'endsolid'", "copy or write the file again")


def check_obj(path: Path, data: bytes) -> None:
    """Check that a file is Wavefront OBJ, by its lines of vertices."""
    check_start(path, data)
    if b"\0" in data[:2048] or not re.search(rb"(?m)^\s*v\s", data):
        raise refusal("is no Wavefront OBJ file: it has no line of a vertex")
