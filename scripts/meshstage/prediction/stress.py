"""Stress and strain of predicted motion, on the cells of a template."""

from dataclasses import dataclass

import numpy as np
import torch

from meshstage.errors import InputError, Problem
from meshstage.mechanics import elasticity
from meshstage.mechanics.elements import Tetrahedra, find_tetrahedra, shear_moduli
from meshstage.meshes.cells import canonical_cells
from meshstage.prediction.predictor import Predictor

# VTK's order of a symmetric tensor: XX, YY, ZZ, XY, YZ, XZ.
_ROWS, _COLUMNS = (0, 1, 2, 0, 1, 0), (0, 1, 2, 1, 2, 2)


@dataclass(frozen=True)
class Tissue:
    """What the cells of a template are made of.

    Parameters
    ----------
    elements : Tetrahedra
    n_cells : int
        Cells of the template, tetrahedra or not.
    mu : (n_elements,) or () float64 array, kPa
    lame : float, kPa
    """

    elements: Tetrahedra
    n_cells: int
    mu: np.ndarray
    lame: float

    def cell_arrays(self, points: np.ndarray, displacement: np.ndarray) -> dict[str, np.ndarray]:
        """Compute what a body's cells feel.

        Parameters
        ----------
        points : (n_points, 3) array, mm
            Undeformed.
        displacement : (n_points, 3) array, mm

        Returns
        -------
        dict
            ``cauchy_stress_kpa`` (n_cells, 6) in VTK's order XX YY ZZ XY YZ XZ,
            ``von_mises_kpa``, ``J`` and ``first_principal_stretch`` (n_cells,). NaN where a cell
            is no tetrahedron or flat in the reference; stresses also where it is inverted.
        """
        corners = torch.from_numpy(self.elements.corners)
        at_rest, moved = (
            torch.from_numpy(np.asarray(values, np.float64)) for values in (points, displacement)
        )
        inverse, volumes = elasticity.invert_reference(at_rest, corners)
        deformation = elasticity.deformation_gradient(moved, corners, inverse)
        deformation[volumes == 0] = torch.nan
        stress = elasticity.cauchy_stress(deformation, torch.from_numpy(self.mu), self.lame)
        known = ~deformation.isnan().any(dim=-1).any(dim=-1)
        stretch = torch.full_like(volumes, torch.nan)
        # The decomposition refuses NaN.
        stretch[known] = elasticity.first_principal_stretch(deformation[known])
        return {
            "cauchy_stress_kpa": self._on_cells(stress[:, _ROWS, _COLUMNS]),
            "von_mises_kpa": self._on_cells(elasticity.von_mises(stress)),
            "J": self._on_cells(elasticity.volume_ratio(deformation)),
            "first_principal_stretch": self._on_cells(stretch),
        }

    def _on_cells(self, values: torch.Tensor) -> np.ndarray:
        array = np.full((self.n_cells, *values.shape[1:]), np.nan, np.float32)
        array[self.elements.cells] = values
        return array


def tissue_of(predictor: Predictor) -> Tissue:
    """Take the tissue from a model; one that was trained without physics has the default's.

    Raises
    ------
    InputError
        If the template has no tetrahedron, or the target moves no points.
    """
    values = predictor.metadata
    if not predictor.moves_meshes:
        raise InputError(
            Problem(
                f"the target {predictor.target_array!r} is no displacement, so nothing is strained",
                "leave --stress out",
                str(predictor.directory),
            )
        )
    elements = find_tetrahedra(canonical_cells(predictor.mesh), predictor.template_folder)
    array, mu = values.get("mu_array"), values.get("mu_kpa", elasticity.MU_KPA)
    return Tissue(
        elements,
        predictor.mesh.n_cells,
        shear_moduli(predictor.mesh, elements.cells, array) if array else np.array(float(mu)),
        float(values.get("lambda_lame_kpa", elasticity.LAMBDA_LAME_KPA)),
    )
