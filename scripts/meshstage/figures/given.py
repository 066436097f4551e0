"""What figures are made from: read from files when it is first asked for."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyvista as pv

from meshstage.checks.report import Report, read_report
from meshstage.cohort.subject import load_subjects
from meshstage.cohort.template import load_template
from meshstage.errors import InputError
from meshstage.figures.cases import Case, read_cases
from meshstage.figures.records import read_metadata, read_training
from meshstage.judging.runs import Run, read_evaluations, read_summary
from meshstage.motion.baselines import read_baselines


@dataclass
class Given:
    """Files and folders, by the names of `meshstage.figures.table.NEEDS`, and what they hold."""

    paths: dict[str, Any] = field(default_factory=dict)

    def _path(self, name: str) -> Any:
        if self.paths.get(name) is None:
            raise InputError(f"--{name} is missing; give it")
        return self.paths[name]

    @property
    def run(self) -> str:
        """Name of the run."""
        return str(self._path("model").name)

    @cached_property
    def _training(self) -> tuple[list[float], list[dict[str, Any]], int | None]:
        return read_training(self._path("model"))

    @property
    def losses(self) -> list[float]:
        """Of each epoch."""
        return self._training[0]

    @property
    def rmse_log(self) -> list[dict[str, Any]]:
        """Of each judged epoch."""
        return self._training[1]

    @property
    def best_epoch(self) -> int | None:
        """By the validation error."""
        return self._training[2]

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """Of the run's evaluation; None of a run that is not evaluated yet."""
        return read_summary(self.paths["evaluation"]) if self.paths.get("evaluation") else None

    @property
    def unit(self) -> str | None:
        """Of the target."""
        return read_summary(self._path("evaluation"))["unit"]  # type: ignore[no-any-return]

    @cached_property
    def evaluations(self) -> list[Run]:
        """All evaluations, those out of fold too."""
        return read_evaluations(self._path("evaluations"))

    @property
    def runs(self) -> list[Run]:
        """The evaluation of each run."""
        return [run for run in self.evaluations if not run.is_out_of_fold]

    @property
    def out_of_fold(self) -> list[Run]:
        """The evaluation of each run out of fold."""
        return [run for run in self.evaluations if run.is_out_of_fold]

    @cached_property
    def curve(self) -> list[Run]:
        """Each run trained on parts of the training subjects, and on all."""
        parts = [run for path in self._path("parts") for run in read_evaluations([path])]
        return [*parts, *self.runs]

    @cached_property
    def mesh(self) -> pv.DataSet:
        """Of the template."""
        return load_template(self._path("template")).mesh()

    @cached_property
    def cases(self) -> list[Case]:
        """The best, the median and the worst held-out subject."""
        subjects = load_subjects(self._path("subjects"))
        return read_cases(
            read_summary(self._path("evaluation")), subjects, self._path("predictions")
        )

    @property
    def middle(self) -> Case:
        """The median subject."""
        return self.cases[len(self.cases) // 2]

    @cached_property
    def stage_means(self) -> list[np.ndarray] | None:
        """The mean motion at the stages of each case, if baselines are given."""
        if self.paths.get("baselines") is None:
            return None
        baselines = read_baselines(self.paths["baselines"])
        return [
            baselines.predict(case.subject.shape_scores, case.subject.stages)["stage_mean"]
            for case in self.cases
        ]

    @property
    def names(self) -> list[str]:
        """Of all models."""
        return [model.name for model in self._path("models")]

    @cached_property
    def metadata(self) -> list[dict[str, Any]]:
        """Of all models."""
        return [read_metadata(model) for model in self._path("models")]

    @cached_property
    def report(self) -> Report:
        """Of the cohort's check."""
        return read_report(self._path("check"))
