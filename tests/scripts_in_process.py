"""Scripts, run in the tests' own process, which has imported the heavy libraries already."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def run_script(name: str, *arguments: object) -> int:
    """Run a script with arguments; gives its exit status."""
    before, sys.argv = sys.argv, [name, *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(SCRIPTS / name), run_name="__main__")
    finally:
        sys.argv = before
    return left.value.code
