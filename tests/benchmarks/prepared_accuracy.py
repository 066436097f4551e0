"""Measure what preparing a cohort again costs in accuracy: the numbers of docs/preparing.md.

    OMP_NUM_THREADS=1 python tests/benchmarks/prepared_accuracy.py

Cohorts of the demo lose their scores, and each subject is turned and moved at random. What
`prepare_cohort` makes of them is made here in memory: Procrustes, modes, scores. Motion models are
judged on 40 other subjects of each cohort. Beside the prepared cohorts stands a control that no
preparation has touched: the original one, whose scores are only mixed as the prepared ones are.

Everything is in one JSON. What stands in it already is not measured again. Nothing is timed.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_cohorts import Cohort, cohort_of_demo
from accuracy_methods import METHODS, rmse
from scipy.spatial.transform import Rotation
from sklearn.decomposition import PCA

from meshstage.cohort.subject import Subject
from meshstage.files import read_json, write_json
from meshstage.preparation.procrustes import generalised_procrustes, transform_points
from meshstage.preparation.scoring import score_points

SEEDS, TRAINING, TEST = range(900, 912), (20, 80), range(10_000, 10_040)
KINDS = ("ridge", "gp")
PARTS = {"all modes": 1.0, "variance 0.95": 0.95}  # of the variance that modes keep
ORIGINAL, MIXED = "original", "mixed"


def moved(subjects: Sequence[Subject], seed: int) -> list[Subject]:
    """Turn and move each subject at random."""
    turns = Rotation.random(len(subjects), random_state=seed)
    shifts = np.random.default_rng(seed).uniform(-100, 100, (len(subjects), 3))
    return [
        replace(
            subject,
            reference=turn.apply(subject.reference) + shift,
            targets=subject.targets @ turn.as_matrix().T,
        )
        for subject, turn, shift in zip(subjects, turns, shifts, strict=True)
    ]


def prepared(original: Cohort, seed: int, part: float) -> Cohort:
    """Prepare a cohort whose subjects have been moved."""
    n_train = len(original.train)
    subjects = moved([*original.train, *original.test], seed)
    shapes = np.array([subject.reference for subject in subjects[:n_train]])
    matrices, mean = generalised_procrustes(shapes, "rigid")
    aligned = [transform_points(m, s).ravel() for m, s in zip(matrices, shapes, strict=True)]
    pca = PCA(n_components=4, svd_solver="full").fit(np.array(aligned))  # the demo has four
    explained = pca.explained_variance_ratio_.cumsum()
    n_modes = min(4, int(np.searchsorted(explained, part - 1e-9)) + 1)
    spread = np.sqrt(pca.explained_variance_[:n_modes, None])
    modes = (spread * pca.components_[:n_modes]).reshape(n_modes, -1, 3)
    found = [score_points(subject.reference, mean, modes, "rigid") for subject in subjects]
    scored = [
        replace(s, shape_scores=f.shape_scores, targets=s.targets @ f.matrix[:3, :3].T)
        for s, f in zip(subjects, found, strict=True)
    ]
    return Cohort.of(original.template, scored[:n_train], scored[n_train:])


def mixed(original: Cohort, other: Cohort) -> Cohort:
    """Map the scores of the original cohort to those of the other, affinely; the rest stays."""
    own = np.array([[*subject.shape_scores, 1.0] for subject in original.train])
    matrix = np.linalg.lstsq(own, np.array([s.shape_scores for s in other.train]))[0]

    def of(subjects: Sequence[Subject]) -> list[Subject]:
        return [replace(s, shape_scores=np.append(s.shape_scores, 1.0) @ matrix) for s in subjects]

    return Cohort.of(original.template, of(original.train), of(original.test))


def measure(seed: int, n_train: int) -> dict[str, Any]:
    """Fit and judge on one cohort: RMSE, mm, by what the cohort is and by model."""
    original = cohort_of_demo(seed, range(n_train), TEST)
    cohorts = {ORIGINAL: original}
    cohorts |= {name: prepared(original, seed, part) for name, part in PARTS.items()}
    cohorts[MIXED] = mixed(original, cohorts["all modes"])
    return {
        "modes": {name: len(cohort.train[0].shape_scores) for name, cohort in cohorts.items()},
        "rmse_mm": {
            name: {kind: rmse(METHODS[kind](cohort), cohort.test) for kind in KINDS}
            for name, cohort in cohorts.items()
        },
    }


def summary(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Ratios of RMSE to the original cohort's, over the cohorts of one size."""
    found: dict[str, Any] = {}
    for name in (*PARTS, MIXED):
        for kind in KINDS:
            rmses = [each["rmse_mm"] for each in measured.values()]
            ratios = np.array([each[name][kind] / each[ORIGINAL][kind] for each in rmses])
            found[f"{name}, {kind}"] = {
                "least": float(ratios.min()),
                "median": float(np.median(ratios)),
                "mean": float(ratios.mean()),
                "most": float(ratios.max()),
                "within_5_percent": int((np.abs(ratios - 1) <= 0.05).sum()),
                "n": len(ratios),
            }
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("prepared_accuracy.json"))
    output = parser.parse_args().output
    result: dict[str, Any] = read_json(output) if output.exists() else {"cohorts": {}}
    for n_train in TRAINING:
        for seed in SEEDS:
            measured = result["cohorts"].setdefault(str(n_train), {})
            if str(seed) not in measured:
                measured[str(seed)] = measure(seed, n_train)
                print(n_train, seed, measured[str(seed)], sep=" | ", flush=True)
                write_json(output, result)
    result["summary"] = {size: summary(measured) for size, measured in result["cohorts"].items()}
    write_json(output, result)
    for size, found in result["summary"].items():
        for name, ratios in found.items():
            print(size, name, ratios, sep=" | ")


if __name__ == "__main__":
    main()
