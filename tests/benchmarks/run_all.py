"""Run every benchmark, one after the other, and put their tables and JSON files in one folder."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

# Those that judge training itself (kill_storm.py, physics_helps.py), and the one that needs a GPU
# (gpu_check.sh), have commands of their own.
BENCHMARKS = (
    "step_speed",
    "physics_step",
    "read_speed",
    "host_work",
    "ranks_memory",
    "growth",
    "startup",
    "check_speed",
    "dag_scale",
    "whole_job",
)


def main() -> int:
    """Run them all, and say which missed its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/bench"), metavar="DIR")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    missed = []
    for name in BENCHMARKS:
        print(f"== {name}", flush=True)
        command = [sys.executable, HERE / f"{name}.py", "--output", folder / f"{name}.json"]
        missed += [name] if subprocess.run(command, check=False).returncode else []
    print(f"missed: {', '.join(missed) or 'none'}; JSON in {folder}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
