"""Looks at the bytes of a mesh file before VTK does, which reads damaged files without a word."""

import re
from pathlib import Path

from meshstage.errors import InputError, Problem

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


def check_signature(path: Path, suffix: str, data: bytes) -> None:
    """Refuse a file that is not whole, or not what its ending says.

    Parameters
    ----------
    path : Path
        For messages, and for finding the pieces of a parallel file.
    suffix : str
        Its ending in lower case: what it is to be read as.
    data : bytes
        The whole file.

    Raises
    ------
    InputError
    """
    head = data[:2048]
    if not head.strip(b"\0 \t\r\n"):
        raise _refuse(path, f"is empty ({len(data)} bytes)", "write the file again")
    for pattern, kind, todo in _OTHER_KINDS:
        if re.match(pattern, head):
            raise _refuse(path, f"is {kind}, not a valid mesh file", todo)
    check = {".vtk": _check_legacy, ".stl": _check_stl, ".obj": _check_obj}
    if suffix in check:
        check[suffix](path, data)
    elif suffix != ".ply":  # whose own reader tells
        _check_xml(path, suffix, data)


def _refuse(path: Path, what: str, todo: str) -> InputError:
    return InputError(Problem(what=what, todo=todo, file=str(path)))


def _check_xml(path: Path, suffix: str, data: bytes) -> None:
    head = data[:2048]
    start = re.match(rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml|!--|VTKFile)", head)
    found = re.search(rb"<VTKFile\b[^>]*?\btype\s*=\s*[\"'](\w+)", head)
    if not start or (not found and b"<VTKFile" not in head):
        kind = "a legacy VTK file: rename it to .vtk" if head.startswith(b"# vtk") else ""
        raise _refuse(
            path, "is not VTK XML (not a valid mesh file)", kind or "save the mesh as VTK XML"
        )
    kind = found.group(1).decode("ascii", "replace") if found else "?"
    if kind in _XML_KINDS and _XML_KINDS[kind] != suffix:
        raise _refuse(
            path,
            f"holds {kind}, which does not go with the ending {suffix}",
            f"rename it to {_XML_KINDS[kind]}",
        )
    if kind not in _XML_KINDS:
        raise _refuse(
            path, f"holds {kind}, not a surface or unstructured grid", "save it as .vtp or .vtu"
        )
    if b"</VTKFile>" not in data[-1024:]:
        raise _refuse(
            path, "is truncated: it ends before </VTKFile>", "copy or write the file again"
        )
    if suffix in (".pvtp", ".pvtu"):
        for source in re.findall(
            r"<Piece\b[^>]*?\bSource\s*=\s*[\"']([^\"']*)", data.decode("utf-8", "replace")
        ):
            _check_piece(path, source)


def _check_piece(path: Path, source: str) -> None:
    from meshstage.files import file_problem

    piece = path.parent / source
    if problem := file_problem(piece):
        raise _refuse(
            path, f"cannot be read: its piece {source}: {problem.what}", "copy the pieces too"
        )
    if piece.suffix.lower() not in (".vtp", ".vtu"):
        raise _refuse(
            path, f"cannot be read: its piece {source} is not .vtp or .vtu", "write it again"
        )
    try:
        check_signature(piece, piece.suffix.lower(), piece.read_bytes())
    except InputError as error:
        raise _refuse(
            path, f"cannot be read: its piece {source} {error.problems[0].what}", "write it again"
        ) from None


def _check_legacy(path: Path, data: bytes) -> None:
    head = data[:2048]
    if not re.match(rb"\s*# vtk DataFile", head, re.IGNORECASE):
        xml = b"<VTKFile" in head
        raise _refuse(
            path,
            "is not a legacy VTK file",
            "rename it to .vtp or .vtu" if xml else "save the mesh again",
        )
    lines = head.split(b"\n", 3)
    if len(lines) > 2 and lines[2].strip().upper() == b"ASCII":
        _check_legacy_end(path, data)


_CELL_KEYWORDS = ("VERTICES", "LINES", "POLYGONS", "TRIANGLE_STRIPS", "CELLS")
_PER_POINT = {"VECTORS": 3, "NORMALS": 3, "TENSORS": 9}


def _check_legacy_end(path: Path, data: bytes) -> None:
    """Count the numbers after an ASCII file's last heading: VTK says nothing if some are missing.

    All that stands before the last heading is whole, or VTK would have stumbled over it.
    """
    lines = [line.split() for line in data.decode("utf-8", "replace").splitlines()]
    lines = [words for words in lines if words]
    at = next(k for k in range(len(lines) - 1, -1, -1) if not _is_number(lines[k][0]))
    found = sum(len(words) for words in lines[at + 1 :])
    try:
        wanted = _numbers_after(lines[: at + 1])
    except (IndexError, ValueError, StopIteration):
        wanted = found + 1  # the heading itself is cut off
    if found < wanted:
        what = f"is truncated: after its last heading {lines[at][0]} numbers are missing"
        raise _refuse(path, what, "copy or write the file again")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _numbers_after(lines: list[list[str]]) -> int:
    """How many numbers must follow the last of these lines; some may stand in it already."""
    words = lines[-1]
    keyword = words[0].upper()
    if keyword == "POINTS":
        return 3 * int(words[1]) - len(words[3:])
    if keyword in _CELL_KEYWORDS:
        return int(words[2]) - len(words[3:])
    if keyword in ("OFFSETS", "CONNECTIVITY"):
        owner = next(w for w in reversed(lines) if w[0].upper() in _CELL_KEYWORDS)
        return int(owner[1 if keyword == "OFFSETS" else 2])
    if keyword == "CELL_TYPES":
        return int(words[1]) - len(words[2:])
    if len(words) == 4 and words[1].isdigit() and words[2].isdigit():  # an array of a FIELD
        return int(words[1]) * int(words[2])
    if keyword not in ("LOOKUP_TABLE", "TEXTURE_COORDINATES", *_PER_POINT):
        return 0
    owner = next(w for w in reversed(lines) if w[0].upper() in ("POINT_DATA", "CELL_DATA"))
    if keyword == "LOOKUP_TABLE":
        scalars = lines[-2]
        if scalars[0].upper() != "SCALARS":  # the colours of a table
            return 0
        return int(owner[1]) * (int(scalars[3]) if len(scalars) > 3 else 1)
    width = int(words[2]) if keyword == "TEXTURE_COORDINATES" else _PER_POINT[keyword]
    return int(owner[1]) * width


def _check_stl(path: Path, data: bytes) -> None:
    if len(data) >= 84 and len(data) == 84 + 50 * int.from_bytes(data[80:84], "little"):
        return  # binary, and whole
    if not data[:2048].lstrip().lower().startswith(b"solid"):
        raise _refuse(
            path,
            "is no STL file, or truncated: its size is not what it declares",
            "write the file again",
        )
    if b"endsolid" not in data[-1024:].lower():
        raise _refuse(
            path, "is truncated: it ends before 'endsolid'", "copy or write the file again"
        )


def _check_obj(path: Path, data: bytes) -> None:
    if b"\0" in data[:2048] or not re.search(rb"(?m)^\s*v\s", data):
        raise _refuse(
            path, "is no Wavefront OBJ file: it has no line of a vertex", "write the file again"
        )
