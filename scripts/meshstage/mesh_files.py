"""Looks at the bytes of a mesh file before VTK does, which reads damaged files without a word."""

import re
from pathlib import Path

import numpy as np

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


def check_signature(path: Path, suffix: str) -> None:
    """Refuse a file that is not whole, or not what its ending says.

    Parameters
    ----------
    path : Path
        A readable file.
    suffix : str
        Its ending in lower case: what it is to be read as.

    Raises
    ------
    InputError
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(2048)
            stream.seek(max(0, size - 1024))
            tail = stream.read()
    except OSError as error:
        raise _refuse(path, f"cannot be read ({error.strerror})", "check it") from None
    if not head.strip(b"\0 \t\r\n"):
        raise _refuse(path, f"is empty ({size} bytes)", "write the file again")
    for pattern, kind, todo in _OTHER_KINDS:
        if re.match(pattern, head):
            raise _refuse(path, f"is {kind}, not a valid mesh file", todo)
    check = {".vtk": _check_legacy, ".ply": _check_ply, ".stl": _check_stl, ".obj": _check_obj}
    if suffix in check:
        check[suffix](path, head)
    else:
        _check_xml(path, suffix, head, tail)


def _refuse(path: Path, what: str, todo: str) -> InputError:
    return InputError(Problem(what=what, todo=todo, file=str(path)))


def _check_xml(path: Path, suffix: str, head: bytes, tail: bytes) -> None:
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
    if b"</VTKFile>" not in tail:
        raise _refuse(
            path, "is truncated: it ends before </VTKFile>", "copy or write the file again"
        )
    if suffix in (".pvtp", ".pvtu"):
        for source in re.findall(
            r"<Piece\b[^>]*?\bSource\s*=\s*[\"']([^\"']*)", path.read_text("utf-8", "replace")
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
        check_signature(piece, piece.suffix.lower())
    except InputError as error:
        raise _refuse(
            path, f"cannot be read: its piece {source} {error.problems[0].what}", "write it again"
        ) from None


def _check_legacy(path: Path, head: bytes) -> None:
    if not re.match(rb"\s*# vtk DataFile", head, re.IGNORECASE):
        xml = b"<VTKFile" in head
        raise _refuse(
            path,
            "is not a legacy VTK file",
            "rename it to .vtp or .vtu" if xml else "save the mesh again",
        )
    lines = head.split(b"\n", 3)
    if len(lines) > 2 and lines[2].strip().upper() == b"ASCII":
        words = path.read_bytes().split()
        upper = [word.upper() for word in words[:64]]
        if b"POINTS" in upper:
            # VTK's reader says nothing when an ASCII file ends among its points.
            at = upper.index(b"POINTS")
            wanted = (
                3 * int(words[at + 1]) if len(words) > at + 1 and words[at + 1].isdigit() else 0
            )
            if len(words) < at + 3 + wanted:
                raise _refuse(
                    path, "is truncated: it ends among its points", "copy or write the file again"
                )


def _check_stl(path: Path, head: bytes) -> None:
    size = path.stat().st_size
    binary = len(head) >= 84 and size == 84 + 50 * int.from_bytes(head[80:84], "little")
    if binary:
        return
    if not head.lstrip().lower().startswith(b"solid"):
        raise _refuse(
            path,
            "is no STL file, or truncated: its size is not what it declares",
            "write the file again",
        )
    if b"endsolid" not in path.read_bytes()[-1024:].lower():
        raise _refuse(
            path, "is truncated: it ends before 'endsolid'", "copy or write the file again"
        )


def _check_obj(path: Path, head: bytes) -> None:
    if b"\0" in head or not re.search(rb"(?m)^\s*v\s", path.read_bytes()):
        raise _refuse(
            path, "is no Wavefront OBJ file: it has no line of a vertex", "write the file again"
        )


_PLY_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2",
    "ushort": "u2", "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4",
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip


def _check_ply(path: Path, head: bytes) -> None:
    """Walk through a PLY file by its header: VTK's reader crashes on one that is cut off."""
    if not re.match(rb"ply\r?\n", head):
        raise _refuse(path, "is no PLY file (not valid)", "save the mesh again")
    data = path.read_bytes()
    end = re.search(rb"end_header\r?\n", data)
    if not end:
        raise _refuse(path, "is truncated: its header does not end", "copy or write the file again")
    header = data[: end.start()].decode("ascii", "replace")
    form = re.search(r"^format (\w+)", header, re.MULTILINE)
    body = data[end.end() :]
    elements = _ply_elements(header)
    try:
        if form and form[1] == "ascii":
            rest = sum(count for count, _ in elements) - len(
                [r for r in body.split(b"\n") if r.strip()]
            )
        else:
            order = ">" if form and form[1] == "binary_big_endian" else "<"
            rest = _ply_end(body, elements, order) - len(body)
    except (IndexError, KeyError, ValueError):
        rest = 1
    if rest > 0:
        raise _refuse(
            path, "is truncated: it ends before its last face", "copy or write the file again"
        )


def _ply_elements(header: str) -> list[tuple[int, list[list[str]]]]:
    """Elements of a header: how many, and the words of each property's line."""
    elements: list[tuple[int, list[list[str]]]] = []
    for line in header.splitlines():
        words = line.split()
        if words[:1] == ["element"]:
            elements.append((int(words[2]), []))
        elif words[:1] == ["property"]:
            elements[-1][1].append(words[1:])
    return elements


def _ply_end(body: bytes, elements: list[tuple[int, list[list[str]]]], order: str) -> int:
    """Position at which the last element of a binary file must end."""
    position = 0
    for count, properties in elements:
        if all(words[0] != "list" for words in properties):
            position += count * sum(np.dtype(_PLY_TYPES[words[0]]).itemsize for words in properties)
            continue
        for _ in range(count):
            for words in properties:
                if words[0] != "list":
                    position += np.dtype(_PLY_TYPES[words[0]]).itemsize
                    continue
                kind = np.dtype(order + _PLY_TYPES[words[1]])
                length = int(np.frombuffer(body, kind, count=1, offset=position)[0])
                position += kind.itemsize + length * np.dtype(_PLY_TYPES[words[2]]).itemsize
    return position
