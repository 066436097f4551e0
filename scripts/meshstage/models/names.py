"""What a model directory holds and how its files are called (shared with MONAI Physio)."""

from pathlib import Path

from meshstage.cohort.names import EDGE_FEATURES, EDGE_INDEX, SHAPE_MODEL

EVENTS = "events.jsonl"
LOSSES = "training_losses.json"
RMSE_JSON = "training_validation_rmse.json"
RMSE_CSV = "training_validation_rmse.csv"
COMPLETE = "complete.json"
LIVE = "live"
OWNER = "owner.json"


def checkpoint_epochs(start: int, epochs: int, interval: int) -> list[int]:
    """Epochs in (start, epochs] whose model is kept: each multiple of the interval, and the last.

    >>> checkpoint_epochs(0, 5, 2)
    [2, 4, 5]
    """
    return sorted({*range(start - start % interval + interval, epochs + 1, interval), epochs})


def checkpoint_name(tag: str, epoch: int | None = None) -> str:
    """Name of the final checkpoint, or of one epoch's."""
    return f"{tag}_stage_model.pt" if epoch is None else f"{tag}_stage_model_epoch_{epoch:05d}.pt"


def metadata_name(tag: str) -> str:
    """Name of the metadata beside a checkpoint."""
    return f"{tag}_stage_model_metadata.json"


def tags_in(directory: Path) -> list[str]:
    """Tags of the networks whose checkpoints or metadata lie in a directory, in order.

    A checkpoint of its own comes first: the final one before kept epochs.
    """
    names = sorted(path.name for path in directory.glob("*_stage_model*"))
    names.sort(key=lambda name: not name.endswith("_stage_model.pt"))
    return list(dict.fromkeys(name.partition("_stage_model")[0] for name in names))


def model_file_names(
    tag: str, epochs: list[int], template_name: str, has_edges: bool, has_shape_model: bool
) -> list[str]:
    """Every file of a finished model, the final checkpoint first; ``epochs`` are those kept."""
    return [
        checkpoint_name(tag),
        metadata_name(tag),
        *(checkpoint_name(tag, epoch) for epoch in epochs),
        template_name,
        *([EDGE_INDEX, EDGE_FEATURES] if has_edges else []),
        *([SHAPE_MODEL] if has_shape_model else []),
        *([LOSSES, RMSE_JSON, RMSE_CSV] if epochs else []),
    ]


def sibling(directory: Path, number: int) -> Path:
    """Directory of the ``number``-th run that was resumed from ``directory``."""
    return directory.with_name(f"{directory.name}_{number}")
