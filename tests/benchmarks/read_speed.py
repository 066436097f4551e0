"""Time a sample's targets from the memory map against parsing its VTK file: 200 times or more.

    python tests/benchmarks/read_speed.py --output read_speed.json

An epoch's samples are parsed, then read from the map 20 times over, again and again, files and map
in the page cache. "VTK" is what a loop of a few lines does: ``pv.read`` and the array as float32.
"Map" is what ours does, ``PhaseSampleDataset.targets``; "item" is ``__getitem__``, which brings
scores and stage too. The floor is "copy": numpy copies an array of that size, in memory already.

A single reading of the map between two parses finds the processor's caches full of the parser and
takes some ten times as long, as does the first of a batch after a training step. "One" is the
ratio of such single readings: no target, but a step waits for one of them.
"""

import argparse
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyvista as pv

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from alternating import alternate, verdict
from surface_cohort import TARGET_ARRAY, ingest, write_surfaces

from meshstage.training.samples import PhaseSampleDataset

LIMIT = 200.0
WAYS = ("vtk", "map", "item", "copy")
EPOCHS_A_TURN = 20  # of all ways but VTK: one takes less than a millisecond


def parse(path: Path) -> np.ndarray:
    """Read a sample's targets, (n_points, n_target) float32, as a script of a few lines would."""
    return np.asarray(pv.read(path).point_data[TARGET_ARRAY], dtype=np.float32)


def compare(n_points: int, n_samples: int, repeats: int) -> dict[str, Any]:
    """Read all samples both ways, again and again; give medians, and times per sample."""
    with tempfile.TemporaryDirectory() as name:
        raw = write_surfaces(Path(name) / "raw", 1, n_samples, n_points)
        cohort = ingest(raw.mesh, raw.manifests, Path(name))
        dataset, [paths] = PhaseSampleDataset(cohort.subjects), raw.phases
        arrays = [parse(path) for path in paths]
        for index, array in enumerate(arrays):
            np.testing.assert_array_equal(dataset.targets([index])[0].numpy(), array)
        samples = [*range(n_samples)] * EPOCHS_A_TURN
        # A deque of length 0 drops each sample as training does after its step.
        epoch = alternate(
            {
                "vtk": lambda: deque(map(parse, paths), 0),
                "map": lambda: deque((dataset.targets([index]) for index in samples), 0),
                "item": lambda: deque((dataset[index] for index in samples), 0),
                "copy": lambda: deque((arrays[index].copy() for index in samples), 0),
            },
            repeats,
        )
        one = alternate(
            {"vtk": lambda: parse(paths[0]), "map": lambda: dataset.targets([0])}, n_samples
        )
    return {
        "points": dataset.n_points,
        "target_kbytes": arrays[0].nbytes / 1e3,
        **{f"{way}_ratio": EPOCHS_A_TURN * epoch.ratio("vtk", way) for way in WAYS[1:]},
        "one_ratio": one.ratio("vtk", "map"),
        "vtk_ms": epoch.median_ms("vtk") / n_samples,
        **{f"{way}_ms": epoch.median_ms(way) / len(samples) for way in WAYS[1:]},
        "one_ms": one.median_ms("map"),
    }


def main() -> int:
    """Print a row a size; exit 1 if the map is less than 200 times as fast."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--points", type=int, nargs="+", default=[1500, 5800])
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=15, help="of the epoch")
    arguments = parser.parse_args()
    print("           VTK over       |  ms per sample")
    print("points   kB   map  item  copy  one |    VTK     map    item    copy     one")
    rows = []
    for n_points in arguments.points:
        row = compare(n_points, arguments.samples, arguments.repeats)
        rows.append(row)
        ratios = "".join(f"{row[f'{way}_ratio']:6.0f}" for way in ("map", "item", "copy"))
        times = "".join(f"{row[f'{way}_ms']:8.4f}" for way in ("map", "item", "copy", "one"))
        print(
            f"{row['points']:6} {row['target_kbytes']:4.0f}{ratios}{row['one_ratio']:5.0f} | "
            f"{row['vtk_ms']:6.2f}{times}",
            flush=True,
        )
    missed = [
        f"{row['points']} points: {row['map_ratio']:.0f} times, wanted {LIMIT:.0f}"
        for row in rows
        if row["map_ratio"] < LIMIT
    ]
    return verdict("read_speed", {"limit": LIMIT, "rows": rows}, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
