"""The whole job that ours is compared with: from manifests to a trained MeshGraphNet, plainly.

What a user's loop on PhysicsNeMo does, in the manner of MONAI Physio: manifests and shape scores
from JSON, one pass over the training files for the scale of the targets, then epochs of
``reference_step.py`` whose dataset parses a sample's VTK file each time that it is asked for it.
Batched graphs are made once. Weights begin as ours do, samples come in our order, and clipping,
Adam and the learning rate are ours, so that both learn the same.

MONAI Physio's dataset keeps the arrays that it has read, all of them unless told to keep fewer;
the time of reading again is therefore counted apart.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyvista as pv
import torch
from reference_step import ReferenceGraph, reference_mesh_graph_net, repeat_graph
from torch import Tensor, nn

from meshstage.networks import build_mesh_graph_net
from meshstage.training.plan import epoch_order


@dataclass
class VtkFiles:
    """Parses files, and notes the time of it; ``again_s`` for files that it has parsed before."""

    array: str = ""
    seconds: float = 0.0
    again_s: float = 0.0
    seen: set[Path] = field(default_factory=set)

    def targets(self, path: Path) -> np.ndarray:
        """Read a phase's targets, (n_points, n_target) float32."""
        start = time.perf_counter()
        values = np.asarray(pv.read(path).point_data[self.array], dtype=np.float32)
        taken = time.perf_counter() - start
        self.seconds += taken
        self.again_s += taken if path in self.seen else 0.0
        self.seen.add(path)
        return values.reshape(len(values), -1)


@dataclass(frozen=True)
class Samples:
    """One a phase: its file, its subject's normalised scores, and its stage."""

    files: list[Path]
    scores: np.ndarray  # (n_samples, n_pca)
    stages: np.ndarray  # (n_samples,)


@dataclass(frozen=True)
class Job:
    """What is trained and how; the same numbers go into ours."""

    mesh: Path
    train: Sequence[Path]
    val: Sequence[Path]
    epochs: int
    hidden: int
    hops: int
    batch: int
    seed: int = 42
    learning_rate: float = 1e-3
    clip_norm: float = 1.0


class ReferenceLoop:
    """Trains one job; its RMSE are in the targets' units."""

    def __init__(self, job: Job) -> None:
        self.job, self.vtk = job, VtkFiles()
        template = pv.read(job.mesh)
        points = np.asarray(template.points, np.float32)
        self.coordinates = (points - points.mean(axis=0)) / points.std(axis=0)
        self.edge_index, self.edge_features = graph_of(template, points)
        self.graphs: dict[int, ReferenceGraph] = {}
        self.train, self.val = self._samples(job.train), self._samples(job.val)
        by_subject = np.array([shape_scores(path) for path in job.train], np.float32)
        mean, scale = by_subject.mean(axis=0), by_subject.std(axis=0)
        for samples in (self.train, self.val):
            samples.scores[...] = (samples.scores - mean) / np.where(scale > 0, scale, 1.0)
        largest = [float(np.abs(self.vtk.targets(path)).max()) for path in self.train.files]
        self.target_scale = max(largest)

    def _samples(self, manifests: Sequence[Path]) -> Samples:
        files, scores, stages = [], [], []
        for path in manifests:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            home, self.vtk.array = path.parent, manifest["target_array"]
            n_points = pv.read(home / manifest["fitted_reference_mesh"]).n_points
            assert n_points == len(self.coordinates), f"{path}: {n_points} points"
            of_subject = shape_scores(path)
            for phase in manifest["phases"]:
                files.append(home / phase["mesh"])
                scores.append(of_subject)
                stages.append(phase["stage"])
        return Samples(files, np.array(scores, np.float32), np.array(stages, np.float32))

    def run(self, checkpoint: Path) -> dict[str, float]:
        """Train, judge and save; give the RMSE of both splits."""
        job = self.job
        torch.manual_seed(job.seed)
        n_features, n_target = 3 + self.train.scores.shape[1] + 1, 3
        self.model = build_mesh_graph_net(n_features, n_target, job.hops, job.hidden)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=job.learning_rate)
        for epoch in range(1, job.epochs + 1):
            order = epoch_order(job.seed, epoch, len(self.train.files))
            total = 0.0
            for features, targets in self._batches(self.train, order):
                optimizer.zero_grad(set_to_none=True)
                loss = nn.functional.mse_loss(self._predict(features), targets)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), job.clip_norm)
                optimizer.step()
                total += float(loss.detach()) * len(features)
        torch.save({"model_state_dict": self.model.state_dict()}, checkpoint)
        return {"train_rmse": self._rmse(self.train), "val_rmse": self._rmse(self.val)}

    def _batches(self, samples: Samples, order: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """Build features and targets of a batch on the host, a sample after the other."""
        n_points = len(self.coordinates)
        for start in range(0, len(order), self.job.batch):
            features, targets = [], []
            for index in order[start : start + self.job.batch]:
                scores = np.tile(samples.scores[index], (n_points, 1))
                stage = np.full((n_points, 1), samples.stages[index], np.float32)
                row = np.hstack([self.coordinates, scores, stage]).astype(np.float32)
                features.append(row)
                targets.append(self.vtk.targets(samples.files[index]) / self.target_scale)
            yield torch.from_numpy(np.vstack(features)), torch.from_numpy(np.vstack(targets))

    def _predict(self, features: Tensor) -> Tensor:
        """Predict (batch * n_points, n_target) from as many rows of features."""
        n_points = len(self.coordinates)
        n = len(features) // n_points
        if n not in self.graphs:
            self.graphs[n] = repeat_graph(self.edge_index, self.edge_features, n_points, n)
        return reference_mesh_graph_net(self.model, features, self.graphs[n])

    @torch.no_grad()
    def _rmse(self, samples: Samples) -> float:
        squared, n_rows = 0.0, 0
        for features, targets in self._batches(samples, np.arange(len(samples.files))):
            squared += float((self._predict(features) - targets).double().square().sum())
            n_rows += len(targets)
        return math.sqrt(squared / n_rows) * self.target_scale


def shape_scores(manifest: Path) -> list[float]:
    """Read the scores of a manifest's subject, (n_pca,)."""
    pca = json.loads(manifest.read_text(encoding="utf-8"))["pca_coefficients"]
    scores: list[float] = json.loads((manifest.parent / pca).read_text(encoding="utf-8"))
    return scores


def graph_of(mesh: Any, points: np.ndarray) -> tuple[Tensor, Tensor]:
    """Give a surface's edges in both directions, (2, n_edges), and ``[dx, dy, dz, length]``."""
    triangles = mesh.triangulate().regular_faces
    pairs = np.concatenate([triangles[:, [a, b]] for a, b in ((0, 1), (1, 2), (2, 0))])
    edges = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0).T
    difference = points[edges[1]] - points[edges[0]]
    length = np.linalg.norm(difference, axis=1, keepdims=True)
    features = np.hstack([difference, length]).astype(np.float32)
    return torch.from_numpy(edges.astype(np.int64)), torch.from_numpy(features)
