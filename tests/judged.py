"""Small made-up subjects and predictors, for tests of what judges models."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.cohort.statistics import Statistics


@dataclass
class MadeSubject:
    """The attributes of an ingested subject that judging reads."""

    id: str
    stages: np.ndarray
    shape_scores: np.ndarray
    targets: np.ndarray
    reference: np.ndarray | None = None
    is_displacement: bool = True
    target_array: str = "displacement"
    directory: Path = Path("subjects")
    hashes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hashes = self.hashes or {"targets": f"targets of {self.id}"}

    @property
    def stem(self) -> str:
        return self.id


def made_statistics(subjects: list[Any]) -> Statistics:
    """Statistics with means and scales of the shape scores; targets are three wide."""
    scores = np.stack([subject.shape_scores for subject in subjects])
    scale = scores.std(axis=0)
    return Statistics(
        coordinate_mean=(0.0, 0.0, 0.0),
        coordinate_scale=(1.0, 1.0, 1.0),
        pca_mean=tuple(scores.mean(axis=0).tolist()),
        pca_scale=tuple(np.where(scale > 0, scale, 1).tolist()),
        target_scale=1.0,
        n_target=subjects[0].targets.shape[2],
        target_array="displacement",
    )


@dataclass
class MadePredictor:
    """The attributes of a predictor that judging reads; it predicts what it is told."""

    mesh: Any
    answers: dict[bytes, np.ndarray]
    n_pca: int
    metadata: dict[str, Any] = field(default_factory=dict)
    n_target: int = 3
    target_array: str = "displacement"
    calls: int = 0

    @property
    def points(self) -> np.ndarray:
        return np.asarray(self.mesh.points, np.float64)

    def predict(self, shape_scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        self.calls += 1
        answer = self.answers[np.asarray(shape_scores, float).tobytes()]
        assert len(answer) == len(stages)
        return answer.astype(np.float32)


def made_predictor(
    mesh: Any, subjects: list[Any], errors: list[np.ndarray], **metadata: Any
) -> MadePredictor:
    """Make one that answers each subject's truth plus an error, (n_phases, n_points, 3)."""
    answers = {
        subject.shape_scores.tobytes(): subject.targets + error
        for subject, error in zip(subjects, errors, strict=True)
    }
    n_target = subjects[0].targets.shape[2]
    return MadePredictor(mesh, answers, len(subjects[0].shape_scores), metadata, n_target)
