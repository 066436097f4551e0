"""Manifests, shape scores and the table of subjects: the text files that people write."""

import csv
import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from meshstage.errors import InputError, Problem
from meshstage.files import file_problem, read_json, read_text, shorten

Split = Literal["train", "val", "test"]

SURFACE_SUFFIXES = (".vtp", ".pvtp", ".ply", ".stl", ".obj")
MAX_STEM_BYTES = 200

_TARGET_KEYS = ("fitted_reference_mesh", "target_array", "phases")


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    if re.search("[\ud800-\udfff]", value):
        raise ValueError("holds half of a surrogate pair, which is no character")
    return value


def _id(value: str) -> str:
    _text(value)
    if re.search(r"[/\\]", value) or value.strip() in (".", ".."):
        raise ValueError("would leave the output folder: a subject id is a name, not a path")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ValueError("holds a control character")
    length = len(_encode(value))
    if length > MAX_STEM_BYTES:
        raise ValueError(
            f"takes {length} bytes as a file name, at most {MAX_STEM_BYTES} are allowed"
        )
    return value


def _stage(value: float) -> float:
    return value + 0.0  # -0.0 is stage 0


Text = Annotated[str, AfterValidator(_text)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Stage = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False), AfterValidator(_stage)]


class Phase(BaseModel):
    """One mesh of the series and when it is: its stage, from 0 to 1."""

    model_config = ConfigDict(frozen=True, strict=True)

    mesh: Text
    stage: Stage


class Manifest(BaseModel):
    """What one subject consists of, as its manifest says.

    A manifest that is only asked for a prediction may lack the last three (``""`` and no phases).
    """

    model_config = ConfigDict(frozen=True, strict=True)

    path: Path
    subject_id: Annotated[str, AfterValidator(_id)]
    pca_coefficients: Text
    fitted_reference_mesh: Text = ""
    target_array: Text = ""
    phases: tuple[Phase, ...] = ()

    def resolve(self, written: str) -> Path:
        """Give a path of the manifest: relative to the manifest unless it is absolute."""
        return self.path.parent / written

    @property
    def stem(self) -> str:
        """File name of the subject, see `subject_stem`."""
        return subject_stem(self.subject_id)

    @property
    def shape_scores_path(self) -> Path:
        """The file of shape scores."""
        return self.resolve(self.pca_coefficients)

    @property
    def reference_path(self) -> Path:
        """The subject's own undeformed mesh."""
        return self.resolve(self.fitted_reference_mesh)

    @property
    def phase_paths(self) -> list[Path]:
        """The phase meshes, in the manifest's order."""
        return [self.resolve(phase.mesh) for phase in self.phases]

    @property
    def stages(self) -> np.ndarray:
        """Stages of the phases, (n_phases,) float64."""
        return np.array([phase.stage for phase in self.phases], dtype=np.float64)

    def phase_label(self, index: int) -> str:
        """Name a phase for people: index from 0, and stage."""
        return f"{index} (stage {self.phases[index].stage:g})"


def read_manifest(path: Path, targets_required: bool = True) -> Manifest:
    """Read one subject's manifest and check it against the model.

    Parameters
    ----------
    path : Path
    targets_required : bool
        False for a prediction: reference mesh, target array and phases may then be absent.

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        With every problem of the file: not strict JSON, a key missing, a value of a wrong type
        or range, an id that is no file name, a stage twice. Files that it names are not opened.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(
            Problem(
                what=f"the manifest is {_json_type(value)}, not an object",
                todo='write {"subject_id": ..., ...}',
                file=str(path),
                subject=path.absolute().parent.name,
            )
        )
    subject = _known_subject(value) or path.absolute().parent.name
    required = ("subject_id", "pca_coefficients", *(_TARGET_KEYS if targets_required else ()))
    problems = [_missing_key(key, value) for key in required if key not in value]
    known = {key: item for key, item in value.items() if key in Manifest.model_fields}
    if not isinstance(known.get("phases", []), list):
        problems.append(Problem(f"phases is {_json_type(known.pop('phases'))}, not a list"))
    else:
        problems += _phase_problems(known.get("phases"), targets_required)
    manifest = None
    try:
        manifest = Manifest.model_validate(
            {
                **known,
                "path": path,
                **({"phases": tuple(known["phases"])} if "phases" in known else {}),
            }
        )
    except ValidationError as error:
        problems += _model_problems(error, skip_missing=set(required))
    if problems:
        problems = [replace(p, file=str(path), subject=subject) for p in problems]
        raise InputError(*problems)
    assert manifest is not None, "a manifest without problems is a manifest"
    return manifest


def _known_subject(value: dict[str, Any]) -> str | None:
    name = value.get("subject_id")
    return shorten(name) if isinstance(name, str) and name.strip() else None


def _missing_key(key: str, value: dict[str, Any]) -> Problem:
    close = difflib.get_close_matches(key, value, n=1)
    return Problem(
        what=f"the key {key!r} is missing",
        todo=f"rename {close[0]!r}" if close else "add it",
    )


def _phase_problems(phases: list[Any] | None, required: bool) -> list[Problem]:
    if phases is None:
        return []
    if required and not phases:
        return [Problem("phases is an empty list", "list at least one phase with mesh and stage")]
    problems, seen = [], dict[float, int]()
    for index, phase in enumerate(phases):
        stage = phase.get("stage") if isinstance(phase, dict) else None
        if isinstance(stage, bool) or not isinstance(stage, int | float):
            continue
        if stage in seen:
            problems.append(
                Problem(
                    what=f"the stage {stage:g} stands twice, at phases {seen[stage]} and {index}",
                    todo="give each phase its own stage",
                    phase=f"{index} (stage {stage:g})",
                )
            )
        seen.setdefault(stage, index)
    return problems


def _model_problems(error: ValidationError, skip_missing: set[str]) -> Iterable[Problem]:
    for item in error.errors(include_url=False):
        place = item["loc"]
        if item["type"] == "missing" and len(place) == 1 and place[0] in skip_missing:
            continue
        name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place)[1:]
        phase = str(place[1]) if place[0] == "phases" and len(place) > 1 else None
        yield Problem(what=f"{name} {_explain(item)}", todo="mend the manifest", phase=phase)


def _explain(item: Any) -> str:
    """Say in words of JSON what pydantic found."""
    kind, value = item["type"], item["input"]
    shown = shorten(repr(value)) if not isinstance(value, dict | list) else _json_type(value)
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return f"{item['ctx']['error']} (it is {shown})"
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"is {shown}, outside 0 to 1"
    wanted = {"float_type": "a number", "string_type": "a string", "model_type": "an object"}
    if kind in wanted:
        return f"is {_json_type(value)} ({shown}), not {wanted[kind]}"
    return f"is {shown}: {item['msg']}"


def _json_type(value: Any) -> str:
    kinds: dict[type, str] = {
        dict: "an object", list: "a list", tuple: "a list", str: "a string", bool: "a bool",
        int: "a number", float: "a number", type(None): "null",
    }  # fmt: skip
    return kinds.get(type(value), type(value).__name__)


def read_shape_scores(path: Path) -> np.ndarray:
    """Read one subject's shape scores: a JSON list of numbers.

    Returns
    -------
    (n_pca,) float64 array, in standard deviations

    Raises
    ------
    InputError
        If the file is not strict JSON, or not a list of at least one finite number.
    """
    value = read_json(path)
    todo = "write a list of numbers, one a mode: [0.5, -1.2]"

    def refuse(what: str) -> InputError:
        return InputError(Problem(what=what, todo=todo, file=str(path)))

    if not isinstance(value, list):
        raise refuse(f"shape scores are {_json_type(value)}, not a list of numbers")
    if not value:
        raise refuse("the list of shape scores is empty (0 coefficients)")
    for index, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise refuse(
                f"shape score {index} is {_json_type(item)} ({shorten(repr(item))}), not a number"
            )
    return np.array(value, dtype=np.float64)


@dataclass(frozen=True)
class SubjectRow:
    """One row of the table of subjects.

    Parameters
    ----------
    manifest : Path
        As written, below the table's folder unless absolute.
    split : "train", "val" or "test"
    line : int
        Line of the table, from 1.
    """

    manifest: Path
    split: Split
    line: int


def read_subjects_table(path: Path) -> list[SubjectRow]:
    """Read the table of subjects: tab-separated, with the columns ``manifest`` and ``split``.

    Returns
    -------
    list of SubjectRow
        In the table's order. Manifests need not exist: each is judged with its subject.

    Raises
    ------
    InputError
        With every line that is wrong: columns missing, unknown or twice, a split that is none,
        an empty cell, no row at all.
    """
    lines = re.split(r"\r\n|\n|\r", read_text(path))
    cells = [_split_line(line) for line in lines]
    header = cells[0]
    problems = _header_problems(header, lines[0])
    rows = []
    if not problems:
        for number, row in enumerate(cells[1:], start=2):
            if any(row):
                parsed = _parse_row(dict(zip(header, row, strict=False)), number, path)
                if len(row) != len(header):
                    parsed = Problem(
                        f"line {number} has {len(row)} cells, the header has {len(header)}",
                        "write one manifest and one split a line, with a tab between",
                    )
                if isinstance(parsed, Problem):
                    problems.append(parsed)
                else:
                    rows.append(parsed)
        if not rows and not problems:
            problems.append(Problem("the table has no rows (it is empty)", "list the subjects"))
    if problems:
        raise InputError(*(replace(problem, file=str(path)) for problem in problems))
    return rows


def _split_line(line: str) -> list[str]:
    # One line at a time: an unbalanced quote cannot swallow the lines below it.
    return [cell.strip() for cell in next(csv.reader([line], delimiter="\t"), [])]


def _header_problems(header: list[str], line: str) -> list[Problem]:
    columns = ("manifest", "split")
    if not line.strip():
        return [Problem("the table is empty or its first line is", "begin with manifest<TAB>split")]
    if len(header) == 1 and re.fullmatch(r"\s*manifest\s*[,; ]\s*split\s*", line):
        return [Problem("the columns are not parted by tabs", "save it as tab-separated text")]
    problems = [
        Problem(f"the column {name!r} is missing", "begin with the line manifest<TAB>split")
        for name in columns
        if name not in header
    ]
    problems += [
        Problem(f"the column {name!r} stands twice", "remove one")
        for name in dict.fromkeys(header)
        if header.count(name) > 1
    ]
    problems += [
        Problem(f"the column {name!r} is unknown", "remove it: the columns are manifest and split")
        for name in dict.fromkeys(header)
        if name not in columns
    ]
    return problems


def _parse_row(cells: dict[str, str], line: int, path: Path) -> SubjectRow | Problem:
    manifest, split = cells.get("manifest", ""), cells.get("split", "")
    if not manifest or "\0" in manifest:
        return Problem(f"line {line} names no manifest", "write the path of one")
    if split not in get_args(Split):
        close = difflib.get_close_matches(split.lower(), get_args(Split), n=1)
        return Problem(
            f"line {line}: the split {split!r} is none of train, val, test",
            f"write {close[0]}" if close else "write one of them",
        )
    return SubjectRow(path.parent / manifest, TypeAdapter(Split).validate_python(split), line)


_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
# Device names of Windows, and the stems of rows without a usable id.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)|row-\d+$", re.IGNORECASE)


def subject_stem(subject_id: str) -> str:
    """Turn a subject id into the file name that stands for it.

    ASCII letters, digits, ``_``, ``-`` and inner ``.`` stay. Every other byte of the UTF-8 text
    becomes ``=`` and two hexadecimal digits. Where there are capitals, ``+`` and a hexadecimal
    number follow, whose bit k is set if letter k is one (``P01`` is ``P01+1``): two ids never
    share a stem, not even on a file system that takes ``a`` and ``A`` for the same.

    Raises
    ------
    InputError
        If the id is empty, would leave the output folder, holds control characters, or
        takes more than 200 bytes.
    """
    try:
        return _encode(_id(subject_id))
    except ValueError as error:
        raise InputError(f"the subject id {shorten(subject_id)!r} {error}") from None


def _encode(subject_id: str) -> str:
    escape_first = subject_id[:1] in (".", "-") or _RESERVED.match(subject_id)
    parts = []
    for index, character in enumerate(subject_id):
        at_edge = (index == 0 and escape_first) or (
            character == "." and index == len(subject_id) - 1
        )
        if character in _SAFE and not at_edge:
            parts.append(character)
        else:
            parts += [f"={byte:02x}" for byte in character.encode()]
    body = "".join(parts)
    letters = [c for c in re.sub(r"=..", "", body) if c.isalpha()]
    capitals = sum(1 << k for k, letter in enumerate(letters) if letter.isupper())
    return body + (f"+{capitals:x}" if capitals else "")


def subject_id_of(stem: str) -> str:
    """Give the subject id that a stem stands for, the inverse of `subject_stem`."""
    body = stem.partition("+")[0]
    raw = re.sub(r"=([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), body)
    return raw.encode("latin-1").decode("utf-8")


def stem_or_row(row: SubjectRow, index: int) -> str:
    """Give the stem of a row's subject, or ``row-0007`` (from index 6) without a usable id."""
    return _lenient(lambda: subject_stem(_raw(row)["subject_id"])) or f"row-{index + 1:04d}"


def subject_stems(rows: list[SubjectRow]) -> list[str]:
    """Give each row its stem; never raises.

    A manifest that stands twice has one stem. A second manifest with the id of the first has the
    stem of its row, so that both are ingested and the clash can be reported.
    """
    owners: dict[str, Path] = {}
    stems = []
    for index, row in enumerate(rows):
        stem = stem_or_row(row, index)
        manifest = row.manifest.absolute()
        if owners.setdefault(stem, manifest) != manifest:
            stem = f"row-{index + 1:04d}"
        stems.append(stem)
    return stems


def input_files(row: SubjectRow) -> list[Path]:
    """List the files that a row's ingest reads, as far as they exist; never raises."""
    raw = _lenient(lambda: _raw(row)) or {}
    phases = raw.get("phases")
    names = [raw.get("pca_coefficients"), raw.get("fitted_reference_mesh")]
    if isinstance(phases, list):
        names += [phase.get("mesh") for phase in phases if isinstance(phase, dict)]
    paths = [row.manifest] + [
        row.manifest.parent / name for name in names if isinstance(name, str) and name
    ]
    return [path for path in dict.fromkeys(paths) if file_problem(path) is None]


def _raw(row: SubjectRow) -> dict[str, Any]:
    value = read_json(row.manifest)
    return value if isinstance(value, dict) else {}


def _lenient(read: Callable[[], Any]) -> Any:
    """Call it; None for whatever a broken file can cause."""
    try:
        return read()
    except (InputError, KeyError, TypeError, AttributeError, OSError, ValueError):
        return None


def template_name(mesh_path: Path, surface: bool) -> str:
    """Name the template's copy, known before its mesh is read.

    ``.vtp`` for a surface and for formats that hold only surfaces, else ``.vtu``.
    """
    is_surface = surface or mesh_path.suffix.lower() in SURFACE_SUFFIXES
    return f"pca_mean_template{'.vtp' if is_surface else '.vtu'}"
