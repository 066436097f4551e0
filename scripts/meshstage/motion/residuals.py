"""What a prediction leaves of the truth."""

import numpy as np


def square_errors(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Squared length of each point's error: (..., n_points, n_target) to (..., n_points)."""
    error = np.asarray(predicted, np.float64) - np.asarray(truth, np.float64)
    return np.einsum("...t,...t->...", error, error)
