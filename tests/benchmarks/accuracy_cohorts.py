"""Cohorts that `accuracy.py` measures on: of the demo's formula, in memory, and of files."""

import csv
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from meshstage.cohort import demo
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import Statistics, compute_statistics
from meshstage.cohort.subject import Subject, load_subject
from meshstage.cohort.template import Template, build_template, prepare_template
from meshstage.meshes.reading import write_mesh

RESOLUTION, N_PHASES = 8, 8  # as the demo: 387 points


@dataclass(frozen=True)
class Cohort:
    """What a method is fitted on, and judged on.

    Parameters
    ----------
    template : Template
    train, test : sequence of Subject
    statistics : Statistics
        Of the training subjects.
    """

    template: Template
    train: Sequence[Subject]
    test: Sequence[Subject]
    statistics: Statistics

    @classmethod
    def of(cls, template: Template, train: Sequence[Subject], test: Sequence[Subject]) -> "Cohort":
        """Compute the statistics."""
        return cls(template, train, test, compute_statistics(template, train))


@dataclass(frozen=True)
class Added:
    """What training subjects have that the formula does not give.

    Parameters
    ----------
    point_noise_mm, phase_noise_mm : float
        Standard deviation of what is added to each coordinate of the training targets: of each
        point by itself, and of all points of a phase alike, as where an organ is shifted.
    n_meaningless : int
        Shape scores beside the demo's four that the motion does not follow; test subjects have
        them too.
    """

    point_noise_mm: float = 0.0
    phase_noise_mm: float = 0.0
    n_meaningless: int = 0


NOTHING_ADDED = Added()


@lru_cache
def template_of_demo() -> Template:
    """Prepare the demo's wall as a template."""
    wall = demo.build_wall(RESOLUTION)
    path = Path(tempfile.mkdtemp(prefix="accuracy-")) / "pca_mean.vtu"  # trainings read it
    write_mesh(path, wall.mesh(wall.points))
    return prepare_template(path).template


def subjects_of_demo(seed: int, numbers: Sequence[int], added: Added, noise: bool) -> list[Subject]:
    """Make subjects of one cohort; the same number is always the same subject."""
    wall = demo.build_wall(RESOLUTION)
    model = demo.shape_model(wall)
    made = []
    for number in numbers:
        plain = demo.make_subject(wall, model, seed, number, N_PHASES)
        draw = np.random.default_rng([seed, number, 1])
        scores = np.append(plain.shape_scores, draw.standard_normal(added.n_meaningless))
        targets = plain.targets
        if noise:
            of_points = added.point_noise_mm * draw.standard_normal(targets.shape)
            of_phases = added.phase_noise_mm * draw.standard_normal((len(targets), 1, 3))
            targets = (targets + of_points + of_phases).astype(np.float32)
        name = f"{seed}-{number}"
        made.append(
            Subject(
                directory=Path(name),
                id=name,
                stem=name,
                stages=plain.stages,
                shape_scores=scores,
                target_array=demo.TARGET_ARRAY,
                is_displacement=True,
                targets=targets,
                reference=plain.reference,
                hashes={},
            )
        )
    return made


def cohort_of_demo(
    seed: int, train: Sequence[int], test: Sequence[int], added: Added = NOTHING_ADDED
) -> Cohort:
    """Make a cohort; its subjects are those of these numbers."""
    return Cohort.of(
        template_of_demo(),
        subjects_of_demo(seed, train, added, noise=True),
        subjects_of_demo(seed, test, added, noise=False),
    )


def cohort_of_files(folder: Path) -> Cohort:
    """Ingest a cohort: trained as its table says, judged on all subjects that do not train."""
    with (folder / "subjects.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    output = Path(tempfile.mkdtemp(prefix="accuracy-"))  # arrays stay mapped from its files
    template = build_template(next(folder.glob("pca_mean.*")), output / "template")
    split: dict[bool, list[Subject]] = {True: [], False: []}
    for index, row in enumerate(rows):
        ingest_subject(folder / row["manifest"], template, output / str(index))
        split[row["split"] == "train"].append(load_subject(output / str(index)))
    return Cohort.of(template, split[True], split[False])


def left_out_in_turn(cohort: Cohort) -> list[Cohort]:
    """Make a cohort for each subject, which trains on all others."""
    subjects = [*cohort.train, *cohort.test]
    return [
        Cohort.of(cohort.template, [s for s in subjects if s is not left], [left])
        for left in subjects
    ]
