"""config.yaml, as Snakemake merged it from files and the command line."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from meshstage.errors import InputError, Problem

_Text = Annotated[str, Field(min_length=1)]


class Configuration(BaseModel):
    """Every key, its default and its meaning; `config/README.md` says the same with more words."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cohort: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="name of the cohort, of letters, digits, dots, dashes and underscores; results "
        "go to results/{cohort}",
    )
    template: _Text = Field(
        description="the mesh that all subjects share; a pca_model.json beside it is its shape "
        "model"
    )
    subjects: _Text = Field(description="the table of subjects")
    runs: _Text = Field(description="the table of runs, one trained model per row")
    use_template_surface: bool = Field(
        default=False, description="train on the surface of a volume template"
    )
    edges: Literal["cells", "triangulated"] = Field(
        default="cells",
        description="a graph's edges are the sides of the cells, or of the triangles they are cut "
        "into",
    )
    cycle: Literal["closed", "open"] = Field(
        default="closed", description="whether the motion comes back, so that stage 1 is stage 0"
    )
    region: _Text | None = Field(
        default=None,
        description="point or cell array of the template with whole numbers; errors are given by "
        "region",
    )
    resume: dict[str, dict[str, Any]] = Field(
        default={}, description="what resumed runs change, by the name of the sibling ({run}_{n})"
    )


def check_config(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Check the configuration and fill in defaults.

    Parameters
    ----------
    config : mapping
    name : str
        What to call it in a sentence.

    Raises
    ------
    InputError
        With every key that is unknown, missing or has a wrong value.
    """
    try:
        return Configuration.model_validate(dict(config)).model_dump()
    except ValidationError as error:
        found = [_problem(fault, name) for fault in error.errors()]
        raise InputError(*found) from None


def _problem(fault: Any, name: str) -> Problem:
    """Turn pydantic's complaint into a sentence with the key, the value and the remedy."""
    path, kind, value = fault["loc"], fault["type"], fault["input"]
    key = ".".join(map(str, path))
    if kind == "extra_forbidden":
        keys = ", ".join(Configuration.model_fields)
        return Problem(f"unknown key {key!r}", f"remove it; the keys are {keys}", name)
    meaning = Configuration.model_fields[path[0]].description
    if kind == "missing":
        return Problem(f"the key {key!r} is missing", f"add it: {meaning}", name)
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        return Problem(
            f"{key} is the number {value!r}, which drops leading zeros and underscores",
            f'put the text in quotes: {key}: "..." in the file, {key}=\'"..."\' after --config',
            name,
        )
    rule = {
        "string_pattern_mismatch": "this name is not allowed",
        "string_too_short": "it must not be empty",
        "bool_type": "it must be true or false",
        "string_type": "it must be text",
        "dict_type": "it must be a mapping",
    }.get(kind) or f"it must be {fault['ctx']['expected']}"
    return Problem(f"{key} is {value!r}: {rule}", f"it means: {meaning}", name)
