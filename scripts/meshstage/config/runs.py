"""The workflow's settings: config.yaml and runs.tsv, checked against their schemas."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from meshstage.config.networks import NETWORKS
from meshstage.errors import InputError, Problem
from meshstage.files import read_text
from meshstage.models.names import checkpoint_epochs


def check_config(config: Mapping[str, Any], schema_file: Path, name: str) -> dict[str, Any]:
    """Check the configuration and fill in defaults.

    Parameters
    ----------
    config : mapping
        As Snakemake merged it from files and the command line.
    schema_file : Path
    name : str
        What to call it in a sentence.

    Raises
    ------
    InputError
        With every key that is unknown, missing or has a wrong value.
    """
    schema = _load_schema(schema_file)
    return _checked(_with_numbers(dict(config), schema), schema, name)


def read_runs(path: Path, schema_file: Path) -> dict[str, dict[str, Any]]:
    """Read the table of runs: by name, what differs from a network's defaults.

    Raises
    ------
    InputError
        With every unknown column, wrong cell, repeated name and option of another network.
    """
    schema = _load_schema(schema_file)
    columns = schema["properties"]
    table = csv.DictReader(read_text(path).splitlines(), delimiter="\t")
    unknown = [str(name) for name in table.fieldnames or () if name not in columns]
    if unknown:
        raise InputError(
            Problem(
                f"unknown column {', '.join(map(repr, unknown))}",
                f"the columns are {', '.join(columns)}",
                str(path),
            )
        )
    runs: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for line, cells in enumerate(table, start=2):
        where = f"{path}, line {line}"
        if None in cells:
            problems.append(Problem("more cells than columns", "mend the row", where))
            continue
        # An empty cell means the network's default.
        given = {key: _parse(cell, columns[key]) for key, cell in cells.items() if cell}
        try:
            run = _checked(given, schema, where)
            _check_row(run, runs, where)
        except InputError as error:
            problems += error.problems
        else:
            runs[run["run"]] = run
    if not runs and not problems:
        problems.append(Problem("no run is listed", "add a row with run and network", str(path)))
    if problems:
        raise InputError(*problems)
    return runs


def resumed_runs(
    resume: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Resolve the runs that are resumed from others.

    Parameters
    ----------
    resume : mapping
        ``{run}_{n}`` to what changes; n counts from 1, without gaps.
    runs : mapping
        Of `read_runs`.

    Returns
    -------
    dict
        By name, settings like those of a run, and ``parent`` (the run or sibling whose
        checkpoint it starts from), ``base`` (the run that it is called after), ``number``,
        ``start`` (the epoch that it starts at).

    Raises
    ------
    InputError
        If a sibling has no parent, or its epochs are not above its start.
    """
    resolved: dict[str, dict[str, Any]] = {}
    for name in sorted(resume, key=lambda key: int(key.rpartition("_")[2])):
        base, _, number = name.rpartition("_")
        parent = base if number == "1" else f"{base}_{int(number) - 1}"
        settings = resolved.get(parent) or runs.get(parent)
        where = f"resume.{name} in the configuration"
        if settings is None:
            raise InputError(
                Problem(f"there is no run {parent!r} to resume", "list it first", where)
            )
        changes = dict(resume[name])
        kept = checkpoint_epochs(
            settings.get("start", 0), settings["epochs"], settings["rmse_log_interval"]
        )
        start = changes.pop("from_epoch", settings["epochs"])
        if start not in kept:
            raise InputError(
                Problem(
                    f"from_epoch is {start}, an epoch that {parent!r} does not keep",
                    f"take one of {', '.join(map(str, kept))}",
                    where,
                )
            )
        if changes["epochs"] <= start:
            raise InputError(
                Problem(
                    f"epochs is {changes['epochs']}, but {parent!r} is already at {start}",
                    "epochs is the total of the lineage: raise it",
                    where,
                )
            )
        own = {"parent": parent, "base": base, "number": int(number), "start": start}
        resolved[name] = {**settings, **changes, **own}
    return resolved


def _check_row(run: dict[str, Any], runs: dict[str, dict[str, Any]], where: str) -> None:
    name, network = run["run"], run["network"]
    if name.casefold() in {other.casefold() for other in runs}:
        raise InputError(
            Problem(f"the run {name!r} is listed already", "give each run its own name", where)
        )
    allowed = ("run", "network", *NETWORKS[network].settings_with())
    foreign = [option for option in run if option not in allowed]
    if foreign:
        owners = [kind.name for kind in NETWORKS.values() if foreign[0] in kind.settings_with()]
        raise InputError(
            Problem(
                f"{foreign[0]} is an option of {', '.join(owners)}, but run {name!r} is {network}",
                "leave the cell empty",
                where,
            )
        )


def _load_schema(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def _with_numbers(value: Any, schema: Mapping[str, Any]) -> Any:
    """Read text as the number that its key wants.

    YAML 1.1 takes ``1e-4`` for text, and Snakemake's ``--config`` all that is nested.
    """
    if isinstance(value, dict):
        of_key = schema.get("properties", {})
        of_others = schema.get("additionalProperties") or {}
        return {k: _with_numbers(v, of_key.get(k, of_others)) for k, v in value.items()}
    return _parse(value, schema) if isinstance(value, str) else value


def _parse(text: str, schema: Mapping[str, Any]) -> str | int | float:
    """Read text as the number that a schema wants; what is none stays text and is refused."""
    kinds = {"integer": int, "number": float}
    try:
        return kinds.get(str(schema.get("type")), str)(text)
    except ValueError:
        return text


def _is_finite_number(checker: jsonschema.TypeChecker, value: Any) -> bool:
    """Take NaN and infinity for no numbers: they would pass any bound."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("number", _is_finite_number),
)


def _checked(values: dict[str, Any], schema: dict[str, Any], name: str) -> dict[str, Any]:
    problems = [_problem(error, schema, name) for error in _Validator(schema).iter_errors(values)]
    if problems:
        raise InputError(*problems)
    defaults = {k: v["default"] for k, v in schema["properties"].items() if "default" in v}
    return defaults | values


def _problem(error: Any, schema: dict[str, Any], name: str) -> Problem:
    """Turn a schema's complaint into a sentence with the key, the value and the remedy."""
    key = ".".join(map(str, error.absolute_path))
    value: Any = error.instance
    if error.validator == "additionalProperties":
        allowed = error.schema.get("properties", {})
        extra = [k for k in value if k not in allowed]
        return Problem(
            f"unknown key {', '.join(repr(f'{key}.{k}' if key else k) for k in extra)}",
            f"remove it; the keys here are {', '.join(allowed)}",
            name,
        )
    if error.validator == "required":
        missing = [k for k in error.validator_value if k not in value]
        inside = f" in {key}" if key else ""
        return Problem(f"the key {missing[0]!r} is missing{inside}", "add it", name)
    if error.parent is not None and error.parent.validator == "propertyNames":
        key = "resume"
    expected = error.schema.get("description") or schema["properties"].get(key, {}).get(
        "description", ""
    )
    return Problem(f"{key or 'a key'} is {value!r}: {_rule(error)}", f"it means: {expected}", name)


def _rule(error: Any) -> str:
    rule, wanted = error.validator, error.validator_value
    if rule == "pattern":
        return "this name is not allowed"
    if rule == "enum":
        return f"it must be one of {', '.join(map(repr, wanted))}"
    if rule == "type":
        return f"it must be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
    if rule == "minLength":
        return "it must not be empty"
    return {
        "minimum": f"it must be at least {wanted}",
        "exclusiveMinimum": f"it must be above {wanted}",
    }.get(str(rule), error.message)
