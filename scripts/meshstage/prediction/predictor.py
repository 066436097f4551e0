"""Ask a trained model: one of ours, one of the user's own, or one that MONAI Physio wrote."""

import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.config.methods import load_class
from meshstage.config.networks import FUNCTION, NETWORKS
from meshstage.config.settings import settings
from meshstage.errors import InputError, Problem, at
from meshstage.meshes.cells import cell_fingerprint
from meshstage.models.checkpoint import load_checkpoint, load_weights
from meshstage.models.directory import Epoch, ModelDirectory, find_model
from meshstage.training.method import TrainingMethod

# Rows (nodes or edges, times samples) that go through a network at once: 200 MB per array
# of width 512 or 50 MB at 128, and enough to keep any device busy.
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Predictor:
    """A trained model, ready to be asked.

    Parameters
    ----------
    directory : Path
        The model directory.
    checkpoint : Path
        The file whose weights these are.
    metadata : dict
        Of the model directory; empty where its writer left none.
    mesh : pyvista mesh
        The template.
    method : TrainingMethod
        Ready for `predict_batch`: its inputs are on the device.
    network : nn.Module
    template_folder : Path
        Where the template, and its shape model if there is one, lie.
    """

    directory: Path
    checkpoint: Path
    metadata: dict[str, Any]
    mesh: Any
    method: TrainingMethod
    network: nn.Module
    template_folder: Path

    @property
    def statistics(self) -> Statistics:
        """What inputs and targets are normalised with."""
        return self.method.inputs.statistics

    @property
    def points(self) -> np.ndarray:
        """Points of the template, (n_points, 3) float64, mm."""
        return np.asarray(self.mesh.points, np.float64)

    @property
    def n_pca(self) -> int:
        """Number of shape scores."""
        return self.statistics.n_pca

    @property
    def n_target(self) -> int:
        """Components of the target."""
        return self.statistics.n_target

    @property
    def target_array(self) -> str:
        """Name of the target array."""
        return self.statistics.target_array

    @property
    def stages_trained(self) -> list[float]:
        """Stages of the training samples, ascending; empty where the model does not tell."""
        return list(self.metadata.get("training_stages", []))

    @property
    def moves_meshes(self) -> bool:
        """Whether the target is a displacement, so that it moves points."""
        by_name = self.n_target == 3 and self.target_array == "displacement"
        return bool(self.metadata.get("target_is_displacement", by_name))

    def check_scores(self, shape_scores: np.ndarray) -> None:
        """Refuse scores that this model does not take.

        Raises
        ------
        InputError
            If their number is not the model's, or one is not finite.
        """
        scores = np.asarray(shape_scores, np.float64)
        if scores.shape != (self.n_pca,):
            raise InputError(
                f"{scores.size} shape scores, but the model in {self.directory} takes {self.n_pca}"
            )
        if not np.isfinite(scores).all():
            raise InputError("a shape score is not finite; give finite numbers")

    def predict(self, shape_scores: np.ndarray, stages: Sequence[float] | np.ndarray) -> np.ndarray:
        """Predict the targets of one subject at some stages.

        Parameters
        ----------
        shape_scores : (n_pca,) array, standard deviations
        stages : (n_stages,) array in [0, 1]

        Returns
        -------
        (n_stages, n_points, n_target) float32 array, in the targets' units

        Raises
        ------
        InputError
            If the number of scores is not the model's, a score is not finite, or a stage lies
            outside of 0 to 1.
        """
        self.check_scores(shape_scores)
        check_stages(stages)
        inputs, n_stages = self.method.inputs, len(stages)
        pca, stage = inputs.samples(np.tile(shape_scores, (n_stages, 1)), np.asarray(stages))
        targets = np.empty((n_stages, inputs.n_points, self.n_target), np.float32)
        with torch.inference_mode():
            for some, points in self._parts(n_stages):
                where = inputs.coordinates[points]
                predicted = forward_at(self.method, self.network, where, pca[some], stage[some])
                targets[some, points] = (predicted * self.statistics.target_scale).cpu().numpy()
        return targets

    def deviation(
        self, shape_scores: np.ndarray, stages: Sequence[float] | np.ndarray
    ) -> np.ndarray | None:
        """Say how far off `predict` may be, where the model tells: a Gaussian process does.

        Returns
        -------
        (n_stages, n_points) float32 array or None
            Root of the expected squared length of the error, in the targets' units.
        """
        inputs, n_stages = self.method.inputs, len(stages)
        pca, stage = inputs.samples(np.tile(shape_scores, (n_stages, 1)), np.asarray(stages))
        with torch.inference_mode():
            found = self.method.deviation_batch(self.network, pca, stage)
        if found is None:
            return None
        deviation: np.ndarray = (found * self.statistics.target_scale).float().cpu().numpy()
        return deviation

    def _parts(self, n_samples: int) -> Iterator[tuple[slice, slice]]:
        """Cut samples and points into parts of bounded memory."""
        n_points = self.method.inputs.n_points
        # Of its own class: one that extends it may look at other vertices.
        alone = vars(type(self.method)).get("is_pointwise", False) and self.method.base == "none"
        n_piece = min(n_points, _ROWS_AT_ONCE) if alone else n_points
        at_once = max(1, _ROWS_AT_ONCE // self.method.rows_per_sample)
        for first in range(0, n_samples, at_once):
            for point in range(0, n_points, n_piece):
                yield slice(first, first + at_once), slice(point, point + n_piece)

    def trust(self, shape_scores: np.ndarray) -> float:
        """Part of a network's correction of its base that counts at these scores; 1 without one."""
        scores, _ = self.method.inputs.samples(np.asarray(shape_scores)[None], np.zeros(1))
        return float(self.method.trust(scores))

    def warnings(self, shape_scores: np.ndarray, stages: Sequence[float] | np.ndarray) -> list[str]:
        """Say which scores and stages lie outside of what the model was trained on, how far."""
        found = []
        lows, highs = (self.metadata.get(f"training_scores_{end}", []) for end in ("min", "max"))
        # Where the model does not tell its ranges, no score is outside.
        for mode, (score, low, high) in enumerate(zip(shape_scores, lows, highs, strict=False), 1):
            outside = max(low - score, score - high)
            if outside > 0:
                found.append(
                    f"shape score {mode} is {score:.4g}, {outside:.2g} standard deviations "
                    f"outside of the training range [{low:.4g}, {high:.4g}]"
                )
        trust = self.trust(shape_scores)
        if trust < 1:
            found.append(
                f"the shape scores lie outside of the training subjects' ellipsoid: the network's "
                f"part counts {trust:.0%}, the rest is the base ({self.method.base})"
            )
        trained = self.stages_trained
        for stage in stages if trained else ():
            outside = max(trained[0] - stage, stage - trained[-1])
            if outside > 0:
                found.append(
                    f"stage {stage:.4g} is {outside:.2g} outside of the training range "
                    f"[{trained[0]:.4g}, {trained[-1]:.4g}]"
                )
        return found


def forward_at(
    method: TrainingMethod, network: nn.Module, coordinates: Tensor, pca: Tensor, stage: Tensor
) -> Tensor:
    """Run a method's `predict_batch` at some normalised coordinates, (n_points, 3)."""
    there = copy.copy(method)
    there.inputs = method.inputs.at(coordinates)
    return there.predict_batch(network, pca, stage)


def check_stages(stages: Sequence[float] | np.ndarray) -> None:
    """Refuse a stage that is none.

    Raises
    ------
    InputError
        If one is not within 0 and 1.
    """
    wanted = np.asarray(stages, np.float64)
    outside = wanted[~((wanted >= 0) & (wanted <= 1))]
    if outside.size:
        raise InputError(f"stage {outside[0]:g} is not within 0 and 1; give stages in [0, 1]")


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
