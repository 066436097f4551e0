"""Manifests and shape scores: what people write about one subject."""

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from meshstage.cohort.names import checked_id, checked_text, subject_stem
from meshstage.errors import InputError, Problem, at, collecting
from meshstage.files import read_json, shorten

_TARGET_KEYS = ("fitted_reference_mesh", "target_array", "phases")


def _stage(value: float) -> float:
    return value + 0.0  # -0.0 is stage 0


Text = Annotated[str, AfterValidator(checked_text)]
Stage = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False), AfterValidator(_stage)]


class Phase(BaseModel):
    """One mesh of the series and when it is: its stage, from 0 to 1."""

    model_config = ConfigDict(frozen=True, strict=True)

    mesh: Text
    stage: Stage


class Manifest(BaseModel):
    """What one subject consists of, as its manifest says.

    A manifest that is only asked for a prediction may lack reference, target array and phases
    (``""`` and no phases).
    """

    model_config = ConfigDict(frozen=True, strict=True)

    path: Path
    subject_id: Annotated[str, AfterValidator(checked_id)]
    pca_coefficients: Text
    fitted_reference_mesh: Text = ""
    target_array: Text = ""
    alignment: Text | None = None
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
    def alignment_path(self) -> Path | None:
        """The file of the transforms from the patients' own spaces, if the manifest names one."""
        return None if self.alignment is None else self.resolve(self.alignment)

    @property
    def stages(self) -> np.ndarray:
        """Stages of the phases, (n_phases,) float64."""
        return np.array([phase.stage for phase in self.phases], dtype=np.float64)

    def phase_label(self, index: int) -> str:
        """Name a phase for people: index from 0, and stage."""
        return phase_label(index, self.phases[index].stage)


@dataclass(frozen=True)
class Draft:
    """What can be used of a manifest that may have faults.

    Parameters
    ----------
    path : Path
    label : str
        The id, or the name of the manifest's folder if the id is not usable.
    manifest : Manifest, optional
        None if the file has a problem.
    values : dict
        The top-level values as they stand in the file.
    problems : list of Problem
    """

    path: Path
    label: str
    manifest: Manifest | None = None
    values: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def subject_id(self) -> str | None:
        """The id, if it is one."""
        value = self.values.get("subject_id")
        try:
            return checked_id(value) if isinstance(value, str) else None
        except ValueError:
            return None

    @property
    def target_array(self) -> str | None:
        """Name of the target array, if there is one."""
        value = self.values.get("target_array")
        return value if isinstance(value, str) and value.strip() else None

    def file(self, key: str) -> Path | None:
        """Give the file that a top-level key names, if it names one."""
        return self._path(self.values.get(key))

    def phase_files(self) -> list[tuple[int, Path, str]]:
        """List the phases that name a mesh: index, file, and how to name them for people."""
        phases = self.values.get("phases")
        found = []
        for index, phase in enumerate(phases if isinstance(phases, list) else []):
            path = self._path(phase.get("mesh")) if isinstance(phase, dict) else None
            if path:
                found.append((index, path, phase_label(index, phase.get("stage"))))
        return found

    def _path(self, written: object) -> Path | None:
        usable = isinstance(written, str) and written.strip() and "\0" not in written
        return self.path.parent / str(written) if usable else None


def phase_label(index: int, stage: object) -> str:
    """Name a phase for people: index from 0, and stage where it is a number."""
    is_number = isinstance(stage, int | float) and not isinstance(stage, bool)
    return f"{index} (stage {stage:g})" if is_number else f"{index}"


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
    draft = draft_manifest(path, targets_required)
    if draft.manifest is None:
        raise InputError(*draft.problems)
    return draft.manifest


def draft_manifest(path: Path, targets_required: bool = True) -> Draft:
    """Read a manifest as far as it goes, with all its problems; never raises `InputError`."""
    folder = path.absolute().parent.name
    problems: list[Problem] = []
    with collecting(problems), at(path, folder):
        value = read_json(path)
    if problems:
        return Draft(path, folder, problems=problems)
    if not isinstance(value, dict):
        what, todo = f"the manifest is {_json_type(value)}, not an object", 'write {"subject_id": '
        return Draft(path, folder, problems=[Problem(what, todo + "...}", str(path), folder)])
    label = _known_subject(value) or folder
    required = ("subject_id", "pca_coefficients", *(_TARGET_KEYS if targets_required else ()))
    problems += [_missing_key(key, value) for key in required if key not in value]
    known = {key: item for key, item in value.items() if key in Manifest.model_fields}
    phases = known.get("phases", [])
    if isinstance(phases, list):
        problems += _phase_problems(phases, targets_required and "phases" in known)
        known["phases"] = tuple(phases)
    else:
        problems.append(Problem(f"phases is {_json_type(phases)}, not a list", "write a list"))
        del known["phases"]
    manifest = None
    try:
        manifest = Manifest.model_validate({**known, "path": path})
    except ValidationError as error:
        problems += _model_problems(error, set(required), _stage_hint(known.get("phases", ())))
    problems = [problem.at(path, label) for problem in problems]
    return Draft(path, label, None if problems else manifest, value, problems)


def _known_subject(value: dict[str, Any]) -> str | None:
    name = value.get("subject_id")
    return shorten(name) if isinstance(name, str) and name.strip() else None


def _missing_key(key: str, value: dict[str, Any]) -> Problem:
    close = difflib.get_close_matches(key, value, n=1)
    return Problem(
        what=f"the key {key!r} is missing",
        todo=f"rename {close[0]!r}" if close else "add it",
    )


def _phase_problems(phases: list[Any], required: bool) -> list[Problem]:
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
                    phase=phase_label(index, stage),
                )
            )
        seen.setdefault(stage, index)
    return problems


def _stage_hint(phases: tuple[Any, ...]) -> str:
    """Say how to convert stages that look like percent or milliseconds."""
    stages = [phase.get("stage") for phase in phases if isinstance(phase, dict)]
    largest = max((s for s in stages if isinstance(s, int | float)), default=0)
    if largest > 100:
        return "milliseconds are stages when divided by the length of the cycle"
    if largest >= 2:
        return "percent are stages when divided by 100"
    return "write a number from 0 to 1"


def _model_problems(
    error: ValidationError, skip_missing: set[str], stage_hint: str
) -> Iterable[Problem]:
    for item in error.errors(include_url=False):
        place = item["loc"]
        if item["type"] == "missing" and len(place) == 1 and place[0] in skip_missing:
            continue
        name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place)[1:]
        what, todo = _explain(item, stage_hint)
        phase = str(place[1]) if place[0] == "phases" and len(place) > 1 else None
        yield Problem(what=f"{name} {what}", todo=todo, phase=phase)


def _explain(item: Any, stage_hint: str) -> tuple[str, str]:
    """Say in words of JSON what pydantic found, and what would be right."""
    kind, value = item["type"], item["input"]
    shown = _json_type(value)
    if isinstance(value, str | int | float):
        shown += f" ({shorten(json.dumps(value, ensure_ascii=False))})"
    if kind == "missing":
        return "is missing", "add it"
    if kind == "value_error":
        return f"{shorten(json.dumps(value, ensure_ascii=False))} {item['ctx']['error']}", "mend it"
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"is {value}, outside 0 to 1", stage_hint
    wanted = {"float_type": "a number", "string_type": "a string", "model_type": "an object"}
    right = wanted.get(kind, "what a manifest holds")
    return f"is {shown}, not {right}", f"write {right}"


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
    if not isinstance(value, list):
        what = f"shape scores are {_json_type(value)}, not a list of numbers"
    elif not value:
        what = "the list of shape scores is empty (0 coefficients)"
    elif odd := [(k, x) for k, x in enumerate(value) if type(x) not in (int, float)]:
        index, item = odd[0]
        what = f"shape score {index} is {_json_type(item)} ({shorten(repr(item))}), not a number"
    else:
        return np.array(value, dtype=np.float64)
    raise InputError(Problem(what, "write a list of numbers, one per mode: [0.5, -1.2]", str(path)))
