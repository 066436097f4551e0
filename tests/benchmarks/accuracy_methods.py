"""Methods that `accuracy.py` measures: motion models, and the networks of config/runs.tsv."""

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_cohorts import Cohort

from meshstage.cohort.subject import Subject
from meshstage.config.methods import load_class
from meshstage.config.runs import Run, read_runs
from meshstage.motion.baselines import MODELS
from meshstage.motion.model import MotionModel

RUNS = Path(__file__).resolve().parents[2] / "config" / "runs.tsv"

# Shape scores and stages to (n_stages, n_points, n_target), as `MotionModel.predict`.
Predictor = Callable[[np.ndarray, np.ndarray], np.ndarray]
Method = Callable[[Cohort], Predictor]


def motion_model(kind: type[MotionModel], cohort: Cohort) -> Predictor:
    """Fit one of the models that need no network."""
    return kind.fit(cohort.train, cohort.statistics, "closed").predict


def network(run: Run, cohort: Cohort, threads: int = 1) -> Predictor:
    """Train a row of the table of runs as its script does, in this process."""
    import torch

    from meshstage.training.distributed import DistributedContext
    from meshstage.training.samples import PhaseSampleDataset

    torch.set_num_threads(threads)
    method = load_class(run.kind.method)(logging.WARNING)
    for name, value in run.settings.items():
        setter = getattr(method, f"set_{name}", None)
        setter(value) if setter else setattr(method, name, value)
    method.rmse_log_interval = run.epochs  # nothing is judged on the way
    statistics, template = cohort.statistics, cohort.template
    dataset = PhaseSampleDataset(cohort.train)
    with tempfile.TemporaryDirectory() as folder:
        model, _, _ = method.train(
            dataset,
            None,
            statistics,
            DistributedContext(),
            run.epochs,
            Path(folder) / "model",
            template,
            template.points,
        )
    model.eval()

    @torch.no_grad()
    def predict(scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        pca, stage = method.inputs.samples(np.tile(scores, (len(stages), 1)), stages)
        moved = method.predict_batch(model, pca, stage).float() * statistics.target_scale
        found: np.ndarray = moved.numpy()
        return found

    return predict


def changed(run: Run, changes: Mapping[str, Any]) -> Run:
    """Change settings of a row; None takes a setting away."""
    settings = {k: v for k, v in (run.settings | changes).items() if v is not None}
    return replace(run, settings=settings)


ROWS = {name: run for name, run in read_runs(RUNS).items() if run.kind.has_epochs}
_TAUGHT = {"teacher": "gp", "synthetic_subjects": 200}
_UNTAUGHT = {"teacher": None, "synthetic_subjects": None}
# As many steps as with 200 synthetic subjects beside 20: an epoch without them has an 11th.
_AS_MANY_STEPS = 11
_NOT_PLAIN = dict.fromkeys(("base", "stage_encoding", "ema", "score_noise"))
_PLAIN_MGN = changed(
    ROWS["mgn"],
    {
        **_NOT_PLAIN,
        **{"processor_size": 1, "num_layers": 2},
        **{"batch_size": 2, "learning_rate": 0.008, "epochs": 6},
    },
)
DISTILLED = {
    "mlp-distilled": ROWS["mlp-distilled"],
    "mgn-distilled": changed(_PLAIN_MGN, _TAUGHT),
}
VARIANTS = {
    "pod, score_noise 0.3": changed(ROWS["pod"], {"score_noise": 0.3}),
    "mgn-distilled": DISTILLED["mgn-distilled"],
    **{f"{name}, no teacher": changed(run, _UNTAUGHT) for name, run in DISTILLED.items()},
    **{
        f"{name}, no teacher, as many steps": changed(
            run, _UNTAUGHT | {"epochs": run.epochs * _AS_MANY_STEPS}
        )
        for name, run in DISTILLED.items()
    },
}
SETTINGS = {name: run.settings for name, run in (ROWS | VARIANTS).items()}
MOTION = tuple(MODELS)
METHODS: dict[str, Method] = {
    **{name: partial(motion_model, kind) for name, (_, kind) in MODELS.items()},
    **{name: partial(network, run) for name, run in (ROWS | VARIANTS).items()},
}


def rmse(predictor: Predictor, subjects: Sequence[Subject]) -> float:
    """Root of the mean squared length of the error over subjects, phases and points, mm."""
    squares, count = 0.0, 0
    for subject in subjects:
        error = predictor(subject.shape_scores, subject.stages).astype(float) - subject.targets
        squares += float((error**2).sum())
        count += error.shape[0] * error.shape[1]
    return float(np.sqrt(squares / count))
