"""Training samples: one per subject and phase, its targets read through the memory map."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.subject import Subject, differences
from meshstage.errors import InputError, raise_if_any


class PhaseSampleDataset(Dataset[tuple[np.ndarray, np.ndarray]]):
    """Samples of some subjects, in the order subject by subject, phase by phase.

    Parameters
    ----------
    subjects : sequence of Subject
        At least one; all on one template, with one width of target and number of scores.
    cache_max_samples : int
        Private copies of targets to keep, oldest dropped first; 0 uses the memory map alone,
        which every process of a machine shares.
    statistics : Statistics, optional
    points : (n_points, 3) array, mm, optional
        Of the template. Both are needed to index the data set: ``dataset[i]`` is normalised.
        Training itself makes the inputs on the device, see `training.inputs`.

    Attributes
    ----------
    shape_scores : (n_samples, n_pca) float64 array, standard deviations
    stages : (n_samples,) float64 array in [0, 1]
    n_points, n_features, n_target : int
        Nodes of the template, inputs per node (x, y, z, scores, stage), components of a target.
    subject_ids : list of str
        One per sample.
    is_stored : bool
        Whether targets are read, and may be kept on a GPU; else they are made batch by batch.

    Raises
    ------
    InputError
        If there is no sample, or subjects differ in shape.
    """

    is_stored = True

    def __init__(
        self,
        subjects: Sequence[Subject],
        cache_max_samples: int = 0,
        statistics: Statistics | None = None,
        points: np.ndarray | None = None,
    ) -> None:
        if not subjects:
            raise InputError("no subject to make samples of: give at least one ingested subject")
        _, self.n_points, self.n_target = subjects[0].targets.shape
        n_pca = len(subjects[0].shape_scores)
        first_has = {"n_points": self.n_points, "n_target": self.n_target, "n_pca": n_pca}
        whose, todo = f"subject {subjects[0].id}", "ingest all subjects on one template"
        raise_if_any(p for s in subjects for p in differences(s, whose, todo, **first_has))
        if cache_max_samples < 0:
            raise InputError(f"cache_max_samples is {cache_max_samples}, it must not be negative")
        self.subjects = list(subjects)
        self.statistics, self._points = statistics, points
        self._mapped = [subject.targets for subject in subjects]
        self._where = [(s, p) for s, subj in enumerate(subjects) for p in range(len(subj.stages))]
        self.subject_ids = [subjects[s].id for s, _ in self._where]
        self.shape_scores = np.stack([subjects[s].shape_scores for s, _ in self._where])
        self.stages = np.array([subjects[s].stages[p] for s, p in self._where])
        self.n_features = 3 + n_pca + 1
        self.cache_max_samples = cache_max_samples
        self._cache: OrderedDict[int, np.ndarray] = OrderedDict()

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Give normalised features (n_points, n_features) and targets (n_points, n_target)."""
        assert self.statistics is not None and self._points is not None, "no statistics and points"
        scores = self.statistics.normalise_scores(self.shape_scores[index])
        shared = np.append(scores, self.stages[index])
        features = np.hstack(
            [
                self.statistics.normalise_coordinates(self._points),
                np.broadcast_to(shared, (self.n_points, len(shared))),
            ]
        )
        targets = np.asarray(self._targets(index)) / np.float32(self.statistics.target_scale)
        return features.astype(np.float32), targets

    def targets(self, indices: Sequence[int]) -> Tensor:
        """Copy the targets of some samples: (len(indices), n_points, n_target) float32."""
        batch = torch.empty((len(indices), self.n_points, self.n_target))
        for row, index in zip(batch.numpy(), indices, strict=True):
            row[...] = self._targets(index)
        return batch

    def describe(self, index: int) -> str:
        """Name a sample as people do: subject, phase and stage."""
        phase, stage = self._where[index][1], self.stages[index]
        return f"subject {self.subject_ids[index]}, phase {phase} (stage {stage:.6g})"

    def _targets(self, index: int) -> np.ndarray:
        subject, phase = self._where[index]
        mapped = self._mapped[subject][phase]
        if not self.cache_max_samples:
            return mapped
        if index not in self._cache:
            self._cache[index] = np.array(mapped)
            if len(self._cache) > self.cache_max_samples:
                self._cache.popitem(last=False)
        return self._cache[index]
