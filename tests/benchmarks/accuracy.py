"""Measure how far off models of motion are: the numbers of docs/accuracy.md.

    OMP_NUM_THREADS=1 python tests/benchmarks/accuracy.py --real COHORT [COHORT ...]

Cohorts of the demo, whose motion is known by formula: some subjects train, 40 others test. All
methods see the same cohorts, so that they are compared in pairs, cohort by cohort. ``--real`` adds
folders with a subjects table and a template ``pca_mean.*``: each method is fitted on the training
subjects of the table and judged on the others, and once more with each subject left out in turn.

A method is a row of `METHODS`. Nothing is timed; ``--only`` measures some of the situations.
"""

import argparse
import csv
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from meshstage.cohort import demo
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import Statistics, compute_statistics
from meshstage.cohort.subject import load_subject
from meshstage.cohort.template import Template, build_template, prepare_template
from meshstage.meshes.reading import write_mesh
from meshstage.motion.baselines import MODELS
from meshstage.motion.model import MotionModel

RESOLUTION, N_PHASES = 8, 8  # as the demo: 387 points
N_TEST, FIRST_TEST = 40, 10_000  # numbers of subjects that no training cohort reaches
# Seeds that no choice was made with: choices were made with those below 700.
FIVE, TWENTY = range(701, 706), range(801, 821)


@dataclass(frozen=True)
class Known:
    """A subject in memory; an ingested one has these attributes too."""

    id: str
    shape_scores: np.ndarray
    stages: np.ndarray
    targets: np.ndarray
    target_array: str = demo.TARGET_ARRAY


@dataclass(frozen=True)
class Cohort:
    """What a method is fitted on."""

    template: Template
    train: Sequence[Any]
    statistics: Statistics

    @classmethod
    def of(cls, template: Template, train: Sequence[Any]) -> "Cohort":
        return cls(template, train, compute_statistics(template, train))


# Shape scores and stages to (n_stages, n_points, n_target), as `MotionModel.predict`.
Predictor = Callable[[np.ndarray, np.ndarray], np.ndarray]
Method = Callable[[Cohort], Predictor]


def motion_model(kind: type[MotionModel], cohort: Cohort) -> Predictor:
    """Fit one of the models that need no network."""
    return kind.fit(cohort.train, cohort.statistics, "closed").predict


METHODS: dict[str, Method] = {
    name: partial(motion_model, kind) for name, (_, kind) in MODELS.items()
}


@dataclass(frozen=True)
class Situation:
    """A kind of cohort.

    Parameters
    ----------
    n_train : int
    seeds : sequence of int
        One cohort each.
    point_noise_mm, phase_noise_mm : float
        Standard deviation of what is added to each coordinate of the training targets: of each
        point by itself, and of all points of a phase alike, as where an organ is shifted.
    n_meaningless : int
        Shape scores beside the demo's four that the motion does not follow.
    methods : tuple of str
        Rows of `METHODS`.
    """

    n_train: int
    seeds: Sequence[int] = FIVE
    point_noise_mm: float = 0.0
    phase_noise_mm: float = 0.0
    n_meaningless: int = 0
    methods: tuple[str, ...] = tuple(MODELS)


SITUATIONS = {
    **{f"{n} subjects": Situation(n) for n in (5, 8, 20, 40, 100, 200)},
    "8 subjects, 1 mm noise of points": Situation(8, TWENTY, point_noise_mm=1.0),
    "8 subjects, 1 mm shifts of phases": Situation(8, TWENTY, phase_noise_mm=1.0),
    "20 subjects, 1 mm shifts of phases": Situation(20, phase_noise_mm=1.0),
    "20 subjects, 8 meaningless scores": Situation(20, n_meaningless=8),
}


@dataclass(frozen=True)
class Claim:
    """That a method's RMSE is at most a part of the least of others', on average over cohorts."""

    situation: str
    method: str
    others: tuple[str, ...]
    at_most: float


CLAIMS = (
    Claim("20 subjects", "gp", ("ridge",), 0.75),
    Claim("40 subjects", "gp", ("ridge",), 0.45),
    Claim("100 subjects", "gp", ("ridge",), 0.25),
    Claim("8 subjects, 1 mm noise of points", "gp", ("stage_mean", "ridge"), 1.05),
    Claim("8 subjects, 1 mm shifts of phases", "gp", ("stage_mean", "ridge"), 1.05),
    Claim("20 subjects, 8 meaningless scores", "gp", ("ridge",), 0.85),
)


@lru_cache
def template_of_demo() -> Template:
    """Prepare the demo's wall as a template."""
    wall = demo.build_wall(RESOLUTION)
    path = Path(tempfile.mkdtemp()) / "pca_mean.vtu"
    write_mesh(path, wall.mesh(wall.points))
    return prepare_template(path).template


def subjects_of_demo(situation: Situation, seed: int, numbers: range, noise: bool) -> list[Known]:
    """Make subjects of one cohort; the same number is always the same subject."""
    wall = demo.build_wall(RESOLUTION)
    model = demo.shape_model(wall)
    made = []
    for number in numbers:
        plain = demo.make_subject(wall, model, seed, number, N_PHASES)
        draw = np.random.default_rng([seed, number, 1])
        scores = np.append(plain.shape_scores, draw.standard_normal(situation.n_meaningless))
        targets = plain.targets
        if noise:
            shape = targets.shape
            of_points = situation.point_noise_mm * draw.standard_normal(shape)
            of_phases = situation.phase_noise_mm * draw.standard_normal((len(targets), 1, 3))
            targets = (targets + of_points + of_phases).astype(np.float32)
        made.append(Known(f"{seed}-{number}", scores, plain.stages, targets))
    return made


def rmse(predictor: Predictor, subjects: Sequence[Any]) -> float:
    """Root of the mean squared length of the error over subjects, phases and points, mm."""
    squares, count = 0.0, 0
    for subject in subjects:
        error = predictor(subject.shape_scores, subject.stages).astype(float) - subject.targets
        squares += float((error**2).sum())
        count += error.shape[0] * error.shape[1]
    return float(np.sqrt(squares / count))


def measure_demo(name: str, seed: int) -> dict[str, float]:
    """Fit and judge the methods of a situation on one cohort."""
    situation = SITUATIONS[name]
    train = subjects_of_demo(situation, seed, range(situation.n_train), noise=True)
    test = subjects_of_demo(situation, seed, range(FIRST_TEST, FIRST_TEST + N_TEST), noise=False)
    cohort = Cohort.of(template_of_demo(), train)
    return {method: rmse(METHODS[method](cohort), test) for method in situation.methods}


def measure_real(folder: Path) -> dict[str, dict[str, float]]:
    """Fit and judge all methods on a cohort of files."""
    with (folder / "subjects.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary)
        template = build_template(next(folder.glob("pca_mean.*")), output / "template")
        subjects = []
        for index, row in enumerate(rows):
            ingest_subject(folder / row["manifest"], template, output / str(index))
            subjects.append(load_subject(output / str(index)))
        train = [s for s, row in zip(subjects, rows, strict=True) if row["split"] == "train"]
        held_out = [s for s, row in zip(subjects, rows, strict=True) if row["split"] != "train"]
        table = Cohort.of(template, train)
        each = [
            (Cohort.of(template, [s for s in subjects if s is not left]), left) for left in subjects
        ]
        found = {}
        for name, method in METHODS.items():
            # Subjects of a cohort have equally many phases and points, so squares may be averaged.
            left_out = [rmse(method(cohort), [left]) for cohort, left in each]
            found[name] = {
                "of the table": rmse(method(table), held_out),
                "left out in turn": float(np.sqrt(np.mean(np.square(left_out)))),
            }
    return found


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean over cohorts, and Student's 95 % interval of it."""
    mean, n = float(np.mean(values)), len(values)
    half = float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def ratio(rmses: dict[str, list[float]], method: str, others: Sequence[str]) -> dict[str, float]:
    """RMSE of a method as a part of the least of others', cohort by cohort."""
    least = np.min([rmses[other] for other in others], axis=0)
    return interval(list(np.array(rmses[method]) / least))


def summary(name: str, rmses: dict[str, list[float]]) -> dict[str, Any]:
    """Make what the JSON holds of a situation."""
    return {
        "seeds": list(SITUATIONS[name].seeds),
        "rmse_mm_of_each_cohort": rmses,
        "rmse_mm": {method: interval(values) for method, values in rmses.items()},
        "part_of_ridge": {method: ratio(rmses, method, ["ridge"]) for method in rmses},
    }


def judged(claim: Claim, rmses: dict[str, list[float]]) -> dict[str, Any]:
    """Say whether a claim holds."""
    found = ratio(rmses, claim.method, claim.others)
    return {
        "situation": claim.situation,
        "claim": f"{claim.method} at most {claim.at_most} of the least of {claim.others}",
        **found,
        "holds": found["mean"] <= claim.at_most,
    }


def text(found: dict[str, float]) -> str:
    """Write a mean with its interval."""
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, nargs="*", default=[], metavar="DIR")
    parser.add_argument("--only", nargs="*", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--output", type=Path, default=Path("accuracy.json"), metavar="FILE")
    arguments = parser.parse_args()

    result: dict[str, Any] = {"situations": {}, "claims": [], "real": {}}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        cohorts = {
            name: [pool.submit(measure_demo, name, seed) for seed in SITUATIONS[name].seeds]
            for name in arguments.only
        }
        real = {folder.name: pool.submit(measure_real, folder) for folder in arguments.real}
        for name, futures in cohorts.items():
            each = [future.result() for future in futures]
            rmses = {method: [found[method] for found in each] for method in each[0]}
            result["situations"][name] = summary(name, rmses)
            for method, found in result["situations"][name]["rmse_mm"].items():
                part = result["situations"][name]["part_of_ridge"][method]
                print(f"{name} | {method} | {text(found)} mm | {text(part)} of ridge", flush=True)
            for claim in CLAIMS:
                if claim.situation == name:
                    result["claims"].append(judged(claim, rmses))
                    print(result["claims"][-1], flush=True)
        for name, future in real.items():
            result["real"][name] = future.result()
            for method, values in result["real"][name].items():
                print(name, method, *(f"{k}: {v:.3f} mm" for k, v in values.items()), sep=" | ")
    arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return not all(claim["holds"] for claim in result["claims"])


if __name__ == "__main__":
    sys.exit(main())
