"""Neo-Hookean mechanics against closed forms, finite differences and PhysicsNeMo Sym."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from meshstage.mechanics import elasticity

MU, LAME = 10.0, 100.0  # kPa
# The issue asks for 1e-10; stresses here are some 100 kPa, so this is 1e4 roundings of them.
CLOSED = {"rtol": 0, "atol": 1e-10}

TETRAHEDRON = torch.tensor(
    [[1.0, 2.0, 3.0], [9.0, 1.0, 4.0], [2.0, 12.0, 2.0], [3.0, 4.0, 14.0]], dtype=torch.float64
)  # mm, no edge along an axis
ONE = torch.tensor([[0, 1, 2, 3]])


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def of_affine_map(mapping: Tensor) -> Tensor:
    """F as a tetrahedron sees it whose points are moved by a linear map, not the map itself."""
    inverse, _ = elasticity.invert_reference(TETRAHEDRON, ONE)
    displacement = TETRAHEDRON @ (mapping - torch.eye(3, dtype=torch.float64)).T
    return elasticity.deformation_gradient(displacement, ONE, inverse)[0]


def rotation(generator: torch.Generator) -> Tensor:
    q, r = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))
    q = q * r.diagonal().sign()
    return q * torch.linalg.det(q)  # in three dimensions -1 times a reflection is a rotation


def random_deformations(n: int, seed: int = 0) -> Tensor:
    """Draw (n, 3, 3) with singular values in [0.6, 1.6]: J stays above ``J_SMALL``."""
    generator = torch.Generator().manual_seed(seed)
    stretches = 0.6 + torch.rand(n, 3, dtype=torch.float64, generator=generator)
    return torch.stack([rotation(generator) @ s.diag() @ rotation(generator) for s in stretches])


def energy(deformation: Tensor) -> Tensor:
    return elasticity.energy_density(deformation, MU, LAME)


def stress(deformation: Tensor) -> Tensor:
    return elasticity.cauchy_stress(deformation, MU, LAME)


# ---------------------------------------------------------------- F


def test_a_linear_map_is_recovered_from_each_element_of_each_body() -> None:
    generator = torch.Generator().manual_seed(1)
    points = 30 * torch.randn(2, 9, 3, dtype=torch.float64, generator=generator)  # two bodies
    corners = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7], [8, 3, 1, 5]])
    mapping = torch.randn(2, 3, 3, dtype=torch.float64, generator=generator)
    inverse, volumes = elasticity.invert_reference(points, corners)
    displacement = points @ mapping.mT - points + torch.tensor([5.0, 6.0, 7.0])  # a shift too
    found = elasticity.deformation_gradient(displacement, corners, inverse)
    # Random elements are some 100 times longer than high: 100 roundings of 1 each.
    torch.testing.assert_close(found, mapping[:, None].expand(2, 3, 3, 3), rtol=0, atol=1e-12)
    at = points[:, corners]
    expected = torch.linalg.det(at[:, :, 1:] - at[:, :, :1]) / 6
    torch.testing.assert_close(volumes, expected, rtol=1e-12, atol=0)


def test_motions_of_one_body_share_its_reference() -> None:
    mappings = random_deformations(5)
    inverse, _ = elasticity.invert_reference(TETRAHEDRON, ONE)
    displacement = TETRAHEDRON @ mappings.mT - TETRAHEDRON  # (5, 4, 3)
    found = elasticity.deformation_gradient(displacement, ONE, inverse)
    torch.testing.assert_close(found[:, 0], mappings, rtol=0, atol=1e-13)
    one = elasticity.deformation_gradient(displacement[0], ONE, inverse.expand(2, 1, 3, 3))
    torch.testing.assert_close(one[:, 0], mappings[:1].expand(2, 3, 3), rtol=0, atol=1e-13)


def test_numbering_the_corners_the_other_way_round_changes_only_the_sign_of_volume() -> None:
    mapping = random_deformations(1)[0]
    displacement = TETRAHEDRON @ mapping.T - TETRAHEDRON
    results = []
    for corners in (ONE, ONE[:, [0, 1, 3, 2]]):
        inverse, volumes = elasticity.invert_reference(TETRAHEDRON, corners)
        results.append((elasticity.deformation_gradient(displacement, corners, inverse), volumes))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-13)
    torch.testing.assert_close(results[0][1], -results[1][1], rtol=1e-13, atol=0)


def test_a_flat_reference_element_counts_as_undeformed() -> None:
    flat = TETRAHEDRON.clone()
    flat[:, 2] = 0
    inverse, volumes = elasticity.invert_reference(flat, ONE)
    assert volumes.tolist() == [0.0]
    moved = elasticity.deformation_gradient(torch.randn(4, 3, dtype=torch.float64), ONE, inverse)
    assert torch.equal(moved[0], torch.eye(3, dtype=torch.float64))


def test_small_strains_keep_their_digits_in_float32() -> None:
    """A strain of 1e-4 at 1 m from the origin: positions in float32 would lose a tenth of it."""
    points = TETRAHEDRON + 1000.0
    strain = 1e-4
    inverse, _ = elasticity.invert_reference(points, ONE)
    displacement = (strain * TETRAHEDRON).float()
    found = elasticity.deformation_gradient(displacement, ONE, inverse.float())
    # F itself is rounded to 2^-24 = 6e-8 beside 1.
    torch.testing.assert_close(found[0], (1 + strain) * torch.eye(3), rtol=0, atol=2e-7)


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("stretch", [0.4, 0.9, 1.0, 1.3, 2.5])
def test_uniaxial_stretch(stretch: float) -> None:
    found = of_affine_map(torch.tensor([stretch, 1.0, 1.0], dtype=torch.float64).diag())
    log = math.log(stretch)
    expected = MU / 2 * (stretch**2 - 1) - MU * log + LAME / 2 * log**2
    torch.testing.assert_close(energy(found).item(), expected, **CLOSED)
    along = MU / stretch * (stretch**2 - 1) + LAME * log / stretch
    across = LAME * log / stretch
    diagonal = torch.tensor([along, across, across], dtype=torch.float64)
    torch.testing.assert_close(stress(found), diagonal.diag(), **CLOSED)
    # Of a uniaxial difference of stress, von Mises' is the difference.
    torch.testing.assert_close(
        elasticity.von_mises(stress(found)).item(), abs(along - across), **CLOSED
    )
    torch.testing.assert_close(
        elasticity.first_principal_stretch(found).item(), max(stretch, 1.0), **CLOSED
    )


@pytest.mark.parametrize("shear", [0.1, 0.7, 2.0])
def test_simple_shear(shear: float) -> None:
    found = of_affine_map(matrix([1, shear, 0], [0, 1, 0], [0, 0, 1]))
    torch.testing.assert_close(energy(found).item(), MU / 2 * shear**2, **CLOSED)
    torch.testing.assert_close(elasticity.volume_ratio(found).item(), 1.0, **CLOSED)
    expected = matrix([MU * shear**2, MU * shear, 0], [MU * shear, 0, 0], [0, 0, 0])
    torch.testing.assert_close(stress(found), expected, **CLOSED)
    # s:s = 2/3 (mu g^2)^2 + 2 (mu g)^2; the larger stretch solves l - 1/l = g.
    torch.testing.assert_close(
        elasticity.von_mises(stress(found)).item(), MU * shear * math.sqrt(shear**2 + 3), **CLOSED
    )
    torch.testing.assert_close(
        elasticity.first_principal_stretch(found).item(),
        (shear + math.sqrt(shear**2 + 4)) / 2,
        **CLOSED,
    )


@pytest.mark.parametrize("stretch", [0.6, 1.0, 1.7])
def test_uniform_dilation(stretch: float) -> None:
    found = of_affine_map(stretch * torch.eye(3, dtype=torch.float64))
    log, ratio = 3 * math.log(stretch), stretch**3
    expected = MU / 2 * 3 * (stretch**2 - 1) - MU * log + LAME / 2 * log**2
    torch.testing.assert_close(energy(found).item(), expected, **CLOSED)
    torch.testing.assert_close(elasticity.volume_ratio(found).item(), ratio, **CLOSED)
    pressure = MU / ratio * (stretch**2 - 1) + LAME * log / ratio
    torch.testing.assert_close(
        stress(found), pressure * torch.eye(3, dtype=torch.float64), **CLOSED
    )


def test_rigid_motion_costs_nothing() -> None:
    found = of_affine_map(rotation(torch.Generator().manual_seed(3)))
    assert not torch.allclose(found, torch.eye(3, dtype=torch.float64), atol=0.1)
    torch.testing.assert_close(energy(found).item(), 0.0, **CLOSED)
    torch.testing.assert_close(stress(found), torch.zeros_like(found), **CLOSED)


def test_energy_sees_no_rotation_and_stress_turns_with_it() -> None:
    deformation = random_deformations(20)
    turn = rotation(torch.Generator().manual_seed(4))
    torch.testing.assert_close(energy(turn @ deformation), energy(deformation), **CLOSED)
    torch.testing.assert_close(
        stress(turn @ deformation), turn @ stress(deformation) @ turn.T, **CLOSED
    )


def test_body_mean_is_weighted_by_volume() -> None:
    values, volumes = torch.tensor([[1.0, 5.0], [2.0, 2.0]]), torch.tensor([[3.0, 1.0], [1.0, 9.0]])
    assert elasticity.body_mean(values, volumes).tolist() == [2.0, 2.0]


# ---------------------------------------------------------------- derivatives


def test_stress_is_the_derivative_of_energy() -> None:
    deformation = random_deformations(50).requires_grad_()
    (first_piola,) = torch.autograd.grad(energy(deformation).sum(), deformation)
    ratio = torch.linalg.det(deformation)[:, None, None]
    torch.testing.assert_close(
        stress(deformation), first_piola @ deformation.mT / ratio, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("third", [0.9, 0.02, -0.5], ids=["strained", "nearly flat", "inverted"])
def test_gradient_by_points_equals_finite_differences(third: float) -> None:
    """Of the energy of two elements that share a face, one of them in the named state."""
    points = torch.cat([TETRAHEDRON, matrix([8.0, 9.0, 10.0])])
    corners = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    inverse, volumes = elasticity.invert_reference(points, corners)
    generator = torch.Generator().manual_seed(5)
    mapping = torch.tensor([1.1, 0.9, third], dtype=torch.float64).diag()
    displacement = points @ mapping.T - points
    displacement = displacement + 0.01 * torch.randn(5, 3, dtype=torch.float64, generator=generator)

    def total(moved: Tensor) -> Tensor:
        deformation = elasticity.deformation_gradient(moved, corners, inverse)
        ratio = elasticity.volume_ratio(deformation)
        values = elasticity.energy_density(deformation, MU, LAME, ratio) + 3 * (ratio - 1).square()
        return elasticity.body_mean(values, volumes.abs())

    displacement.requires_grad_()
    (gradient,) = torch.autograd.grad(total(displacement), displacement)
    step, numbers = 1e-5, []  # mm: (step / 10 mm)^2 = 1e-12 of curvature, 1e-16 / 1e-6 of rounding
    for index in range(15):
        shift = torch.zeros(15, dtype=torch.float64)
        shift[index] = step
        shift = shift.reshape(5, 3)
        with torch.no_grad():
            rise = total(displacement + shift) - total(displacement - shift)
        numbers.append(rise / (2 * step))
    scale = gradient.abs().max().item()
    torch.testing.assert_close(
        gradient, torch.stack(numbers).reshape(5, 3), rtol=0, atol=1e-7 * scale
    )


# ---------------------------------------------------------------- beyond inversion


def flattened(ratio: float) -> Tensor:
    return torch.tensor([1.0, 1.0, ratio], dtype=torch.float64).diag()


def slope_in_j(ratio: float) -> float:
    deformation = flattened(ratio).requires_grad_()
    (gradient,) = torch.autograd.grad(energy(deformation), deformation)
    return gradient[2, 2].item()


def test_continuation_joins_without_a_jump_or_a_kink() -> None:
    """The closed form holds down to ``J_SMALL``, and its tangent below."""
    small = elasticity.J_SMALL

    def closed(ratio: float) -> float:
        log = math.log(ratio)
        return MU / 2 * (ratio**2 - 1) - MU * log + LAME / 2 * log**2

    def slope(ratio: float) -> float:
        return MU * ratio + (LAME * math.log(ratio) - MU) / ratio

    torch.testing.assert_close(energy(flattened(small)).item(), closed(small), **CLOSED)
    torch.testing.assert_close(slope_in_j(small + 1e-9), slope(small + 1e-9), rtol=1e-9, atol=0)
    torch.testing.assert_close(slope_in_j(small - 1e-9), slope(small), rtol=1e-7, atol=0)
    below = closed(small) + MU / 2 * (0.01**2 - small**2)
    below += (slope(small) - MU * small) * (0.01 - small)
    torch.testing.assert_close(energy(flattened(0.01)).item(), below, **CLOSED)


@pytest.mark.parametrize("ratio", [0.05, 1e-30, 0.0, -1e-30, -1.0, -1000.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_flat_and_inverted_elements_are_pushed_back(ratio: float, dtype: torch.dtype) -> None:
    """Finite energy and force, and more J means less energy."""
    deformation = flattened(ratio).to(dtype).requires_grad_()
    found = elasticity.energy_density(deformation, MU, LAME)
    (gradient,) = torch.autograd.grad(found, deformation)
    assert torch.isfinite(found) and torch.isfinite(gradient).all()
    assert found > 0
    assert gradient[2, 2] < 0


def test_an_inverted_element_that_follows_the_force_unfolds() -> None:
    inverse, _ = elasticity.invert_reference(TETRAHEDRON, ONE)
    # The fourth point pushed through the face opposite to it.
    a, b, c = TETRAHEDRON[:3]
    normal = torch.linalg.cross(b - a, c - a)
    height = (TETRAHEDRON[3] - a) @ normal / normal.square().sum() * normal
    displacement = torch.zeros_like(TETRAHEDRON)
    displacement[3] = -1.5 * height

    def ratio() -> float:
        return float(
            elasticity.volume_ratio(elasticity.deformation_gradient(displacement, ONE, inverse))
        )

    assert ratio() == pytest.approx(-0.5)
    for _ in range(200):
        displacement.requires_grad_()
        deformation = elasticity.deformation_gradient(displacement, ONE, inverse)
        (gradient,) = torch.autograd.grad(energy(deformation).sum(), displacement)
        displacement = (displacement - 0.1 * gradient / gradient.abs().max()).detach()  # mm a step
    assert ratio() == pytest.approx(1.0, abs=0.1)  # steps of 0.1 mm at a height of 10 mm


def test_an_inverted_element_has_no_stress() -> None:
    both = torch.stack([flattened(-0.5), flattened(0.5)])
    assert torch.isnan(stress(both)[0]).all()
    assert torch.isfinite(stress(both)[1]).all()


# ---------------------------------------------------------------- PhysicsNeMo Sym


def test_energy_and_stress_equal_those_that_physicsnemo_sym_derives() -> None:
    """Sym has no hyperelastic equation of its own: W is written as one, and Sym differentiates.

    Its displacement gradients come from autograd at points that each have their own linear map;
    the stress is sympy's derivative of W by F, so that nothing here is typed twice.
    """
    sympy = pytest.importorskip("sympy")
    sym = pytest.importorskip("physicsnemo.sym")
    position = sympy.symbols("x y z")
    moved = [sympy.Function(name)(*position) for name in "uvw"]
    entries = sympy.Matrix(3, 3, sympy.symbols("f:3:3"))
    ratio, log = entries.det(), sympy.log(entries.det())
    density = MU / 2 * ((entries.T * entries).trace() - 3) - MU * log + LAME / 2 * log**2
    first_piola = sympy.Matrix(3, 3, lambda i, j: density.diff(entries[i, j]))
    cauchy = first_piola * entries.T / ratio
    values = {
        entries[i, j]: int(i == j) + moved[i].diff(position[j]) for i in range(3) for j in range(3)
    }

    class NeoHookean(sym.PDE):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.dim = 3
            self.equations = {"energy": density.subs(values)} | {
                f"stress_{i}{j}": cauchy[i, j].subs(values) for i in range(3) for j in range(3)
            }

    names = ["energy", *(f"stress_{i}{j}" for i in range(3) for j in range(3))]
    informer = sym.PhysicsInformer(names, NeoHookean(), grad_method="autodiff")
    deformation = random_deformations(40, seed=6)
    points = torch.from_numpy(np.random.default_rng(7).normal(size=(40, 3))).requires_grad_()
    field = torch.einsum("pij,pj->pi", deformation, points) - points
    found = informer.forward(
        {"coordinates": points, **{n: field[:, i : i + 1] for i, n in enumerate("uvw")}}
    )
    torch.testing.assert_close(found["energy"][:, 0], energy(deformation), **CLOSED)
    stresses = torch.stack([found[name][:, 0] for name in names[1:]], dim=1).reshape(40, 3, 3)
    torch.testing.assert_close(stresses, stress(deformation), **CLOSED)
