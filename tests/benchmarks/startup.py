"""Measure what it takes to ask a script for help, and what each loads for its work.

    python tests/benchmarks/startup.py --output startup.json

Every command of ``scripts/`` answers ``--help`` in at most 1 s, and loads neither torch nor
physicsnemo for it. What counts is the processor time of the process, the best of three starts:
other people's jobs do not lengthen it. Then each that can does its work on a demo cohort of two
subjects; of those, only the ones listed in ``MAY_LOAD`` load torch or physicsnemo.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from alternating import verdict

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
LIMIT_S = 1.0
HEAVY = frozenset({"torch", "physicsnemo"})
MAY_LOAD = {
    "build_template": {"torch"},  # writes the edges as tensors
    **dict.fromkeys(("train_mlp", "predict", "evaluate", "export"), HEAVY),
}
# In this order each finds what it needs; paths are relative to one folder.
WORK = {
    "make_demo_cohort": "--output raw --subjects 2 --phases 2 --resolution 4",
    "build_template": "--mesh raw/pca_mean.vtu --output template",
    "ingest_subject": "--manifest raw/demo-001/manifest.json --template template --output one",
    "check_cohort": "--template template --subjects one --output check",
    "compute_stats": "--template template --train one --output stats.json",
    "fit_baselines": "--template template --stats stats.json --train one --output baselines.json",
    "train_mlp": "--template template --stats stats.json --train one --output models/mlp --epochs 1"
    " --layer-size 8 --num-layers 1",
    "predict": "--model models/mlp --manifest raw/demo-001/manifest.json --output predictions",
    "evaluate": "--model models/mlp --subjects one --baselines baselines.json"
    " --output eval/mlp.csv",
    "export": "--model models/mlp --output mlp.mdlus",
    "show_runs": "eval/mlp.json",
    "watch": "models/mlp",
    "plot": "meshes --template template --evaluation eval/mlp.json --predictions predictions"
    " --subjects one --output figures",
}
# Runs a script as ``python script`` does, and leaves the names of what it loaded.
RUN = """
import atexit, pathlib, runpy, sys
note, *sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
names = lambda: " ".join(sorted({name.split(".")[0] for name in sys.modules}))
atexit.register(lambda: pathlib.Path(note).write_text(names()))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def commands() -> list[str]:
    """Names of the scripts that are commands."""
    found = [path for path in SCRIPTS.glob("*.py") if '== "__main__"' in path.read_text("utf-8")]
    return sorted(path.stem for path in found)


def cpu_seconds(command: list[str]) -> float:
    """Run a process to its end; give the processor time that it took."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command} gave {process.returncode}"
    return used.ru_utime + used.ru_stime


def loads(name: str, arguments: list[str], folder: Path) -> frozenset[str]:
    """Run a script in a folder; give the heavy packages that it loaded."""
    note = folder / "loaded.txt"
    command = [sys.executable, "-c", RUN, str(note), str(SCRIPTS / f"{name}.py"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name} gave {done.returncode}:\n{done.stderr}"
    return HEAVY & set(note.read_text().split())


def examine(name: str, folder: Path, repeats: int, work: bool) -> dict[str, Any]:
    """Measure one script."""
    script = [sys.executable, str(SCRIPTS / f"{name}.py"), "--help"]
    row: dict[str, Any] = {"script": name}
    row["help_s"] = min(cpu_seconds(script) for _ in range(repeats))
    row["help_loads"] = sorted(loads(name, ["--help"], folder))
    row["work_loads"], row["work_s"] = None, None
    if work and name in WORK:
        (folder / "eval").mkdir(exist_ok=True)
        start = time.perf_counter()
        row["work_loads"] = sorted(loads(name, WORK[name].split(), folder))
        row["work_s"] = time.perf_counter() - start
    return row


def complaints(row: dict[str, Any]) -> list[str]:
    """Say what is not as it should be."""
    name, found = row["script"], []
    if row["help_s"] > LIMIT_S:
        found.append(f"{name} --help takes {row['help_s']:.2f} s")
    if row["help_loads"]:
        found.append(f"{name} --help loads {' and '.join(row['help_loads'])}")
    if extra := set(row["work_loads"] or ()) - MAY_LOAD.get(name, set()):
        found.append(f"{name} loads {' and '.join(sorted(extra))} for its work")
    return found


def main() -> int:
    """Print a row a script; exit 1 if one is slow or loads too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write")
    parser.add_argument("--repeats", type=int, default=3, help="starts of each script")
    parser.add_argument("--help-only", action="store_true", help="do no work: a few seconds")
    arguments = parser.parse_args()
    print("script             --help, CPU s  loads        its work loads")
    rows, missed = [], []
    others = [name for name in commands() if name not in WORK]
    with tempfile.TemporaryDirectory() as folder:
        for name in [*filter(commands().__contains__, WORK), *others]:
            row = examine(name, Path(folder), arguments.repeats, not arguments.help_only)
            rows.append(row)
            missed += complaints(row)
            work = row["work_loads"]
            said = "not tried" if work is None else ", ".join(work) or "neither"
            helped = ", ".join(row["help_loads"]) or "neither"
            print(f"{name:18} {row['help_s']:13.2f}  {helped:11}  {said}", flush=True)
    return verdict("startup", {"limit_s": LIMIT_S, "rows": rows}, missed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
