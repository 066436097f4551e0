"""Settings of a training: the one place that knows their help, bounds, defaults and changes."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

from meshstage.config.networks import LOSSES, NetworkKind, split_names
from meshstage.errors import InputError, Problem

Change = Literal["never", "resume", "always"]
"""When a setting may change: in no part of a lineage, in a resumed sibling, or in any start."""


@dataclass(frozen=True)
class Setting:
    """What is known of one setting.

    Parameters
    ----------
    name : str
        The field of `Settings`, the column of runs.tsv, the attribute of a training method; with
        dashes, the option of a script.
    kind : type
        ``int``, ``float`` or ``str``.
    default : Any
        None where it is left to the program.
    help : str
        One line, with the unit.
    change : "never", "resume" or "always"
    minimum, above, maximum, below : float, optional
        Bounds: at least, strictly above, at most, strictly below.
    choices : tuple of str
        Allowed words; empty for any.
    is_list : bool
        Whether the text lists such words, with commas between.
    is_column : bool
        Whether runs.tsv has a column for it; the others are options of the scripts alone.
    """

    name: str
    kind: type
    default: Any
    help: str
    change: Change
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_column: bool = True

    @property
    def option(self) -> str:
        """The option of a script."""
        return f"--{self.name.replace('_', '-')}"

    def checked(self, value: Any) -> Any:
        """Return the value as a plain Python one if it is possible.

        Raises
        ------
        InputError
            With the value and the rule in the sentence. NumPy numbers are numbers.
        """
        if value is None and self.default is None:
            return None
        wanted: type = {int: Integral, float: Real, str: str}[self.kind]
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise InputError(f"{self.name} is {value!r}, it must be {self.rule}")
        plain = self.kind(value)
        if self.kind is not str and not self._within(plain):
            raise InputError(f"{self.name} is {value!r}, it must be {self.rule}")
        words = split_names(plain) if self.is_list else [plain]
        if self.choices and not set(words) <= set(self.choices):
            raise InputError(f"{self.name} is {value!r}, it must be {self.rule}")
        return ",".join(words) if self.is_list else plain

    def parsed(self, text: str) -> Any:
        """Read a cell of a table, or the text of an option.

        Raises
        ------
        InputError
            As `checked` does. ``1_5`` is no number, whatever Python says.
        """
        value: Any = text
        if self.kind is not str and "_" not in text:
            with contextlib.suppress(ValueError):
                value = self.kind(text)
        return self.checked(value)

    def _within(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )

    @property
    def rule(self) -> str:
        """What values are possible, in words."""
        if self.is_list:
            return f"names with commas between, out of {', '.join(self.choices)}"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is str:
            return "text"
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (
                ("at least", self.minimum), ("above", self.above),
                ("at most", self.maximum), ("below", self.below),
            )
            if bound is not None
        ]  # fmt: skip
        noun = "a whole number" if self.kind is int else "a finite number"
        return " ".join([noun, *([f"of {' and '.join(bounds)}"] if bounds else [])])


def _setting(default: Any, text: str, change: Change, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, "change": change, **more})


@dataclass
class Settings:
    """Every setting of every network and loss, with its default.

    A network's row in `config.networks` says which of the options are its own, and where its
    default differs.
    """

    # ---------------------------------------------------------------- of every training
    epochs: int = _setting(
        1500, "total of the lineage, resumed epochs included", "always", minimum=1
    )
    batch_size: int = _setting(4, "samples per rank and step", "resume", minimum=1)
    learning_rate: float = _setting(1e-3, "of Adam; the peak of a cosine", "resume", above=0)
    schedule: str = _setting(
        "constant", "of the learning rate; cosine: a warm-up, then half a cosine down to 0",
        "resume", choices=("constant", "cosine"),
    )  # fmt: skip
    weight_decay: float = _setting(
        0.0, "a step shrinks each weight by this times the learning rate (AdamW)", "resume",
        minimum=0,
    )  # fmt: skip
    grad_clip_norm: float = _setting(1.0, "largest norm of a step's gradient", "resume", above=0)
    score_noise: float = _setting(
        0.0, "deviation of the noise on shape scores in training, standard deviations", "resume",
        minimum=0,
    )  # fmt: skip
    ema: float = _setting(
        0.0, "decay per step of averaged weights, which are then judged and kept (0: none)",
        "resume", minimum=0, below=1,
    )  # fmt: skip
    seed: int = _setting(
        42,
        "of initial weights, sample order, score noise and synthetic scores",
        "resume",
        minimum=0,
    )
    rmse_log_interval: int = _setting(
        100, "epochs between kept and judged models", "always", minimum=1
    )
    loss_log_interval: int = _setting(
        10, "epochs between log lines", "always", minimum=1, is_column=False
    )
    max_skipped_fraction: float = _setting(
        0.1, "part of an epoch's steps that may be skipped as not finite", "always",
        minimum=0, maximum=1, is_column=False,
    )  # fmt: skip
    recovery_interval: int | None = _setting(
        None, "epochs between recovery checkpoints (as often as costs under 1% of the time)",
        "always", minimum=1, is_column=False,
    )  # fmt: skip
    precision: str = _setting(
        "auto", "auto is bf16 on a GPU that has it, else fp32", "resume",
        choices=("auto", "fp32", "bf16", "fp64"), is_column=False,
    )  # fmt: skip
    compile: str = _setting(
        "off", "torch.compile", "always", choices=("off", "auto", "on"), is_column=False
    )
    device_memory_fraction: float = _setting(
        0.5, "part of a GPU's free memory that targets may take for good", "always",
        minimum=0, maximum=1, is_column=False,
    )  # fmt: skip
    losses: str = _setting(
        "", f"loss terms beside the mean squared error, with commas between: {', '.join(LOSSES)}",
        "resume", choices=tuple(LOSSES), is_list=True,
    )  # fmt: skip
    teacher: str = _setting(
        "none", "motion model, fitted on the training subjects, that moves synthetic ones",
        "resume", choices=("none", "gp"),
    )  # fmt: skip
    synthetic_subjects: int = _setting(
        0, "subjects with drawn shape scores to train on too; the teacher gives their motion",
        "resume", minimum=0,
    )  # fmt: skip
    base: str = _setting(
        "none", "motion model, fitted on the training subjects, that the network corrects", "never",
        choices=("none", "stage_mean", "ridge", "gp"),
    )  # fmt: skip
    stage_encoding: str = _setting(
        "raw", "raw is the number itself; cyclic its cosines and sines, as `cycle` says", "never",
        choices=("raw", "cyclic"),
    )  # fmt: skip
    cycle: str = _setting(
        "closed", "closed: the motion comes back, stage 1 is stage 0", "never",
        choices=("closed", "open"), is_column=False,
    )  # fmt: skip
    # ---------------------------------------------------------------- of a network's shape
    processor_size: int = _setting(3, "hops of message passing", "never", minimum=1)
    hidden_dim: int = _setting(128, "width of hidden layers and states", "never", minimum=1)
    layer_size: int = _setting(512, "width of hidden layers", "never", minimum=1)
    num_layers: int = _setting(2, "hidden layers of each MLP", "never", minimum=1)
    num_blocks: int = _setting(4, "transformer blocks", "never", minimum=1)
    num_heads: int = _setting(
        4, "heads of each attention; they divide the width", "never", minimum=1
    )
    num_slices: int = _setting(32, "slices, or learned queries, of each head", "never", minimum=1)
    num_processor_checkpoint_segments: int = _setting(
        0, "segments computed twice to save memory; must divide twice the hops (0: none)", "always",
        minimum=0,
    )  # fmt: skip
    # ---------------------------------------------------------------- of the strain energy
    mu_kpa: float = _setting(10.0, "shear modulus, kPa", "resume", above=0)
    lambda_lame_kpa: float = _setting(100.0, "Lamé's first parameter, kPa", "resume", minimum=0)
    lambda_physics: float = _setting(
        1e-4, "weight of the strain energy density, 1/kPa", "resume", minimum=0
    )
    lambda_volume: float = _setting(1e-3, "weight of the mean of (J - 1)^2", "resume", minimum=0)
    lambda_physics_warmup: int = _setting(
        0, "epochs in which both weights rise from 0", "resume", minimum=0
    )
    mu_array: str | None = _setting(
        None, "cell array of the template: shear modulus by region, kPa", "resume"
    )
    on_bad_elements: str = _setting(
        "error", "what becomes of flat and inverted elements of a reference", "resume",
        choices=("error", "drop"),
    )  # fmt: skip


@cache
def settings() -> dict[str, Setting]:
    """Give every setting by name, in the order of `Settings`."""
    hints = get_type_hints(Settings)
    found = {}
    for item in fields(Settings):
        kinds = [
            kind
            for kind in get_args(hints[item.name]) or (hints[item.name],)
            if kind is not NoneType
        ]
        found[item.name] = Setting(item.name, kinds[0], item.default, **item.metadata)
    return found


def default_of(kind: NetworkKind, name: str) -> Any:
    """Give a network's own default of a setting."""
    return kind.defaults.get(name, settings()[name].default)


def refuse_uneven_heads(given: Mapping[str, Any], kind: NetworkKind) -> None:
    """Refuse a width that the heads of an attention do not divide.

    Raises
    ------
    InputError
        With both numbers in the sentence.
    """
    if "num_heads" not in kind.options:
        return
    width, heads = (given.get(name, default_of(kind, name)) for name in ("hidden_dim", "num_heads"))
    if width % heads:
        what = f"hidden_dim is {width}, which num_heads {heads} does not divide"
        raise InputError(Problem(what, f"take a multiple of {heads}, or other heads"))
