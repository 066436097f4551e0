"""What a training says of itself: checkpoints, metadata, and what it refuses."""

import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.template import Template
from meshstage.config.networks import FUNCTION
from meshstage.config.settings import settings
from meshstage.errors import InputError, Problem
from meshstage.files import atomic, read_json, write_json
from meshstage.models.checkpoint import (
    load_checkpoint,
    load_weights,
    refuse_differences,
    save_checkpoint,
)
from meshstage.models.live import RunFolder
from meshstage.models.names import (
    LOSSES,
    RMSE_CSV,
    RMSE_JSON,
    checkpoint_epochs,
    checkpoint_name,
    metadata_name,
)
from meshstage.training.artifacts import copy_template, surroundings, write_history
from meshstage.training.identity import (
    describe_method,
    own_file,
    plain_settings,
    shape_fields,
)
from meshstage.training.inputs import feature_names
from meshstage.training.method import TrainingMethod
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.session import Session
from meshstage.training.state import RmseEntry
from meshstage.training.step import parameter_type
from meshstage.training.teacher import TaughtDataset

_log = logging.getLogger(__name__)


def inherited_statistics(origin: dict[str, Any], own: Statistics) -> Statistics:
    """Take the statistics of a checkpoint, which its weights were trained with.

    A bare state dict brings none: then the cohort's own serve.
    """
    try:
        inherited = Statistics.from_dict({"target_array": own.target_array, **origin})
    except KeyError:
        _log.warning("the checkpoint holds no statistics: using those of the cohort")
        return own
    if inherited != own:
        _log.info("statistics come from the checkpoint, they differ from the cohort's")
    return inherited


def refuse_other_model(
    trainer: TrainingMethod,
    path: Path,
    origin: dict[str, Any],
    statistics: Statistics,
    template: Template,
) -> None:
    """Compare a checkpoint with this training; what its writer did not record is not compared.

    Raises
    ------
    InputError
        With a table of what differs.
    """
    features = feature_names(statistics, trainer.stage_encoding, trainer.cycle)
    own = {
        "architecture": trainer.architecture_name,
        "in_features": len(features),
        "n_pca": statistics.n_pca,
        "n_target": statistics.n_target,
        "target_array": statistics.target_array,
        "template_fingerprint": template.fingerprint,
        **shape_fields(trainer),
    }
    if "pca_mean" in origin:  # a bare state dict tells nothing, older ones none of these
        own |= {name: getattr(trainer, name) for name in FUNCTION}
        origin = {name: settings()[name].default for name in FUNCTION} | origin
    width = {"n_pca": len(origin["pca_mean"])} if "pca_mean" in origin else {}
    given = width | {key: origin[key] for key in own if key in origin}
    refuse_differences(path, given, {key: own[key] for key in given}, "checkpoint", "this training")


def restored_fixed(
    trainer: TrainingMethod, payload: dict[str, Any] | None
) -> dict[str, Tensor] | None:
    """Take what no step changes from a checkpoint that is resumed from; None without one.

    Raises
    ------
    InputError
        If the checkpoint does not hold it: weights alone are no model then.
    """
    if payload is None:
        return None
    if "fixed_tensors" not in payload and trainer.base != "none":
        raise InputError(
            Problem(
                f"the checkpoint does not hold its base ({trainer.base}), only weights",
                "resume from a checkpoint of this program",
            )
        )
    found: dict[str, Tensor] = payload.get("fixed_tensors", {})
    return found


def payload(session: Session) -> dict[str, Any]:
    """Build a checkpoint that can be used, and resumed from."""
    progress, trainer = session.progress, session.trainer
    return {
        **trainer.build_checkpoint(session.judged, session.statistics),
        **origin_of(trainer, session.template, *_datasets(session)),
        "resumed_from": session.resumed_from,
        "epoch": progress.epoch,
        "start_epoch": progress.start_epoch,
        "training_state": session.training_state(),
    }


def origin_of(
    trainer: TrainingMethod,
    template: Template,
    train: PhaseSampleDataset,
    val: PhaseSampleDataset | None,
) -> dict[str, Any]:
    """Say what a model was made by, and of which subjects; a checkpoint and metadata hold it."""
    return {
        "method": describe_method(trainer),
        "template_fingerprint": template.fingerprint,
        "train_subject_ids": _ids(train),
        "val_subject_ids": _ids(val) if val else [],
    }


def recovery(session: Session) -> dict[str, Any]:
    """Build the checkpoint of a run in progress, which knows how long its epochs took."""
    found = payload(session)
    found["training_state"] |= session.progress.times()
    lessons = session.lessons.dataset
    if isinstance(lessons, TaughtDataset):  # the same teacher, on whatever machine it goes on
        found["teacher"] = dict(lessons.teacher.state_dict())
    return found


def _datasets(session: Session) -> tuple[PhaseSampleDataset, PhaseSampleDataset | None]:
    return session.train_feed.dataset, session.val_feed.dataset if session.val_feed else None


def _ids(dataset: PhaseSampleDataset) -> list[str]:
    return [subject.id for subject in dataset.subjects]


def keep_epoch(session: Session, folder: RunFolder) -> None:
    """Keep the model of an epoch, with all that using, judging and plotting it needs to know."""
    folder.keep(session.progress.epoch, payload(session))
    _describe(session, folder)


def _describe(session: Session, folder: RunFolder) -> None:
    write_history(folder.live, session.progress)
    write_json(folder.live / metadata_name(folder.tag), _metadata(session))


def write_artifacts(session: Session, folder: RunFolder) -> list[str]:
    """Write what a model needs beside its weights, so that kept epochs can be used; give names."""
    live = folder.live
    with tempfile.TemporaryDirectory(dir=folder.output, prefix=".meshstage-") as temporary:
        session.trainer.save_artifacts(Path(temporary))
        names = sorted(path.name for path in Path(temporary).iterdir())
        live.mkdir(parents=True, exist_ok=True)
        for name in names:
            (Path(temporary) / name).replace(live / name)
    if (own := own_file(type(session.trainer))) is not None:
        with atomic(live / own.name) as copy:
            shutil.copyfile(own, copy)
        names.append(own.name)
    return [*copy_template(live, session.template), *names]


def write_model(
    session: Session, folder: RunFolder, settings: dict[str, Any], names: list[str]
) -> None:
    """Write what the live folder still lacks, and make it a finished model.

    ``names`` are those of `write_artifacts`.
    """
    trainer, progress, live = session.trainer, session.progress, folder.live
    save_checkpoint(live / checkpoint_name(folder.tag), payload(session))
    _describe(session, folder)
    epochs = checkpoint_epochs(progress.start_epoch, trainer.epochs, trainer.rmse_log_interval)
    folder.finish(
        settings,
        [
            checkpoint_name(folder.tag),
            metadata_name(folder.tag),
            *(checkpoint_name(folder.tag, epoch) for epoch in epochs),
            *names,
            LOSSES,
            RMSE_JSON,
            RMSE_CSV,
        ],
    )


def describe_model(
    trainer: TrainingMethod,
    statistics: Statistics,
    template: Template,
    train: PhaseSampleDataset,
    val: PhaseSampleDataset | None,
) -> dict[str, Any]:
    """Describe a model and its data for people and for whoever loads it."""
    subjects = [*train.subjects, *(val.subjects if val else ())]
    scores = train.shape_scores
    features = feature_names(statistics, trainer.stage_encoding, trainer.cycle)
    return {
        "architecture": trainer.architecture_name,
        "input_features": features,
        "output_features": [f"{statistics.target_array}_{k}" for k in range(statistics.n_target)],
        "in_features": len(features),
        "n_mesh_points": train.n_points,
        **statistics.to_dict(),
        **plain_settings(trainer),
        **trainer.checkpoint_fields(),
        **origin_of(trainer, template, train, val),
        "target_is_displacement": all(subject.is_displacement for subject in subjects),
        "training_stages": np.unique(train.stages).tolist(),
        "training_scores_min": scores.min(axis=0).tolist(),
        "training_scores_max": scores.max(axis=0).tolist(),
        "data_hashes": {
            "template": template.fingerprint,
            "statistics": statistics.digest(),
            "subjects": {subject.id: subject.hashes for subject in subjects},
        },
    }


def _metadata(session: Session) -> dict[str, Any]:
    """Describe a model and how it was trained."""
    trainer, progress, context = session.trainer, session.progress, session.context
    train, val = _datasets(session)
    return {
        **describe_model(trainer, session.statistics, session.template, train, val),
        "batch_size_samples": trainer.batch_size,
        "resumed_from": session.resumed_from,
        "best_epoch": progress.best_epoch,
        "ranks": context.world_size,
        "effective_batch": min(trainer.batch_size * context.world_size, len(train)),
        "precision": session.precision,
        "compile": session.compiled,
        "skipped_steps": progress.skipped_steps,
        "epoch_seconds": progress.epoch_seconds,
        "lineage": progress.segments,
        **surroundings(context.device),
    }


def finished_model(
    trainer: TrainingMethod, folder: RunFolder, statistics: Statistics
) -> tuple[nn.Module, list[float], list[RmseEntry]]:
    """Load what a finished run left: there is nothing to train."""
    _log.info("%s is complete, nothing to train", folder.output)
    path = folder.output / checkpoint_name(folder.tag)
    found = load_checkpoint(path)
    trainer.fixed_tensors = found.get("fixed_tensors", {})
    model = trainer.build_model(found["in_features"], statistics.n_target)
    model.to(parameter_type(trainer.precision))
    load_weights(model, found["model_state_dict"], path)
    return model, read_json(folder.output / LOSSES), read_json(folder.output / RMSE_JSON)
