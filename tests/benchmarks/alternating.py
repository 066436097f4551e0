"""Time variants in turn in one process, and compare them by the median of their ratios."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True)
class Turns:
    """Seconds of each turn of each variant.

    Parameters
    ----------
    wall : dict of list of float
        What a user waits.
    cpu : dict of list of float
        Of all threads of this process: waiting for other people's jobs does not lengthen it.
    """

    wall: dict[str, list[float]]
    cpu: dict[str, list[float]]

    def ratio(self, over: str, under: str, cpu: bool = False) -> float:
        """Give the median over the turns of one variant's time by another's."""
        times = self.cpu if cpu else self.wall
        return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))

    def median_ms(self, name: str) -> float:
        """Give the median time of a variant, to print beside a ratio."""
        return 1e3 * statistics.median(self.wall[name])


def alternate(
    variants: Mapping[str, Work],
    repeats: int,
    warm_up: int = 1,
    synchronize: Work = lambda: None,
) -> Turns:
    """Run the variants one after the other, again and again.

    Parameters
    ----------
    variants : mapping of callables
    repeats : int
        Turns that count.
    warm_up : int
        Turns before them: the first allocates, opens files, compiles.
    synchronize : callable
        Waits for a device, before and after each turn.
    """
    wall: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(warm_up + repeats):
        for name, work in variants.items():
            synchronize()
            start, cpu_start = time.perf_counter(), time.process_time()
            work()
            synchronize()
            if turn >= warm_up:
                wall[name].append(time.perf_counter() - start)
                cpu[name].append(time.process_time() - cpu_start)
    return Turns(wall, cpu)


def verdict(name: str, result: dict[str, Any], missed: list[str], output: Path | None) -> int:
    """Print what was missed, write JSON if asked to, and give the exit code."""
    if output is not None:
        text = json.dumps(result | {"missed": missed}, indent=1, allow_nan=False)
        output.write_text(text + "\n", encoding="utf-8")
    print(f"{name}: {'MISSED: ' + '; '.join(missed) if missed else 'good'}")
    return int(bool(missed))
