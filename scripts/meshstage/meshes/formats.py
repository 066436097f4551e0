"""The table of mesh formats: all that is known of one, without importing VTK."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshstage.meshes.meshio_files import (
    check_abaqus,
    check_gmsh,
    check_xdmf,
    read_abaqus,
    read_gmsh,
    read_xdmf,
)
from meshstage.meshes.obj import read_obj
from meshstage.meshes.ply import read_ply
from meshstage.meshes.signatures import (
    check_legacy,
    check_obj,
    check_parallel_xml,
    check_start,
    check_stl,
    check_xml,
)
from meshstage.meshes.vtk_files import (
    read_legacy,
    read_pvtp,
    read_pvtu,
    read_stl,
    read_vtp,
    read_vtu,
)


@dataclass(frozen=True)
class MeshFormat:
    """One format of mesh files.

    Parameters
    ----------
    suffix : str
        The ending, in lower case.
    reader : function
        Takes the path and the whole file, gives a pyvista mesh; imports VTK only when called.
    surface_only : bool
        Whether it cannot hold volumes.
    check : function, optional
        Takes what the reader takes; raises an `InputError` if the file is not whole or not what its
        ending says. For readers that do not tell.
    """

    suffix: str
    reader: Callable[[Path, bytes], Any]
    surface_only: bool
    check: Callable[[Path, bytes], None] = check_start

    def read(self, path: Path, data: bytes) -> Any:
        """Check a file and read it as a pyvista mesh."""
        self.check(path, data)
        return self.reader(path, data)


FORMATS = {
    row.suffix: row
    for row in (
        MeshFormat(".vtp", read_vtp, True, check_xml),
        MeshFormat(".vtu", read_vtu, False, check_xml),
        MeshFormat(".vtk", read_legacy, False, check_legacy),
        MeshFormat(".pvtp", read_pvtp, True, check_parallel_xml),
        MeshFormat(".pvtu", read_pvtu, False, check_parallel_xml),
        MeshFormat(".ply", read_ply, True),
        MeshFormat(".stl", read_stl, True, check_stl),
        MeshFormat(".obj", read_obj, True, check_obj),
        MeshFormat(".msh", read_gmsh, False, check_gmsh),
        MeshFormat(".inp", read_abaqus, False, check_abaqus),
        MeshFormat(".xdmf", read_xdmf, False, check_xdmf),
    )
}


def format_of(path: Path) -> MeshFormat | None:
    """Find the row of a file by its ending, whose case does not matter."""
    return FORMATS.get(path.suffix.lower())


def listed_suffixes() -> str:
    """List all endings for people: ``.vtp .vtu ...``."""
    return " ".join(FORMATS)


def template_name(mesh_path: Path, surface: bool) -> str:
    """Name the template's copy, known before its mesh is read.

    ``.vtp`` for a surface and for formats that hold only surfaces, else ``.vtu``.
    """
    row = format_of(mesh_path)
    is_surface = surface or (row is not None and row.surface_only)
    return f"pca_mean_template{'.vtp' if is_surface else '.vtu'}"
