"""Train a MeshGraphNet to move as tissue can: a strain energy in the loss."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.cohort.statistics import Statistics
from meshstage.cohort.subject import Subject
from meshstage.cohort.template import Template
from meshstage.errors import InputError
from meshstage.mechanics import elasticity
from meshstage.mechanics.bodies import (
    ON_BAD_ELEMENTS,
    Bodies,
    Strain,
    make_bodies,
    refuse_other_targets,
)
from meshstage.mechanics.elements import Tetrahedra, find_tetrahedra, shear_moduli
from meshstage.training.distributed import DistributedContext
from meshstage.training.mgn import TrainPhysicsNeMoMGN
from meshstage.training.samples import PhaseSampleDataset
from meshstage.training.settings import positive_number
from meshstage.training.state import RmseEntry


class TrainPhysicsNeMoPhysicsInformedMotion(TrainPhysicsNeMoMGN):
    """Train a MeshGraphNet whose predictions are also strained as a neo-Hookean body.

    The loss of a sample, with the normalised mean squared error that a MeshGraphNet has alone and
    the energy density W of `meshstage.mechanics`, is::

        MSE + ramp * (lambda_physics * mean(W) + lambda_volume * mean((J - 1)^2))

    Means are over the undeformed volume of the subject's own reference. The network, and what is
    saved of it, are a MeshGraphNet's.

    Attributes
    ----------
    mu_kpa, lambda_lame_kpa : float
        Shear modulus, and Lamé's first parameter.
    mu_array : str or None
        Cell array of the template that gives the shear modulus by region, kPa.
    lambda_physics : float, 1/kPa
        Weight of the strain energy density.
    lambda_volume : float
        Weight of the volume penalty.
    lambda_physics_warmup : int
        Epochs in which both weights rise from 0.
    on_bad_elements : str
        ``error`` or ``drop``: what becomes of inverted and flat elements of a reference.
    """

    model_tag = "physics_informed_motion"
    loss_fields = (
        "mu_kpa",
        "lambda_lame_kpa",
        "lambda_physics",
        "lambda_volume",
        "lambda_physics_warmup",
        "mu_array",
        "on_bad_elements",
    )

    def __init__(self) -> None:
        super().__init__()
        self.mu_kpa = elasticity.MU_KPA
        self.lambda_lame_kpa = elasticity.LAMBDA_LAME_KPA
        self.lambda_physics = 1e-4
        self.lambda_volume = 1e-3
        self.lambda_physics_warmup = 0
        self.mu_array: str | None = None
        self.on_bad_elements = "error"
        self._elements: Tetrahedra | None = None
        self._references: dict[str, np.ndarray] = {}
        self._bodies: Bodies | None = None
        self._body_of: dict[str, Tensor] = {}
        self._ramp = 1.0

    # ------------------------------------------------------------------ what a user may set

    def set_mechanics(
        self, mu_kpa: float, lambda_lame_kpa: float, lambda_physics: float, lambda_volume: float
    ) -> None:
        """Set the material, kPa, and the weights of strain energy (1/kPa) and volume penalty."""
        self.set_mu_kpa(mu_kpa)
        self.set_lambda_lame_kpa(lambda_lame_kpa)
        self.set_lambda_physics(lambda_physics)
        self.set_lambda_volume(lambda_volume)

    def set_mu_kpa(self, mu_kpa: float) -> None:
        """Set the shear modulus."""
        self.mu_kpa = positive_number("mu_kpa", mu_kpa)

    def set_lambda_lame_kpa(self, lambda_lame_kpa: float) -> None:
        """Set Lamé's first parameter."""
        self.lambda_lame_kpa = _weight("lambda_lame_kpa", lambda_lame_kpa)

    def set_lambda_physics(self, lambda_physics: float) -> None:
        """Set the weight of the strain energy density, 1/kPa."""
        self.lambda_physics = _weight("lambda_physics", lambda_physics)

    def set_lambda_volume(self, lambda_volume: float) -> None:
        """Set the weight of the volume penalty."""
        self.lambda_volume = _weight("lambda_volume", lambda_volume)

    def set_lambda_physics_warmup(self, epochs: int) -> None:
        """Set the epochs of the lineage in which both weights rise from 0; 0 starts with all."""
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
            raise InputError(
                f"lambda_physics_warmup is {epochs!r}, it must be a whole number of at least 0"
            )
        self.lambda_physics_warmup = epochs

    def set_mu_array(self, name: str | None) -> None:
        """Name the cell array of the template that gives the shear modulus, kPa."""
        self.mu_array = name

    def set_on_bad_elements(self, choice: str) -> None:
        """Say what becomes of inverted and flat elements of a reference."""
        if choice not in ON_BAD_ELEMENTS:
            raise InputError(
                f"on_bad_elements is {choice!r}, it must be one of {', '.join(ON_BAD_ELEMENTS)}"
            )
        self.on_bad_elements = choice

    def set_elements(self, corners: np.ndarray) -> None:
        """Give the tetrahedra to strain, instead of the template's.

        Parameters
        ----------
        corners : (n_elements, 4) array of int
            Points of each. An error then names them by their row.
        """
        corners = np.asarray(corners)
        whole = corners.dtype.kind in "iu"
        if corners.ndim != 2 or corners.shape[1] != 4 or not len(corners) or not whole:
            raise InputError(
                f"elements are {corners.dtype} of shape {corners.shape}, they must be whole "
                "numbers, (n_elements, 4)"
            )
        self._elements = Tetrahedra(corners.astype(np.int64), np.arange(len(corners)))

    def set_reference_meshes(self, references: Mapping[str, np.ndarray]) -> None:
        """Give undeformed points by subject id, (n_points, 3) mm, instead of the subjects' own."""
        self._references = {name: np.asarray(at, np.float64) for name, at in references.items()}

    # ------------------------------------------------------------------ seams of the network

    def setup_inputs(
        self, template_mesh: Template, template_coords: Tensor, device: torch.device
    ) -> None:
        """Put coordinates, graph and bodies on the device."""
        super().setup_inputs(template_mesh, template_coords, device)
        if self._bodies is not None:
            self._bodies = self._bodies.to(device, template_coords.dtype)
            self._body_of = {name: where.to(device) for name, where in self._body_of.items()}
        self._sums, self._val_sums = (
            torch.zeros(n, dtype=torch.float64, device=device) for n in (6, 3)
        )

    def checkpoint_fields(self) -> dict[str, Any]:
        """Give the numbers that ``build_model`` needs again, and the settings of the loss."""
        return super().checkpoint_fields() | {
            name: getattr(self, name) for name in self.loss_fields
        }

    # ------------------------------------------------------------------ the loss

    def _strain(self, predictions: Tensor, indices: Tensor, split: str) -> Strain:
        """Strain the bodies of k samples by predictions (k, n_points, 3), in one evaluation."""
        assert self._bodies is not None, "train() makes the bodies"
        which = self._body_of[split].index_select(0, indices)
        return self._bodies.strain(predictions * self.target_scale, which)

    def _compute_loss(self, predictions: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Mean squared error of k real samples, and what their strains cost."""
        data = super()._compute_loss(predictions, targets, indices)
        strain = self._strain(predictions, indices, "train")
        energy, volume = strain.energy.mean(), strain.volume.mean()
        physics = self._ramp * (self.lambda_physics * energy + self.lambda_volume * volume)
        loss = data + physics
        with torch.no_grad():
            means = torch.stack([torch.ones_like(data), data, physics, energy, volume]).double()
            sums = torch.cat([means * len(indices), strain.inverted.sum().double()[None]])
            # A step that is not finite is skipped, so it does not count here either.
            self._sums += torch.where(torch.isfinite(loss), sums, 0.0)
        return loss

    def _on_epoch_start(self, epoch: int) -> None:
        """Count anew, and set the ramp: a function of the lineage's epoch, whoever started."""
        super()._on_epoch_start(epoch)
        warmup = self.lambda_physics_warmup
        self._ramp = min(1.0, (epoch - 1) / warmup) if warmup else 1.0
        self._sums.zero_()
        self._val_sums.zero_()

    @torch.no_grad()
    def _on_validation_batch(self, predictions: Tensor, indices: Tensor) -> None:
        strain = self._strain(predictions, indices, "val")
        self._val_sums += torch.stack(
            [
                torch.full((), len(indices), dtype=torch.float64, device=self._val_sums.device),
                strain.energy.double().sum(),
                strain.inverted.double().sum(),
            ]
        )

    def _epoch_terms(self, context: DistributedContext) -> dict[str, float]:
        """Give data and physics apart, each a mean over samples, and the inverted elements.

        An element counts as often as a sample inverts it.
        """
        n, data, physics, energy, volume, inverted = context.sum(self._sums).tolist()
        terms = {
            "data_loss": data / n,
            "physics_loss": physics / n,
            "energy_kpa": energy / n,
            "volume_penalty": volume / n,
            "inverted_elements": inverted,
        }
        n_val, val_energy, val_inverted = context.sum(self._val_sums).tolist()
        if n_val:
            terms |= {"val_energy_kpa": val_energy / n_val, "val_inverted_elements": val_inverted}
        return terms

    def _terms_so_far(self, context: DistributedContext) -> Tensor:
        return context.sum(self._sums.clone()).cpu()

    def _go_on_from_terms(self, terms: Tensor) -> None:
        self._sums += terms.to(self._sums.device)

    # ------------------------------------------------------------------ training

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
        """Measure every subject's reference, then train as the base class does.

        Raises
        ------
        InputError
            Also if the target is not a displacement, the template has no tetrahedron, or a
            reference has bad elements.
        """
        parts = {"train": train_dataset, "val": val_dataset}
        subjects = [s for part in parts.values() if part is not None for s in part.subjects]
        refuse_other_targets(stats, subjects)
        elements = self._elements_of(template_mesh)
        self._bodies = make_bodies(
            elements,
            subjects,
            self._references_of(subjects),
            shear_moduli(template_mesh.mesh(), elements.cells, self.mu_array)
            if self.mu_array
            else np.array(self.mu_kpa),
            self.lambda_lame_kpa,
            self.on_bad_elements,
            tell=context.is_main,
        )
        # Samples come subject by subject, phase by phase.
        body = np.repeat(np.arange(len(subjects)), [len(subject.stages) for subject in subjects])
        self._body_of = {
            "train": torch.from_numpy(body[: len(train_dataset)]),
            "val": torch.from_numpy(body[len(train_dataset) :]),
        }
        return super().train(
            train_dataset,
            val_dataset,
            stats,
            context,
            epochs,
            output_dir,
            template_mesh,
            template_coords,
            resume_from,
        )

    def _elements_of(self, template: Template) -> Tetrahedra:
        if self._elements is None:
            return find_tetrahedra(template.cells, template.mesh_path)
        low, high = int(self._elements.corners.min()), int(self._elements.corners.max())
        if low < 0 or high >= template.n_points:
            raise InputError(
                f"elements name points {low} to {high}, the template has points 0 to "
                f"{template.n_points - 1}"
            )
        if self.mu_array:
            raise InputError(
                f"mu_array {self.mu_array!r} counts the template's cells, and set_elements gives "
                "others; use one of both"
            )
        return self._elements

    def _references_of(self, subjects: list[Subject]) -> list[np.ndarray]:
        if not self._references:
            return [subject.reference for subject in subjects]
        missing = [subject.id for subject in subjects if subject.id not in self._references]
        if missing:
            raise InputError(f"no reference mesh is set for subject {', '.join(missing)}")
        references = [self._references[subject.id] for subject in subjects]
        for subject, points in zip(subjects, references, strict=True):
            if points.shape != subject.reference.shape:
                raise InputError(
                    f"the reference mesh that is set for subject {subject.id} has shape "
                    f"{points.shape}, the template's points have {subject.reference.shape}"
                )
        return references


def _weight(name: str, value: float) -> float:
    """Return the value if it is finite and not negative.

    Raises
    ------
    InputError
        With the value in the sentence.
    """
    return 0.0 if value == 0 and not isinstance(value, bool) else positive_number(name, value)
