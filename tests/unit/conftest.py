"""Small trained models that several tests ask."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from meshstage.workflow import TrainingResult, WorkflowTrainPhysicsNeMo
from small_models import small_method


@dataclass(frozen=True)
class SmallModels:
    """Trained by the API on the tiny cohort for 3 epochs, each of them kept."""

    results: dict[str, TrainingResult]

    def directory(self, tag: str) -> Path:
        return self.results[tag]["output_directory"]


@pytest.fixture(scope="session")
def small_models(tiny_cohort, tmp_path_factory) -> SmallModels:
    """Train a MeshGraphNet and an MLP; nobody writes into their directories."""
    root = tmp_path_factory.mktemp("small_models")
    results = {
        tag: WorkflowTrainPhysicsNeMo(
            tiny_cohort.manifests["train"],
            tiny_cohort.manifests["val"],
            tiny_cohort.mesh_path,
            root / tag,
            training_method=small_method(tag),
        ).process()
        for tag in ("mgn", "mlp")
    }
    return SmallModels(results)
