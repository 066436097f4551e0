"""A reader of PLY surfaces: VTK's own crashes on files that are cut off or damaged."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.errors import InputError
from meshstage.meshes.signatures import check_not_sent_as_text, refusal

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2",
    "ushort": "u2", "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4",
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip
_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}


@dataclass
class _Element:
    """Rows of one kind (vertex, face): their properties, name to type or (count type, type)."""

    name: str
    count: int
    properties: dict[str, np.dtype | tuple[np.dtype, np.dtype]] = field(default_factory=dict)

    @property
    def has_lists(self) -> bool:
        return any(isinstance(kind, tuple) for kind in self.properties.values())


def read_ply(path: Path, data: bytes) -> Any:
    """Read points, faces and triangle strips of a PLY file; other properties are left out.

    Raises
    ------
    InputError
        If the file is no PLY file, ends too early, or has no vertices with x, y and z.
    """
    import pyvista as pv

    try:
        elements, form, start = _header(data)
    except (KeyError, IndexError, ValueError) as error:
        raise _damaged(error) from None
    if form != "ascii" and b"\r\n" in data[:start]:
        check_not_sent_as_text(data[start:])
    try:
        rows = _ascii_rows if form == "ascii" else _binary_rows
        values = rows(data[start:], elements)
        points = np.stack([values["vertex"][axis] for axis in "xyz"], axis=1)
    except (KeyError, IndexError, ValueError, OverflowError, MemoryError) as error:
        raise _damaged(error) from None
    strips = [
        strip[strip != -1]  # -1 ends a strip
        for row in _lists(values, "tristrips")
        for strip in np.split(row, np.flatnonzero(row == -1))
    ]
    return pv.PolyData(
        points,
        faces=_padded(_lists(values, "face")),
        strips=_padded([strip for strip in strips if len(strip)]),
    )


def _damaged(error: Exception) -> InputError:
    return refusal(f"cannot be read as PLY, it is truncated or damaged ({error})")


def _lists(values: "Values", element: str) -> "list[np.ndarray]":
    """Give the lists of vertices of all rows of an element, under either of their usual names."""
    columns = values.get(element, {})
    return list(next((columns[k] for k in ("vertex_indices", "vertex_index") if k in columns), []))


def _padded(cells: list[np.ndarray]) -> np.ndarray | None:
    """Write cells one after the other, each behind its number of points; None without cells."""
    if not cells:
        return None
    return np.concatenate([part for cell in cells for part in ([len(cell)], cell)]).astype(np.int64)


def _header(data: bytes) -> tuple[list[_Element], str, int]:
    end = re.match(rb"ply\r?\n(?:[^\n]*\n)*?end_header\r?\n", data)
    if not end:
        raise ValueError("it has no whole header")
    elements: list[_Element] = []
    form = ""
    for line in end.group().decode("ascii", "replace").splitlines()[1:-1]:
        words = line.split()
        if words[:1] == ["format"]:
            form = words[1]
        elif words[:1] == ["element"]:
            elements.append(_Element(words[1], int(words[2])))
            if elements[-1].count < 0:
                raise ValueError(f"it declares {words[2]} of {words[1]}")
        elif words[:2] == ["property", "list"]:
            kinds = (_dtype(words[2], form), _dtype(words[3], form))
            elements[-1].properties[words[4]] = kinds
        elif words[:1] == ["property"]:
            elements[-1].properties[words[2]] = _dtype(words[1], form)
    return elements, form, end.end()


def _dtype(name: str, form: str) -> np.dtype:
    return np.dtype(_ORDERS[form] + _TYPES[name])


Values = dict[str, dict[str, "np.ndarray | list[np.ndarray]"]]


def _binary_rows(body: bytes, elements: list[_Element]) -> Values:
    values: Values = {}
    position = 0
    for element in elements:
        if not element.has_lists:
            kind = np.dtype([(name, k) for name, k in element.properties.items()])
            table = np.frombuffer(body, kind, element.count, position)
            position += table.nbytes
            values[element.name] = {name: table[name] for name in element.properties}
            continue
        rows: dict[str, list[np.ndarray]] = {name: [] for name in element.properties}
        for _ in range(element.count):
            for name, k in element.properties.items():
                count_kind, item_kind = k if isinstance(k, tuple) else (None, k)
                count = 1
                if count_kind is not None:
                    count = int(np.frombuffer(body, count_kind, 1, position)[0])
                    position += count_kind.itemsize
                if count < 0:
                    raise ValueError(f"a list of {count} items")
                items = np.frombuffer(body, item_kind, count, position) if count else np.zeros(0)
                rows[name].append(items)
                position += count * item_kind.itemsize
        values[element.name] = dict(rows)
    return values


def _ascii_rows(body: bytes, elements: list[_Element]) -> Values:
    lines = [line for line in body.decode("ascii", "replace").splitlines() if line.strip()]
    values: Values = {}
    for element in elements:
        if len(lines) < element.count:
            raise ValueError(f"{element.count} rows of {element.name} are declared")
        rows: dict[str, list[np.ndarray]] = {name: [] for name in element.properties}
        for line in lines[: element.count]:
            words = line.split()
            for name, kind in element.properties.items():
                count = int(words.pop(0)) if isinstance(kind, tuple) else 1
                if count < 0 or count > len(words):
                    raise ValueError(f"the row {line!r} is too short")
                item = kind[1] if isinstance(kind, tuple) else kind
                rows[name].append(np.array(words[:count]).astype(np.float64).astype(item))
                del words[:count]
        del lines[: element.count]
        values[element.name] = {
            name: column if isinstance(element.properties[name], tuple) else np.concatenate(column)
            for name, column in rows.items()
            if column
        }
    return values
