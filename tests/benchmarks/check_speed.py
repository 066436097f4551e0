"""Time the check of a cohort against plain ``pv.read`` of the same files on as many processes.

The two are timed in turn, so that a machine that slows down slows both down. Writes JSON and
prints a table; exits with 1 if the median ratio is above --limit.
"""

import argparse
import json
import logging
import multiprocessing
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyvista as pv

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from meshstage.checks.files import check_files


def make_cohort(folder: Path, n_subjects: int, n_phases: int, n_points: int) -> list[Path]:
    """Write spheres that move at random; gives the mesh files that a check reads."""
    rng = np.random.default_rng(0)
    side = round((n_points / 2) ** 0.5)
    template = pv.Sphere(radius=30.0, theta_resolution=2 * side, phi_resolution=side + 2).clean()
    template.clear_data()
    template.save(folder / "pca_mean.vtp")
    rows, files = ["manifest\tsplit"], []
    for n in range(n_subjects):
        home = folder / f"s{n:03d}"
        home.mkdir()
        reference = template.copy()
        reference.points += rng.normal(size=reference.points.shape).astype(np.float32)
        reference.save(home / "reference.vtp")
        files.append(home / "reference.vtp")
        phases = []
        for k in range(n_phases):
            mesh = reference.copy()
            moved = rng.normal(size=mesh.points.shape).astype(np.float32)
            mesh.point_data["displacement"] = moved
            mesh.points += moved
            mesh.save(home / f"phase_{k:02d}.vtp")
            files.append(home / f"phase_{k:02d}.vtp")
            phases.append({"mesh": f"phase_{k:02d}.vtp", "stage": k / n_phases})
        (home / "pca.json").write_text(json.dumps(rng.normal(size=3).tolist()))
        manifest = {
            "subject_id": home.name,
            "fitted_reference_mesh": "reference.vtp",
            "pca_coefficients": "pca.json",
            "target_array": "displacement",
            "phases": phases,
        }
        (home / "manifest.json").write_text(json.dumps(manifest))
        rows.append(f"{home.name}/manifest.json\t{'val' if n % 5 == 4 else 'train'}")
    (folder / "subjects.tsv").write_text("\n".join(rows) + "\n")
    return files


def read(path: Path) -> int:
    """Read one file as a script of a few lines would."""
    return pv.read(path).n_points


def read_all(files: list[Path], jobs: int) -> None:
    """Read all files with ``pv.read`` and nothing else, on a pool like the check's own."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, context) as executor:
        list(executor.map(read, files, chunksize=21))


def main() -> int:
    """Build the cohort, time both in turn, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=200)
    parser.add_argument("--phases", type=int, default=20)
    parser.add_argument("--points", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1.3)
    parser.add_argument("--output", type=Path, help="JSON to write")
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = make_cohort(folder, arguments.subjects, arguments.phases, arguments.points)
        rounds = []
        for _ in range(arguments.repeats):
            start = time.perf_counter()
            read_all(files, arguments.jobs)
            between = time.perf_counter()
            report = check_files(
                folder / "pca_mean.vtp", folder / "subjects.tsv", jobs=arguments.jobs
            )
            end = time.perf_counter()
            assert report.n_errors == 0, report.problems[:3]
            rounds.append({"read_s": between - start, "check_s": end - between})
            rounds[-1]["ratio"] = rounds[-1]["check_s"] / rounds[-1]["read_s"]
            print("  ".join(f"{key} {value:8.3f}" for key, value in rounds[-1].items()), flush=True)
    ratio = statistics.median(entry["ratio"] for entry in rounds)
    best = min(r["check_s"] for r in rounds) / min(r["read_s"] for r in rounds)
    result = {
        "files": len(files),
        "points": arguments.points,
        "jobs": arguments.jobs,
        "rounds": rounds,
        "median_ratio": ratio,
        "ratio_of_best_times": best,
        "limit": arguments.limit,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{len(files)} files: check / pv.read = {ratio:.3f}, best times {best:.3f}")
    return int(ratio > arguments.limit)


if __name__ == "__main__":
    sys.exit(main())
