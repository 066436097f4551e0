"""Find what a model directory holds: ours, finished or in progress, or MONAI Physio's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from meshstage.errors import InputError, Problem
from meshstage.files import read_json
from meshstage.meshes.reading import read_mesh
from meshstage.models.names import LIVE, RMSE_JSON, checkpoint_name, metadata_name, tags_in

Epoch = int | Literal["best"] | None


@dataclass(frozen=True)
class ModelDirectory:
    """The files of one model.

    Parameters
    ----------
    directory : Path
        As the user named it.
    files : Path
        Where its checkpoints lie: the directory, or ``live/`` in it while it trains.
    tag : str
        File name tag of the network.
    metadata : dict
        Empty where there is none, as beside some models of MONAI Physio.
    """

    directory: Path
    files: Path
    tag: str
    metadata: dict[str, Any]

    @property
    def kept(self) -> list[Path]:
        """Checkpoints by epoch, the newest last."""
        found = self.files.glob(checkpoint_name(self.tag).replace(".pt", "_epoch_*.pt"))
        numbered = (path for path in found if path.stem.rpartition("_")[2].isdigit())
        return sorted(numbered, key=epoch_of)

    def checkpoint(self, epoch: Epoch = None) -> Path:
        """Find the checkpoint of an epoch, of the best one, or the final or else newest one.

        Raises
        ------
        InputError
            If it is no epoch, that epoch was not kept, or nothing says which is best.
        """
        if epoch is None:
            final = self.files / checkpoint_name(self.tag)
            return final if final.exists() else self.kept[-1]
        if epoch != "best" and not isinstance(epoch, int | np.integer):
            raise InputError(f"epoch is {epoch!r}; give a whole number, or best")
        number = self._best_epoch() if epoch == "best" else int(epoch)
        path = self.files / checkpoint_name(self.tag, number)
        if path in self.kept:
            return path
        numbers = ", ".join(str(epoch_of(p)) for p in self.kept) or "none"
        raise InputError(
            Problem(
                f"the best epoch, {number}, was kept by the run that this one was resumed from "
                f"({self.metadata.get('resumed_from')})"
                if epoch == "best"
                else f"epoch {number} was not kept",
                f"kept here are: {numbers}",
                str(path),
            )
        )

    def _best_epoch(self) -> int:
        """Find the epoch with the least validation RMSE, wherever its writer tells it."""
        if self.metadata.get("best_epoch") is not None:
            return int(self.metadata["best_epoch"])
        log = self.files / RMSE_JSON
        entries = read_json(log) if log.exists() else []
        judged = [entry for entry in entries if entry.get("val_rmse") is not None]
        if judged:
            return int(min(judged, key=lambda entry: entry["val_rmse"])["epoch"])
        raise InputError(
            Problem(
                "there is no best epoch: nothing was validated",
                "name an epoch, or train with validation subjects",
                str(self.directory),
            )
        )

    def template(self) -> tuple[Any, Path]:
        """Read the template's mesh; give it and the folder that it lies in.

        A run in progress has its template in ``results/{cohort}/template``, or beside it where
        the Python API trains.
        """
        folders = [self.files]
        if self.files != self.directory:
            run = self.directory.absolute()
            folders += [run.parent.parent / "template", run / "template"]
        for folder in folders:
            for suffix in (".vtp", ".vtu"):  # MONAI Physio's order
                path = folder / f"pca_mean_template{suffix}"
                if path.exists():
                    return read_mesh(path), folder
        raise InputError(
            Problem(
                "the model has no template",
                "copy pca_mean_template.vtp or .vtu there",
                str(self.files),
            )
        )


def epoch_of(checkpoint: Path) -> int:
    """Give the epoch in the name of a kept checkpoint."""
    return int(checkpoint.stem.rpartition("_")[2])


def find_model(directory: Path) -> ModelDirectory:
    """Find which network a directory holds, and whether it still trains.

    Raises
    ------
    InputError
        If there is no model, or its metadata is not an object.
    """
    for files in (directory, directory / LIVE):
        for tag in tags_in(files):
            if any(files.glob(checkpoint_name(tag).replace(".pt", "*.pt"))):
                path = files / metadata_name(tag)
                metadata = read_json(path) if path.exists() else {}
                if not isinstance(metadata, dict):
                    raise InputError(Problem("is no metadata of a model", "mend it", str(path)))
                return ModelDirectory(directory, files, tag, metadata)
    raise InputError(
        Problem(
            "no model is here, finished or with a kept epoch",
            f"give a model directory, which holds {checkpoint_name('mgn')} or its like",
            str(directory),
        )
    )
