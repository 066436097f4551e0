"""The learning rate in the course of a run."""

import math

WARM_UP = 0.05
"""Part of a run in which the rate of a cosine rises to its peak."""


def rate_at(schedule: str, done: float) -> float:
    """Give the learning rate as a multiple of the setting.

    Parameters
    ----------
    schedule : str
        ``constant``; or ``cosine``, which rises linearly from 0 to 1 during `WARM_UP`, and then
        falls to 0 along half a cosine.
    done : float
        Part of the run that is trained, from 0 to 1.
    """
    if schedule == "constant":
        return 1.0
    if done < WARM_UP:
        return done / WARM_UP
    return (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2
