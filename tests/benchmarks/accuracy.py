"""Measure how far off models are: the numbers of docs/accuracy.md.

    OMP_NUM_THREADS=1 python tests/benchmarks/accuracy.py --real COHORT [COHORT ...]

Cohorts of the demo, whose motion is known by formula: some subjects train, 40 others test. All
methods see the same cohorts, so that they are compared in pairs, cohort by cohort. The rows of
config/runs.tsv are measured as they are shipped. ``--real`` adds folders with a subjects table and
a template ``pca_mean.*``: each method is fitted on the training subjects of the table and judged
on the others; methods without a network once more with each subject left out in turn.

Everything is in one JSON. What stands in it already is not measured again, unless the settings of
a row have changed: so a measurement may be cut, and go on. Nothing is timed.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_cohorts import (
    NOTHING_ADDED,
    Added,
    Cohort,
    cohort_of_demo,
    cohort_of_files,
    left_out_in_turn,
)
from accuracy_methods import METHODS, MOTION, ROWS, SETTINGS, network, rmse
from scipy.stats import t as student

from meshstage.files import read_json, write_json

TEST = range(10_000, 10_040)  # numbers of subjects that no training cohort reaches
# Seeds that no choice was made with: choices were made with those below 700.
FIVE, TWENTY = range(701, 706), range(801, 821)


@dataclass(frozen=True)
class Situation:
    """A kind of cohort.

    Parameters
    ----------
    n_train : int
    seeds : sequence of int
        One cohort each.
    added : Added
        What the formula does not give.
    """

    n_train: int
    seeds: Sequence[int] = FIVE
    added: Added = NOTHING_ADDED


SITUATIONS = {
    **{f"{n} subjects": Situation(n) for n in (5, 8, 20, 40, 100, 200)},
    "8 subjects, 1 mm noise of points": Situation(8, TWENTY, Added(point_noise_mm=1)),
    "8 subjects, 1 mm shifts of phases": Situation(8, TWENTY, Added(phase_noise_mm=1)),
    "20 subjects, 1 mm shifts of phases": Situation(20, added=Added(phase_noise_mm=1)),
    "20 subjects, 8 meaningless scores": Situation(20, added=Added(n_meaningless=8)),
}

# Networks with a teacher, and on how many of the cohorts; each once more without it.
TAUGHT = {"mlp-distilled": 3, "mgn-distilled": 2}
UNTAUGHT = ("", ", no teacher", ", no teacher, as many steps")

# Rows and their variants, and on how many of the cohorts.
NETWORKS = {
    "5 subjects": {"pod": 5, "pod, score_noise 0.3": 5},
    "8 subjects": {"pod": 5, "pod, score_noise 0.3": 5},
    "20 subjects": {
        **{"pod": 5, "mlp": 5, "mgn": 5},
        **{f"{row}{which}": n for row, n in TAUGHT.items() for which in UNTAUGHT},
    },
    "40 subjects": {"pod": 5, "mlp": 5, "mgn": 3},
}

DEMO, DEMO_SEED, DEMO_TRAIN, DEMO_TEST = "the demo", 42, range(20), range(25, 30)
TABLE, IN_TURN = "held out by the table", "each left out in turn"


@dataclass(frozen=True)
class Claim:
    """That a method's RMSE is at most a part of the least of others', on average over cohorts."""

    place: str
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
    *(Claim("20 subjects", row, ("ridge",), 0.75) for row in ("pod", "mlp", "mgn")),
    *(Claim("40 subjects", row, ("ridge",), 0.6) for row in ("pod", "mlp", "mgn")),
    *(Claim("20 subjects", row, (f"{row}, no teacher",), 0.85) for row in TAUGHT),
    # A skill above 0.5 over the mean, and above 0.2 over the ridge.
    *(Claim(DEMO, row, ("stage_mean",), 0.5) for row in ("gp", *ROWS)),
    *(Claim(DEMO, row, ("ridge",), 0.8) for row in ("gp", *ROWS)),
)
THREADS_DIFFER = 1.05  # at most, in the demo


def real_claims(name: str) -> list[Claim]:
    """Say what no cohort of files should break."""
    rows = [Claim(name, method, ("zero",), 1.0) for method in (*MOTION[1:], *ROWS)]
    return [Claim(name, "gp", ("stage_mean", "ridge"), 1.05), *rows]


@dataclass(frozen=True)
class Task:
    """One number: the RMSE of a method in a place, on one of its cohorts."""

    place: str
    method: str
    which: str
    measure: Callable[[], float]


def on_cohort(method: str, name: str, seed: int) -> float:
    """Fit and judge a method on one cohort of a situation."""
    cohort = _cohort(name, seed)
    return rmse(METHODS[method](cohort), cohort.test)


@lru_cache(maxsize=1)
def _cohort(name: str, seed: int) -> Cohort:
    situation = SITUATIONS[name]
    return cohort_of_demo(seed, range(situation.n_train), TEST, situation.added)


def on_demo(method: str, threads: int) -> float:
    """Fit and judge a method on the subjects that `make demo` trains and tests on."""
    cohort = cohort_of_demo(DEMO_SEED, DEMO_TRAIN, DEMO_TEST)
    fitted = network(ROWS[method], cohort, threads) if method in ROWS else METHODS[method](cohort)
    return rmse(fitted, cohort.test)


def on_files(method: str, folder: Path) -> float:
    """Fit and judge a method on a cohort of files, as its table says."""
    cohort = _real_cohort(folder)
    return rmse(METHODS[method](cohort), cohort.test)


def in_turn(method: str, folder: Path) -> float:
    """Fit and judge a method on a cohort of files, with each subject left out."""
    each = [rmse(METHODS[method](c), c.test) for c in left_out_in_turn(_real_cohort(folder))]
    # Subjects of a cohort have equally many phases and points, so squares may be averaged.
    return float(np.sqrt(np.mean(np.square(each))))


@lru_cache(maxsize=1)
def _real_cohort(folder: Path) -> Cohort:
    return cohort_of_files(folder)


def tasks(real: Sequence[Path]) -> Iterator[Task]:
    """List everything that is measured, cohort by cohort."""
    for name, situation in SITUATIONS.items():
        for number, seed in enumerate(situation.seeds):
            rows = [row for row, n in NETWORKS.get(name, {}).items() if number < n]
            for method in (*MOTION, *rows):
                yield Task(name, method, str(seed), partial(on_cohort, method, name, seed))
    for method in (*MOTION, *ROWS):
        for threads in (1, 2):
            yield Task(DEMO, method, f"{threads} threads", partial(on_demo, method, threads))
    for folder in real:
        for method in (*MOTION, *ROWS):
            yield Task(folder.name, method, TABLE, partial(on_files, method, folder))
        for method in MOTION:
            yield Task(folder.name, method, IN_TURN, partial(in_turn, method, folder))


def read_earlier(path: Path) -> dict[str, Any]:
    """Read what an earlier call measured, but for rows whose settings have changed since."""
    result: dict[str, Any] = read_json(path) if path.exists() else {"settings": {}, "rmse_mm": {}}
    changed = [row for row, known in result["settings"].items() if known != SETTINGS.get(row)]
    for place in result["rmse_mm"].values():
        for row in changed:
            place.pop(row, None)
    return {"settings": SETTINGS, "rmse_mm": result["rmse_mm"]}


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean over cohorts, and Student's 95 % interval of it where there are several."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return {"mean": mean, "n": n}
    half = float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": n}


Rmses = dict[str, dict[str, float]]  # method to cohort to mm


def ratio(rmses: Rmses, method: str, others: Sequence[str]) -> dict[str, float]:
    """RMSE of a method as a part of the least of others', cohort by cohort."""
    both = [k for k in rmses[method] if all(k in rmses.get(other, {}) for other in others)]
    return interval([rmses[method][k] / min(rmses[other][k] for other in others) for k in both])


def summary(rmses: Rmses) -> dict[str, Any]:
    """Make what the JSON says of a situation beside its numbers."""
    return {
        method: {
            "rmse_mm": interval([*each.values()]),
            "part_of_ridge": ratio(rmses, method, ["ridge"]),
            "part_of_gp": ratio(rmses, method, ["gp"]),
        }
        for method, each in rmses.items()
    }


def judged(claim: Claim, rmses: Rmses) -> dict[str, Any]:
    """Say whether a claim holds; of a cohort of files, as its table says."""
    if claim.place not in (*SITUATIONS, DEMO):
        rmses = {method: {TABLE: each[TABLE]} for method, each in rmses.items() if TABLE in each}
    found = ratio(rmses, claim.method, claim.others)
    text = f"{claim.method} at most {claim.at_most} of the least of {', '.join(claim.others)}"
    return {"place": claim.place, "claim": text, **found, "holds": found["mean"] <= claim.at_most}


def judged_threads(rmses: Rmses) -> list[dict[str, Any]]:
    """Say whether each row of the demo ends alike with one thread and with two."""
    found = []
    for method, each in rmses.items():
        if len(each) == 2:
            part = max(each.values()) / min(each.values())
            text = f"{method} with one and with two threads: at most {THREADS_DIFFER} of each other"
            holds = part <= THREADS_DIFFER
            found.append({"place": DEMO, "claim": text, "mean": part, "holds": holds})
    return found


def conclude(result: dict[str, Any], real: Sequence[Path]) -> None:
    """Add summaries and claims, of what is measured by now."""
    rmses = result["rmse_mm"]
    result["summary"] = {name: summary(rmses[name]) for name in SITUATIONS if name in rmses}
    claims = [*CLAIMS, *(claim for folder in real for claim in real_claims(folder.name))]
    known = [c for c in claims if {c.method, *c.others} <= rmses.get(c.place, {}).keys()]
    result["claims"] = [judged(c, rmses[c.place]) for c in known]
    result["claims"] += judged_threads(rmses.get(DEMO, {}))


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--real", type=Path, nargs="*", default=[], metavar="DIR")
    parser.add_argument("--only", nargs="*", metavar="PLACE", help="situation, folder or demo")
    parser.add_argument("--output", type=Path, default=Path("accuracy.json"), metavar="FILE")
    arguments = parser.parse_args()

    result = read_earlier(arguments.output)
    for task in tasks(arguments.real):
        if task.place not in (arguments.only or [task.place]):
            continue
        measured = result["rmse_mm"].setdefault(task.place, {}).setdefault(task.method, {})
        if task.which in measured:
            continue
        measured[task.which] = task.measure()
        value = f"{measured[task.which]:.3f} mm"
        print(task.place, task.method, task.which, value, sep=" | ", flush=True)
        write_json(arguments.output, result)
    conclude(result, arguments.real)
    write_json(arguments.output, result)
    for claim in result["claims"]:
        print(claim, flush=True)
    return not all(claim["holds"] for claim in result["claims"])


if __name__ == "__main__":
    sys.exit(main())
