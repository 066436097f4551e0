"""Strain energy: predictions are strained as a neo-Hookean body."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.subject import Subject
from meshstage.cohort.template import Template
from meshstage.errors import InputError
from meshstage.losses.term import LossTerm
from meshstage.mechanics.bodies import Bodies, make_bodies, refuse_other_targets
from meshstage.mechanics.elements import Tetrahedra, find_tetrahedra, shear_moduli


class StrainEnergy(LossTerm):
    """Add the strain energy of the predicted motion.

    With the energy density W of `meshstage.mechanics`, the term of a sample is::

        ramp * (lambda_physics * mean(W) + lambda_volume * mean((J - 1)^2))

    Means are over the undeformed volume of the subject's own reference.

    Parameters
    ----------
    mu_kpa, lambda_lame_kpa, lambda_physics, lambda_volume, lambda_physics_warmup, mu_array,
    on_bad_elements
        See `config.settings`.

    Attributes
    ----------
    elements : Tetrahedra or None
        Strained instead of the template's.
    references : mapping
        Undeformed points by subject id, (n_points, 3) mm, instead of the subjects' own.
    """

    name = "physics"
    means = ("energy_kpa", "volume_penalty")
    counts = ("inverted_elements",)

    def __init__(
        self,
        mu_kpa: float,
        lambda_lame_kpa: float,
        lambda_physics: float,
        lambda_volume: float,
        lambda_physics_warmup: int,
        mu_array: str | None,
        on_bad_elements: str,
    ) -> None:
        self.mu_kpa, self.lambda_lame_kpa, self.mu_array = mu_kpa, lambda_lame_kpa, mu_array
        self.lambda_physics, self.lambda_volume = lambda_physics, lambda_volume
        self.warmup, self.on_bad_elements = lambda_physics_warmup, on_bad_elements
        self.elements: Tetrahedra | None = None
        self.references: Mapping[str, np.ndarray] = {}
        self._ramp = 1.0

    def prepare(
        self,
        template: Template,
        subjects: Mapping[str, Sequence[Subject]],
        statistics: Statistics,
        tell: bool,
    ) -> None:
        """Measure every subject's reference.

        Raises
        ------
        InputError
            If the target is not a displacement, the template has no tetrahedron, or a reference
            has bad elements.
        """
        everyone = [subject for part in subjects.values() for subject in part]
        refuse_other_targets(statistics, everyone)
        elements = self._elements_of(template)
        self._target_scale = statistics.target_scale
        self._bodies: Bodies = make_bodies(
            elements,
            everyone,
            self._references_of(everyone),
            shear_moduli(template.mesh(), elements.cells, self.mu_array)
            if self.mu_array
            else np.array(self.mu_kpa),
            self.lambda_lame_kpa,
            self.on_bad_elements,
            tell=tell,
        )
        # Samples come subject by subject, phase by phase.
        self._body_of, first = {}, 0
        for split, part in subjects.items():
            numbers = np.arange(first, first + len(part))
            self._body_of[split] = torch.from_numpy(
                np.repeat(numbers, [len(subject.stages) for subject in part])
            )
            first += len(part)

    def to(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move the bodies to the device."""
        self._bodies = self._bodies.to(device, dtype)
        self._body_of = {split: body.to(device) for split, body in self._body_of.items()}

    def start_epoch(self, epoch: int) -> None:
        """Set the ramp: a function of the epoch of the lineage, no matter which run it is in."""
        self._ramp = min(1.0, epoch / self.warmup) if self.warmup else 1.0

    def __call__(
        self, predictions: Tensor, indices: Tensor, split: str
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Strain the bodies of all samples in one evaluation."""
        which = self._body_of[split].index_select(0, indices)
        strain = self._bodies.strain(predictions * self._target_scale, which)
        loss = self._ramp * (
            self.lambda_physics * strain.energy.mean() + self.lambda_volume * strain.volume.mean()
        )
        return loss, {
            "energy_kpa": strain.energy,
            "volume_penalty": strain.volume,
            "inverted_elements": strain.inverted,
        }

    def _elements_of(self, template: Template) -> Tetrahedra:
        if self.elements is None:
            return find_tetrahedra(template.cells, template.mesh_path)
        low, high = int(self.elements.corners.min()), int(self.elements.corners.max())
        if low < 0 or high >= template.n_points:
            raise InputError(
                f"elements name points {low} to {high}, the template has points 0 to "
                f"{template.n_points - 1}"
            )
        if self.mu_array:
            raise InputError(
                f"mu_array {self.mu_array!r} has a value per cell of the template, and "
                "set_elements gives other elements; use one of both"
            )
        return self.elements

    def _references_of(self, subjects: Sequence[Subject]) -> list[np.ndarray]:
        if not self.references:
            return [subject.reference for subject in subjects]
        missing = [subject.id for subject in subjects if subject.id not in self.references]
        if missing:
            raise InputError(f"no reference mesh is set for subject {', '.join(missing)}")
        references = [self.references[subject.id] for subject in subjects]
        for subject, points in zip(subjects, references, strict=True):
            if points.shape != subject.reference.shape:
                raise InputError(
                    f"the reference mesh that is set for subject {subject.id} has shape "
                    f"{points.shape}, the template's points have {subject.reference.shape}"
                )
        return references
