"""Time and memory of a dry run of the workflow for a large cohort, whose meshes are empty files.

Target: 1,000 subjects of 20 phases in at most 20 s and 1.5 GB on
2 cores; so ``--subjects 100 --folds 5 --rows 20``. Prints one line; exit 1 if it is missed.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from alternating import verdict

from meshstage.files import write_json, write_text

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "workflow", "scripts", "profiles", "envs", "config")
MAX_SECONDS, MAX_GB = 20.0, 1.5


def write_cohort(folder: Path, subjects: int, phases: int, folds: int | None) -> None:
    """Write manifests, tables, and every file that they name, empty."""
    rows = ["manifest\tsplit"]
    for number in range(subjects):
        name = f"case-{number:04d}"
        home = folder / "cohort" / name
        home.mkdir(parents=True)
        meshes = [f"phase_{k:02d}.vtu" for k in range(phases)]
        for file in ("reference.vtu", *meshes):
            (home / file).touch()
        write_json(home / "pca.json", [0.0, 1.0])
        write_json(
            home / "manifest.json",
            {
                "subject_id": name,
                "fitted_reference_mesh": "reference.vtu",
                "pca_coefficients": "pca.json",
                "target_array": "displacement",
                "phases": [{"mesh": mesh, "stage": k / phases} for k, mesh in enumerate(meshes)],
            },
        )
        split = ("train", "train", "train", "train", "train", "train", "train", "train", "val")
        rows.append(f"../cohort/{name}/manifest.json\t{(*split, 'test')[number % 10]}")
    (folder / "cohort/template.vtu").touch()
    write_text(folder / "config/subjects.tsv", "\n".join(rows) + "\n")
    config = yaml.safe_load((folder / "config/config.yaml").read_text())
    config |= {"cohort": "large", "template": "cohort/template.vtu", "folds": folds}
    write_text(folder / "config/config.yaml", yaml.safe_dump(config))


def write_runs(folder: Path, rows: int) -> None:
    """Write a table of so many runs, one half of them with a graph."""
    kinds = ("mgn", "mlp", "mgn", "pod")
    lines = [f"r{number}.x\t{kinds[number % 4]}\t400\t50" for number in range(rows)]
    header = "run\tnetwork\tepochs\trmse_log_interval"
    write_text(folder / "config/runs.tsv", "\n".join([header, *lines]) + "\n")


def dry_run(folder: Path, profile: str) -> tuple[float, float, float]:
    """Run ``snakemake -n``; gives seconds, those of CPUs, and GB at the peak."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    started = time.perf_counter()
    done = subprocess.run(
        ["snakemake", "-n", "--profile", f"profiles/{profile}"],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"snakemake -n gave {done.returncode}:\n{done.stdout}{done.stderr}"[-4000:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # nothing else was waited for
    cpu_seconds = used.ru_utime + used.ru_stime
    return seconds, cpu_seconds, used.ru_maxrss * 1024 / 1e9


def main() -> int:
    """Write the cohort, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--subjects", type=int, default=1000)
    parser.add_argument("--phases", type=int, default=20)
    parser.add_argument("--folds", type=int, help="(without it: none)")
    parser.add_argument("--rows", type=int, help="runs (without it: those of the demo)")
    parser.add_argument("--profile", default="slurm")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dag-") as name:
        folder = Path(name)
        for part in PARTS:
            source = ROOT / part
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / part)
        write_cohort(folder, arguments.subjects, arguments.phases, arguments.folds)
        if arguments.rows:
            write_runs(folder, arguments.rows)
        seconds, cpu_seconds, peak = dry_run(folder, arguments.profile)
    # One thread does it: its CPU seconds are what it takes where nothing else runs.
    print(
        f"{arguments.subjects} subjects x {arguments.phases} phases, "
        f"{arguments.folds or 'no'} folds, profile {arguments.profile}: "
        f"dry run {cpu_seconds:.1f} s of CPU (at most {MAX_SECONDS:.0f}), {peak:.2f} GB (at most "
        f"{MAX_GB}); {seconds:.1f} s on {os.cpu_count()} cores under a load of "
        f"{os.getloadavg()[0]:.1f}"
    )
    found = {"seconds of CPU": (cpu_seconds, MAX_SECONDS), "GB": (peak, MAX_GB)}
    missed = [
        f"{value:.2f} {what}, wanted at most {most}"
        for what, (value, most) in found.items()
        if value > most
    ]
    result = {"subjects": arguments.subjects, "phases": arguments.phases}
    result |= {"folds": arguments.folds, "rows": arguments.rows}
    result |= {"cpu_seconds": cpu_seconds, "seconds": seconds, "peak_gbytes": peak}
    return verdict("dag_scale", result, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
