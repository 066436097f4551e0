"""Names of arrays in VTK's XML, whose writer does not escape them.

What XML has no character for (control characters) is written as its picture: U+2401 for U+0001.
"""

from typing import Any
from xml.sax.saxutils import escape

_PICTURES = {code: 0x2400 + code for code in range(0x20)}
_CONTROLS = {picture: code for code, picture in _PICTURES.items()}


def readable_in_xml(mesh: Any) -> Any:
    """Give a shallow copy of a mesh that VTK writes as XML that can be read.

    Names are escaped; arrays that are not as long as there are points or cells are left out.
    """
    copy = mesh.copy(deep=False)
    for data, length in (
        (copy.GetPointData(), mesh.n_points),
        (copy.GetCellData(), mesh.n_cells),
        (copy.GetFieldData(), None),
    ):
        for array in _arrays(data):
            name = array.GetName()
            if name is None:
                continue  # VTK's writer numbers it
            if length not in (None, array.GetNumberOfTuples()):
                data.RemoveArray(name)
            elif (twin := _escaped(array)) is not None:
                data.RemoveArray(name)
                data.AddArray(twin)
    return copy


def restore_array_names(mesh: Any) -> None:
    """Give control characters back to the names of the arrays of a mesh that was read."""
    for data in (mesh.GetPointData(), mesh.GetCellData(), mesh.GetFieldData()):
        for array in _arrays(data):
            name = _text(array.GetName())
            if name.translate(_CONTROLS) != name:
                array.SetName(name.translate(_CONTROLS))


def _arrays(data: Any) -> list[Any]:
    return [data.GetAbstractArray(index) for index in range(data.GetNumberOfArrays())]


def _escaped(array: Any) -> Any | None:
    """Give the array under names that XML holds, sharing its values; None if it has such names."""
    labels = [array.GetComponentName(k) for k in range(array.GetNumberOfComponents())]
    if all(name is None or _for_xml(name) == name for name in (array.GetName(), *labels)):
        return None
    twin = array.NewInstance()
    if hasattr(twin, "ShallowCopy"):
        twin.ShallowCopy(array)
    else:  # texts
        twin.DeepCopy(array)
    twin.SetName(_for_xml(array.GetName()))
    for index, label in enumerate(labels):
        if label is not None:
            twin.SetComponentName(index, _for_xml(label))
    return twin


def _for_xml(name: str | bytes) -> str:
    return escape(_text(name).translate(_PICTURES), {'"': "&quot;"})


def _text(name: str | bytes | None) -> str:
    """Give a name as text: VTK gives bytes where they are not UTF-8, None without a name."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name or ""
