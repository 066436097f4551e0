"""A Gaussian process on the modes of motion, as a model like any other: fitted at once."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.config.networks import NETWORKS
from meshstage.errors import InputError, Problem
from meshstage.files import write_json
from meshstage.models.checkpoint import load_checkpoint, load_weights, save_checkpoint
from meshstage.models.journal import Journal
from meshstage.models.live import RunFolder
from meshstage.models.names import checkpoint_name, metadata_name
from meshstage.models.owner import owned
from meshstage.motion.gaussian_process import GaussianProcess
from meshstage.motion.model import MotionModel
from meshstage.training import record
from meshstage.training.artifacts import copy_template, surroundings
from meshstage.training.base import TrainPhysicsNeMoBase
from meshstage.training.distributed import DistributedContext
from meshstage.training.identity import run_identity
from meshstage.training.motion_tensors import GaussianProcessTensors, combine, interpolation
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.state import RmseEntry

_log = logging.getLogger(__name__)


class GaussianProcessNetwork(GaussianProcessTensors):
    """A Gaussian process that also says how far off it may be."""

    inverse: Tensor
    noise: Tensor
    error_scale: Tensor

    @staticmethod
    def tensors_of(model: MotionModel) -> dict[str, Tensor]:
        """Add what the deviation is computed from."""
        assert isinstance(model, GaussianProcess)
        return GaussianProcessTensors.tensors_of(model) | {
            "inverse": torch.from_numpy(model.inverse),
            "noise": torch.from_numpy(model.kernel.noise),
            "error_scale": torch.from_numpy(model.scale**2 * model.calibration),
        }

    def deviation(self, shape_scores: Tensor, stage: Tensor) -> Tensor:
        """Give what `GaussianProcess.deviation` does.

        Parameters
        ----------
        shape_scores : (B, n_pca) tensor, standard deviations
        stage : (B,) tensor in [0, 1]

        Returns
        -------
        (B, n_points) float64 tensor, units of the target
        """
        x = self.normalised(shape_scores)
        beside = self.covariance(x)
        own = self.linear * x.square().sum(dim=1, keepdim=True) + self.rbf
        explained = torch.einsum("bmi,mij,bmj->bm", beside, self.inverse, beside)
        variances = (self.error_scale * (own - explained + self.noise)).clamp(min=0)
        weights = interpolation(self.stages, stage, self.cycle)
        total = torch.zeros(len(stage), self.fields.shape[1], dtype=torch.float64).to(stage.device)
        for variance, mode in zip(variances.T, self.modes, strict=True):
            motion = combine(weights @ mode, self.fields)
            total = total + variance[:, None] * motion.square().sum(dim=2)
        return total.sqrt()


class FitGaussianProcess(TrainPhysicsNeMoBase):
    """`motion.gaussian_process.GaussianProcess`, or the ridge or mean that it falls back to.

    Attributes
    ----------
    cycle : str
        Whether the motion comes back: "closed" or "open".
    tensor_shapes : dict
        Name to shape of the tensors of the fitted process; empty before.
    """

    kind = NETWORKS["gp"]
    model_tag = kind.tag
    architecture_name = "meshstage.motion.gaussian_process.GaussianProcess"
    epochs = rmse_log_interval = 0

    cycle: str

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.tensor_shapes: dict[str, list[int]] = {}

    def build_model(self, in_features: int, out_features: int) -> GaussianProcessNetwork:
        """Make a process that moves nothing, of the fitted one's size."""
        zeros = {
            # Fields are as many numbers as hundreds of meshes have.
            name: torch.zeros(shape, dtype=torch.float32 if name == "fields" else torch.float64)
            for name, shape in self.tensor_shapes.items()
        }
        return GaussianProcessNetwork(zeros, self.cycle)

    def forward(self, model: nn.Module, node_feats: Tensor, batch_len: int) -> Tensor:
        """Predict from flattened features, whose scores and stage all nodes of a sample share."""
        shared = node_feats.unflatten(0, (batch_len, -1))[:, 0, 3:]
        return self.forward_batch(model, shared[:, :-1], shared[:, -1])

    def forward_batch(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict from normalised scores (B, n_pca) and stages (B,), in float64."""
        motion: Tensor = model(_scores(model, pca), stage)
        return motion / self.inputs.statistics.target_scale

    def deviation_batch(self, model: nn.Module, pca: Tensor, stage: Tensor) -> Tensor:
        """Give the process's own deviation, (B, n_points)."""
        assert isinstance(model, GaussianProcessNetwork)
        return model.deviation(_scores(model, pca), stage) / self.inputs.statistics.target_scale

    def train(
        self,
        train_dataset: PhaseSampleDataset,
        val_dataset: PhaseSampleDataset | None,
        stats: Statistics,
        context: DistributedContext,
        epochs: int,
        output_dir: Path,
        template_mesh: Template,
        template_coords: np.ndarray,
        resume_from: Path | None = None,
    ) -> tuple[nn.Module, list[float], list[RmseEntry]]:
        """Fit on the training subjects and leave a finished model directory.

        Parameters and returned values are those of `TrainPhysicsNeMoBase.train`; without epochs
        there are no losses and no RMSE.

        Raises
        ------
        InputError
            If it is to be resumed, or a finished model of other data or settings stands there.
        """
        if resume_from is not None:
            what = "a Gaussian process is fitted at once: there are no epochs to go on from"
            raise InputError(Problem(what, "start a new run instead", str(resume_from)))
        self.tensor_shapes = {}  # of an earlier fit, which is no setting of this one
        self.check_settings()
        identity = run_identity(self, stats, template_mesh, train_dataset, val_dataset, None)
        folder = RunFolder(Path(output_dir), self.model_tag)

        def fit_or_find() -> None:
            with owned(folder.output) as notice:
                if folder.is_complete(identity):
                    _log.info("%s is complete, nothing to fit", folder.output)
                    return
                folder.open(identity)
                with Journal(folder.output, True, 0) as journal:
                    if notice:
                        journal.say("%s", notice)
                    journal.event("start", epoch=0, epochs=0)
                    process = GaussianProcess.fit(train_dataset.subjects, stats, self.cycle)
                    journal.say("took %(took)s, %(why)s: %(left_out_rmse)s", process.about())
                    datasets = (template_mesh, train_dataset, val_dataset)
                    self._write(folder, identity, process, stats, *datasets)
                    journal.event("end", epoch=0)

        context.decide(fit_or_find)
        path = folder.output / checkpoint_name(self.model_tag)
        found = load_checkpoint(path)
        self.tensor_shapes = found["method"]["options"]["tensor_shapes"]
        network = self.build_model(stats.n_features, stats.n_target)
        load_weights(network, found["model_state_dict"], path)
        return network, [], []

    def _write(
        self,
        folder: RunFolder,
        identity: dict[str, Any],
        process: GaussianProcess,
        stats: Statistics,
        template: Template,
        train: PhaseSampleDataset,
        val: PhaseSampleDataset | None,
    ) -> None:
        """Write all files of the model, and make it a finished one."""
        network = GaussianProcessNetwork.of(process, self.cycle)
        live = folder.live
        self.tensor_shapes = {name: list(t.shape) for name, t in network.state_dict().items()}
        origin = record.origin_of(self, template, train, val)
        names = [checkpoint_name(folder.tag), metadata_name(folder.tag)]
        live.mkdir(parents=True, exist_ok=True)
        save_checkpoint(live / names[0], self.build_checkpoint(network, stats) | origin)
        about = record.describe_model(self, stats, template, train, val) | process.about()
        write_json(live / names[1], about | surroundings(torch.device("cpu")))
        folder.finish(identity, [*names, *copy_template(live, template)])


def _scores(process: nn.Module, pca: Tensor) -> Tensor:
    """Undo the normalisation of scores, which a process does by itself."""
    assert isinstance(process, GaussianProcessNetwork)
    return pca.double() * process.pca_scale + process.pca_mean
