"""Principal modes: of single motions, and of whole cycles as vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from meshstage.motion.cycle import LARGEST_GAP, grid, interpolation
from meshstage.motion.model import Arrays, Observed

_BLOCK_VALUES = 4_000_000  # float64 values held at once while modes are made: 32 MB
# Fields keep the motion to 1e-4 of its size, 1 um of 10 mm, and leave what is noise.
_FIELDS_KEPT, _MOST_FIELDS = 1 - 1e-8, 128
# Cycle modes keep the differences between subjects to a hundredth.
_CYCLES_KEPT, _MOST_MODES = 1 - 1e-4, 20
# Beside the variance of the first mode: what a subject with gaps says of a mode is trusted where
# the mode's own variance is above this.
_GAP_PENALTY = 1e-4


def principal_modes(
    motions: Sequence[np.ndarray], kept: float, most: int, centred: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Principal components of motions by their Gram matrix, a block of points at a time.

    Parameters
    ----------
    motions : sequence of (n_samples, n_points, n_target) arrays
    kept : float
        Part of the variance that the modes hold at least.
    most : int
        Number of modes at most.
    centred : bool
        Whether the mean is subtracted; otherwise it is given as zero.

    Returns
    -------
    mean : (n_points * n_target,) array
    modes : (n_modes, n_points * n_target) array
        Orthonormal, by falling variance.
    variances : (n_modes,) array
        Parts of the whole variance.
    """
    n_samples = sum(map(len, motions))
    flat = [m.reshape(len(m), -1) for m in motions]
    n_values = flat[0].shape[1]
    step = max(1, _BLOCK_VALUES // n_samples)
    blocks = [slice(start, start + step) for start in range(0, n_values, step)]
    mean, gram = np.zeros(n_values), np.zeros((n_samples, n_samples))

    def read(block: slice) -> np.ndarray:
        part = np.concatenate([f[:, block] for f in flat]).astype(np.float64)
        if centred:
            mean[block] = part.mean(axis=0)
        return part - mean[block]

    for block in blocks:
        part = read(block)
        gram += part @ part.T
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1].clip(min=0), vectors[:, ::-1]
    total = values.sum()
    # Rounding leaves eigenvalues of some 1e-16 of the largest where there is no motion at all.
    real = int((values > 1e-12 * max(values[0], np.finfo(float).tiny)).sum())
    enough = int(np.searchsorted(np.cumsum(values), kept * total)) + 1
    n_modes = min(real, enough, most)
    modes = np.empty((n_modes, n_values))
    for block in blocks:
        modes[:, block] = (vectors[:, :n_modes] / np.sqrt(values[:n_modes])).T @ read(block)
    return mean, modes, values[:n_modes] / total if total > 0 else values[:0]


def _above_noise(parts: np.ndarray, shape: tuple[int, int]) -> int:
    """Count the principal components of a matrix of this shape that stand out of noise.

    The optimal hard threshold where the noise is not known (Gavish and Donoho 2014, equation 5):
    a multiple of the median singular value, which is tiny if there is hardly any noise.
    """
    beta = min(shape) / max(shape)
    multiple = 0.56 * beta**3 - 0.95 * beta**2 + 1.82 * beta + 1.43
    median = np.median(np.pad(np.sqrt(parts), (0, max(0, min(shape) - len(parts)))))
    return int((np.sqrt(parts) > multiple * median).sum())


def _filled(data: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Put the mean of the subjects that are near a stage where others have a gap.

    Parameters
    ----------
    data : (n_subjects, n_stages, n_fields) array
    near : (n_subjects, n_stages) array of bool
        At a stage that nobody is near, what was interpolated stays.
    """
    times = near.sum(axis=0)
    mean = np.einsum("is,isf->sf", near, data) / np.maximum(times, 1)[:, None]
    filled: np.ndarray = np.where((near | (times == 0))[:, :, None], data, mean)
    return filled


@dataclass(frozen=True)
class CycleModes(Arrays):
    """Mean and principal modes of whole cycles.

    A cycle is kept as coefficients of a few fields at each stage of a grid, so that modes of a
    large mesh stay small. With ``w = interpolation(self.stages, stages, self.cycle)``::

        motion(stage) = w(stage) @ (mean + sum_k coefficient_k modes[k]) @ fields

    Where no training subject moves at a stage, ``mean`` and ``modes`` are zero there.

    Parameters
    ----------
    stages : (n_stages,) array
        Rising; of `cycle.grid`.
    fields : (n_fields, n_points * n_target) float32 array
        Orthonormal.
    mean : (n_stages, n_fields) array, units of the target
    modes : (n_modes, n_stages, n_fields) array
        Orthonormal as vectors, by falling variance.
    variances : (n_modes,) array
        Of the coefficients among complete training subjects, squared units of the target.
    n_target : int
    cycle : str
    """

    stages: np.ndarray
    fields: np.ndarray
    mean: np.ndarray
    modes: np.ndarray
    variances: np.ndarray
    n_target: int
    cycle: str

    @classmethod
    def fit(cls, train: Sequence[Observed], cycle: str) -> tuple[Self, np.ndarray]:
        """Find the modes, and each subject's coefficients of them.

        Modes come from the subjects whose stages leave no gap of more than a quarter of the
        cycle; see :meth:`coefficients` for the others. Where fewer than two are so they come from
        all, each moving in its gaps as the others do on average.

        Returns
        -------
        CycleModes
        coefficients : (n_subjects, n_modes) array, units of the target
        """
        stages = grid(np.concatenate([s.stages for s in train]), cycle)
        motions = [s.targets for s in train]
        # Not centred, so that a stage at which nobody moves stays at exactly zero.
        _, fields, parts = principal_modes(motions, _FIELDS_KEPT, _MOST_FIELDS, centred=False)
        n_fields = _above_noise(parts, (sum(map(len, motions)), fields.shape[1]))
        fields = fields[:n_fields]
        cycles, known = [], []
        for subject in train:
            weights, gap = interpolation(subject.stages, stages, cycle)
            flat = np.asarray(subject.targets, float).reshape(len(subject.stages), -1)
            cycles.append(weights @ (flat @ fields.T))
            known.append(gap <= LARGEST_GAP)
        data, near = np.stack(cycles), np.array(known)
        whole = np.array([each.all() for each in known])
        if whole.sum() < 2:
            data = _filled(data, near)
            whole = np.ones(len(data), bool)
        mean = data[whole].mean(axis=0)
        flat = (data - mean).reshape(len(data), -1)
        _, singular, vectors = np.linalg.svd(flat[whole], full_matrices=False)
        square = singular**2
        enough = int(np.searchsorted(np.cumsum(square), _CYCLES_KEPT * square.sum())) + 1
        real = int((square > 1e-12 * max((data[whole] ** 2).sum(), np.finfo(float).tiny)).sum())
        n_modes = min(enough, real, _MOST_MODES)
        modes = vectors[:n_modes].reshape(n_modes, *mean.shape)
        variances = square[:n_modes] / whole.sum()
        n_target = train[0].targets.shape[2]
        fitted = cls(stages, fields.astype(np.float32), mean, modes, variances, n_target, cycle)
        coefficients = flat @ vectors[:n_modes].T
        for index in np.flatnonzero(~whole).tolist():
            coefficients[index] = fitted.coefficients(train[index].stages, train[index].targets)
        return fitted, coefficients

    def coefficients(self, stages: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Coefficients of a subject from the stages it has, whatever gaps they leave.

        Regularised least squares: each mode is penalised by the inverse of its variance, so that
        modes which these stages hardly show stay near the mean.

        Parameters
        ----------
        stages : (S,) array
        targets : (S, n_points, n_target) array, units of the target

        Returns
        -------
        (n_modes,) array, units of the target
        """
        if not len(self.modes):
            return np.zeros(0)
        weights, _ = interpolation(self.stages, stages, self.cycle)
        flat = np.asarray(targets, float).reshape(len(targets), -1)
        left = flat @ self.fields.T.astype(float) - weights @ self.mean  # (S, n_fields)
        shown = (weights @ self.modes).reshape(len(self.modes), -1)  # (n_modes, S * n_fields)
        penalty = np.diag(_GAP_PENALTY * self.variances[0] / self.variances)
        found: np.ndarray = np.linalg.solve(shown @ shown.T + penalty, shown @ left.ravel())
        return found

    def motion(self, coefficients: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Motion of (n_modes,) coefficients at (S,) stages: (S, n_points, n_target) float32."""
        weights, _ = interpolation(self.stages, stages, self.cycle)
        cycle = self.mean + np.tensordot(coefficients, self.modes, axes=1)
        motion = (weights @ cycle) @ self.fields
        return motion.astype(np.float32).reshape(len(motion), -1, self.n_target)

    def deviation(self, variances: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Root of the mean squared displacement by independent coefficients of these variances.

        Parameters
        ----------
        variances : (n_modes,) array, squared units of the target
        stages : (S,) array

        Returns
        -------
        (S, n_points) array, units of the target
        """
        weights, _ = interpolation(self.stages, stages, self.cycle)
        total = np.zeros((len(weights), self.fields.shape[1] // self.n_target))
        for variance, mode in zip(variances, self.modes, strict=True):
            motion = (weights @ mode @ self.fields).reshape(*total.shape, self.n_target)
            total += variance * np.square(motion).sum(axis=2)
        return np.sqrt(total)
