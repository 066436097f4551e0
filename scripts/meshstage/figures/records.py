"""What a model directory says of its training."""

from pathlib import Path
from typing import Any

from meshstage.errors import InputError, Problem
from meshstage.files import read_json
from meshstage.models.names import LIVE, LOSSES, RMSE_JSON, metadata_name, tags_in


def read_training(model: Path) -> tuple[list[float], list[dict[str, Any]], int | None]:
    """Read a model directory's losses, RMSE log and best epoch; also of a run in progress.

    Raises
    ------
    InputError
        If there is no training record.
    """
    where = next((d for d in (model, model / LIVE) if (d / LOSSES).exists()), None)
    if where is None:
        raise InputError(
            Problem(f"no {LOSSES} here or in {LIVE}/", "name a model directory", str(model))
        )
    log = read_json(where / RMSE_JSON) if (where / RMSE_JSON).exists() else []
    metadata = next(iter(sorted(where.glob("*_stage_model_metadata.json"))), None)
    best = read_json(metadata).get("best_epoch") if metadata else None
    return read_json(where / LOSSES), log, best


def read_metadata(model: Path) -> dict[str, Any]:
    """Read the metadata of a finished model.

    Raises
    ------
    InputError
        If there are none.
    """
    for tag in tags_in(model):
        if (path := model / metadata_name(tag)).exists():
            metadata: dict[str, Any] = read_json(path)
            return metadata
    raise InputError(Problem("no finished model here", "name a model directory", str(model)))
