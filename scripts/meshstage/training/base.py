"""Train a method: from data sets to a finished model directory."""

import contextlib
import logging
from pathlib import Path

import numpy as np
from torch import nn

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.models.checkpoint import load_checkpoint
from meshstage.models.journal import Journal
from meshstage.models.live import RunFolder
from meshstage.models.owner import owned
from meshstage.training import record
from meshstage.training.distributed import DistributedContext
from meshstage.training.identity import defaults_of_older_runs, run_identity
from meshstage.training.leaving import Watch
from meshstage.training.loop import Loop
from meshstage.training.method import TrainingMethod
from meshstage.training.motion_tensors import MOTION_TENSORS
from meshstage.training.objective import prepare_terms
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.session import Session
from meshstage.training.state import RmseEntry
from meshstage.training.teacher import TaughtDataset, fit_teacher


class TrainPhysicsNeMoBase(TrainingMethod):
    """A training method that can train itself; settings and seams are `TrainingMethod`'s."""

    def train(
        self,
        train_dataset: PhaseSampleDataset,
        val_dataset: PhaseSampleDataset | None,
        stats: Statistics,
        context: DistributedContext,
        epochs: int,
        output_dir: Path,
        template_mesh: Template,
        template_coords: np.ndarray,
        resume_from: Path | None = None,
    ) -> tuple[nn.Module, list[float], list[RmseEntry]]:
        """Train, or resume a run in progress, and leave a finished model directory.

        Parameters
        ----------
        train_dataset, val_dataset : PhaseSampleDataset
            ``val_dataset`` may be None: nothing is then validated.
        stats : Statistics
            Of the training subjects; a checkpoint that is resumed from brings its own.
        context : DistributedContext
        epochs : int
            Total of the lineage.
        output_dir : Path
            The model directory.
        template_mesh : Template
        template_coords : (n_points, 3) array, mm
        resume_from : Path, optional
            A checkpoint to start from.

        Returns
        -------
        model : nn.Module
        training_losses : list of float, one per epoch of the lineage
        val_rmse_log : list of dict with ``epoch``, ``train_rmse``, ``val_rmse``

        Raises
        ------
        InputError
            If the run cannot be resumed as asked for, or the numbers stop being finite.
        ContinueLater
            If a signal or the time budget ended it; everything is saved.
        """
        self.set_epochs(epochs)
        self.check_settings()
        origin = None
        if resume_from is not None:
            origin = load_checkpoint(Path(resume_from))
            record.refuse_other_model(self, Path(resume_from), origin, stats, template_mesh)
            stats = record.inherited_statistics(origin, stats)
        terms = prepare_terms(
            self, template_mesh, train_dataset, val_dataset, stats, tell=context.is_main
        )
        identity = run_identity(self, stats, template_mesh, train_dataset, val_dataset, resume_from)
        folder = RunFolder(Path(output_dir), self.tag, defaults_of_older_runs(self, identity))
        with contextlib.ExitStack() as stack:
            if self.log_level != logging.INFO:
                lines = logging.getLogger("meshstage.models.journal")
                stack.callback(lines.setLevel, lines.level)
                lines.setLevel(self.log_level)
            notice = context.decide(lambda: stack.enter_context(owned(folder.output)))
            if context.decide(lambda: folder.is_complete(identity)):
                return record.finished_model(self, folder, stats)
            recovery = context.decide(lambda: folder.open(identity))
            watch = stack.enter_context(Watch(self.deadline, self.recovery_interval))
            self.fixed_tensors = record.restored_fixed(self, recovery or origin) or context.decide(
                lambda: self.fit_fixed(train_dataset.subjects, stats)
            )
            lessons = None
            if self.teacher != "none":
                tensors = (recovery or {}).get("teacher") or context.decide(
                    lambda: fit_teacher(self.teacher, train_dataset, stats, self.cycle)
                )
                lessons = TaughtDataset(
                    train_dataset,
                    MOTION_TENSORS[self.teacher](tensors, self.cycle),
                    self.synthetic_subjects,
                    self.seed,
                )
            session = Session(
                self,
                context,
                stats,
                template_mesh,
                template_coords,
                train_dataset,
                val_dataset,
                terms,
                lessons,
            )
            start = session.restore(recovery, origin, resume_from, folder.live)
            files = context.decide(lambda: record.write_artifacts(session, folder))
            journal = stack.enter_context(
                Journal(folder.output, context.is_main, session.progress.epoch)
            )
            for line in filter(None, (notice, start)):
                journal.say("%s", line)
            Loop(session, folder, watch, journal).run()
            context.decide(lambda: record.write_model(session, folder, identity, files))
            journal.event("end", epoch=session.progress.epoch)
        return session.judged, session.progress.losses, session.progress.rmse_log
