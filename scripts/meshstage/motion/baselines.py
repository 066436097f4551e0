"""What a network has to beat: motion models without one, fitted on the training subjects.

A new one is a file beside this, with a `MotionModel`, and a row of `MODELS`.

Beside them stands the floor: what is left of the true motion after projecting it on the first k
motion modes of the training subjects. It sees the truth, so it is no prediction: no method that
moves meshes in these modes can be better.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.subject import Subject, differences
from meshstage.cohort.template import Template
from meshstage.errors import InputError, Problem, raise_if_any
from meshstage.files import atomic, read_json, sha256, write_json
from meshstage.motion.gaussian_process import GaussianProcess
from meshstage.motion.model import MotionModel
from meshstage.motion.residuals import square_errors
from meshstage.motion.ridge import Ridge
from meshstage.motion.stage_mean import NoMotion, StageMean

# In the order in which tables and figures show them.
MODELS: dict[str, tuple[str, type[MotionModel]]] = {
    "zero": ("no motion", NoMotion),
    "stage_mean": ("mean motion at the stage", StageMean),
    "ridge": ("ridge on shape scores", Ridge),
    "gp": ("Gaussian process on shape scores", GaussianProcess),
}
TITLES = {name: title for name, (title, _) in MODELS.items()}


@dataclass(frozen=True)
class Baselines:
    """Fitted motion models; plain arrays, applied without scikit-learn.

    Parameters
    ----------
    models : dict
        Name, as in `MODELS`, to model.
    about : dict
        What they were fitted on and how, as it stands in ``baselines.json``.
    """

    models: dict[str, MotionModel]
    about: dict[str, Any]

    @property
    def ridge(self) -> Ridge:
        """The ridge, whose modes are those of the floor."""
        ridge = self.models["ridge"]
        assert isinstance(ridge, Ridge)
        return ridge

    def predict(self, shape_scores: np.ndarray, stages: np.ndarray) -> dict[str, np.ndarray]:
        """Predict each baseline's targets of one subject.

        Parameters
        ----------
        shape_scores : (n_pca,) array
        stages : (n_asked,) array

        Returns
        -------
        dict
            Name (of `TITLES`) to (n_asked, n_points, n_target) float32 array, units of the target.
        """
        stages = np.asarray(stages, float)
        return {name: model.predict(shape_scores, stages) for name, model in self.models.items()}

    def floor_square_errors(self, targets: np.ndarray) -> np.ndarray:
        """Sum of squares that the first k modes leave: see `Ridge.floor_square_errors`."""
        return self.ridge.floor_square_errors(targets)


def fit_baselines(
    template: Template,
    statistics: Statistics,
    train: Sequence[Subject],
    val: Sequence[Subject] = (),
    cycle: str = "closed",
) -> Baselines:
    """Fit all baselines on the training subjects.

    Parameters
    ----------
    template : Template
    statistics : Statistics
    train : sequence of Subject
    val : sequence of Subject
        Not fitted on: their RMSE stands in ``about["rmse"]`` beside that of train, so that a
        run in progress can be compared with it.
    cycle : str
        Whether stage 1 is stage 0: of `cycle.CYCLES`.

    Raises
    ------
    InputError
        If there is no training subject, or one does not fit the statistics.
    """
    if not train:
        raise InputError("no training subject to fit the baselines on; give at least one")
    whose, todo = "the statistics", "compute the statistics again with compute_stats.py"
    sizes = {"n_target": statistics.n_target, "n_pca": statistics.n_pca}
    raise_if_any(p for s in [*train, *val] for p in differences(s, whose, todo, **sizes))
    models = {name: kind.fit(train, statistics, cycle) for name, (_, kind) in MODELS.items()}
    ridge, mean = models["ridge"], models["stage_mean"]
    assert isinstance(ridge, Ridge) and isinstance(mean, StageMean)
    baselines = Baselines(
        models,
        {
            "template_fingerprint": template.fingerprint,
            "target_array": statistics.target_array,
            "train_subjects": {s.id: s.hashes for s in train},
            "cycle": cycle,
            "n_stages": len(mean.stages),
            "n_harmonics": ridge.n_harmonics,
            "n_modes": len(ridge.modes),
            "explained_variance_ratio": ridge.variances.tolist(),
            **{name: about for name, model in models.items() if (about := model.about())},
            "open_cycles": _open_cycles(train, statistics.target_scale, cycle),
        },
    )
    rmse = {"train": _rmse(baselines, train), "val": _rmse(baselines, val)}
    return Baselines(models, {**baselines.about, "rmse": rmse})


def _rmse(baselines: Baselines, subjects: Sequence[Subject]) -> dict[str, float] | None:
    """RMSE of each baseline over some subjects, units of the target; None without any."""
    if not subjects:
        return None
    total = dict.fromkeys(baselines.models, 0.0)
    count = 0
    for subject in subjects:
        predicted = baselines.predict(subject.shape_scores, subject.stages)
        for name, values in predicted.items():
            total[name] += float(square_errors(values, subject.targets).sum())
        count += subject.targets.shape[0] * subject.targets.shape[1]
    return {name: math.sqrt(value / count) for name, value in total.items()}


def _open_cycles(train: Sequence[Subject], scale: float, cycle: str) -> list[str]:
    """Name the subjects of a closed cycle whose targets at stages 0 and 1 differ by over 1 %."""
    found = []
    for subject in train if cycle == "closed" else ():
        first, last = (np.flatnonzero(subject.stages == stage) for stage in (0.0, 1.0))
        if first.size and last.size:
            step = subject.targets[last[0]] - subject.targets[first[0]]
            if np.abs(step).max() > 0.01 * scale:
                found.append(subject.id)
    return found


def arrays_path(path: Path) -> Path:
    """Where the arrays of ``baselines.json`` lie: beside it, with the ending ``.npz``."""
    return path.with_suffix(".npz")


def write_baselines(path: Path, baselines: Baselines) -> None:
    """Write the arrays as ``.npz`` and, after it, the JSON that holds their hash."""
    arrays = {
        f"{name}/{key}": array
        for name, model in baselines.models.items()
        for key, array in model.to_arrays().items()
    }
    with atomic(arrays_path(path)) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    digest = sha256(*arrays.values())
    write_json(path, {**baselines.about, "arrays": arrays_path(path).name, "arrays_sha256": digest})


def read_baselines(path: Path) -> Baselines:
    """Read what :func:`write_baselines` wrote.

    Raises
    ------
    InputError
        If a file is missing, or the arrays are not those that the JSON was written with.
    """
    about = read_json(path)
    beside = arrays_path(path)
    try:
        with np.load(beside, allow_pickle=False) as stored:
            arrays = dict(stored)
        digest = about["arrays_sha256"]
        models = {
            name: kind.from_arrays(
                {
                    k.removeprefix(f"{name}/"): v
                    for k, v in arrays.items()
                    if k.startswith(f"{name}/")
                }
            )
            for name, (_, kind) in MODELS.items()
        }
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            Problem(f"not a pair of baselines files ({error})", "run fit_baselines.py", str(beside))
        ) from None
    if sha256(*arrays.values()) != digest:
        raise InputError(
            Problem(f"not the arrays that {path.name} names", "run fit_baselines.py", str(beside))
        )
    return Baselines(models, about)
