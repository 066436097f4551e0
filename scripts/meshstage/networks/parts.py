"""Into how many parts an array is cut, so that a CPU works on memory that it has at hand."""

import math

import torch

# Numbers of a part at most: 16 MB. Arrays of up to 32 MB come from memory that malloc has kept,
# larger ones are paged in afresh, which costs more than the work on them; much smaller ones cost
# more operations than they gain. Steps with two threads, over those with parts of this size:
# edge blocks at 700, 1,500 and 5,800 points 1.03, 1.04, 1.01 with half, 1.03, 1.04, 1.05 with a
# quarter, 1.01, 1.01, 1.04 with one and a half; the MLP at 1,500 points, uncut, 1.24.
NUMBERS_OF_PART = 2**22


def count_parts(n_numbers: int, device: torch.device) -> int:
    """Count the parts of an array: several on a CPU; a GPU, and a compiler, take all at once."""
    if device.type != "cpu" or torch.compiler.is_compiling():
        return 1
    return max(1, math.ceil(n_numbers / NUMBERS_OF_PART))
