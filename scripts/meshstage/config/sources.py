"""Which source files a script runs, so that an edit reruns what it changes."""

import ast
from functools import cache
from pathlib import Path

from meshstage.config.networks import LOSSES, NETWORKS

_NAMED = {kind.method.partition(":")[0] for kind in NETWORKS.values()}
_NAMED |= {kind.term.partition(":")[0] for kind in LOSSES.values()}


@cache
def source_files(script: Path, *modules: str) -> list[Path]:
    """List a script, first, and all modules of this project that it imports, directly or not.

    Imports are read, not run; those inside functions count too. What loads classes by name
    (`config.methods`) depends on all that the registry names.

    Parameters
    ----------
    script : Path
    *modules : str
        What the script is told to import, and does by name.
    """
    waiting = [script, *(path for name in modules for path in _files(script.parent, name))]
    found = set(waiting)
    while waiting:
        path = waiting.pop()
        named = _NAMED if path.parts[-2:] == ("config", "methods.py") else set()
        for module in _imports(path) | named:
            for path in _files(script.parent, module):
                if path not in found:
                    found.add(path)
                    waiting.append(path)
    # A page that a module fills in lies beside it, under its name.
    found |= {page for path in found if (page := path.with_suffix(".html")).is_file()}
    return [script, *sorted(found - {script})]


@cache
def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from meshstage.training import record` names a module or something in one.
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _files(root: Path, module: str) -> list[Path]:
    base = root.joinpath(*module.split("."))
    return [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
