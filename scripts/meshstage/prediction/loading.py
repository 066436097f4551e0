"""Load a model directory: one of ours, with a network of the user's own, or MONAI Physio's."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meshstage.cohort.statistics import Statistics
from meshstage.config.methods import load_class
from meshstage.config.networks import FUNCTION, NETWORKS
from meshstage.config.settings import settings
from meshstage.errors import InputError, Problem, at
from meshstage.meshes.cells import cell_fingerprint
from meshstage.models.checkpoint import load_checkpoint, load_weights
from meshstage.models.directory import Epoch, ModelDirectory, find_model
from meshstage.prediction.predictor import Predictor
from meshstage.training.method import TrainingMethod


def load_predictor(
    model_directory: Path,
    epoch: Epoch = None,
    device: str | torch.device = "cpu",
    method: TrainingMethod | None = None,
) -> Predictor:
    """Load a model directory.

    Parameters
    ----------
    model_directory : Path
        Of a finished run, or of one in progress.
    epoch : int, "best" or None
        A kept epoch, the one with the least validation RMSE, or the final model (of a run in
        progress: its newest kept epoch).
    device : str or torch.device
    method : TrainingMethod, optional
        Of the class that trained the model; by default the checkpoint says which it is.

    Raises
    ------
    InputError
        If there is no such model, or its files do not fit together.
    """
    model = find_model(Path(model_directory))
    path = model.checkpoint(epoch)
    payload = load_checkpoint(path)
    weights = payload.pop("model_state_dict")
    values = model.metadata | payload
    statistics = _statistics(values, path)
    mesh, folder = model.template()
    _refuse_other_template(values, mesh, folder)
    method = method or _method_of(model, values, path)
    with at(path):
        _set_options(method, values)
    chosen, points = torch.device(device), np.asarray(mesh.points)
    method.fixed_tensors = payload.get("fixed_tensors", {})
    method.make_inputs(statistics, points, chosen, torch.float32)
    network = method.build_model(method.inputs.n_features, statistics.n_target)
    load_weights(network, weights, path)
    with at(folder):
        method.load_artifacts(folder)
        method.setup_inputs(chosen, mesh, points.astype(np.float32))
    return Predictor(
        directory=model.directory,
        checkpoint=path,
        metadata=model.metadata,
        mesh=mesh,
        method=method,
        network=network.to(chosen).eval(),
        template_folder=folder,
    )


def _method_of(model: ModelDirectory, values: dict[str, Any], path: Path) -> TrainingMethod:
    """Make the training method that wrote a checkpoint; an older one tells its network alone.

    Raises
    ------
    InputError
        If its class cannot be found here, or is no longer what it was.
    """
    written = values.get("method")
    if not isinstance(written, dict):
        kinds = {kind.tag: kind.method for kind in NETWORKS.values()}
        if model.tag not in kinds:
            what = f"{model.tag} is the tag of no network here, and the model names no class"
            raise InputError(Problem(what, _GIVE_IT, str(path)))
        return _made(kinds[model.tag], path)
    name, file = str(written.get("class")), written.get("file")
    if not file:
        return _made(name, path)
    own = next((f / file for f in (model.files, model.directory) if (f / file).is_file()), None)
    if own is None:
        what = f"{file}, which holds the class {name} of this model, is not beside it"
        raise InputError(Problem(what, "copy it back", str(model.files)))
    if hashlib.sha256(own.read_bytes()).hexdigest() != written.get("sha256"):
        what = f"its class {name} was changed since the training"
        raise InputError(Problem(what, "restore the file, or train again", str(own)))
    return _made(f"{own}:{name}", path)


_GIVE_IT = "give it as inference_method of WorkflowInferPhysicsNeMo"


def _made(reference: str, path: Path) -> TrainingMethod:
    """Import a class and make it.

    Raises
    ------
    InputError
        If that fails, or the class is no training method.
    """
    try:
        found = load_class(reference)
        method = found() if issubclass(found, TrainingMethod) else None
    except (ImportError, AttributeError, TypeError) as error:
        what = f"the class {reference} that trained this model cannot be made here ({error})"
        raise InputError(Problem(what, _GIVE_IT, str(path))) from None
    if method is None:
        raise InputError(Problem(f"{reference} is no training method", _GIVE_IT, str(path)))
    return method


def _set_options(method: TrainingMethod, values: dict[str, Any]) -> None:
    """Give a method the stored numbers that shape its network.

    Raises
    ------
    InputError
        If the model does not tell one.
    """
    written = values.get("method")
    stored = dict(written.get("options", {})) if isinstance(written, dict) else {}
    stored |= {name: values[name] for name in method.checkpoint_fields() if name in values}
    needed = {n for n in method.checkpoint_fields() if n in settings() and _is_shape(n)}
    if missing := sorted(needed - stored.keys()):
        what = f"the model does not tell its {missing[0]!r}"
        raise InputError(Problem(what, "keep its metadata"))
    for name in FUNCTION:  # a model that does not tell is a plain one
        setting = settings()[name]
        setattr(method, name, setting.checked(values.get(name, setting.default)))
    for name, value in stored.items():
        # The settings of a training itself change nothing in what a model computes.
        if name not in settings():
            setattr(method, name, value)
        elif _is_shape(name):
            setattr(method, name, settings()[name].checked(value))


def _is_shape(name: str) -> bool:
    return settings()[name].change == "never"


def _statistics(values: dict[str, Any], path: Path) -> Statistics:
    try:
        # MONAI Physio keeps the name in the final checkpoint and in the metadata only.
        statistics = Statistics.from_dict({"target_array": "target", **values})
    except KeyError as error:
        raise InputError(
            Problem(
                f"neither the checkpoint nor its metadata has {error}",
                "keep the metadata of the model beside it",
                str(path),
            )
        ) from None
    except (TypeError, ValueError) as error:
        raise InputError(
            Problem(f"its statistics are no numbers ({error})", "", str(path))
        ) from None
    lengths = {name: len(getattr(statistics, name)) for name in _LENGTHS}
    if lengths != {name: length or statistics.n_pca for name, length in _LENGTHS.items()}:
        raise InputError(Problem(f"its statistics do not fit each other: {lengths}", "", str(path)))
    return statistics


_LENGTHS = {"coordinate_mean": 3, "coordinate_scale": 3, "pca_mean": None, "pca_scale": None}


def _refuse_other_template(values: dict[str, Any], mesh: Any, folder: Path) -> None:
    """Compare the template with what the model says of it, as far as its writer says anything."""
    n_points = values.get("n_mesh_points", mesh.n_points)
    fingerprint = values.get("template_fingerprint")
    if n_points != mesh.n_points or (fingerprint and fingerprint != cell_fingerprint(mesh)):
        raise InputError(
            Problem(
                "the template here is not the one that the model was trained on",
                "copy that template back",
                str(folder),
            )
        )
