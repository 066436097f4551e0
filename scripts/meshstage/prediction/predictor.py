"""Ask a trained model: one of ours, or one that MONAI Physio wrote."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.names import EDGE_FEATURES, EDGE_INDEX
from meshstage.cohort.statistics import Statistics
from meshstage.config.networks import NETWORKS
from meshstage.errors import InputError, Problem
from meshstage.meshes.cells import cell_fingerprint
from meshstage.models.checkpoint import load_checkpoint, load_weights
from meshstage.models.directory import Epoch, find_model

if TYPE_CHECKING:
    from meshstage.networks import TemplateGraph

# Rows (nodes or edges, times samples) that go through a network at once: 200 MB per array
# of width 512 or 50 MB at 128, and enough to keep any device busy.
_ROWS_AT_ONCE = 100_000

_MLP_OPTIONS = ("layer_size", "num_layers")
_MGN_OPTIONS = ("processor_size", "hidden_dim", "num_layers")


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
    statistics : Statistics
    mesh : pyvista mesh
        The template.
    device : torch.device
    network : nn.Module
    coordinates : (n_points, 3) float32 tensor
        Of the template, normalised, on the device.
    graph : TemplateGraph, optional
        Of a MeshGraphNet.
    template_folder : Path
        Where the template, and its shape model if there is one, lie.
    """

    directory: Path
    checkpoint: Path
    metadata: dict[str, Any]
    statistics: Statistics
    mesh: Any
    device: torch.device
    network: nn.Module
    coordinates: Tensor
    graph: "TemplateGraph | None"
    template_folder: Path

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
        wanted = torch.from_numpy(np.asarray(stages, np.float64))
        scores = torch.from_numpy(self.statistics.normalise_scores(shape_scores))
        samples = torch.cat([scores.expand(len(wanted), -1), wanted[:, None]], dim=1)
        samples = samples.to(self.device, torch.float32)
        shape = (len(samples), len(self.coordinates), self.n_target)
        targets = np.empty(shape, np.float32)
        with torch.inference_mode():
            for some, points in self._parts(len(samples)):
                predicted = self._ask(samples[some], points) * self.statistics.target_scale
                targets[some, points] = predicted.cpu().numpy()
        return targets

    def _parts(self, n_samples: int) -> Iterator[tuple[slice, slice]]:
        """Cut samples and points into parts of bounded memory."""
        n_rows = n_piece = len(self.coordinates)
        if self.graph is not None:
            n_rows = max(n_rows, len(self.graph.edge_features))
        else:
            # Without a graph each vertex stands alone: a large template goes in pieces.
            n_piece = min(n_piece, _ROWS_AT_ONCE)
        at_once = max(1, _ROWS_AT_ONCE // n_rows)
        for first in range(0, n_samples, at_once):
            for point in range(0, len(self.coordinates), n_piece):
                yield slice(first, first + at_once), slice(point, point + n_piece)

    def _ask(self, samples: Tensor, points: slice) -> Tensor:
        """Run (B, n_pca + 1) samples over some points: (B, n_points, n_target)."""
        if self.graph is not None:
            return self.network(self.coordinates, self.graph, samples)
        return self.network(self.coordinates[points], samples)

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
        trained = self.stages_trained
        for stage in stages if trained else ():
            outside = max(trained[0] - stage, stage - trained[-1])
            if outside > 0:
                found.append(
                    f"stage {stage:.4g} is {outside:.2g} outside of the training range "
                    f"[{trained[0]:.4g}, {trained[-1]:.4g}]"
                )
        return found


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
    model_directory: Path, epoch: Epoch = None, device: str | torch.device = "cpu"
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
    network = _network(model.tag, values, statistics, path)
    load_weights(network, weights, path)
    graph = None if model.tag == NETWORKS["mlp"].tag else _graph(folder, mesh.n_points)
    chosen = torch.device(device)
    coordinates = torch.from_numpy(statistics.normalise_coordinates(mesh.points))
    return Predictor(
        directory=model.directory,
        checkpoint=path,
        metadata=model.metadata,
        statistics=statistics,
        mesh=mesh,
        device=chosen,
        network=network.to(chosen).eval(),
        coordinates=coordinates.to(chosen, torch.float32),
        graph=graph.to(chosen) if graph is not None else None,
        template_folder=folder,
    )


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


def _network(tag: str, values: dict[str, Any], statistics: Statistics, path: Path) -> nn.Module:
    """Make the network that a checkpoint describes."""
    # Late: PhysicsNeMo takes seconds, and wrong paths should be told before.
    from meshstage.networks import build_fully_connected, build_mesh_graph_net

    size = (statistics.n_features, statistics.n_target)
    is_mlp = tag == NETWORKS["mlp"].tag
    try:
        options = {name: int(values[name]) for name in (_MLP_OPTIONS if is_mlp else _MGN_OPTIONS)}
    except KeyError as error:
        raise InputError(
            Problem(f"the model does not tell its {error}", "keep its metadata", str(path))
        ) from None
    return (
        build_fully_connected(*size, **options)
        if is_mlp
        else build_mesh_graph_net(*size, **options)
    )


def _graph(folder: Path, n_points: int) -> "TemplateGraph":
    """Load the graph that a MeshGraphNet was trained on."""
    from meshstage.networks import TemplateGraph

    tensors = []
    for path in (folder / EDGE_INDEX, folder / EDGE_FEATURES):
        try:
            tensors.append(torch.load(path, weights_only=True))
        except Exception as error:  # missing, truncated, or holding more than a tensor
            reason = (str(error) or repr(error)).splitlines()[0][:120]
            what = f"the graph of the model cannot be read ({reason})"
            raise InputError(Problem(what, "copy it from the model directory", str(path))) from None
    try:
        return TemplateGraph(tensors[0], tensors[1], n_points)
    except ValueError as error:
        raise InputError(Problem(f"the graph does not fit: {error}", "", str(folder))) from None
