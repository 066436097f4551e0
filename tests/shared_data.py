"""Where the real cohorts and awkward files lie: beside the project, never inside it."""

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared(*parts: str) -> Path:
    """Path below ``../shared``; skips the test without it, and fails it in CI."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{path} is missing, and CI must have it")
        pytest.skip(f"{path} is not here")
    return path
