"""What a strain energy needs of the subjects: their elements at rest, kept on the device."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.subject import Subject
from meshstage.errors import InputError, Problem
from meshstage.mechanics import elasticity
from meshstage.mechanics.elements import (
    Tetrahedra,
    are_reversed,
    bad_elements,
    describe_bad,
    six_volumes,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Strain:
    """How far some bodies are strained, each averaged over its undeformed volume.

    Parameters
    ----------
    energy : (k,) tensor, kPa
        Strain energy density.
    volume : (k,) tensor
        ``(J - 1)^2``.
    inverted : (k,) int64 tensor
        Elements with ``J <= 0``.
    """

    energy: Tensor
    volume: Tensor
    inverted: Tensor


@dataclass(frozen=True)
class Bodies:
    """Undeformed bodies of one template.

    Parameters
    ----------
    corners : (n_elements, 4) int64 tensor
    inverse : (n_bodies, 3, 3, n_elements) tensor, 1/mm
        ``Dm^-1``, as planes: a batch of bodies is then nine runs of memory.
    volumes : (n_bodies, n_elements) tensor, mm^3
        Zero where an element is left out.
    mu : (n_elements,) or () tensor, kPa
    lame : float, kPa
    """

    corners: Tensor
    inverse: Tensor
    volumes: Tensor
    mu: Tensor
    lame: float

    def to(self, device: torch.device, dtype: torch.dtype) -> "Bodies":
        """Move to a device, in float32 or float64."""
        return Bodies(
            self.corners.to(device),
            self.inverse.to(device, dtype),
            self.volumes.to(device, dtype),
            self.mu.to(device, dtype),
            self.lame,
        )

    def strain(self, displacement: Tensor, which: Tensor) -> Strain:
        """Strain k bodies at once.

        Parameters
        ----------
        displacement : (k, n_points, 3) tensor, mm
        which : (k,) int64 tensor, on the same device
            The body that each moves.
        """
        inverse = self.inverse.index_select(0, which).movedim((1, 2), (-2, -1))
        volumes = self.volumes.index_select(0, which)
        # The 8 bits of bfloat16 hold no J - 1. Autocast leaves elementwise arithmetic alone.
        moved = displacement.to(torch.promote_types(displacement.dtype, torch.float32))
        deformation = elasticity.deformation_gradient(moved, self.corners, inverse)
        ratio = elasticity.volume_ratio(deformation)
        density = elasticity.energy_density(deformation, self.mu, self.lame, ratio)
        return Strain(
            elasticity.body_mean(density, volumes),
            elasticity.body_mean((ratio - 1).square(), volumes),
            (ratio <= 0).sum(dim=-1),
        )


def make_bodies(
    elements: Tetrahedra,
    subjects: Sequence[Subject],
    references: Sequence[np.ndarray],
    mu: np.ndarray,
    lame: float,
    on_bad_elements: str,
    tell: bool,
) -> Bodies:
    """Measure the references of some subjects.

    Parameters
    ----------
    elements : Tetrahedra
    subjects : sequence of Subject
        To name them in errors.
    references : sequence of (n_points, 3) array, mm
        One a subject; they are measured as they are, never moved.
    mu : (n_elements,) or () array, kPa
    lame : float, kPa
    on_bad_elements : "error" or "drop"
        What becomes of inverted and flat elements.
    tell : bool
        Log notices.

    Raises
    ------
    InputError
        With all subjects that have bad elements, by the ids of the cells; or, if these are left
        out, with those that have no others.
    """
    corners = elements.corners
    if are_reversed(references, corners):
        elements = elements.reversed()
        others = any((six_volumes(points, corners) > 0).any() for points in references)
        corners = elements.corners
        if tell:
            which = "most of the" if others else "all"
            _log.warning(
                "%s %d tetrahedra are numbered the other way round: reoriented", which, len(corners)
            )
    bad = [bad_elements(points, corners) for points in references]
    _judge_bad(bad, elements.cells, subjects, on_bad_elements, tell)
    index = torch.from_numpy(corners)
    inverses, volumes = [], []
    for points, left_out in zip(references, bad, strict=True):
        inverse, volume = elasticity.invert_reference(
            torch.from_numpy(np.array(points, np.float64)), index
        )
        dropped = torch.from_numpy(left_out)
        # F of an element without a reference is 1: it costs nothing, whatever moves.
        inverses.append(inverse.movedim((1, 2), (0, 1)).masked_fill(dropped, 0.0))
        volumes.append(volume.masked_fill(dropped, 0.0))
    return Bodies(
        index, torch.stack(inverses), torch.stack(volumes), torch.from_numpy(np.array(mu)), lame
    )


def _judge_bad(
    bad: list[np.ndarray],
    cells: np.ndarray,
    subjects: Sequence[Subject],
    on_bad_elements: str,
    tell: bool,
) -> None:
    problems = []
    for flags, subject in zip(bad, subjects, strict=True):
        if not flags.any():
            continue
        if on_bad_elements == "drop" and not flags.all():
            if tell:
                _log.warning(
                    "subject %s: %s; left out of the energy",
                    subject.id,
                    describe_bad(flags, cells),
                )
            continue
        todo = "mend the reference"
        if on_bad_elements == "error":
            todo += ", or leave them out of the energy (--on-bad-elements drop)"
        problems.append(
            Problem(
                describe_bad(flags, cells),
                todo,
                str(subject.directory / "reference.npy"),
                subject.id,
            )
        )
    if problems:
        raise InputError(*problems)


def refuse_other_targets(stats: Statistics, subjects: Sequence[Subject]) -> None:
    """Refuse targets that do not move points.

    Raises
    ------
    InputError
        If the target is not three wide, or not a displacement from the reference.
    """
    todo = "use network mgn"
    if stats.n_target != 3:
        wide = f"{stats.n_target} component{'s' if stats.n_target > 1 else ''}"
        raise InputError(
            Problem(
                f"the target {stats.target_array!r} has {wide}, but only a displacement, three "
                "wide, strains a body",
                todo,
            )
        )
    others = [subject.id for subject in subjects if not subject.is_displacement]
    if others:
        raise InputError(
            Problem(
                f"the target {stats.target_array!r} is not phase minus reference, so it strains "
                f"no body, in subject {', '.join(others)}",
                todo,
            )
        )
