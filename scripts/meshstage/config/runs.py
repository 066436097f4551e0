"""The table of runs, and the runs that the configuration resumes from them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshstage.config.networks import (
    FUNCTION,
    NETWORKS,
    NetworkKind,
    kind_of,
    parse_options,
    refuse_foreign,
    tag_of,
)
from meshstage.config.settings import Setting, default_of, refuse_uneven_heads, settings
from meshstage.config.sweeps import expand
from meshstage.config.tables import Row, read_table
from meshstage.errors import InputError, Problem, at, raise_if_any
from meshstage.models.names import checkpoint_epochs

COLUMNS = {
    "run": "name, not ending in `_` and a number: resumed runs are called so",
    "network": f"{', '.join(f'`{name}`' for name in NETWORKS)}, or `path/to/file.py:Class`: "
    "a network of your own",
    "options": 'network of your own: its settings, a JSON object as in `{"width": 32}`',
}
"""Columns of runs.tsv that are no settings, and what they mean."""

# A name that ends in _1 would be the first run that is resumed from another.
_NAME = re.compile(r"(?!.*_[0-9]+$)[A-Za-z0-9][A-Za-z0-9._-]*")

_FROM_EPOCH = Setting("from_epoch", int, None, "a kept epoch of the parent", "resume", minimum=1)


@dataclass(frozen=True)
class Run:
    """One model that is to be trained.

    Parameters
    ----------
    name : str
        Of its directory.
    kind : NetworkKind
    settings : dict
        What its row says, and ``epochs`` and ``rmse_log_interval`` in any case where there are
        epochs.
    options : dict
        Of a network of the user's own.
    parent : Run, optional
        Whose checkpoint it starts from.
    number : int
        Of a resumed run, from 1.
    start : int
        The epoch that it starts at.
    """

    name: str
    kind: NetworkKind
    settings: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    parent: "Run | None" = None
    number: int = 0
    start: int = 0

    @property
    def epochs(self) -> int:
        """Total of the lineage."""
        return int(self.settings["epochs"])

    @property
    def tag(self) -> str:
        """Of the names of its model's files."""
        own = {name: default_of(self.kind, name) for name in FUNCTION}
        return tag_of(self.kind.tag, own | self.settings)

    @property
    def kept_epochs(self) -> list[int]:
        """Epochs whose model is kept."""
        if not self.kind.has_epochs:
            return []
        return checkpoint_epochs(self.start, self.epochs, self.settings["rmse_log_interval"])

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of its loss terms beside the mean squared error."""
        return self.kind.losses_with(self.settings.get("losses", ""))


def columns() -> dict[str, Setting]:
    """Give the settings that are columns of runs.tsv."""
    return {name: setting for name, setting in settings().items() if setting.is_column}


def read_runs(path: Path) -> dict[str, Run]:
    """Read the table of runs, by name and in its order; a row with a sweep is several runs.

    Raises
    ------
    InputError
        With every wrong column and row: a cell, a repeated name, an option of another network,
        a network whose file or class is missing.
    """
    runs: dict[str, Run] = {}
    problems: list[Problem] = []
    for row in read_table(path, [*COLUMNS, *columns()], ("run", "network")):
        where = f"{path}, line {row.line}"
        try:
            _check_name(row)
            for one in expand(row, name="run", not_swept="options"):
                run = _parse_row(one, path.parent)
                if run.name.casefold() in {name.casefold() for name in runs}:
                    raise InputError(
                        Problem(f"the run {run.name!r} is listed already", "give each its own name")
                    )
                runs[run.name] = run
        except InputError as error:
            for problem in error.problems:
                place = f"{where}, {problem.file}" if problem.file else where
                problems.append(replace(problem, file=place))
    raise_if_any(problems)
    return runs


def _check_name(row: Row) -> None:
    for column in ("run", "network"):
        if column not in row.cells:
            raise InputError(Problem(f"the cell of {column} is empty", "fill it in"))
    name = row.cells["run"]
    if not _NAME.fullmatch(name):
        raise InputError(
            Problem(f"run is {name!r}: this name is not allowed", f"it means: {COLUMNS['run']}")
        )


def _parse_row(row: Row, folder: Path) -> Run:
    kind = kind_of(row.cells["network"], folder)
    options = _options(row.cells.get("options"), kind)
    given = {key: columns()[key].parsed(c) for key, c in row.cells.items() if key not in COLUMNS}
    refuse_foreign(given, kind)
    refuse_uneven_heads(given, kind)
    needed = ("epochs", "rmse_log_interval") if kind.has_epochs else ()
    return Run(
        row.cells["run"], kind, {key: default_of(kind, key) for key in needed} | given, options
    )


def _options(cell: str | None, kind: NetworkKind) -> dict[str, Any]:
    if cell is None:
        return {}
    if kind.file is None:
        raise InputError(
            Problem(f"options are of a network of your own, and this is {kind.name}", "use columns")
        )
    return parse_options(cell)


def resumed_runs(
    resume: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Run]
) -> dict[str, Run]:
    """Resolve the runs that are resumed from others.

    Parameters
    ----------
    resume : mapping
        ``{run}_{n}`` to what changes: any column that may change on a resume, and ``from_epoch``;
        n counts from 1, without gaps.
    runs : mapping
        Of `read_runs`.

    Raises
    ------
    InputError
        If a sibling has no parent, its epochs are not above its start, or it changes what cannot
        change.
    """
    resolved: dict[str, Run] = {}
    wrong = [name for name in resume if not re.fullmatch(r".+_[1-9][0-9]*", name)]
    if wrong:
        raise InputError(
            Problem(
                f"{wrong[0]!r} is no name of a resumed run",
                "write the run, an underscore and a number from 1, as in mgn_1",
                "resume in the configuration",
            )
        )
    for name in sorted(resume, key=lambda key: int(key.rpartition("_")[2])):
        base, _, number = name.rpartition("_")
        parent_name = base if number == "1" else f"{base}_{int(number) - 1}"
        parent = resolved.get(parent_name) or runs.get(parent_name)
        with at(f"resume.{name} in the configuration"):
            if parent is None:
                raise InputError(
                    Problem(f"there is no run {parent_name!r} to resume", "list it first")
                )
            resolved[name] = _resume(name, int(number), parent, resume[name])
    return resolved


def _resume(name: str, number: int, parent: Run, changes: Mapping[str, Any]) -> Run:
    if not parent.kind.has_epochs:
        what = f"{parent.name!r} is fitted at once: there are no epochs to go on from"
        raise InputError(Problem(what, "list a new run instead"))
    free = {key: setting for key, setting in columns().items() if setting.change != "never"}
    known = {"from_epoch": _FROM_EPOCH, **free}
    for key in changes:
        if key in columns() and key not in free:
            raise InputError(
                Problem(f"{key} cannot change when a run is resumed", "list a new run instead")
            )
        if key not in known:
            raise InputError(
                Problem(f"unknown key {key!r}", f"remove it; the keys here are {', '.join(known)}")
            )
    # YAML 1.1 takes `1e-4` for text, and Snakemake's --config all that is nested.
    given = {
        key: known[key].parsed(value) if isinstance(value, str) else known[key].checked(value)
        for key, value in changes.items()
    }
    start = given.pop("from_epoch", None) or parent.epochs
    if "epochs" not in given:
        raise InputError(Problem("the key 'epochs' is missing", "add it: the lineage's total"))
    changed = parent.settings | given
    refuse_foreign(changed, parent.kind)
    if start not in parent.kept_epochs:
        raise InputError(
            Problem(
                f"from_epoch is {start}, an epoch that {parent.name!r} does not keep",
                f"take one of {', '.join(map(str, parent.kept_epochs))}",
            )
        )
    if given["epochs"] <= start:
        raise InputError(
            Problem(
                f"epochs is {given['epochs']}, but {parent.name!r} is already at {start}",
                "epochs is the total of the lineage: raise it",
            )
        )
    return replace(parent, name=name, settings=changed, parent=parent, number=number, start=start)
