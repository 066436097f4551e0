"""Run every benchmark, one after the other, and put their tables and JSON files in one folder."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

# Those that judge training itself (kill_storm.py, physics_helps.py) have commands of their own.
BENCHMARKS = {
    "step_speed.py": ["--output", "{folder}/step_speed.json"],
    "physics_step.py": [],
    "check_speed.py": ["--output", "{folder}/check_speed.json"],
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
