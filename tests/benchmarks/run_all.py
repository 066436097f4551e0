"""Run every benchmark, one after the other, and put their tables and JSON files in one folder."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

# Those that judge training itself (kill_storm.py, physics_helps.py), and the one that needs a GPU
# (gpu_check.sh), have commands of their own.
WITH_JSON = (
    "step_speed",
    "read_speed",
    "host_work",
    "ranks_memory",
    "growth",
    "startup",
    "check_speed",
    "whole_job",
)
BENCHMARKS = {
    **{f"{name}.py": ["--output", f"{{folder}}/{name}.json"] for name in WITH_JSON},
    "physics_step.py": [],
    "dag_scale.py": [],
}


def main() -> int:
    """Run them all, and say which missed its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/bench"), metavar="DIR")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    missed = []
    for script, options in BENCHMARKS.items():
        print(f"== {script}", flush=True)
        arguments = [option.format(folder=folder) for option in options]
        answer = subprocess.run([sys.executable, HERE / script, *arguments], check=False)
        missed += [script] if answer.returncode else []
    print(f"missed: {', '.join(missed) or 'none'}; JSON in {folder}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
