"""Mesh files that VTK's own readers read, with an error for what VTK only prints.

VTK is imported when the first file is read: the workflow looks into the table of formats.
"""

import re
import warnings
from pathlib import Path
from typing import Any

from meshstage.files import shorten
from meshstage.meshes.signatures import is_ascii_legacy, refusal

_MESH_TYPES = (0, 4)  # VTK_POLY_DATA, VTK_UNSTRUCTURED_GRID
_LEGACY_KINDS = ("Scalars", "Vectors", "Normals", "Tensors", "ColorScalars", "TCoords", "Fields")
_MARK = "meshstage_end_of_file"


def read_vtp(path: Path, data: bytes) -> Any:
    """Read a surface in VTK XML."""
    from vtkmodules.vtkIOXML import vtkXMLPolyDataReader

    return _read_xml(vtkXMLPolyDataReader(), data)


def read_vtu(path: Path, data: bytes) -> Any:
    """Read an unstructured grid in VTK XML."""
    from vtkmodules.vtkIOXML import vtkXMLUnstructuredGridReader

    return _read_xml(vtkXMLUnstructuredGridReader(), data)


def _read_xml(reader: Any, data: bytes) -> Any:
    reader.ReadFromInputStringOn()
    reader.SetInputString(data)  # parse the very bytes that were checked
    return _wrap(_output(reader))


def read_pvtp(path: Path, data: bytes) -> Any:
    """Read a surface in parallel VTK XML, with its pieces."""
    from vtkmodules.vtkIOXML import vtkXMLPPolyDataReader

    return _read_file(vtkXMLPPolyDataReader(), path)


def read_pvtu(path: Path, data: bytes) -> Any:
    """Read an unstructured grid in parallel VTK XML, with its pieces."""
    from vtkmodules.vtkIOXML import vtkXMLPUnstructuredGridReader

    return _read_file(vtkXMLPUnstructuredGridReader(), path)


def read_stl(path: Path, data: bytes) -> Any:
    """Read triangles; points at one place are one point."""
    from vtkmodules.vtkIOGeometry import vtkSTLReader

    return _read_file(vtkSTLReader(), path)


def _read_file(reader: Any, path: Path) -> Any:
    reader.SetFileName(str(path))
    return _wrap(_output(reader))


def read_legacy(path: Path, data: bytes) -> Any:
    """Read a legacy file, ASCII or binary, of any version.

    VTK takes the end of an ASCII file for the end of any list of numbers, and leaves the missing
    ones as they lie in memory. So a field is appended: only a file that is whole gives it back.
    """
    from vtkmodules.vtkIOLegacy import vtkGenericDataObjectReader

    reader = vtkGenericDataObjectReader()
    for kind in _LEGACY_KINDS:  # it takes the first array of each kind only, unless told to
        getattr(reader, f"ReadAll{kind}On")()
    if not is_ascii_legacy(data):
        return _read_file(reader, path)
    data += f"\n\nFIELD end 1\n{_MARK} 1 1 int\n1\n".encode()
    reader.ReadFromInputStringOn()
    reader.SetBinaryInputString(data, len(data))  # type: ignore[arg-type]  # takes bytes
    mesh = _output(reader)
    # The field lands beside the arrays of whatever the file holds last.
    places = [mesh.GetPointData(), mesh.GetCellData(), mesh.GetFieldData()]
    if not any(place.HasArray(_MARK) for place in places):
        raise refusal(
            "is truncated: it ends within a list of numbers", "copy or write the file again"
        )
    for place in places:
        place.RemoveArray(_MARK)
    return _wrap(mesh)


def _output(reader: Any) -> Any:
    """Run a reader and give VTK's mesh; an error that VTK would only print is raised."""
    import pyvista as pv
    from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow

    before, window = vtkOutputWindow.GetInstance(), vtkStringOutputWindow()
    vtkOutputWindow.SetInstance(window)
    try:
        with pv.vtk_verbosity("off"):
            reader.Update()
    finally:
        vtkOutputWindow.SetInstance(before)
    for message in _messages(window.GetOutput()):
        if re.search(r"error|fail|cannot", message, re.IGNORECASE):
            # The pipeline repeats the reader's error; its copy adds nothing.
            reason = "" if "returned failure for request" in message else f" (VTK: {message})"
            raise refusal(f"cannot be read, it is damaged or incomplete{shorten(reason, 160)}")
    result = reader.GetOutputDataObject(0)
    if result is None or result.GetDataObjectType() not in _MESH_TYPES:
        kind = "nothing that VTK knows" if result is None else result.GetClassName()
        raise refusal(
            f"holds {kind}, not a valid surface or unstructured grid", "save it as .vtp or .vtu"
        )
    return result


def _wrap(mesh: Any) -> Any:
    import pyvista as pv

    with warnings.catch_warnings():
        # Arrays of another length than there are points are refused when somebody asks for them.
        warnings.simplefilter("ignore", pv.InvalidMeshWarning)
        return pv.wrap(mesh)


def _messages(printed: str | bytes) -> list[str]:
    """Cut what VTK prints into its errors and warnings, without places in its source."""
    if isinstance(printed, bytes):  # it quotes something that is not UTF-8
        printed = printed.decode("utf-8", "replace")
    parts = re.split(r"(?:ERROR|Warning|Generic Warning): In \S+, line \d+\n", printed)
    # Ranges that VTK keeps beside an array with infinite values ("inf") it cannot read back.
    parts = [part for part in parts if "InformationKey" not in part]
    return [
        " ".join(re.sub(r"^\w+ \(0x\w+\): ", "", part).split()) for part in parts if part.strip()
    ]
