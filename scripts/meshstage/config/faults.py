"""What is wrong with the values of a pydantic model, in words of the keys that people write."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from meshstage.errors import InputError, Problem

_Model = TypeVar("_Model", bound=BaseModel)

_RULES = {
    "string_pattern_mismatch": "this name is not allowed",
    "string_too_short": "it must not be empty",
    "bool_type": "it must be true or false",
    "string_type": "it must be text",
    "dict_type": "it must be a mapping",
    "model_type": "it must be a mapping",
}


def check_values(model: type[_Model], values: Mapping[str, Any], name: str) -> _Model:
    """Check values and fill in defaults.

    Parameters
    ----------
    model : type of pydantic model
        Each field has a description.
    values : mapping
    name : str
        What to call their source in a sentence.

    Raises
    ------
    InputError
        With every key that is unknown, missing or has a wrong value.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        found = [_problem(fault, model, name) for fault in error.errors()]
        raise InputError(*found) from None


def _problem(fault: Any, model: type[BaseModel], name: str) -> Problem:
    """Turn pydantic's complaint into a sentence with the key, the value and the remedy."""
    path, kind, value = fault["loc"], fault["type"], fault["input"]
    key = ".".join(map(str, path))
    said = str(fault["ctx"]["error"]) if kind == "value_error" else ""
    if said and isinstance(value, Mapping):  # of several keys: the sentence is the model's own
        return Problem(f"{key}: {said}" if key else said, file=name)
    if kind == "extra_forbidden":
        keys = ", ".join(model.model_fields)
        return Problem(f"unknown key {key!r}", f"remove it; the keys are {keys}", name)
    meaning = _meaning(model, path)
    if kind == "missing":
        return Problem(f"the key {key!r} is missing", f"add it: {meaning}", name)
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        return Problem(
            f"{key} is the number {value!r}, which drops leading zeros and underscores",
            f'put the text in quotes: {key}: "..." in the file, {key}=\'"..."\' after --config',
            name,
        )
    rule = said or _RULES.get(kind)
    if rule is None:
        expected = fault.get("ctx", {}).get("expected")
        rule = f"it must be {expected}" if expected else fault["msg"].replace("Input", "it", 1)
    return Problem(f"{key} is {value!r}: {rule}", f"it means: {meaning}", name)


def _meaning(model: type[BaseModel], path: tuple[Any, ...]) -> str | None:
    """Give the description of a key, or of the key that it lies in."""
    field = model.model_fields[path[0]]
    for inner in get_args(field.annotation):
        if len(path) > 1 and isinstance(inner, type) and issubclass(inner, BaseModel):
            return _meaning(inner, path[1:])
    return field.description
