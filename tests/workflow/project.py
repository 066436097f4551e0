"""A copy of the project to run Snakemake in, as a user does."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SMALL = f"""\
import atexit, os, runpy, signal
from pathlib import Path
if Path("die").exists():
    atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
runpy.run_path({str(ROOT / "tests/small_training.py")!r}, run_name="__main__")
"""
_PLAIN_RUNS = "run\tnetwork\tepochs\trmse_log_interval\nmgn\tmgn\t80\t20\nmlp\tmlp\t200\t50\n"
PARTS = ("Snakefile", "workflow", "scripts", "config", "envs", "profiles")


@dataclass(frozen=True)
class Project:
    """One working folder.

    Parameters
    ----------
    folder : Path
    """

    folder: Path

    @classmethod
    def copy(cls, folder: Path) -> "Project":
        """Copy what Snakemake needs into a new folder."""
        folder.mkdir(parents=True)
        for name in PARTS:
            source = ROOT / name
            if source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, folder / name, ignore=ignore)
            else:
                shutil.copy(source, folder / name)
        return cls(folder)

    def use_plain_runs(self) -> None:
        """Let the table hold a plain `mgn` and a plain `mlp`, whatever the demo trains."""
        self.write("config/runs.tsv", _PLAIN_RUNS)

    def use_small_network(self) -> None:
        """Let `network: mlp` be the tests' two linear layers, which need no long import.

        Where a file `die` is, the training dies of SIGSEGV when it has ended.
        """
        self.write("scripts/train_mlp.py", _SMALL)

    def environment(self) -> dict[str, str]:
        """Environment of a job: this interpreter's `python` and `snakemake` first, one thread."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}

    def snakemake(self, *arguments: str, profile: str = "local") -> subprocess.CompletedProcess:
        """Run Snakemake to its end; stdout and stderr come together."""
        return subprocess.run(
            ["snakemake", "--profile", f"profiles/{profile}", *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def write(self, name: str, text: str) -> None:
        """Write a text file below the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
