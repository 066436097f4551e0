"""What a run is: the class that trains it, its settings, its data."""

import hashlib
import importlib.machinery
import inspect
import json
import math
from pathlib import Path
from typing import Any

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.config.networks import COMMON
from meshstage.config.settings import settings
from meshstage.files import sha256
from meshstage.training.method import TrainingMethod
from meshstage.training.samples import PhaseSampleDataset

_NO_SETTINGS = {"deadline", "log_level"}  # of one start


def run_identity(
    method: TrainingMethod,
    statistics: Statistics,
    template: Template,
    train: PhaseSampleDataset,
    val: PhaseSampleDataset | None,
    resume_from: Path | None,
) -> dict[str, Any]:
    """Collect what a run in progress, or a finished one, must agree with.

    Returns
    -------
    dict
        ``fixed``: class, settings and data that may not change; ``epochs`` and
        ``rmse_log_interval``, which may within reason. Settings that may always change are left
        out.
    """
    fixed: dict[str, Any] = {
        "network": method.architecture_name,
        "class": _class_identity(type(method)),
        **{name: value for name, value in plain_settings(method).items() if _is_fixed(name)},
        **_fixed_fields(method),
        "statistics": statistics.digest()[:16],
        "template": template.fingerprint[:16],
    }
    for split, dataset in (("train", train), ("val", val)):
        for subject in dataset.subjects if dataset else ():
            hashes = json.dumps(subject.hashes, sort_keys=True)
            fixed[f"data of {split} subject {subject.id}"] = sha256(hashes)[:16]
    if resume_from is not None:
        content = hashlib.sha256(Path(resume_from).read_bytes()).hexdigest()
        fixed["checkpoint resumed from"] = content[:16]
    return {
        "fixed": fixed,
        "epochs": method.epochs,
        "rmse_log_interval": method.rmse_log_interval,
    }


def defaults_of_older_runs(method: TrainingMethod, identity: dict[str, Any]) -> dict[str, Any]:
    """Give what a recorded identity means where it lacks an entry of today's.

    A setting then had its default; of the class nothing is known.
    """
    known = {name: setting.default for name, setting in settings().items() if _is_fixed(name)}
    kind = method.kind
    known |= (kind.defaults | {"losses": list(kind.losses)}) if kind else {}
    return known | {"class": identity["fixed"]["class"]}


def shape_fields(method: TrainingMethod) -> dict[str, Any]:
    """Give what may never change within a lineage, which a checkpoint tells too."""
    return {
        name: value
        for name, value in _fixed_fields(method).items()
        if name not in settings() or settings()[name].change == "never"
    }


def plain_settings(method: TrainingMethod) -> dict[str, Any]:
    """Give the public attributes of a method that hold plain values, as JSON keeps them."""
    found = {
        name: value
        for name, value in vars(method).items()
        if not name.startswith("_") and name not in _NO_SETTINGS and _is_plain(value)
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def describe_method(method: TrainingMethod) -> dict[str, Any]:
    """Say which class a model needs to be used again, with which settings.

    Returns
    -------
    dict
        ``class``: ``module:Class``, or ``Class`` in ``file``, which the model directory holds;
        ``sha256`` of that file; ``options``.
    """
    path = own_file(type(method))
    name = type(method).__qualname__
    options = {k: v for k, v in plain_settings(method).items() if k not in COMMON}
    return {
        "class": name if path else f"{type(method).__module__}:{name}",
        "file": path and path.name,
        "sha256": path and hashlib.sha256(path.read_bytes()).hexdigest(),
        "options": options | {"losses": list(method.losses)},
    }


def own_file(method: type) -> Path | None:
    """Give the file of a class that no import finds, since it was loaded by its path."""
    module = method.__module__
    if module == "__main__" or importlib.machinery.PathFinder.find_spec(module.partition(".")[0]):
        return None
    source = inspect.getsourcefile(method)
    return Path(source) if source and Path(source).is_file() else None


def _is_fixed(name: str) -> bool:
    return name not in settings() or settings()[name].change != "always"


def _fixed_fields(method: TrainingMethod) -> dict[str, Any]:
    return {name: value for name, value in method.checkpoint_fields().items() if _is_fixed(name)}


def _is_plain(value: Any) -> bool:
    """Whether JSON holds the value; empty containers are results to come, not settings."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_plain, value))
    if isinstance(value, dict):
        return bool(value) and all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    return value is None or isinstance(value, bool | int | str)


def _class_identity(method: type) -> str:
    """Name a class; of classes that are not ours, with a hash of their source."""
    path = own_file(method)
    name = f"{path.name if path else method.__module__}:{method.__qualname__}"
    sources = []
    for cls in method.__mro__:
        if cls.__module__.split(".")[0] in ("meshstage", "abc", "builtins"):
            continue
        try:
            sources.append(inspect.getsource(cls))
        except (OSError, TypeError):  # typed at a prompt: the name is all there is
            sources.append(cls.__qualname__)
    return f"{name} {sha256(*sources)[:16]}" if sources else name
