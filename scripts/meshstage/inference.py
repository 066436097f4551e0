"""Ask a trained model: one of ours, or one that MONAI Physio wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.checkpoint import load_checkpoint, load_weights
from meshstage.errors import InputError, Problem
from meshstage.files import read_json
from meshstage.meshes import read_mesh
from meshstage.model_files import (
    EDGE_FEATURES,
    EDGE_INDEX,
    LIVE,
    TAGS,
    checkpoint_name,
    metadata_name,
)
from meshstage.statistics import Statistics

Epoch = int | Literal["best"] | None

# Rows (points times samples) that go through a network at once: some 1 GB of activations at
# width 512, and enough to keep any device busy.
_ROWS_AT_ONCE = 200_000


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
    """

    directory: Path
    checkpoint: Path
    metadata: dict[str, Any]
    statistics: Statistics
    mesh: Any
    device: torch.device
    network: nn.Module
    _coordinates: Tensor
    _graph: nn.Module | None

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
        """Stages of the training samples; empty where the model does not tell."""
        return list(self.metadata.get("training_stages", []))

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
            If the number of scores is not the model's, or a value is not finite.
        """
        scores = np.asarray(shape_scores, np.float64)
        wanted = np.asarray(stages, np.float64)
        if scores.shape != (self.n_pca,):
            raise InputError(
                f"{scores.size} shape scores, but the model in {self.directory} takes {self.n_pca}"
            )
        if not (np.isfinite(scores).all() and np.isfinite(wanted).all()):
            raise InputError("a shape score or stage is not finite; give finite numbers")
        normalised = torch.from_numpy(self.statistics.normalise_scores(scores))
        samples = torch.cat(
            [normalised.expand(len(wanted), -1), torch.from_numpy(wanted)[:, None]], dim=1
        ).to(self.device, torch.float32)
        at_once = max(1, _ROWS_AT_ONCE // len(self._coordinates))
        with torch.inference_mode():
            parts = [self._ask(part).float().cpu() for part in samples.split(at_once)]
        if not parts:
            return np.zeros((0, len(self._coordinates), self.n_target), np.float32)
        return (torch.cat(parts) * self.statistics.target_scale).numpy()

    def _ask(self, samples: Tensor) -> Tensor:
        """Run (B, n_pca + 1) samples over the template: (B, n_points, n_target)."""
        if self._graph is not None:
            return self.network(self._coordinates, self._graph, samples)
        # Without a graph each vertex stands alone: a large template goes in pieces.
        pieces = self._coordinates.split(_ROWS_AT_ONCE)
        return torch.cat([self.network(piece, samples) for piece in pieces], dim=1)

    def warnings(self, shape_scores: np.ndarray, stages: np.ndarray) -> list[str]:
        """Say which scores and stages lie outside of what the model was trained on, how far."""
        found = []
        low, high = (self.metadata.get(f"training_scores_{end}") for end in ("min", "max"))
        for mode, score in enumerate(shape_scores if low and high else ()):
            outside = max(low[mode] - score, score - high[mode])
            if outside > 0:
                found.append(
                    f"shape score {mode + 1} is {score:.4g}, {outside:.2g} standard deviations "
                    f"outside of the training range [{low[mode]:.4g}, {high[mode]:.4g}]"
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
    directory = Path(model_directory)
    tag, where = _find(directory)
    metadata_path = where / metadata_name(tag)
    metadata = read_json(metadata_path) if metadata_path.exists() else {}
    path = _checkpoint_path(where, tag, epoch, metadata)
    payload = load_checkpoint(path)
    values = metadata | {k: v for k, v in payload.items() if k != "model_state_dict"}
    try:
        statistics = Statistics.from_dict({"target_array": "target", **values})
    except KeyError as error:
        raise InputError(
            Problem(
                f"neither the checkpoint nor its metadata has {error}",
                "keep the metadata of the model beside it",
                str(path),
            )
        ) from None
    chosen = torch.device(device)
    mesh, template_directory = _template(directory, where)
    network, graph = _network(tag, values, statistics, template_directory, mesh.n_points)
    load_weights(network, payload["model_state_dict"], path)
    coordinates = torch.from_numpy(statistics.normalise_coordinates(mesh.points))
    return Predictor(
        directory,
        path,
        metadata,
        statistics,
        mesh,
        chosen,
        network.to(chosen).eval(),
        coordinates.to(chosen, torch.float32),
        graph.to(chosen) if graph is not None else None,
    )


def _find(directory: Path) -> tuple[str, Path]:
    """Find which network a directory holds, and whether it still trains."""
    for where in (directory, directory / LIVE):
        for tag in TAGS.values():
            if any(where.glob(checkpoint_name(tag).replace(".pt", "*.pt"))):
                return tag, where
    raise InputError(
        Problem(
            "no model is here, finished or with a kept epoch",
            f"give a model directory, which holds {checkpoint_name('mgn')} or its like",
            str(directory),
        )
    )


def _checkpoint_path(where: Path, tag: str, epoch: Epoch, metadata: dict[str, Any]) -> Path:
    kept = sorted(where.glob(checkpoint_name(tag).replace(".pt", "_epoch_*.pt")))
    if epoch is None:
        final = where / checkpoint_name(tag)
        return final if final.exists() else kept[-1]
    if epoch == "best":
        best = metadata.get("best_epoch") if metadata else _best_so_far(kept)
        if best is None:
            raise InputError(
                Problem(
                    "there is no best epoch: nothing was validated",
                    "name an epoch, or train with validation subjects",
                    str(where),
                )
            )
        epoch = int(best)
    path = where / checkpoint_name(tag, epoch)
    if path not in kept:
        numbers = ", ".join(str(int(p.stem.rpartition("_")[2])) for p in kept) or "none"
        raise InputError(Problem(f"epoch {epoch} was not kept", f"kept are: {numbers}", str(path)))
    return path


def _best_so_far(kept: list[Path]) -> int | None:
    """Find the best epoch of a run in progress, from the log in its newest kept model."""
    log = load_checkpoint(kept[-1]).get("training_state", {}).get("rmse_log", []) if kept else []
    judged = [entry for entry in log if entry["val_rmse"] is not None]
    return min(judged, key=lambda entry: entry["val_rmse"])["epoch"] if judged else None


def _template(directory: Path, where: Path) -> tuple[Any, Path]:
    """Read the template of a model; a run in progress has it two folders up."""
    in_progress = directory.parent.parent / "template"
    for folder in (where, in_progress):
        for suffix in (".vtp", ".vtu"):  # MONAI Physio's order
            path = folder / f"pca_mean_template{suffix}"
            if path.exists():
                return read_mesh(path), folder
    raise InputError(
        Problem("the model has no template", "copy pca_mean_template.vtp or .vtu there", str(where))
    )


def _network(
    tag: str, values: dict[str, Any], statistics: Statistics, directory: Path, n_points: int
) -> tuple[nn.Module, nn.Module | None]:
    """Make the network that a checkpoint describes, and its graph if it has one."""
    # Late: PhysicsNeMo takes seconds, and wrong paths should be told before.
    from meshstage.networks import TemplateGraph, build_fully_connected, build_mesh_graph_net

    size = (statistics.n_features, statistics.n_target)
    options = _MLP_OPTIONS if tag == TAGS["mlp"] else _MGN_OPTIONS
    try:
        chosen = {name: int(values[name]) for name in options}
    except KeyError as error:
        raise InputError(
            Problem(f"the model does not tell its {error}", "keep its metadata", str(directory))
        ) from None
    if tag == TAGS["mlp"]:
        return build_fully_connected(*size, **chosen), None
    index, features = (
        torch.load(directory / name, weights_only=True) for name in (EDGE_INDEX, EDGE_FEATURES)
    )
    return build_mesh_graph_net(*size, **chosen), TemplateGraph(index, features, n_points)


_MLP_OPTIONS = ("layer_size", "num_layers")
_MGN_OPTIONS = ("processor_size", "hidden_dim", "num_layers")
