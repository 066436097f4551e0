"""The stage as a place in a cycle: interpolation between known stages, and features of a stage.

A closed cycle comes back: stage 1 is stage 0. An open one does not (a breath in, growth).
"""

import numpy as np

CYCLES = ("closed", "open")
# Motion is interpolated over at most this part of a cycle; a straight line over more, from 0.04
# round to 1 say, would invent a heart that stands still.
LARGEST_GAP = 0.25
_MOST_STAGES = 64


def place(stages: np.ndarray, cycle: str) -> np.ndarray:
    """Bring equal stages to equal numbers; of a closed cycle to [0, 1), where 1 is 0."""
    stages = np.asarray(stages, float)
    # Nine digits: 0.1 + 0.2 and 0.3 are one stage, 0.291 and 0.295 are two.
    return np.round(stages % 1.0, 9) % 1.0 if cycle == "closed" else np.round(stages, 9)


def grid(stages: np.ndarray, cycle: str) -> np.ndarray:
    """List the different stages of a cohort, rising; even ones where there are many."""
    unique = np.unique(place(stages, cycle))
    if len(unique) <= _MOST_STAGES:
        return unique
    if cycle == "closed":
        return np.arange(_MOST_STAGES) / _MOST_STAGES
    return np.linspace(unique[0], unique[-1], _MOST_STAGES)


def most_harmonics(n_stages: int) -> int:
    """How many harmonics so many different stages can tell apart, at most 4."""
    return min(4, (n_stages - 1) // 2)


def encode(stages: np.ndarray, n_harmonics: int, cycle: str) -> np.ndarray:
    """Features of a stage, orthogonal over evenly spaced stages.

    Closed: ``cos(2 pi k s)`` for k = 1..K, then ``sin(2 pi k s)``. Open: ``cos(pi k s)`` for
    k = 1..2K, which take different values at the two ends.

    Parameters
    ----------
    stages : (n,) array
    n_harmonics : int
        K.
    cycle : str

    Returns
    -------
    (n, 2 K) array
    """
    if cycle == "open":
        return np.cos(np.pi * np.outer(stages, np.arange(1, 2 * n_harmonics + 1)))
    angles = 2 * np.pi * np.outer(stages, np.arange(1, n_harmonics + 1))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def interpolation(
    known: np.ndarray, asked: np.ndarray, cycle: str
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of linear interpolation between stages; round the circle in a closed cycle.

    Parameters
    ----------
    known : (n_known,) array
        In any order; a stage that stands twice shares its weight.
    asked : (n_asked,) array
        Before the first and after the last stage of an open cycle, that one serves.
    cycle : str

    Returns
    -------
    weights : (n_asked, n_known) array
        Each row sums to 1.
    gap : (n_asked,) array
        Part of the cycle that was interpolated over; 0 where the stage is known.
    """
    unique, inverse, times = np.unique(place(known, cycle), return_inverse=True, return_counts=True)
    asked = place(asked, cycle)
    n = len(unique)
    position = np.searchsorted(unique, asked)
    rows = np.arange(len(asked))
    weights = np.zeros((len(asked), n))
    if cycle == "closed":
        right = position % n
        exact = (position < n) & (unique[right] == asked)
        left = np.where(exact, right, (position - 1) % n)
        gap = (unique[right] - unique[left]) % 1.0
        gap = np.where(exact, 0.0, np.where(gap == 0, 1.0, gap))  # one stage: all the way round
        way = (asked - unique[left]) % 1.0
    else:
        right = position.clip(max=n - 1)
        exact = unique[right] == asked
        left = np.where(exact | (position == n), right, (position - 1).clip(min=0))
        inside = left != right
        gap = np.where(inside, unique[right] - unique[left], np.abs(asked - unique[right]))
        way = np.where(inside, asked - unique[left], 0.0)
    part = np.divide(way, gap, out=np.zeros(len(asked)), where=gap > 0)
    np.add.at(weights, (rows, left), 1 - part)
    np.add.at(weights, (rows, right), part)
    return weights[:, inverse] / times[inverse], gap
