"""From a row of the registry to the class that trains it; `config.networks` itself imports none."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from meshstage.errors import InputError, Problem


def load_class(reference: str) -> Any:
    """Import a class.

    Parameters
    ----------
    reference : str
        ``module:Class``, or ``path/to/file.py:Class``; a file is imported once per path.

    Raises
    ------
    InputError
        If the file cannot be imported, or it has no such class.
    """
    name, _, class_name = reference.rpartition(":")
    if not name.endswith(".py"):
        return getattr(importlib.import_module(name), class_name)
    path = Path(name).resolve()
    found = getattr(_module_of(path), class_name, None)
    if not isinstance(found, type):
        raise InputError(Problem(f"has no class {class_name!r}", "name one of its own", str(path)))
    return found


def _module_of(path: Path) -> ModuleType:
    # Under a name of its own: two runs may have files that are called alike.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(
            Problem(f"cannot be imported ({type(error).__name__}: {error})", "mend it", str(path))
        ) from error
    return module
