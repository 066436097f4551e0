"""What every source of meshes gives, and what is known of a reader; imports no VTK."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from meshstage.errors import InputError, Problem, raise_if_any

if TYPE_CHECKING:
    import pyvista as pv


@dataclass(frozen=True)
class PhaseMesh:
    """One mesh of one subject as a source gives it.

    Parameters
    ----------
    subject : str
    phase : str
        A label, safe as part of a file name.
    stage : float, optional
        As the source states it, in the unit of ``--stage``; None if it states none.
    split : str, optional
        ``train``, ``val`` or ``test``; None: dealt by ``--split``.
    files : tuple of Path
        What the mesh is read from, its own file first: inputs of the rule.
    read : function
        Gives the mesh: points in mm, cells, arrays that are carried along.
    period : float, optional
        Length of the subject's cycle in the unit of the stage, if the source states it.
    """

    subject: str
    phase: str
    stage: float | None
    split: str | None
    files: tuple[Path, ...]
    read: Callable[[], "pv.DataSet"]
    period: float | None = None


class ReaderOptions(BaseModel):
    """Options of a reader's own: a field ``mean_mesh`` with its description is ``--mean-mesh``."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Reader:
    """One source of meshes.

    Parameters
    ----------
    name : str
        The value of ``--format``.
    help : str
        One line.
    options : type of `ReaderOptions`
        Its own options.
    function : function
        Takes the source (a folder or file) and the options; gives the meshes, which are read later.
        Looks at names and small tables only: the Snakefile calls it whenever it is parsed.
    stage_unit : str
        The unit of the stages that it states: percent, fraction, index or seconds.
    atlas : function, optional
        Takes the same; gives an `meshstage.preparation.atlas.Atlas`, for sources that are one.
    """

    name: str
    help: str
    options: type[ReaderOptions]
    function: Callable[[Path, Any], list[PhaseMesh]]
    stage_unit: str = "fraction"
    atlas: Callable[[Path, Any], Any] | None = None

    def find(self, source: Path, **options: Any) -> list[PhaseMesh]:
        """Find the meshes of a source.

        Parameters
        ----------
        source : Path
        **options
            By name of the field; texts are converted.

        Raises
        ------
        InputError
            With every option that is missing, unknown or of another type; with what is wrong with
            the source; or if two meshes are the same phase of one subject.
        """
        meshes = self.function(source, self.checked(options))
        raise_if_any(_duplicates(meshes))
        return meshes

    def checked(self, options: Mapping[str, Any]) -> ReaderOptions:
        """Check options as `find` does."""
        try:
            return self.options(**options)
        except ValidationError as error:
            raise InputError(*(self._problem(dict(each)) for each in error.errors())) from None

    def _problem(self, error: dict[str, Any]) -> Problem:
        name = "--" + str(error["loc"][0] if error["loc"] else "format").replace("_", "-")
        if error["type"] == "missing":
            field = self.options.model_fields[str(error["loc"][0])]
            what = f"the format {self.name} needs {name} ({field.description})"
            return Problem(what, f"give {name}")
        if error["type"] == "extra_forbidden":
            return Problem(f"the format {self.name} has no option {name}", "leave it out")
        what = f"{name} is {error['input']!r}: {error['msg']}"
        return Problem(what, "give another value")


def _duplicates(meshes: Sequence[PhaseMesh]) -> Iterator[Problem]:
    first: dict[tuple[str, str], PhaseMesh] = {}
    for mesh in meshes:
        other = first.setdefault((mesh.subject, mesh.phase), mesh)
        if other is not mesh:
            what = f"{mesh.files[0]} and {other.files[0]} are the same phase (duplicates)"
            yield Problem(what, "leave one out", None, mesh.subject, mesh.phase)
