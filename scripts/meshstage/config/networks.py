"""The registry of networks and losses: everything that is known of one without importing torch."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshstage.errors import InputError, Problem
from meshstage.files import read_text

COMMON = (
    "epochs", "batch_size", "learning_rate", "schedule", "weight_decay", "score_noise", "ema",
    "grad_clip_norm", "seed", "rmse_log_interval", "loss_log_interval", "max_skipped_fraction",
    "recovery_interval", "precision", "compile", "device_memory_fraction", "losses",
    "teacher", "synthetic_subjects",
    "base", "stage_encoding", "cycle",
)  # fmt: skip
"""Settings that every training in epochs has."""

FUNCTION = ("base", "stage_encoding", "cycle")
"""Those of them that a model computes with, whatever its network is."""

_UNKNOWN = "meshstage_"


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
    has_epochs : bool
        Whether it is trained epoch by epoch, and can be resumed; otherwise it is fitted at once,
        without a GPU, and has its own options alone.
    is_small : bool
        Whether it moves modes, and is trained on a CPU in less time than the imports take.
    file : Path, optional
        Where the class stands, for a network of the user's own.
    """

    name: str
    tag: str
    method: str
    title: str
    options: tuple[str, ...]
    defaults: dict[str, Any] = field(default_factory=dict)
    losses: tuple[str, ...] = ()
    needs_edges: bool = False
    has_epochs: bool = True
    is_small: bool = False
    file: Path | None = None

    def losses_with(self, more: str = "") -> tuple[str, ...]:
        """Names of its loss terms: its own, and those of a cell of the column ``losses``."""
        return tuple(dict.fromkeys([*self.losses, *split_names(more)]))

    def settings_with(self, losses: str = "") -> tuple[str, ...]:
        """Names of the settings that it has, given a cell of the column ``losses``."""
        if not self.has_epochs:
            return self.options
        of_losses = (LOSSES[name].options for name in self.losses_with(losses))
        return (*COMMON, *self.options, *(option for options in of_losses for option in options))


def tag_of(tag: str, settings: Mapping[str, Any]) -> str:
    """Give the tag of a model's files, from its network's and its settings.

    MONAI Physio knows the networks' tags, and would compute a plain function of raw inputs: a
    model that computes more gets a tag that it refuses.
    """
    plain = settings.get("base", "none") == "none" and settings.get("stage_encoding") != "cyclic"
    return tag if plain or not is_plain(tag) else _UNKNOWN + tag


def is_plain(tag: str) -> bool:
    """Whether a model is its network alone, a function of normalised raw inputs."""
    return not tag.startswith(_UNKNOWN)


def split_names(cell: str) -> list[str]:
    """Split a cell that lists names.

    >>> split_names("mgn, mlp,")
    ['mgn', 'mlp']
    """
    return [name for part in cell.split(",") if (name := part.strip())]


_TRANSFORMER = ("hidden_dim", "num_blocks", "num_heads", "num_slices")
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
        NetworkKind(
            "pod",
            "meshstage_pod",
            "meshstage.training.pod:TrainPhysicsNeMoPOD",
            "fully connected: from shape scores and stage to coefficients of motion modes",
            ("layer_size", "num_layers"),
            defaults={
                "batch_size": 32,
                "layer_size": 128,
                "num_layers": 4,
                "stage_encoding": "cyclic",
            },
            is_small=True,
        ),
        NetworkKind(
            "deeponet",
            "deeponet",
            "meshstage.training.deeponet:TrainPhysicsNeMoDeepONet",
            "DeepONet: products of what a sample and what a vertex is",
            ("layer_size", "num_layers"),
            defaults={"batch_size": 32, "layer_size": 128, "num_layers": 4},
        ),
        NetworkKind(
            "transolver",
            "transolver",
            "meshstage.training.transolver:TrainPhysicsNeMoTransolver",
            "Transolver: a transformer whose vertices attend to slices of the mesh",
            _TRANSFORMER,
            defaults={"hidden_dim": 64},
        ),
        NetworkKind(
            "flare",
            "flare",
            "meshstage.training.flare:TrainPhysicsNeMoFLARE",
            "FLARE: a transformer that gathers vertices into learned queries",
            _TRANSFORMER,
            defaults={"hidden_dim": 64},
        ),
        NetworkKind(
            "geotransolver",
            "geotransolver",
            "meshstage.training.geotransolver:TrainPhysicsNeMoGeoTransolver",
            "GeoTransolver: a Transolver that is told of geometry and sample in each block",
            _TRANSFORMER,
            defaults={"hidden_dim": 64},
        ),
        NetworkKind(
            "gp",
            "meshstage_gp",
            "meshstage.training.gp:FitGaussianProcess",
            "Gaussian process: modes of whole cycles from shape scores, fitted at once",
            ("cycle",),
            has_epochs=False,
            is_small=True,
        ),
    )
}


def refuse_foreign(given: Mapping[str, Any], kind: NetworkKind) -> None:
    """Refuse settings that neither a network nor one of its loss terms has, or that contradict.

    Raises
    ------
    InputError
        Naming the first, and what has it.
    """
    for name in given:
        if name not in kind.settings_with(given.get("losses", "")):
            if name in COMMON or not kind.has_epochs:
                what = f"{name} is a setting of a training in epochs, and {kind.name} is fitted"
                raise InputError(Problem(f"{what} at once", "leave it out"))
            owners = [other.name for other in NETWORKS.values() if name in other.options]
            losses = [loss.name for loss in LOSSES.values() if name in loss.options]
            owner = f"network {', '.join(owners)}" if owners else f"the loss {', '.join(losses)}"
            todo = "leave it out" if owners else f"leave it out, or add {losses[0]} to losses"
            raise InputError(
                Problem(f"{name} is an option of {owner}, and this is {kind.name}", todo)
            )
    refuse_contradictions({**given, "losses": kind.losses_with(given.get("losses", ""))})


def refuse_contradictions(given: Mapping[str, Any]) -> None:
    """Refuse settings that do not go together, whatever the network.

    Raises
    ------
    InputError
        Naming them.
    """
    taught, number = given.get("teacher", "none") != "none", given.get("synthetic_subjects", 0)
    if taught and not number:
        raise InputError(
            Problem(
                f"teacher is {given['teacher']} without synthetic_subjects", "give their number"
            )
        )
    if number and not taught:
        what = f"synthetic_subjects is {number}, and no teacher knows their motion"
        raise InputError(Problem(what, "add teacher, as in gp"))
    if taught and given.get("losses"):
        what = "synthetic subjects have no mesh at rest, which the loss strain_energy needs"
        raise InputError(Problem(what, "leave out the teacher, or the loss"))


def parse_options(text: str) -> dict[str, Any]:
    """Read the options of a network of the user's own.

    Raises
    ------
    InputError
        If the text is no JSON object.
    """
    try:
        options = json.loads(text)
    except ValueError as error:
        raise InputError(
            Problem(f"options is {text}, no JSON ({error})", 'write it as {"width": 32}')
        ) from None
    if not isinstance(options, dict):
        raise InputError(Problem(f"options is {text}, no JSON object", 'write it as {"width": 32}'))
    return options


def needs_edges(names: str) -> bool:
    """Whether one of these networks, listed with commas, is a graph."""
    return any(NETWORKS[name].needs_edges for name in split_names(names) if name in NETWORKS)


def needs_tetrahedra(names: str) -> bool:
    """Whether one of these networks and loss terms needs tetrahedra and displacements."""
    listed = split_names(names)
    losses = [loss for name in listed if name in NETWORKS for loss in NETWORKS[name].losses]
    losses += [name for name in listed if name in LOSSES]
    return any(LOSSES[loss].needs_tetrahedra for loss in losses)


OWN_TAG = "own"
"""Tag of a network of the user's own whose class names none."""


def is_own(network: str) -> bool:
    """Whether a cell of the column ``network`` names a class in a file of the user's."""
    return network.partition(":")[0].endswith(".py")


def kind_of(network: str, folder: Path) -> NetworkKind:
    """Give the row of a network; for one of the user's own it is read from the file's text.

    Parameters
    ----------
    network : str
        A name in `NETWORKS`, or ``path/to/file.py:Class``.
    folder : Path
        What a relative path is relative to: that of the table of runs.

    Raises
    ------
    InputError
        If there is no such network, file or class.
    """
    if network in NETWORKS:
        return NETWORKS[network]
    if not is_own(network):
        raise InputError(
            Problem(
                f"network is {network!r}, which is none of {', '.join(NETWORKS)}",
                "write one of them, or path/to/file.py:Class for a network of your own",
            )
        )
    name, _, class_name = network.partition(":")
    path = folder / name
    if not class_name.isidentifier():
        raise InputError(
            Problem(f"network is {network!r}, without a class", f"write {name}:NameOfTheClass")
        )
    return NetworkKind(
        network,
        _own_tag(path, class_name),
        f"{path}:{class_name}",
        f"network of your own, {class_name}",
        options=(),
        file=path,
    )


def _own_tag(path: Path, class_name: str) -> str:
    """Read ``model_tag`` from the body of a class, without running the file."""
    try:
        body = ast.parse(read_text(path)).body
    except (SyntaxError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(Problem(f"is no Python file ({error})", "mend it", str(path))) from None
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    if class_name not in classes:
        raise InputError(
            Problem(
                f"has no class {class_name!r}",
                f"name one of {', '.join(classes)}" if classes else "write one",
                str(path),
            )
        )
    for node in classes[class_name].body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "model_tag" for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return OWN_TAG
