"""Networks that train in a blink, and the comparison of what was trained."""

from pathlib import Path

import torch

from meshstage.training.base import TrainPhysicsNeMoBase


def small_method(tag: str, epochs: int = 3) -> TrainPhysicsNeMoBase:
    """Make an untrained network by its tag; each epoch is kept."""
    from meshstage.training.mgn import TrainPhysicsNeMoMGN
    from meshstage.training.mlp import TrainPhysicsNeMoMLP

    method = TrainPhysicsNeMoMGN() if tag == "mgn" else TrainPhysicsNeMoMLP()
    if isinstance(method, TrainPhysicsNeMoMGN):
        method.set_processor_size(2)
        method.set_hidden_dim(8)
    else:
        method.set_layer_size(16)
        method.set_num_layers(3)
    method.set_epochs(epochs)
    method.set_batch_size(4)
    method.rmse_log_interval = 1
    return method


def different_weights(one: Path, other: Path) -> list[str]:
    """Name the weights in which two checkpoints differ by a bit, or that only one has."""
    a, b = (torch.load(path, weights_only=True)["model_state_dict"] for path in (one, other))
    return sorted(k for k in {*a, *b} if k not in a or k not in b or not torch.equal(a[k], b[k]))
