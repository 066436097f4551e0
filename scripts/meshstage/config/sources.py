"""Which source files a script runs, so that an edit reruns what it changes."""

import ast
from functools import cache
from pathlib import Path


@cache
def source_files(script: Path) -> list[Path]:
    """List a script, first, and all modules of this project that it imports, directly or not.

    Imports are read, not run; those inside functions count too.
    """
    found = {script}
    waiting = [script]
    while waiting:
        for module in _imports(waiting.pop()):
            for path in _files(script.parent, module):
                if path not in found:
                    found.add(path)
                    waiting.append(path)
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
