"""A MeshGraphNet that is trained to move as tissue can: a strain energy in the loss."""

from collections.abc import Mapping

import numpy as np

from meshstage.config.networks import NETWORKS
from meshstage.errors import InputError
from meshstage.files import sha256
from meshstage.losses.strain_energy import StrainEnergy
from meshstage.losses.term import LossTerm
from meshstage.mechanics.elements import Tetrahedra
from meshstage.training.mgn import TrainPhysicsNeMoMGN


class TrainPhysicsNeMoPhysicsInformedMotion(TrainPhysicsNeMoMGN):
    """A MeshGraphNet with `losses.strain_energy` beside its data term.

    The network, and what is saved of it, are a MeshGraphNet's.
    """

    kind = NETWORKS["physics"]
    model_tag = kind.tag

    mu_kpa: float
    lambda_lame_kpa: float
    lambda_physics: float
    lambda_volume: float
    lambda_physics_warmup: int
    mu_array: str | None
    on_bad_elements: str

    _elements: Tetrahedra | None = None
    _references: Mapping[str, np.ndarray] = {}

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
        self._set("mu_kpa", mu_kpa)

    def set_lambda_lame_kpa(self, lambda_lame_kpa: float) -> None:
        """Set Lamé's first parameter."""
        self._set("lambda_lame_kpa", lambda_lame_kpa)

    def set_lambda_physics(self, lambda_physics: float) -> None:
        """Set the weight of the strain energy density, 1/kPa."""
        self._set("lambda_physics", lambda_physics)

    def set_lambda_volume(self, lambda_volume: float) -> None:
        """Set the weight of the volume penalty."""
        self._set("lambda_volume", lambda_volume)

    def set_lambda_physics_warmup(self, epochs: int) -> None:
        """Set the epochs of the lineage in which both weights rise from 0; 0 starts with all."""
        self._set("lambda_physics_warmup", epochs)

    def set_mu_array(self, name: str | None) -> None:
        """Name the cell array of the template that gives the shear modulus, kPa."""
        self._set("mu_array", name)

    def set_on_bad_elements(self, choice: str) -> None:
        """Say what becomes of inverted and flat elements of a reference."""
        self._set("on_bad_elements", choice)

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
        self.elements_hash = sha256(self._elements.corners)[:16]  # of the run's identity

    def set_reference_meshes(self, references: Mapping[str, np.ndarray]) -> None:
        """Give undeformed points by subject id, (n_points, 3) mm, instead of the subjects' own."""
        self._references = {name: np.asarray(at, np.float64) for name, at in references.items()}
        parts = (part for item in sorted(self._references.items()) for part in item)
        self.references_hash = sha256(*parts)[:16]

    def make_loss(self, name: str) -> LossTerm:
        """Make a loss term; the strain energy with the elements and references that are set."""
        term = super().make_loss(name)
        if isinstance(term, StrainEnergy):
            term.elements, term.references = self._elements, self._references
        return term
