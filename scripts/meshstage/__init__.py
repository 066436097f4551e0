"""Predict how an organ's mesh moves: the library behind the workflow and its scripts.

The names of the Python API are loaded when they are asked for: ``import meshstage`` loads neither
PyTorch nor PhysicsNeMo, which take seconds.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "WorkflowTrainPhysicsNeMo": "workflow",
    "WorkflowInferPhysicsNeMo": "workflow",
    "TrainPhysicsNeMoBase": "training.base",
    "TrainPhysicsNeMoMGN": "training.mgn",
    "TrainPhysicsNeMoMLP": "training.mlp",
    "TrainPhysicsNeMoPhysicsInformedMotion": "training.physics",
    "PhaseSampleDataset": "training.samples",
    "DistributedContext": "training.distributed",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
