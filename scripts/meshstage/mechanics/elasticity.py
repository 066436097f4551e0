"""Compressible neo-Hookean elasticity on linear tetrahedra, as functions of tensors.

Energy density, with ``I1 = tr(F^T F)`` and ``J = det F`` (Bonet and Wood 2008, Nonlinear Continuum
Mechanics for Finite Element Analysis, 2nd ed., section 6.4.3)::

    W = mu/2 (I1 - 3) - mu ln J + lambda/2 (ln J)^2

Below ``J_SMALL`` the part of W that depends on J alone goes on as its tangent. W and its first
derivative stay continuous and finite for any F; its slope in J stays what it was at ``J_SMALL``,
so that a flat or inverted element is pushed back with the same force however far it is gone.

Tensors F of shape (..., 3, 3) are views of nine planes (3, 3, ...), which elementwise arithmetic
reads several times faster than 3 x 3 blocks.
"""

import torch
from torch import Tensor

# Of the order of passive myocardium, nearly incompressible: Poisson's ratio is 0.45.
MU_KPA, LAMBDA_LAME_KPA = 10.0, 100.0

J_SMALL = 0.1  # ten times thinner than any tissue gets; the logarithm is steep there, yet not wild


def invert_reference(points: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    """Prepare elements for `deformation_gradient`: what depends on the reference alone.

    Parameters
    ----------
    points : (..., n_points, 3) tensor, mm
        Undeformed.
    corners : (n_elements, 4) int64 tensor

    Returns
    -------
    inverse : (..., n_elements, 3, 3) tensor, 1/mm
        ``Dm^-1``, where the columns of ``Dm`` are the edges from the first corner; zero for a
        flat element, which then counts as undeformed whatever it does.
    volumes : (..., n_elements) tensor, mm^3
        Negative where the corners are numbered the other way round.
    """
    edges = _edges(points, corners)  # (3 edges, 3 axes, ..., n_elements)
    a, b, c = edges.unbind(0)
    cofactors = torch.stack([_cross(b, c), _cross(c, a), _cross(a, b)])
    determinant = (a * cofactors[0]).sum(dim=0)
    flat = determinant == 0
    planes = cofactors / torch.where(flat, torch.ones_like(determinant), determinant)
    # Cofactors / determinant invert and transpose: edges are rows here, so this is Dm^-1.
    return _as_matrices(torch.where(flat, 0.0, planes)), determinant / 6


def deformation_gradient(displacement: Tensor, corners: Tensor, inverse: Tensor) -> Tensor:
    """Compute ``F = Ds Dm^-1``, which is constant in, and exact for, a linear tetrahedron.

    From displacements, ``F = 1 + (Ds - Dm) Dm^-1``: small strains keep their digits in float32.

    Parameters
    ----------
    displacement : (..., n_points, 3) tensor, mm
    corners : (n_elements, 4) int64 tensor
    inverse : (..., n_elements, 3, 3) tensor, 1/mm
        Of `invert_reference`.

    Returns
    -------
    (..., n_elements, 3, 3) tensor
    """
    edges, rows = _edges(displacement, corners), _as_planes(inverse)
    # Bodies align from the right, as in any broadcast, and the nine planes from the left.
    ndim = max(edges.ndim, rows.ndim)
    edges, rows = (p[(slice(None),) * 2 + (None,) * (ndim - p.ndim)] for p in (edges, rows))
    # H[i, j] = sum_a edge[a, i] inverse[a, j], without a product of nine by three planes.
    gradient = (
        edges[0, :, None] * rows[0] + edges[1, :, None] * rows[1] + edges[2, :, None] * rows[2]
    )
    identity = torch.eye(3, dtype=gradient.dtype, device=gradient.device)
    return _as_matrices(gradient + identity.reshape(3, 3, *[1] * (gradient.ndim - 2)))


def volume_ratio(deformation: Tensor) -> Tensor:
    """Compute ``J = det F``: (..., 3, 3) to (...)."""
    a, b, c = _as_planes(deformation).unbind(0)
    return (a * _cross(b, c)).sum(dim=0)


def energy_density(
    deformation: Tensor, mu: Tensor | float, lame: Tensor | float, ratio: Tensor | None = None
) -> Tensor:
    """Compute the strain energy per undeformed volume.

    Parameters
    ----------
    deformation : (..., 3, 3) tensor
        Deformation gradient F.
    mu, lame : float or tensor that fits (...), kPa
        Shear modulus, and Lamé's first parameter lambda.
    ratio : (...) tensor, optional
        ``det F``, where it is known already.

    Returns
    -------
    (...) tensor, kPa
        Zero for a rotation, positive for all else; continued below ``J_SMALL`` as the module says.
    """
    planes = _as_planes(deformation)
    ratio = volume_ratio(deformation) if ratio is None else ratio
    kept = ratio.clamp(min=J_SMALL)
    log = kept.log()
    of_volume = (lame / 2 * log - mu) * log
    tangent = (lame * log - mu) / kept * (ratio - kept)  # exactly 0 where nothing was clamped
    return mu / 2 * (planes.square().sum(dim=(0, 1)) - 3) + of_volume + tangent


def body_mean(values: Tensor, volumes: Tensor) -> Tensor:
    """Average over the undeformed body: (..., n_elements) to (...), weighted by volumes."""
    return (values * volumes).sum(dim=-1) / volumes.sum(dim=-1)


def cauchy_stress(deformation: Tensor, mu: Tensor | float, lame: Tensor | float) -> Tensor:
    """Compute ``(mu/J)(B - 1) + (lambda ln J / J) 1`` with ``B = F F^T``.

    Parameters
    ----------
    deformation : (..., 3, 3) tensor
    mu, lame : float or tensor that fits (...), kPa

    Returns
    -------
    (..., 3, 3) tensor, kPa
        NaN for an inverted element: no tissue is in that state, so it has no stress.
    """
    ratio = volume_ratio(deformation)
    ratio = torch.where(ratio > 0, ratio, torch.nan)[..., None, None]
    mu, lame = (
        torch.as_tensor(value, dtype=deformation.dtype, device=deformation.device)[..., None, None]
        for value in (mu, lame)
    )
    identity = torch.eye(3, dtype=deformation.dtype, device=deformation.device)
    left = deformation @ deformation.mT
    return mu / ratio * (left - identity) + lame * ratio.log() / ratio * identity


def von_mises(stress: Tensor) -> Tensor:
    """Compute the von Mises stress ``sqrt(3/2 s:s)``, s the deviator: (..., 3, 3) to (...)."""
    mean = stress.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    identity = torch.eye(3, dtype=stress.dtype, device=stress.device)
    deviator = stress - mean[..., None, None] * identity
    return (1.5 * deviator.square().sum(dim=(-2, -1))).sqrt()


def first_principal_stretch(deformation: Tensor) -> Tensor:
    """Compute the largest stretch of any direction, F's first singular value: (..., 3, 3)."""
    return torch.linalg.svdvals(deformation)[..., 0]


def _as_planes(matrices: Tensor) -> Tensor:
    """View (..., 3, 3) as (3, 3, ...)."""
    return matrices.movedim((-2, -1), (0, 1))


def _as_matrices(planes: Tensor) -> Tensor:
    return planes.movedim((0, 1), (-2, -1))


def _edges(points: Tensor, corners: Tensor) -> Tensor:
    """Edges from the first corner: (..., n_points, 3) to (3 edges, 3 axes, ..., n_elements)."""
    by_point = points.movedim(-2, 0)  # (n_points, ..., 3)
    flat = by_point.reshape(len(by_point), -1)
    # Whole rows of a batch move at once, and so do their gradients on the way back.
    at = flat.index_select(0, corners.T.reshape(-1)).view(4, len(corners), *by_point.shape[1:])
    return (at[1:] - at[:1]).movedim((-1, 1), (1, -1)).contiguous()


def _cross(a: Tensor, b: Tensor) -> Tensor:
    a0, a1, a2 = a.unbind(0)
    b0, b1, b2 = b.unbind(0)
    return torch.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0])
