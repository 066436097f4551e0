"""The files of a model directory beside its weights."""

import csv
import platform
import resource
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from meshstage.cohort.names import SHAPE_MODEL
from meshstage.cohort.template import Template
from meshstage.files import atomic, write_json
from meshstage.models.names import LOSSES, RMSE_CSV, RMSE_JSON
from meshstage.training.state import Progress

_PACKAGES = ("torch", "nvidia-physicsnemo", "torch-geometric", "numpy", "vtk", "snakemake")


def write_history(directory: Path, progress: Progress) -> None:
    """Write losses and RMSE as MONAI Physio names and lays them out."""
    write_json(directory / LOSSES, progress.losses)
    write_json(directory / RMSE_JSON, progress.rmse_log)
    with (
        atomic(directory / RMSE_CSV) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as stream,
    ):
        # None becomes an empty cell.
        table = csv.DictWriter(stream, ["epoch", "train_rmse", "val_rmse"], lineterminator="\n")
        table.writeheader()
        table.writerows(progress.rmse_log)


def copy_template(directory: Path, template: Template) -> list[str]:
    """Copy the template and its shape model; return the names of the copies."""
    sources = [template.mesh_path, template.directory / SHAPE_MODEL]
    names = []
    for source in sources:
        if source.exists():
            with atomic(directory / source.name) as temporary:
                shutil.copyfile(source, temporary)
            names.append(source.name)
    return names


def surroundings(device: torch.device) -> dict[str, Any]:
    """Describe what a model was trained with: versions, commit, device, peak memory."""
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    peak = (
        torch.cuda.max_memory_allocated(device)
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
    )
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "packages": packages | {"python": platform.python_version()},
        "git_commit": _git_commit(),
        "peak_memory_mb": round(peak / 1e6, 1),
    }


def _git_commit() -> str | None:
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
