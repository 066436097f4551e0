"""Checkpoints: plain tensors and Python values, written atomically, read without pickle."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from meshstage.errors import InputError, Problem
from meshstage.files import atomic, read_json
from meshstage.models.names import metadata_name

_PREFIXES = ("_orig_mod.", "module.")  # torch.compile and DistributedDataParallel add them


def save_checkpoint(path: Path, payload: dict[str, Any]) -> None:
    """Write a checkpoint atomically.

    Raises
    ------
    InputError
        If a weight is not finite (nothing good is replaced by it), or the disk is full.
    """
    bad = [k for k, v in payload["model_state_dict"].items() if not torch.isfinite(v).all()]
    if bad:
        raise InputError(
            Problem(
                f"weights are not finite ({', '.join(bad[:3])}), so they are not saved",
                todo="start a run with a lower learning rate; the last good state is not replaced",
                file=str(path),
            )
        )
    try:
        save_tensors(path, payload)
    except RuntimeError as error:
        # What torch's zip writer makes of a full disk.
        raise InputError(
            Problem(
                f"the checkpoint cannot be written ({str(error).splitlines()[0]})",
                todo="free space on the disk and run again: the last good checkpoint is intact",
                file=str(path),
            )
        ) from error


def save_tensors(path: Path, value: Any) -> None:
    """Write tensors atomically; equal ones give the same bytes."""
    # torch writes the name of a file into its archive, and that of a temporary one differs.
    with atomic(path) as temporary, temporary.open("wb") as stream:
        torch.save(value, stream)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint of ours, of MONAI Physio, or a bare state dict.

    What a bare state dict does not tell is taken from the metadata beside it, if there is any.

    Returns
    -------
    dict
        With ``model_state_dict`` at least, on the CPU, its keys free of the prefixes that
        compiled or distributed modules add.

    Raises
    ------
    InputError
        If the file is missing, damaged, not a checkpoint, or holds more than plain tensors and
        Python values.
    """

    def problem(what: str, todo: str) -> InputError:
        return InputError(Problem(what, todo=todo, file=str(path)))

    if not path.is_file():
        raise problem("the checkpoint does not exist", "check the path")
    if path.stat().st_size == 0:
        raise problem("the checkpoint is empty", "use another checkpoint of the run")
    try:
        # torch reads past a flipped bit; the zip's checksums do not.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged:
            raise problem(f"the checkpoint is damaged ({damaged})", "use another one of the run")
        payload = torch.load(path, map_location="cpu", weights_only=True)
    except zipfile.BadZipFile:
        raise problem(
            "the file is truncated or not a PyTorch checkpoint", "use another one of the run"
        ) from None
    except pickle.UnpicklingError as error:
        raise problem(
            "refused: it holds more than tensors and plain values, and could run code "
            f"({str(error).splitlines()[0][:120]})",
            "take checkpoints from people you trust, saved as a state dict",
        ) from None
    except InputError:
        raise
    except Exception as error:  # zlib's, zipfile's, torch's: whatever damage makes of a file
        reason = (str(error) or repr(error)).splitlines()[0][:120]
        raise problem(
            f"the file is not a readable PyTorch checkpoint ({reason})",
            "use another one of the run",
        ) from None
    if not isinstance(payload, dict):
        raise problem("the file holds no state dict", "give a checkpoint of a stage model")
    if "model_state_dict" not in payload:
        payload = {**_description_beside(path), "model_state_dict": payload}
    state = payload["model_state_dict"]
    if not (isinstance(state, dict) and state and all(map(torch.is_tensor, state.values()))):
        raise problem("the file holds no state dict", "give a checkpoint of a stage model")
    payload["model_state_dict"] = {_plain(key): value for key, value in state.items()}
    return payload


def _description_beside(path: Path) -> dict[str, Any]:
    """Read the metadata beside a bare state dict: statistics and sizes that go with it."""
    metadata = path.with_name(metadata_name(path.name.partition("_stage_model")[0]))
    found = read_json(metadata) if metadata.exists() else {}
    return found if isinstance(found, dict) else {}


def _plain(key: str) -> str:
    while key.startswith(_PREFIXES):
        key = key.removeprefix(_PREFIXES[0]).removeprefix(_PREFIXES[1])
    return key


def load_weights(model: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Put weights into a network.

    Raises
    ------
    InputError
        If names or shapes differ, with a table of what differs.
    """
    own = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    given = {key: tuple(value.shape) for key, value in state.items()}
    refuse_differences(path, given, own, "checkpoint", "this network")
    model.load_state_dict(state)


def refuse_differences(
    path: Path, old: dict[str, Any], new: dict[str, Any], old_name: str, new_name: str
) -> None:
    """Raise with a table of the entries in which two mappings differ; pass if there are none.

    Raises
    ------
    InputError
        If any entry differs.
    """
    rows = [
        (key, str(old.get(key, "-")), str(new.get(key, "-")))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    if not rows:
        return
    shown = [("", old_name, new_name), *rows[:12]]
    widths = [max(len(row[column]) for row in shown) for column in range(3)]
    table = "\n".join(
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    )
    more = f"\n  and {len(rows) - 12} more" if len(rows) > 12 else ""
    raise InputError(
        Problem(
            f"the checkpoint does not fit this training in {len(rows)} "
            f"{'place' if len(rows) == 1 else 'places'}",
            todo="resume with that model's settings and data, or start a new run",
            file=str(path),
        ),
        table=table + more,
    )
