"""Settings of a training: which values are possible, and which may change under way."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.errors import InputError
from meshstage.files import sha256
from meshstage.training.samples import PhaseSampleDataset

if TYPE_CHECKING:
    from meshstage.training.base import TrainPhysicsNeMoBase


def positive_integer(name: str, value: int) -> int:
    """Return the value if it is a whole number of at least 1.

    Raises
    ------
    InputError
        With the value in the sentence.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is {value!r}, it must be a whole number of at least 1")
    return value


def positive_number(name: str, value: float) -> float:
    """Return the value if it is a finite number above 0.

    Raises
    ------
    InputError
        With the value in the sentence.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise InputError(f"{name} is {value!r}, it must be a finite number above 0")
    return float(value)


def check_attributes(trainer: "TrainPhysicsNeMoBase") -> None:
    """Check the settings that have no setter.

    Raises
    ------
    InputError
        Naming the first that is impossible.
    """
    for name in ("rmse_log_interval", "loss_log_interval", "recovery_interval"):
        value = getattr(trainer, name)
        if not (name == "recovery_interval" and value is None):
            positive_integer(name, value)
    if isinstance(trainer.seed, bool) or not isinstance(trainer.seed, int) or trainer.seed < 0:
        raise InputError(f"seed is {trainer.seed!r}, it must be a whole number of at least 0")
    for name in ("max_skipped_fraction", "device_memory_fraction"):
        if not 0 <= getattr(trainer, name) <= 1:
            raise InputError(f"{name} is {getattr(trainer, name)!r}, it must be within 0 and 1")


def run_settings(
    trainer: "TrainPhysicsNeMoBase",
    statistics: Statistics,
    template: Template,
    train: PhaseSampleDataset,
    val: PhaseSampleDataset | None,
    resume_from: Path | None,
) -> dict[str, Any]:
    """Collect what a run in progress, or a finished one, must agree with.

    Returns
    -------
    dict
        ``fixed``: settings and data that may not change; ``epochs`` and ``rmse_log_interval``,
        which may within reason. What only logs or computes elsewhere is left out.
    """
    fixed: dict[str, Any] = {
        "network": trainer.architecture_name,
        **function_fields(trainer),
        "seed": trainer.seed,
        "batch_size": trainer.batch_size,
        "learning_rate": trainer.learning_rate,
        "grad_clip_norm": trainer.grad_clip_norm,
        "precision": trainer.precision,
        "statistics": statistics.digest()[:16],
        "template": template.fingerprint[:16],
    }
    for split, dataset in (("train", train), ("val", val)):
        for subject in dataset.subjects if dataset else ():
            hashes = json.dumps(subject.hashes, sort_keys=True)
            fixed[f"data of {split} subject {subject.id}"] = sha256(hashes)[:16]
    if resume_from is not None:
        content = hashlib.sha256(Path(resume_from).read_bytes()).hexdigest()
        fixed["checkpoint resumed from"] = content[:16]
    return {
        "fixed": fixed,
        "epochs": trainer.epochs,
        "rmse_log_interval": trainer.rmse_log_interval,
    }


def function_fields(trainer: "TrainPhysicsNeMoBase") -> dict[str, Any]:
    """Give the numbers of ``build_model`` that change what is learned."""
    fields = trainer.checkpoint_fields()
    return {key: value for key, value in fields.items() if key not in trainer.hardware_fields}
