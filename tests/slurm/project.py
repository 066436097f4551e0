"""A small cohort in a copy of the workflow, and Snakemake started in it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
COLUMNS = ("run", "network", "epochs", "rmse_log_interval", "batch_size")
COLUMNS += ("processor_size", "hidden_dim", "num_layers")
_PYTHON = Path(sys.executable).parent
SNAKEMAKE = [sys.executable, str(Path(__file__).with_name("snakemake_often.py"))]
_HEADS: list[subprocess.Popen[str]] = []


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 600) -> Any:
    """Wait until a condition is true and give its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.25)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


def end_heads() -> None:
    """End what a test that failed has left running."""
    for head in _HEADS:
        if head.poll() is None:
            head.kill()
            head.wait()


class Project:
    """A folder with the workflow, a tiny cohort and runs of one small network.

    Parameters
    ----------
    directory : Path
    programs : Path
        Folder of sbatch and the like, before all others on the PATH.
    """

    def __init__(self, directory: Path, programs: Path) -> None:
        self.directory = directory
        path = f"{programs}:{_PYTHON}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path}

    @classmethod
    def create(cls, directory: Path, programs: Path) -> "Project":
        """Copy the workflow and write the cohort: 3 subjects to train on, 1 to judge with."""
        directory.mkdir()
        for name in ("scripts", "workflow", "profiles", "envs"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, directory / name, ignore=ignore)
        shutil.copy(REPOSITORY / "Snakefile", directory)
        project = cls(directory, programs)
        script = ["python", "scripts/make_demo_cohort.py", "--output=cohort", "--subjects=4"]
        project.call(*script, "--phases=3", "--resolution=6")
        config = {"cohort": "tiny", "template": "cohort/pca_mean.vtu"}
        config |= {"subjects": "config/subjects.tsv", "runs": "config/runs.tsv"}
        (directory / "config").mkdir()
        (directory / "config/config.yaml").write_text(yaml.safe_dump(config))
        rows = sorted((directory / "cohort").glob("*/manifest.json"))
        (directory / "config/subjects.tsv").write_text(
            "manifest\tsplit\n"
            + "".join(f"../{p.relative_to(directory)}\ttrain\n" for p in rows[:-1])
            + f"../{rows[-1].relative_to(directory)}\tval\n"
        )
        return project

    def copy(self, name: str) -> "Project":
        """Copy all of it: a head process of its own can work there."""
        directory = self.directory.parent / name
        shutil.copytree(self.directory, directory, symlinks=True)
        copied = Project(directory, self.directory)
        copied.environment = self.environment
        return copied

    def write_runs(self, epochs: int, *names: str) -> None:
        """List runs that differ in nothing but the name."""
        rows = [(name, "mgn", epochs, epochs, 2, 6, 128, 1) for name in names]
        (self.directory / "config/runs.tsv").write_text(
            "".join("\t".join(map(str, row)) + "\n" for row in (COLUMNS, *rows))
        )

    def write_profile(self, base: str, train: dict[str, Any], **top: Any) -> None:
        """Derive the profile ``test`` from one of the project's: for this small cluster."""
        file = REPOSITORY / "profiles" / base / "profile.yaml"
        profile = yaml.safe_load(file.read_text())
        settings = profile["set-resources"]["train"] | {"mem_mb": 4000, "runtime": 20} | train
        settings = {key: value for key, value in settings.items() if value is not None}
        profile["set-resources"]["train"] = settings
        profile["set-threads"] = {"train": 2}
        profile["default-resources"]["mem_mb"] = 1000
        # There is no accounting here.
        profile |= {"slurm-status-command": "squeue", "latency-wait": 10, "retries": 0}
        profile["slurm-init-seconds-before-status-checks"] = 2
        folder = self.directory / "profiles/test"
        folder.mkdir(exist_ok=True)
        (folder / "profile.yaml").write_text(yaml.safe_dump(profile | top))

    def call(self, *command: str | Path, check: bool = True) -> str:
        """Run a command here, and give what it printed."""
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, (
            f"{command} gave {done.returncode}:\n{done.stdout}"
        )
        return done.stdout

    def start(self, *targets: str) -> subprocess.Popen[str]:
        """Start Snakemake with the profile ``test``."""
        command = [*SNAKEMAKE, "--profile", "profiles/test", "--", *targets]
        head = subprocess.Popen(
            command,
            cwd=self.directory,
            env=self.environment,
            stdout=(self.directory / "head.txt").open("a"),
            stderr=subprocess.STDOUT,
            text=True,
        )
        _HEADS.append(head)
        return head

    def finish(self, head: subprocess.Popen[str], code: int = 0, seconds: float = 900) -> None:
        """Wait for Snakemake, and want an exit code of it."""
        got = head.wait(timeout=seconds)
        text = (self.directory / "head.txt").read_text()
        assert got == code, f"Snakemake gave {got}, not {code}:\n{text[-2000:]}\n{self.logs()}"

    def logs(self) -> str:
        """Join what the jobs wrote, for a message."""
        files = [*self.directory.glob("logs/**/*.txt")]
        files += self.directory.glob(".snakemake/slurm_logs/**/*.log")
        return "\n".join(f"--- {file}\n{file.read_text()[-800:]}" for file in files)

    def model(self, run: str) -> Path:
        """Folder of a model."""
        return self.directory / "results/tiny/models" / run

    def target(self, run: str) -> str:
        """File to ask Snakemake for."""
        return f"results/tiny/models/{run}/mgn_stage_model.pt"

    def weights(self, run: str) -> dict[str, Any]:
        """Load a model's weights."""
        import torch

        payload = torch.load(self.model(run) / "mgn_stage_model.pt", weights_only=True)
        return payload["model_state_dict"]

    def metadata(self, run: str) -> dict[str, Any]:
        """Read what a model says of itself."""
        return json.loads((self.model(run) / "mgn_stage_model_metadata.json").read_text())

    def events(self, run: str, name: str) -> list[dict[str, Any]]:
        """Read the events of one kind that a training has told so far."""
        file = self.model(run) / "events.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def epochs(self, run: str) -> list[int]:
        """List the epochs that were trained, in order."""
        return [event["epoch"] for event in self.events(run, "epoch")]

    def wait_for_epochs(self, run: str, count: int) -> None:
        """Wait until so many epochs are trained."""
        try:
            wait_for(lambda: len(self.epochs(run)) >= count, f"epoch {count} of {run}")
        except AssertionError as error:
            head = (self.directory / "head.txt").read_text()[-3000:]
            raise AssertionError(f"{error}\n{head}\n{self.logs()}") from None

    def job(self, run: str) -> str:
        """Give the number of the SLURM job that trains a run."""

        def find() -> str:
            lines = self.call("squeue", "--noheader", "--format=%i %T %k").splitlines()
            here = [line.split() for line in lines if line.endswith(f" rule_train_{run}")]
            return next((job for job, state, _ in here if state == "RUNNING"), "")

        return wait_for(find, f"a job of train_{run}")
