"""Time of leaving out each subject of the demo in turn, with a Gaussian process and a pod.

Target: 5 minutes on two quiet cores, from ingested subjects to both evaluations out of fold.
Prints one line; exit 1 if the CPUs were busy for longer than ten minutes together.
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
from dag_scale import PARTS, ROOT

from meshstage.files import read_json, write_text

RUNS = ("gp", "pod")
MAX_MINUTES = 10.0  # of CPU: five on each of two cores


def snakemake(folder: Path, *targets: str) -> None:
    """Run the workflow with one thread per process, as two jobs side by side want it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["snakemake", "--profile", "profiles/local", "--cores", "2", *targets],
        cwd=folder,
        env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout[-4000:])


def cpu_seconds() -> float:
    """Seconds of CPU of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Ingest, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="new folder to work in")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="loo-") as name:
        folder = arguments.keep or Path(name)
        folder.mkdir(exist_ok=True)
        for part in PARTS:
            source = ROOT / part
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / part)
        config = yaml.safe_load((folder / "config/config.yaml").read_text())
        write_text(folder / "config/config.yaml", yaml.safe_dump(config | {"folds": "loo"}))
        snakemake(folder, "results/demo/check/passed.txt")
        started, before = time.perf_counter(), cpu_seconds()
        files = [f"results/demo/evaluation/{run}.oof.json" for run in RUNS]
        snakemake(folder, *files)
        seconds, busy = time.perf_counter() - started, cpu_seconds() - before
        summaries = {run: read_json(folder / file) for run, file in zip(RUNS, files, strict=True)}
    rmse = {
        run: summary["splits"]["test"]["metrics"]["rmse_mm"] for run, summary in summaries.items()
    }
    folds = summaries["gp"]["folds"]
    print(
        f"{folds} folds of {' and '.join(RUNS)}: {busy / 60:.1f} minutes of CPU (at most "
        f"{MAX_MINUTES:.0f}), {seconds / 60:.1f} minutes on {os.cpu_count()} cores under a load "
        f"of {os.getloadavg()[0]:.1f}; RMSE out of fold "
        + ", ".join(f"{run} {value['value']:.3f} mm" for run, value in rmse.items())
    )
    result = {"folds": folds, "cpu_seconds": busy, "seconds": seconds, "rmse_mm": rmse}
    missed = []
    if busy > 60 * MAX_MINUTES:
        missed = [f"{busy / 60:.1f} minutes of CPU, wanted at most {MAX_MINUTES:.0f}"]
    return verdict("leave_one_out", result, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
