"""Which subjects are trained on, validated and tested."""

import hashlib
import math
import re
from collections.abc import Sequence

from meshstage.config.subjects import SPLITS
from meshstage.errors import InputError, Problem


def parse_parts(text: str) -> tuple[float, float, float]:
    """Read ``0.7/0.15/0.15``: the parts to train on, validate and test.

    Raises
    ------
    InputError
        If these are not three numbers, none negative, whose sum is 1.
    """
    pieces = text.split("/")
    if len(pieces) == 3 and all(re.fullmatch(r"\s*\d*\.?\d+\s*", piece) for piece in pieces):
        train, val, test = (float(piece) for piece in pieces)
        if math.isclose(train + val + test, 1.0, abs_tol=1e-6):
            return train, val, test
    what = f"the split {text!r} is not three parts whose sum is 1"
    raise InputError(Problem(what, "write it like 0.7/0.15/0.15: train, val, test"))


def deal(subjects: Sequence[str], parts: tuple[float, float, float], seed: int) -> dict[str, str]:
    """Deal subjects to train, val and test.

    A subject's place in the line is a hash of its id and the seed alone, and each split takes its
    part of the line, rounded so that the counts are nearest to the parts (largest remainder).

    Parameters
    ----------
    subjects : sequence of str
        Ids; their order does not matter.
    parts : three floats
        Sum 1.
    seed : int

    Returns
    -------
    dict of str to str
        Split by id.
    """
    line = sorted(subjects, key=lambda s: (hashlib.sha256(f"{seed}:{s}".encode()).digest(), s))
    exact = [part * len(line) for part in parts]
    counts = [math.floor(count + 1e-9) for count in exact]
    by_remainder = sorted(range(3), key=lambda k: counts[k] - exact[k])
    for k in by_remainder[: len(line) - sum(counts)]:
        counts[k] += 1
    splits = [name for name, n in zip(SPLITS, counts, strict=True) for _ in range(n)]
    return dict(zip(line, splits, strict=True))
