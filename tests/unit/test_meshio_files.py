"""Mesh files of Gmsh, Abaqus and XDMF, written here by hand from their manuals."""

import sys
from pathlib import Path

import numpy as np
import pytest
import pyvista as pv

from meshstage.errors import InputError
from meshstage.meshes.cells import canonical_cells
from meshstage.meshes.reading import read_mesh

CORNERS = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
TETRAHEDRA = [[0, 1, 2, 3], [1, 2, 3, 4]]

# Node and element numbers need not follow each other; element type 4 is a tetrahedron, 2 a
# triangle: the boundary, which Gmsh saves beside the volume.
GMSH = """$MeshFormat
2.2 0 8
$EndMeshFormat
$Nodes
5
1 0 0 0
2 1 0 0
3 0 1 0
7 0 0 1
9 1 1 1
$EndNodes
$Elements
3
1 2 2 0 1 1 2 3
2 4 2 0 1 1 2 3 7
3 4 2 0 1 2 3 7 9
$EndElements
"""
ABAQUS = """*HEADING
two tetrahedra
*NODE
1, 0., 0., 0.
2, 1., 0., 0.
3, 0., 1., 0.
7, 0., 0., 1.
9, 1., 1., 1.
*ELEMENT, TYPE=C3D4, ELSET=WALL
1, 1, 2, 3, 7
2, 2, 3, 7, 9
"""
XDMF = """<Xdmf Version="3.0"><Domain><Grid Name="Grid">
<Geometry GeometryType="XYZ"><DataItem DataType="Float" Dimensions="5 3" Format="XML" Precision="8">
0 0 0 1 0 0 0 1 0 0 0 1 1 1 1</DataItem></Geometry>
<Topology TopologyType="Tetrahedron" NumberOfElements="2">
<DataItem DataType="Int" Dimensions="2 4" Format="XML" Precision="8">0 1 2 3 1 2 3 4</DataItem>
</Topology>
<Attribute Name="depth" AttributeType="Scalar" Center="Node">
<DataItem DataType="Float" Dimensions="5" Format="XML" Precision="8">0 1 2 3 4</DataItem>
</Attribute></Grid></Domain></Xdmf>
"""
FILES = {".msh": GMSH, ".inp": ABAQUS, ".xdmf": XDMF}


@pytest.mark.parametrize("suffix", FILES)
def test_two_tetrahedra_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_text(FILES[suffix])
    mesh = read_mesh(path)
    assert np.asarray(mesh.points).tolist() == CORNERS
    cells = canonical_cells(mesh)
    assert cells.types.tolist() == [pv.CellType.TETRA] * 2
    assert cells.connectivity.reshape(-1, 4).tolist() == TETRAHEDRA


def test_point_data_come_along(tmp_path: Path) -> None:
    (tmp_path / "m.xdmf").write_text(XDMF)
    assert read_mesh(tmp_path / "m.xdmf").point_data["depth"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("suffix", "text", "words"),
    [
        (".msh", "", "is empty"),
        (".msh", "solid\n", "is no Gmsh file"),
        (".msh", GMSH[: GMSH.index("3 4 2 0")], r"is truncated: it ends before \$EndElements"),
        (".msh", GMSH.replace("9 1 1 1\n", "9 1 one 1\n"), "damaged or incomplete"),
        (".inp", "*NODE\n1, 0., 0., 0.\n", r"it has no line \*ELEMENT"),
        (".inp", ABAQUS.replace("2, 2, 3, 7, 9", "2, 2, 3, 7"), "damaged or incomplete"),
        (".inp", ABAQUS.replace("2, 2, 3, 7, 9", "2, 2, 3, 7, 8"), "damaged or incomplete"),
        (".xdmf", "<VTKFile>", "is no XDMF file"),
        (".xdmf", XDMF[:-20], "is truncated: it ends before </Xdmf>"),
        (".xdmf", XDMF.replace("0 1 2 3 1 2 3 4", "0 1 2 3 1 2 3 9"), "a cell names point 9 of 5"),
        (
            ".xdmf",
            XDMF.replace('Format="XML" Precision="8">\n0 0', 'Format="HDF">no.h5:/x</DataItem>\n<'),
            "cannot be read by meshio",
        ),
    ],
)
def test_broken_files_are_one_sentence(tmp_path: Path, suffix: str, text: str, words: str) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_mesh(path)
    assert len(caught.value.problems) == 1 and caught.value.problems[0].file == str(path)


def test_without_meshio_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "meshio", None)  # its import fails
    (tmp_path / "m.msh").write_text(GMSH)
    with pytest.raises(InputError, match=r"meshio, which is not installed .*pip install meshio"):
        read_mesh(tmp_path / "m.msh")
