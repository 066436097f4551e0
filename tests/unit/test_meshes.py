"""The one reader of meshes, cells in canonical form, edges, surfaces."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from meshstage.errors import InputError
from meshstage.meshes.arrays import non_finite, point_array
from meshstage.meshes.cells import canonical_cells, cell_fingerprint, local_edges, mesh_edges
from meshstage.meshes.formats import FORMATS, MeshFormat, listed_suffixes, template_name
from meshstage.meshes.reading import read_mesh, write_mesh
from meshstage.meshes.renumbering import describe_difference
from meshstage.meshes.surface import POINT_IDS, extract_surface
from shared_data import SHARED, shared
from small_cohort import ball, sphere

AWKWARD = SHARED / "data" / "awkward-vtk" / "expected.csv"


def _awkward(kind: str = "") -> list[Any]:
    if not AWKWARD.exists():
        return [pytest.param({"file": "missing"}, id="missing")]
    with AWKWARD.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if kind in ("", row["pyvista_type"])]
    return [pytest.param(row, id=row["file"]) for row in rows]


def _edge_set(mesh: Any, triangulated: bool = False) -> set[tuple[int, int]]:
    edges = mesh_edges(mesh, triangulated)
    assert (edges[:, 0] < edges[:, 1]).all()
    return {(int(i), int(j)) for i, j in edges}


@pytest.mark.parametrize("row", _awkward())
def test_real_files_read_as_the_table_says(row: dict[str, str]) -> None:
    path = shared("data", "awkward-vtk", row["file"])
    if row["pyvista_type"].startswith("ERROR"):
        with pytest.raises(InputError, match="cannot be read"):
            read_mesh(path)
        return
    mesh = read_mesh(path)
    points = np.asarray(mesh.points)
    assert type(mesh).__name__ == row["pyvista_type"]
    assert (mesh.n_points, mesh.n_cells) == (int(row["points"]), int(row["cells"]))
    assert points.dtype.name == row["points_dtype"]
    cells = canonical_cells(mesh)
    orphans = mesh.n_points - len(np.unique(cells.connectivity))
    assert orphans == int(row["orphan_points"])
    coincident = mesh.n_points - len(np.unique(points, axis=0))
    assert coincident == int(row["coincident_points"])
    assert int((~np.isfinite(points)).sum()) == int(row["nonfinite_point_values"])
    if isinstance(mesh, pv.UnstructuredGrid):
        surface = extract_surface(mesh)
        assert surface.n_points == int(row["surface_points"])
        assert surface.triangulate().n_faces == int(row["surface_triangles"])
        ids = np.asarray(surface.point_data[POINT_IDS])
        assert np.array_equal(points[ids], surface.points)


@pytest.mark.parametrize("row", _awkward("PolyData"))
def test_real_surfaces_have_one_fingerprint_and_one_set_of_edges(row: dict[str, str]) -> None:
    mesh = read_mesh(shared("data", "awkward-vtk", row["file"]))
    grid = mesh.cast_to_unstructured_grid()
    assert cell_fingerprint(mesh) == cell_fingerprint(grid)
    assert _edge_set(mesh) == _edge_set(grid)


# ---- edges


def test_edges_of_each_kind_of_flat_cell() -> None:
    points = np.random.default_rng(0).normal(size=(16, 3))
    mesh = pv.PolyData(
        points,
        verts=[1, 15],
        lines=[3, 0, 1, 2],
        faces=[4, 0, 1, 2, 3, 5, 4, 5, 6, 7, 8],
        strips=[5, 9, 10, 11, 12, 13],
    )
    expected = {(0, 1), (1, 2), (2, 3), (0, 3)}  # the quad, whose sides hold the line's two
    expected |= {(4, 5), (5, 6), (6, 7), (7, 8), (4, 8)}
    expected |= {(9, 10), (10, 11), (11, 12), (12, 13), (9, 11), (10, 12), (11, 13)}
    assert _edge_set(mesh) == expected
    # A strip cannot be held by every grid: its triangles can.
    cells = [1, 15, 3, 0, 1, 2, 4, 0, 1, 2, 3, 5, 4, 5, 6, 7, 8]
    cells += [3, 9, 10, 11, 3, 10, 11, 12, 3, 11, 12, 13]
    grid = pv.UnstructuredGrid(cells, [1, 4, 9, 7, 5, 5, 5], points)
    assert _edge_set(grid) == expected
    # Triangulation adds one diagonal to the quad and two to the pentagon.
    added = _edge_set(mesh, triangulated=True) - expected
    assert len(added) == 3
    assert len([e for e in added if e[1] < 4]) == 1


def test_triangulation_leaves_volumes_alone_and_treats_grids_of_polygons_as_surfaces() -> None:
    assert _edge_set(ball(), triangulated=True) == _edge_set(ball())
    quad = pv.PolyData(np.eye(4, 3), faces=[4, 0, 1, 2, 3])
    grid = quad.cast_to_unstructured_grid()
    assert _edge_set(quad, triangulated=True) == _edge_set(grid, triangulated=True)
    assert len(_edge_set(grid, triangulated=True)) == 5


# Sides of VTK's linear cells as its book draws them (Schroeder et al., figure 5-2).
LINEAR = {
    10: "01 12 02 03 13 23",
    11: "01 13 23 02 45 57 67 46 04 15 26 37",
    12: "01 12 23 03 45 56 67 47 04 15 26 37",
    13: "01 12 02 34 45 35 03 14 25",
    14: "01 12 23 03 04 14 24 34",
    8: "01 13 23 02",
    15: "01 12 23 34 04 56 67 78 89 59 05 16 27 38 49",
}
# Corner pairs and the node between them; last, nodes in the middle and what they are joined to.
QUADRATIC = {
    21: ["0 1 2"],
    22: ["0 1 3", "1 2 4", "0 2 5"],
    23: ["0 1 4", "1 2 5", "2 3 6", "0 3 7"],
    24: ["0 1 4", "1 2 5", "0 2 6", "0 3 7", "1 3 8", "2 3 9"],
    26: ["0 1 6", "1 2 7", "0 2 8", "3 4 9", "4 5 10", "3 5 11", "0 3 12", "1 4 13", "2 5 14"],
    27: ["0 1 5", "1 2 6", "2 3 7", "0 3 8", "0 4 9", "1 4 10", "2 4 11", "3 4 12"],
    28: ["0 1 4", "1 2 5", "2 3 6", "0 3 7"],
    34: ["0 1 3", "1 2 4", "0 2 5"],
}
MIDDLE = {28: {(4, 8), (5, 8), (6, 8), (7, 8)}, 34: {(3, 6), (4, 6), (5, 6)}}


@pytest.mark.parametrize("cell_type", LINEAR)
def test_linear_cells_give_their_sides(cell_type: int) -> None:
    expected = {(int(a), int(b)) for a, b in LINEAR[cell_type].split()}
    assert {tuple(sorted(pair)) for pair in local_edges(cell_type).tolist()} == expected


@pytest.mark.parametrize("cell_type", QUADRATIC)
def test_quadratic_cells_give_chains_over_their_side_nodes(cell_type: int) -> None:
    expected = set(MIDDLE.get(cell_type, set()))
    for side in QUADRATIC[cell_type]:
        start, end, node = map(int, side.split())
        expected |= {(start, node), (end, node)}
    assert {tuple(sorted(pair)) for pair in local_edges(cell_type).tolist()} == expected


def test_a_triquadratic_hexahedron_is_a_lattice() -> None:
    """Its 27 nodes are a 3 x 3 x 3 grid; each is joined to its neighbours along the axes."""
    nodes = _triquadratic_places()
    gaps = np.abs(nodes[:, None] - nodes[None]).sum(axis=2)
    expected = {(int(i), int(j)) for i, j in np.argwhere(gaps == 1) if i < j}
    assert len(expected) == 3 * 2 * 9
    found = {tuple(sorted(pair)) for pair in local_edges(29).tolist()}
    assert found == expected


def _triquadratic_places() -> np.ndarray:
    from vtkmodules.vtkCommonDataModel import vtkTriQuadraticHexahedron

    coordinates = vtkTriQuadraticHexahedron().GetParametricCoords()
    flat = np.array([coordinates[k] for k in range(81)])
    return np.round(2 * flat.reshape(27, 3)).astype(int)


def test_polyhedra_give_the_sides_of_their_faces() -> None:
    """A cube written as a polyhedron has the hexahedron's twelve edges."""
    points = np.array([[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)], dtype=float)
    faces = [[0, 1, 3, 2], [4, 5, 7, 6], [0, 1, 5, 4], [2, 3, 7, 6], [0, 2, 6, 4], [1, 3, 7, 5]]
    stream = [6] + [value for face in faces for value in (4, *face)]
    grid = pv.UnstructuredGrid([len(stream), *stream], [42], points)
    gaps = np.abs(points[:, None] - points[None]).sum(axis=2)
    assert _edge_set(grid) == {(int(i), int(j)) for i, j in np.argwhere(gaps == 1) if i < j}


def test_self_loops_and_doubles_are_left_out() -> None:
    mesh = pv.PolyData(np.eye(3), faces=[4, 0, 1, 1, 2, 3, 0, 1, 2], lines=[2, 1, 1])
    assert _edge_set(mesh) == {(0, 1), (1, 2), (0, 2)}


def test_cells_without_known_edges_are_refused() -> None:
    grid = pv.UnstructuredGrid([3, 0, 1, 2], [69], np.eye(3))  # VTK_LAGRANGE_TRIANGLE
    with pytest.raises(InputError, match="69"):
        mesh_edges(grid)


# ---- fingerprints and differences


def test_a_fingerprint_follows_cells_and_not_points() -> None:
    mesh = sphere()
    moved = mesh.copy()
    moved.points = np.asarray(mesh.points) * 2 + 1
    assert cell_fingerprint(mesh) == cell_fingerprint(moved)
    turned = pv.PolyData(mesh.points, faces=mesh.faces.reshape(-1, 4)[::-1].ravel())
    assert cell_fingerprint(mesh) != cell_fingerprint(turned)


def test_general_cells_of_few_points_are_the_special_ones() -> None:
    points = np.eye(4, 3)
    for general, special in ((4, 3), (7, 5), (6, 5), (7, 9), (2, 1)):
        size = {3: 2, 5: 3, 9: 4, 1: 1}[special]
        one, other = (
            pv.UnstructuredGrid([size, *range(size)], [kind], points) for kind in (general, special)
        )
        assert cell_fingerprint(one) == cell_fingerprint(other)


@pytest.mark.parametrize("seed", range(3))
def test_renumbered_points_are_recognised(seed: int) -> None:
    mesh = sphere()
    rng = np.random.default_rng(seed)
    order = rng.permutation(mesh.n_points)
    back = np.argsort(order)
    faces = back[mesh.regular_faces]
    if seed:  # cells in another order too: no correspondence by position is left
        faces = faces[rng.permutation(len(faces))]
    new = pv.PolyData.from_regular_faces(np.asarray(mesh.points)[order], faces)
    text = describe_difference(canonical_cells(new), canonical_cells(mesh), mesh.n_points)
    assert "order" in text
    assert "other cells" not in text


def test_other_cells_of_the_same_count_are_named() -> None:
    mesh = sphere()
    faces = np.array(mesh.regular_faces)
    faces[3] = [0, 1, 2]
    new = pv.PolyData.from_regular_faces(mesh.points, faces)
    text = describe_difference(canonical_cells(new), canonical_cells(mesh), mesh.n_points)
    assert "other cells" in text
    assert "cell 3: points [0, 1, 2]" in text


# ---- files


@pytest.mark.parametrize("suffix", [".vtp", ".vtu", ".vtk", ".ply", ".stl"])
def test_every_format_gives_the_mesh_back(suffix: str, tmp_path: Path) -> None:
    mesh = sphere() if suffix != ".vtu" else ball()
    write_mesh(tmp_path / f"m{suffix}", mesh)
    back = read_mesh(tmp_path / f"m{suffix}")
    assert back.n_cells == mesh.n_cells
    if suffix == ".stl":  # holds triangles, and no numbering of points
        assert back.n_points == mesh.n_points
    else:
        assert np.array_equal(back.points, mesh.points)
        assert cell_fingerprint(back) == cell_fingerprint(mesh)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("suffix", [".vtp", ".vtu", ".vtk", ".ply", ".stl"])
def test_a_file_that_is_cut_off_is_refused(suffix: str, binary: bool, tmp_path: Path) -> None:
    """VTK itself crashes on some of these and reads others as if nothing was missing."""
    mesh = sphere() if suffix != ".vtu" else ball()
    if suffix not in (".ply", ".stl"):
        mesh.point_data["displacement"] = np.random.default_rng(0).normal(size=mesh.points.shape)
    path = tmp_path / f"m{suffix}"
    mesh.save(path, binary=binary)
    whole = path.read_bytes()
    for part in (0.0, 0.02, 0.3, 0.6, 0.85, 0.97):
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(InputError) as error:
            point_array(read_mesh(path), "displacement")
        assert error.value.problems[0].todo
        if part >= 0.3 and suffix in (".vtp", ".vtu"):
            assert "truncated" in str(error.value)


@pytest.mark.parametrize("order", ["binary_big_endian", "ascii"])
def test_ply_of_other_programs(order: str, tmp_path: Path) -> None:
    header = f"""ply\nformat {order} 1.0\ncomment made by hand
element vertex 3\nproperty double x\nproperty double y\nproperty double z\nproperty uchar red
element face 1\nproperty uchar quality\nproperty list uchar int vertex_index\nend_header\n"""
    vertices = np.zeros(3, dtype=[("p", ">f8", 3), ("c", "u1")])
    vertices["p"] = [[0, 0, 0], [1e6 + 0.25, 0, 0], [0, 1, 0]]
    body = vertices.tobytes() + b"\7\3" + np.array([0, 1, 2], ">i4").tobytes()
    if order == "ascii":
        body = b"0 0 0 255\n1000000.25 0 0 255\n0 1 0 255\n7 3 0 1 2\n"
    (tmp_path / "m.ply").write_bytes(header.encode() + body)
    mesh = read_mesh(tmp_path / "m.ply")
    assert mesh.points[1, 0] == 1e6 + 0.25
    assert mesh.faces.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\0" * 300, "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "Git LFS pointer"),
        (b"\n<!DOCTYPE html>\n<html></html>", "HTML page"),
        (b"\x1f\x8b\x08\x00abc", "compressed"),
        (b"PK\x03\x04abc", "zip"),
        (b"\x89PNG\r\n\x1a\n", "picture"),
        (b"\x93NUMPY\x01\x00", "NumPy"),
        (b"hello", "not VTK XML"),
        (b"<?xml version='1.0'?><VTKFile type='ImageData'></VTKFile>", "holds ImageData"),
        (b"<?xml version='1.0'?><VTKFile type='PolyData'></VTKFile>", "cannot be read"),
        (
            b"<VTKFile type='PolyData'><PolyData><Piece NumberOfPoints='0'/></PolyData></VTKFile>",
            "empty",
        ),
    ],
)
def test_what_is_no_mesh_is_called_by_name(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.vtp").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_mesh(tmp_path / "m.vtp")


def test_an_ending_that_does_not_fit_says_how_to_rename(tmp_path: Path) -> None:
    ball().save(tmp_path / "m.vtu")
    (tmp_path / "m.vtu").rename(tmp_path / "m.vtp")
    with pytest.raises(InputError, match=r"UnstructuredGrid.*rename it to \.vtu"):
        read_mesh(tmp_path / "m.vtp")
    (tmp_path / "m.vtp").rename(tmp_path / "m.txt")
    with pytest.raises(InputError, match=r"'\.txt'"):
        read_mesh(tmp_path / "m.txt")


def test_one_missing_piece_of_two_is_not_half_a_mesh(tmp_path: Path) -> None:
    sphere().save(tmp_path / "one.vtp")
    sphere().save(tmp_path / "two.vtp")
    pieces = '<Piece Source="one.vtp"/><Piece Source="two.vtp"/>'
    index = f"""<?xml version="1.0"?><VTKFile type="PPolyData" version="0.1"><PPolyData>
    <PPoints><PDataArray type="Float32" NumberOfComponents="3"/></PPoints>{pieces}
    </PPolyData></VTKFile>"""
    (tmp_path / "m.pvtp").write_text(index)
    assert read_mesh(tmp_path / "m.pvtp").n_points == 84
    (tmp_path / "two.vtp").unlink()
    with pytest.raises(InputError, match=r"its piece two\.vtp.*not found"):
        read_mesh(tmp_path / "m.pvtp")


def test_a_cell_that_names_a_missing_point_is_refused(tmp_path: Path) -> None:
    """Without this check the first algorithm that follows the cell reads outside of memory."""
    pv.PolyData(np.eye(3), faces=[3, 0, 1, 7]).save(tmp_path / "m.vtp")
    with pytest.raises(InputError, match="names point 7 of 3"):
        read_mesh(tmp_path / "m.vtp")


def test_infinite_values_do_not_make_a_file_unreadable(tmp_path: Path) -> None:
    """VTK cannot read back the range that it wrote beside such an array, and says so."""
    mesh = sphere()
    mesh.point_data["displacement"] = np.full((42, 3), np.inf, dtype=np.float32)
    mesh.save(tmp_path / "m.vtp")
    assert np.isinf(point_array(read_mesh(tmp_path / "m.vtp"), "displacement")).all()


def ascii_vtk(mesh: pv.PolyData, folder: Path, with_ranges: bool = False) -> bytes:
    """Write as VTK itself does; ParaView computes a range of every array that it shows."""
    from vtkmodules.vtkIOLegacy import vtkPolyDataWriter

    for index in range(mesh.GetPointData().GetNumberOfArrays() if with_ranges else 0):
        mesh.GetPointData().GetArray(index).GetRange(-1)
    writer = vtkPolyDataWriter()
    writer.SetInputData(mesh)
    writer.SetFileName(str(folder / "written.vtk"))
    writer.SetFileTypeToASCII()
    writer.Write()
    return (folder / "written.vtk").read_bytes()


def test_a_whole_ascii_file_with_metadata_is_read(tmp_path: Path) -> None:
    mesh = sphere().compute_normals(cell_normals=False)
    mesh.point_data["d"] = np.random.default_rng(0).normal(size=(42, 3))
    mesh.cell_data["region"] = np.arange(80)
    data = ascii_vtk(mesh, tmp_path, with_ranges=True)
    assert b"METADATA" in data
    back = read_mesh(tmp_path / "written.vtk")
    assert sorted(back.point_data.keys()) == ["Normals", "d"]
    assert back.cell_data.keys() == ["region"]
    assert not back.field_data.keys()
    # The text has six digits of a normal, and 12 of a float64.
    np.testing.assert_allclose(point_array(back, "d"), mesh.point_data["d"], rtol=1e-10)
    assert cell_fingerprint(back) == cell_fingerprint(mesh)


@pytest.mark.parametrize("attribute", ["none", "scalars", "normals", "field"])
def test_an_ascii_file_cut_within_its_numbers_is_never_read(attribute: str, tmp_path: Path) -> None:
    """VTK leaves the numbers that are missing as they lie in memory, without a word."""
    mesh = sphere()
    if attribute == "scalars":
        mesh.point_data["x"] = np.arange(42.0) + 0.25
        mesh.set_active_scalars("x")
    if attribute == "normals":
        mesh = mesh.compute_normals(cell_normals=False)
    data = ascii_vtk(mesh, tmp_path)
    if attribute == "field":
        rows = b"0.5 0.25 0.125\n" * 42
        data += b"POINT_DATA 42\nFIELD FieldData 1\nx 3 42 float\n" + rows
    # Each cut leaves out the last two numbers of a list at least.
    lists = {"POINTS": b"POLYGONS", "last": None} if attribute != "none" else {"last": None}
    ends = [len(data) if end is None else data.index(end) for end in lists.values()]
    for end in ends:
        whole = data[:end].rstrip()
        cut = whole.rsplit(maxsplit=2)[0]
        for piece in (cut, cut[: -len(cut) // 20]):
            (tmp_path / "m.vtk").write_bytes(piece)
            with pytest.raises(InputError, match=r"truncated|damaged"):
                read_mesh(tmp_path / "m.vtk")


@pytest.mark.parametrize("rows", [40, 84])
def test_an_array_of_another_length_is_not_a_wider_one(rows: int, tmp_path: Path) -> None:
    """A FIELD may hold any number of rows; 84 rows of 3 are not 42 of 6."""
    data = ascii_vtk(sphere(), tmp_path)
    data += b"POINT_DATA 42\nFIELD FieldData 1\nx 3 %d float\n" % rows + b"1 2 3\n" * rows
    (tmp_path / "m.vtk").write_bytes(data)
    mesh = read_mesh(tmp_path / "m.vtk")
    with pytest.raises(InputError, match=f"'x' has {rows} rows for 42 points"):
        point_array(mesh, "x")
    write_mesh(tmp_path / "m.vtp", mesh)
    assert read_mesh(tmp_path / "m.vtp").point_data.keys() == []


def test_comments_of_any_length_around_xml_are_read(tmp_path: Path) -> None:
    write_mesh(tmp_path / "m.vtp", sphere())
    data = (tmp_path / "m.vtp").read_bytes()
    long = b"<!-- " + b"x" * 200_000 + b" -->\n"
    (tmp_path / "n.vtp").write_bytes(data.replace(b"<VTKFile", long + b"<VTKFile", 1) + long)
    assert read_mesh(tmp_path / "n.vtp").n_points == 42
    (tmp_path / "n.vtp").write_bytes(data + b"\nsaved by hand\n" * 200)
    with pytest.raises(InputError, match="junk after document element"):
        read_mesh(tmp_path / "n.vtp")


@pytest.mark.parametrize("suffix", [".vtk", ".ply", ".vtp"])
def test_a_binary_file_that_was_transferred_as_text_is_called_that(
    suffix: str, tmp_path: Path
) -> None:
    from vtkmodules.vtkIOXML import vtkXMLPolyDataWriter

    mesh = sphere()  # its cells name point 10, which is a line feed
    if suffix == ".vtp":
        writer = vtkXMLPolyDataWriter()
        writer.SetInputData(mesh)
        writer.SetFileName(str(tmp_path / "m.vtp"))
        writer.EncodeAppendedDataOff()  # raw numbers behind the XML
        writer.Write()
    else:
        mesh.save(tmp_path / f"m{suffix}", binary=True)
    path = tmp_path / f"m{suffix}"
    assert read_mesh(path).n_points == 42
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(InputError, match="binary file that was transferred as text"):
        read_mesh(path)


def test_text_files_with_the_line_ends_of_windows_are_read(tmp_path: Path) -> None:
    write_mesh(tmp_path / "m.vtp", sphere())
    ascii_vtk(sphere(), tmp_path)
    for name in ("m.vtp", "written.vtk"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        assert cell_fingerprint(read_mesh(path)) == cell_fingerprint(sphere())


@pytest.mark.parametrize("name", ["ED->ES", "a&b", "a<b", 'a"b', "x\x01\ty", "&amp;", "ä 心"])
@pytest.mark.parametrize("suffix", [".vtp", ".vtu"])
def test_names_of_arrays_survive_xml(name: str, suffix: str, tmp_path: Path) -> None:
    mesh = sphere() if suffix == ".vtp" else ball()
    values = np.arange(3.0 * mesh.n_points).reshape(-1, 3)
    mesh.point_data[name] = values
    mesh.cell_data[name] = np.arange(mesh.n_cells)
    mesh.field_data[name] = ["text"]
    mesh.GetPointData().GetArray(name).SetComponentName(1, "1 < 2")
    write_mesh(tmp_path / f"m{suffix}", mesh)
    assert mesh.point_data.keys() == [name], "the mesh that was written keeps its own names"
    back = read_mesh(tmp_path / f"m{suffix}")
    assert (back.point_data.keys(), back.cell_data.keys()) == ([name], [name])
    assert back.field_data.keys() == [name]
    assert np.array_equal(point_array(back, name), values)
    assert back.GetPointData().GetArray(0).GetComponentName(1) == "1 < 2"


def test_points_of_obj_are_its_vertices_in_order(tmp_path: Path) -> None:
    """Normals and texture coordinates of corners make no points; -1 is the last vertex so far."""
    mesh = sphere()
    lines = ["# by hand", "mtllib none.mtl", "o sphere"]
    lines += ["v {} {} {}".format(*map(repr, point)) for point in mesh.points.tolist()]
    lines += ["vn 0 0 1", "vn 1 0 0", "vt 0.5 0.5"]
    faces = [[int(i) for i in face] for face in mesh.regular_faces]
    for k, (a, b, c) in enumerate(faces):
        corners = [f"{a + 1}//{k % 2 + 1}", f"{b + 1}/1", f"{c - 42}/1/1"]
        lines.append("f " + " \\\n".join(corners))
    lines += ["l 1 2 3", "p 4"]
    (tmp_path / "m.obj").write_text("\n".join(lines) + "\n")
    back = read_mesh(tmp_path / "m.obj")
    assert np.array_equal(back.points, mesh.points)
    assert back.faces.reshape(-1, 4)[:, 1:].tolist() == faces
    assert (back.lines.tolist(), back.verts.tolist()) == ([3, 0, 1, 2], [1, 3])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v 0 0\n", "line 'v 0 0'"),
        ("v 0 0 zero\n", "could not convert"),
        ("v 0 0 0\nf 1 1\n", "line 'f 1 1'"),
        ("v 0 0 0\nf 1 1 x\n", "line 'f 1 1 x'"),
        ("v 0 0 0\nf 1 1 2\n", "names point 1 of 1"),
        ("v 0 0 0\nf 0 1 1\n", "names point -1 of 1"),
    ],
)
def test_obj_that_is_damaged_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.obj").write_text(text)
    with pytest.raises(InputError, match=words):
        read_mesh(tmp_path / "m.obj")


def test_strips_of_ply_are_read(tmp_path: Path) -> None:
    """Two strips in one row, told apart by -1, as the Stanford models have them."""
    header = """ply\nformat ascii 1.0\nelement vertex 7\nproperty float x\nproperty float y
property float z\nelement tristrips 1\nproperty list int int vertex_indices\nend_header\n"""
    rows = "".join(f"{k} {k * k} 0\n" for k in range(7)) + "9 0 1 2 3 -1 4 5 6 -1\n"
    (tmp_path / "m.ply").write_text(header + rows)
    mesh = read_mesh(tmp_path / "m.ply")
    assert mesh.strips.tolist() == [4, 0, 1, 2, 3, 3, 4, 5, 6]
    assert _edge_set(mesh) == {(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (4, 5), (5, 6), (4, 6)}


def test_a_format_is_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A row adds its ending to the reader, the template's name and what is told to users."""

    def read_xyz(path: Path, data: bytes) -> Any:
        return pv.PolyData(np.array([line.split() for line in data.splitlines()], dtype=float))

    monkeypatch.setitem(FORMATS, ".xyz", MeshFormat(".xyz", read_xyz, surface_only=True))
    (tmp_path / "m.XYZ").write_text("0 0 0\n1 2 3\n")
    assert read_mesh(tmp_path / "m.XYZ").points.tolist() == [[0, 0, 0], [1, 2, 3]]
    assert template_name(tmp_path / "m.XYZ", surface=False) == "pca_mean_template.vtp"
    (tmp_path / "m.txt").touch()
    with pytest.raises(InputError, match=r"save it as one of .*\.xdmf \.xyz"):
        read_mesh(tmp_path / "m.txt")


@pytest.mark.parametrize("page", ["config/README.md", "docs/bad-input.md"])
def test_pages_list_the_endings_of_the_table(page: str) -> None:
    text = (Path(__file__).resolve().parents[2] / page).read_text(encoding="utf-8")
    assert f"`{listed_suffixes()}`" in text


# ---- arrays


def test_a_point_array_comes_with_a_width() -> None:
    mesh = sphere()
    mesh.point_data["one"] = np.arange(42)
    mesh.point_data["six"] = np.zeros((42, 6))
    assert point_array(mesh, "one").shape == (42, 1)
    assert point_array(mesh, "six").shape == (42, 6)


def test_where_a_missing_array_is_instead() -> None:
    mesh = sphere()
    mesh.point_data["warp"] = np.zeros(42)
    mesh.point_data["names"] = np.array(["a"] * 42)
    mesh.cell_data["d"] = np.zeros(80)
    mesh.field_data["f"] = np.zeros(3)
    cases = {"x": "'warp'", "d": "cell data", "f": "field data", "names": "no numbers"}
    for name, words in cases.items():
        with pytest.raises(InputError, match=words):
            point_array(mesh, name)


def test_the_first_value_that_is_not_finite_is_named() -> None:
    values = np.zeros((50, 3), dtype=np.float32)
    assert non_finite(values, "x") is None
    values[17, 1], values[30, 0], values[3, 2] = np.nan, -np.inf, np.inf
    problem = non_finite(values, "array 'x'")
    assert problem is not None
    for words in ("array 'x'", "3 of 150", "-infinity at point 30, component 0"):
        assert words in problem.what


def test_large_finite_values_whose_sum_overflows_are_finite() -> None:
    assert non_finite(np.full((4, 3), 1e308), "x") is None


# ---- surfaces


def test_a_surface_keeps_the_arrays_of_its_points_and_cells() -> None:
    """A box of 3 x 1 x 1 cubes: each face belongs to one cube."""
    volume = pv.ImageData(dimensions=(4, 2, 2)).cast_to_unstructured_grid()
    volume.point_data["x"] = volume.points[:, 0]
    volume.cell_data["cube"] = np.array([10, 11, 12])
    surface = extract_surface(volume)
    assert np.array_equal(surface.point_data["x"], surface.points[:, 0])
    centres = surface.cell_centers().points[:, 0]
    # The ends, at x = 0 and 3, lie on no cube's middle.
    assert np.array_equal(surface.cell_data["cube"], 10 + np.clip(centres, 0.5, 2.5).astype(int))


def test_a_surface_knows_the_volumes_points() -> None:
    volume = ball()
    volume.point_data[POINT_IDS] = np.zeros(43, dtype=int)  # stale, of an earlier extraction
    surface = extract_surface(volume)
    ids = np.asarray(surface.point_data[POINT_IDS])
    assert sorted(ids) == list(range(42))
    assert np.array_equal(np.asarray(volume.points)[ids], surface.points)


def test_a_surface_of_quadratic_cells_keeps_its_map_or_is_refused() -> None:
    points = np.array(
        [
            *([0, 0, 0], [2, 0, 0], [0, 2, 0], [0, 0, 2]),
            *([1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]),
        ]
    )
    points = points + 1 / 3  # not representable as float32: VTK rounds, the map must not
    grid = pv.UnstructuredGrid([10, *range(10)], [24], points)
    surface = extract_surface(grid)
    ids = np.asarray(surface.point_data[POINT_IDS])
    assert np.array_equal(points[ids], surface.points)
    doubled = points.copy()
    doubled[9] = doubled[8]  # two nodes at one place: which is which cannot be told
    with pytest.raises(InputError, match="map is lost"):
        extract_surface(pv.UnstructuredGrid([10, *range(10)], [24], doubled))


def test_what_has_no_surface_is_refused() -> None:
    with pytest.raises(InputError, match="no surface"):
        extract_surface(pv.UnstructuredGrid([0], [0], np.eye(3)).extract_cells([]))
