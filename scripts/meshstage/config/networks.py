"""The registry of networks and losses: everything that is known of one without importing torch."""

from dataclasses import dataclass, field
from typing import Any

COMMON = (
    "epochs", "batch_size", "learning_rate", "grad_clip_norm", "seed", "rmse_log_interval",
    "loss_log_interval", "max_skipped_fraction", "recovery_interval", "precision", "compile",
    "device_memory_fraction",
)  # fmt: skip
"""Settings that every training has."""


@dataclass(frozen=True)
class LossKind:
    """One loss term that any network may have beside the mean squared error.

    Parameters
    ----------
    name : str
        In the column ``losses`` of runs.tsv.
    term : str
        ``module:Class`` of what computes it.
    options : tuple of str
        Its settings.
    needs_tetrahedra : bool
        Of the template, and targets that are displacements.
    """

    name: str
    term: str
    options: tuple[str, ...]
    needs_tetrahedra: bool = False


LOSSES = {
    kind.name: kind
    for kind in (
        LossKind(
            "strain_energy",
            "meshstage.losses.strain_energy:StrainEnergy",
            (
                "mu_kpa", "lambda_lame_kpa", "lambda_physics", "lambda_volume",
                "lambda_physics_warmup", "mu_array", "on_bad_elements",
            ),
            needs_tetrahedra=True,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class NetworkKind:
    """One network that can be trained.

    Parameters
    ----------
    name : str
        In the column ``network`` of runs.tsv; the script is ``scripts/train_{name}.py``.
    tag : str
        Of the file names in a model directory.
    method : str
        ``module:Class`` of the training method.
    title : str
        One line for ``--help`` and tables.
    options : tuple of str
        Settings that only this network has.
    defaults : dict
        Settings whose default differs from `Settings`.
    losses : tuple of str
        Loss terms that it always has, by their name in `LOSSES`.
    needs_edges : bool
        Whether it has a graph: the model directory holds its edges.
    """

    name: str
    tag: str
    method: str
    title: str
    options: tuple[str, ...]
    defaults: dict[str, Any] = field(default_factory=dict)
    losses: tuple[str, ...] = ()
    needs_edges: bool = False


_MGN = ("processor_size", "hidden_dim", "num_layers", "num_processor_checkpoint_segments")

NETWORKS = {
    kind.name: kind
    for kind in (
        NetworkKind(
            "mgn",
            "mgn",
            "meshstage.training.mgn:TrainPhysicsNeMoMGN",
            "MeshGraphNet: a vertex sees its neighbours, processor_size edges far",
            _MGN,
            needs_edges=True,
        ),
        NetworkKind(
            "mlp",
            "mlp",
            "meshstage.training.mlp:TrainPhysicsNeMoMLP",
            "fully connected: every vertex for itself",
            ("layer_size", "num_layers"),
            defaults={"batch_size": 32, "num_layers": 6},
        ),
        NetworkKind(
            "physics",
            "physics_informed_motion",
            "meshstage.training.physics:TrainPhysicsNeMoPhysicsInformedMotion",
            "MeshGraphNet with a strain energy in its loss",
            _MGN,
            losses=("strain_energy",),
            needs_edges=True,
        ),
    )
}
