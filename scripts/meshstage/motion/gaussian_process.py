"""Gaussian processes from shape scores to coefficients of the modes of whole cycles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np

from meshstage.cohort.statistics import Statistics
from meshstage.motion.model import Arrays, MotionModel, Observed
from meshstage.motion.modes import CycleModes

_FEWEST = 3  # leaving one of two out compares nothing
# Up to so many subjects the kernel is found again without each one that is left out; of more, one
# subject hardly moves it.
_FEW = 12
_PENALTIES = np.logspace(-3, 4, 15)
_MODES = "cycle_"  # before the names of the arrays of the modes


@dataclass(frozen=True)
class Kernel(Arrays):
    """One covariance per mode: linear plus squared exponential, plus noise of the training data.

    For normalised scores x, x' of mode m (targets of variance one)::

        k_m(x, x') = linear_m x . x' + rbf_m exp(-1/2 sum_p ((x_p - x'_p) / length_m_p)^2)

    Parameters
    ----------
    linear, rbf, noise : (n_modes,) array
    length : (n_modes, n_pca) array
        A length scale per score: a score that says nothing gets a long one.
    """

    linear: np.ndarray
    rbf: np.ndarray
    noise: np.ndarray
    length: np.ndarray

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Covariance of (n, n_pca) and (m, n_pca) normalised scores: (n_modes, n, m)."""
        square = np.square((a[:, None] - b[None]) / self.length[:, None, None]).sum(axis=-1)
        curved = self.rbf[:, None, None] * np.exp(-square / 2)
        straight: np.ndarray = self.linear[:, None, None] * (a @ b.T) + curved
        return straight

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Inverse of the covariance of the training data with noise, (n_modes, n, n)."""
        # Rounding in a kernel of ones is 1e-16 per entry: 1e-10 keeps the inverse to six digits.
        diagonal = (self.noise + 1e-10)[:, None, None] * np.eye(len(x))
        inverse: np.ndarray = np.linalg.inv(self(x, x) + diagonal)
        return inverse


@dataclass(frozen=True)
class GaussianProcess(MotionModel):
    """Mean cycle plus modes, each mode's coefficient by a Gaussian process on the shape scores.

    With normalised scores ``x``, coefficient ``m`` is
    ``scale_m shrink k_m(x, train_scores) @ alpha_m``; see :class:`Kernel` and
    :meth:`CycleModes.motion`.

    Parameters
    ----------
    modes : CycleModes
    kernel : Kernel
    train_scores : (n, n_pca) array, normalised
    values : (n, n_modes) array
        The training subjects' coefficients divided by ``scale``.
    scale : (n_modes,) array, units of the target
    pca_mean, pca_scale : (n_pca,) array
    shrink : float
        From 0 (the mean cycle) to 1.
    calibration : float
        Squared error of left out subjects beside the process's own variance.
    took : str
        "mean", "ridge" or "gp": what was best for left out subjects.
    left_out_rmse : (3,) array, units of the target
        Of mean, ridge and gp: error of a left out subject's coefficients, as a motion's RMSE.
    """

    modes: CycleModes
    kernel: Kernel
    train_scores: np.ndarray
    values: np.ndarray
    scale: np.ndarray
    pca_mean: np.ndarray
    pca_scale: np.ndarray
    shrink: float
    calibration: float
    took: str
    left_out_rmse: np.ndarray

    @classmethod
    def fit(cls, train: Sequence[Observed], statistics: Statistics, cycle: str) -> Self:
        """Fit a process per mode by its marginal likelihood; keep it, or a ridge, or the mean.

        Which, is what predicts each left out subject best, all with the modes of all subjects.
        """
        modes, coefficients = CycleModes.fit(train, cycle)
        x = np.stack([statistics.normalise_scores(s.shape_scores) for s in train])
        scale = coefficients.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        y = coefficients / scale
        candidates = {"mean": _mean_kernel(x.shape[1], y.shape[1])}
        if len(train) >= _FEWEST and y.shape[1] and x.shape[1]:
            candidates["ridge"] = _ridge_kernel(x, y, scale)
            candidates["gp"] = _gp_kernel(x, y)
        left_out = {name: _leave_one_out(kernel, x, y) for name, kernel in candidates.items()}
        if "gp" in candidates and len(train) <= _FEW:
            left_out["gp"] = _refit_without_one(candidates["gp"], x, y)
        judged = {name: _Judged.of(values, y, scale) for name, values in left_out.items()}
        took = min(judged, key=lambda name: judged[name].square)
        n_values = len(modes.stages) * modes.fields.shape[1] / modes.n_target
        errors = [judged[n].square if n in judged else np.nan for n in ("mean", "ridge", "gp")]
        return cls(
            modes=modes,
            kernel=candidates[took],
            train_scores=x,
            values=y,
            scale=scale,
            pca_mean=np.array(statistics.pca_mean),
            pca_scale=np.array(statistics.pca_scale),
            shrink=judged[took].shrink,
            calibration=judged[took].calibration,
            took=took,
            left_out_rmse=np.sqrt(np.array(errors) / n_values),
        )

    @cached_property
    def inverse(self) -> np.ndarray:
        """Inverse covariance of the training data, (n_modes, n, n)."""
        return self.kernel.inverse(self.train_scores)

    @cached_property
    def alpha(self) -> np.ndarray:
        """Weights of the training subjects, (n_modes, n)."""
        return np.einsum("mij,jm->mi", self.inverse, self.values)

    def _covariance(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Covariance of one subject with the training subjects, (n_modes, n), and with itself."""
        x = ((np.asarray(scores, float) - self.pca_mean) / self.pca_scale)[None]
        return self.kernel(x, self.train_scores)[:, 0], self.kernel(x, x)[:, 0, 0]

    def coefficients(self, scores: np.ndarray) -> np.ndarray:
        """Coefficients of the cycle modes for (n_pca,) scores: (n_modes,), units of the target."""
        beside, _ = self._covariance(scores)
        return self.scale * self.shrink * np.einsum("mi,mi->m", beside, self.alpha)

    def predict(self, scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Predict one subject's motion, (S, n_points, n_target)."""
        return self.modes.motion(self.coefficients(scores), stages)

    def deviation(self, scores: np.ndarray, stages: np.ndarray) -> np.ndarray:
        """Root of the expected squared length of the error at each point.

        It grows away from the training scores, and holds what no score explains, but nothing
        outside of the modes. Calibrated on left out training subjects.

        Returns
        -------
        (S, n_points) array, units of the target
        """
        beside, own = self._covariance(scores)
        explained = np.einsum("mi,mij,mj->m", beside, self.inverse, beside)
        variances = self.scale**2 * self.calibration * (own - explained + self.kernel.noise)
        return self.modes.deviation(variances.clip(min=0), stages)

    def about(self) -> dict[str, Any]:
        """Say what was taken, and why."""
        errors = dict(zip(("mean", "ridge", "gp"), self.left_out_rmse.tolist(), strict=True))
        why = "best for left out training subjects"
        if np.isnan(self.left_out_rmse[1:]).all():
            why = f"too few subjects to choose by leaving one out (at least {_FEWEST}), or no mode"
        return {
            "took": self.took,
            "why": why,
            "shrink": self.shrink,
            "n_modes": len(self.scale),
            "left_out_rmse": {k: None if np.isnan(v) else v for k, v in errors.items()},
        }

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give all arrays; those of the modes begin with ``cycle_``."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        modes, kernel = own.pop("modes"), own.pop("kernel")
        beside = {_MODES + name: array for name, array in modes.to_arrays().items()}
        return {k: np.asarray(v) for k, v in own.items()} | kernel.to_arrays() | beside

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Make what :meth:`to_arrays` was called on."""
        beside = {k.removeprefix(_MODES): v for k, v in arrays.items() if k.startswith(_MODES)}
        names = {f.name for f in fields(cls)} - {"modes", "kernel"}
        own: dict[str, Any] = {
            k: v if v.ndim else v.item() for k, v in arrays.items() if k in names
        }
        own |= {"modes": CycleModes.from_arrays(beside), "kernel": Kernel.from_arrays(arrays)}
        return cls(**own)


def _mean_kernel(n_pca: int, n_modes: int) -> Kernel:
    """Explains nothing: all is noise."""
    zero, one = np.zeros(n_modes), np.ones(n_modes)
    return Kernel(zero, zero, one, np.ones((n_modes, n_pca)))


def _ridge_kernel(x: np.ndarray, y: np.ndarray, scale: np.ndarray) -> Kernel:
    """Linear, with the penalty that predicts left out subjects best; the same for all modes."""
    mean = _mean_kernel(x.shape[1], y.shape[1])
    shares = _PENALTIES / (1 + _PENALTIES)  # of noise, where the rest of the variance is linear
    kernels = [Kernel((1 - p) * mean.noise, mean.rbf, p * mean.noise, mean.length) for p in shares]
    return min(kernels, key=lambda k: _Judged.of(_leave_one_out(k, x, y), y, scale).square)


def _gp_kernel(x: np.ndarray, y: np.ndarray, near: Kernel | None = None) -> Kernel:
    """Kernel of each mode by maximal marginal likelihood, with weak priors on its numbers.

    The likelihood alone overfits: eight subjects have less to say than the seven numbers of a
    kernel on four scores. The priors are log-normal, wide, and say that half of a coefficient is
    linear and a tenth of it noise, and that it bends over a few standard deviations of a score.
    With ``near``, a few steps from there are enough.
    """
    import warnings

    from scipy.optimize import minimize
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

    n_pca = x.shape[1]
    kernel = (
        ConstantKernel(0.5, (1e-6, 1e3)) * DotProduct(sigma_0=0, sigma_0_bounds="fixed")
        + ConstantKernel(0.5, (1e-6, 1e3)) * RBF(np.full(n_pca, 4.0), (0.1, 1e3))
        + WhiteKernel(0.1, (1e-6, 1e2))
    )
    middle = kernel.theta
    width = np.array([2.0, 3.0, *[2.0] * n_pca, 2.0])

    starts = [middle] * y.shape[1]
    if near is not None:
        shared = np.column_stack([near.linear, near.rbf, near.length, near.noise])
        starts = list(np.log(shared))
    # Ten thousandths of a unit of log likelihood are nothing.
    steps = {"maxiter": 60 if near is None else 8, "ftol": 1e-5}

    def fitted(target: np.ndarray, start: np.ndarray) -> np.ndarray:
        def optimise(objective: Any, theta: np.ndarray, bounds: np.ndarray) -> tuple[Any, Any]:
            def with_priors(theta: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = objective(theta)
                far = (theta - middle) / width
                return value + 0.5 * far @ far, gradient + far / width

            found = minimize(
                with_priors, start, jac=True, bounds=bounds, method="L-BFGS-B", options=steps
            )
            return found.x, found.fun

        process = GaussianProcessRegressor(kernel, optimizer=optimise).fit(x, target)
        theta: np.ndarray = np.exp(process.kernel_.theta)
        return theta

    with warnings.catch_warnings():
        # Noise at its least is motion that the scores explain fully: as it may be.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = np.stack([fitted(*pair) for pair in zip(y.T, starts, strict=True)])
    return Kernel(found[:, 0], found[:, 1], found[:, -1], found[:, 2:-1])


def _leave_one_out(kernel: Kernel, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict each left out subject with this kernel: errors and variances, (n, n_modes).

    In closed form (Rasmussen and Williams 2006, section 5.4.2): with the inverse covariance K,
    what is left of subject i is ``(K y)_i / K_ii``, with variance ``1 / K_ii``. The mean of the
    others is not that of all: their coefficients would tell the one that is left out, as they sum
    to zero with it. A mean that is not known takes ``K 1 1' K / (1' K 1)`` from K.
    """
    inverse = kernel.inverse(x)
    sums = inverse.sum(axis=1)
    inverse = inverse - sums[:, :, None] * sums[:, None] / sums.sum(axis=1)[:, None, None]
    diagonal = np.einsum("mii->im", inverse)
    return np.einsum("mij,jm->im", inverse, y) / diagonal, 1 / diagonal


def _refit_without_one(
    kernel: Kernel, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Predict each left out subject with a kernel that was found without it, as above."""
    errors, variances = np.empty_like(y), np.empty_like(y)
    for i in range(len(x)):
        rest = np.delete(np.arange(len(x)), i)
        near, left = x - x[rest].mean(axis=0), y - y[rest].mean(axis=0)
        own = _gp_kernel(near[rest], left[rest], near=kernel)
        found = _leave_one_out(own, near, left)
        errors[i], variances[i] = found[0][i], found[1][i]
    return errors, variances


@dataclass(frozen=True)
class _Judged:
    """How well a kernel predicts left out subjects.

    Parameters
    ----------
    square : float
        Mean squared error of a subject's coefficients, after shrinking.
    shrink : float
        The best factor of the predictions, from 0 to 1.
    calibration : float
        Squared error beside the kernel's own variance.
    """

    square: float
    shrink: float
    calibration: float

    @classmethod
    def of(
        cls, left_out: tuple[np.ndarray, np.ndarray], y: np.ndarray, scale: np.ndarray
    ) -> "_Judged":
        # All from the mean of the others, which is what shrinking leads to; one has no others.
        true = scale * (len(y) * y - y.sum(axis=0)) / max(1, len(y) - 1)
        predicted = true - scale * left_out[0]
        square = float((predicted**2).sum())
        some = square > 1e-24 * (true**2).sum()  # beyond rounding
        shrink = float(np.clip((true * predicted).sum() / square, 0, 1)) if some else 0.0
        errors = float(np.square(true - shrink * predicted).sum())
        variance = float((scale**2 * left_out[1]).sum())
        return cls(errors / len(y), shrink, errors / variance if variance > 0 else 1.0)
