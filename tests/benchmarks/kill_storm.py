"""Kill a training of 30 epochs twelve times, and compare it with one that was left alone.

    make storm          or: python tests/benchmarks/kill_storm.py [--kills 12] [--seed 0]

Through Snakemake, as a user does it: start, kill -9, start the same command again. Three kinds of
kills, at random moments of the training: of the training process; of Snakemake's whole process
group; of Snakemake's head alone, whose orphan still owns the run, which the next start must say.
The last line tells the number of kills, the epochs trained in all, and whether the weights are
equal; the exit code is 0 if they are, and no finished epoch was trained more than twice.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from meshstage.cohort.demo import make_demo_cohort
from workflow.project import Project

KINDS = ("training", "group", "head")
PATIENCE_S = 240


class Storm:
    """One run in a project of its own, and ways to kill it.

    Parameters
    ----------
    folder : Path
        Becomes a copy of the project with a cohort of three subjects and the tests' small network.
    epochs : int
    seed : int
        Of the moments of the kills.
    """

    def __init__(self, folder: Path, epochs: int, seed: int) -> None:
        self.epochs, self.random = epochs, random.Random(seed)
        self.project = Project.copy(folder)
        self.project.use_small_network()
        self.environment = self.project.environment() | {"STEP_SECONDS": "0.006"}
        make_demo_cohort(folder / "cohort", n_subjects=3, n_phases=8, resolution=4, seed=1)
        self.project.write("config/config.yaml", _CONFIG)
        self.project.write("config/subjects.tsv", _SUBJECTS)
        self.project.write("config/runs.tsv", _RUNS.format(epochs=epochs))
        # Not a setting of runs.tsv, since by default nobody needs it.
        commands = folder / "workflow/rules/commands.smk"
        text = commands.read_text(encoding="utf-8")
        plain = '*("--time-budget", str(minutes)),'
        assert plain in text
        more = f'{plain}\n        *("--recovery-interval", "1"),'
        commands.write_text(text.replace(plain, more), encoding="utf-8")
        self.head: subprocess.Popen[bytes] | None = None
        self.kills: Counter[str] = Counter()

    # ------------------------------------------------------------------ what is to be seen

    def model(self, run: str = "storm") -> Path:
        """Folder of a run's model."""
        return self.project.folder / "results/storm/models" / run

    def events(self) -> list[dict[str, Any]]:
        """Everything that the training has told; a line that is being written does not count."""
        path = self.model() / "events.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def finished(self) -> Counter[int]:
        """How often each epoch was trained to its end."""
        return Counter(e["epoch"] for e in self.events() if e["event"] == "epoch")

    def output(self) -> str:
        """Give what Snakemake has printed since it was started."""
        return (self.project.folder / "snakemake.txt").read_text(encoding="utf-8")

    # ------------------------------------------------------------------ start and kill

    def start(self, run: str = "storm") -> None:
        """Start the same command again."""
        with (self.project.folder / "snakemake.txt").open("wb") as log:
            self.head = subprocess.Popen(
                [*_SNAKEMAKE, f"results/storm/models/{run}/mlp_stage_model.pt"],
                cwd=self.project.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self) -> int:
        """Wait for Snakemake; give its exit code."""
        assert self.head is not None
        return self.head.wait(timeout=PATIENCE_S)

    def unlock(self) -> None:
        """Remove the lock that a killed Snakemake leaves."""
        subprocess.run(
            [*_SNAKEMAKE, "--unlock"],
            cwd=self.project.folder,
            env=self.environment,
            check=True,
            capture_output=True,
        )

    def train_on(self, epochs: int) -> int:
        """Start, and wait until that many more epochs are done and a random part of one.

        Returns
        -------
        int
            Process id of the training.
        """
        starts = self._count("start")
        self.start()
        self._wait(lambda: self._count("start") > starts)
        goal = sum(self.finished().values()) + epochs
        self._wait(lambda: sum(self.finished().values()) >= goal)
        last = self.events()[-1]
        time.sleep(self.random.uniform(0, last["seconds"]))
        return int(json.loads((self.model() / "owner.json").read_text())["pid"])

    def kill(self, kind: str, epochs: int) -> None:
        """Train on for some epochs and kill; clean up as a user has to."""
        training = self.train_on(epochs)
        assert self.head is not None
        if kind == "training":
            os.kill(training, signal.SIGKILL)
            assert self.finish() != 0, self.output()
        elif kind == "group":
            os.killpg(self.head.pid, signal.SIGKILL)
            self.finish()
            self.unlock()
        else:
            # Stopped, it still owns the run, and does not finish before it is found.
            os.kill(training, signal.SIGSTOP)
            os.kill(self.head.pid, signal.SIGKILL)
            self.finish()
            self.unlock()
            self.start()
            assert self.finish() != 0, self.output()
            assert f"this run is owned by process {training} on" in self.output(), self.output()
            os.kill(training, signal.SIGKILL)
        self.kills[kind] += 1

    def _count(self, event: str) -> int:
        return sum(e["event"] == event for e in self.events())

    def _wait(self, condition: Callable[[], bool]) -> None:
        assert self.head is not None
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.head.poll() is None, self.output()
            assert time.monotonic() < end, self.output()
            time.sleep(0.005)

    def end(self) -> None:
        """Leave no process behind."""
        if self.head is not None and self.head.poll() is None:
            os.killpg(self.head.pid, signal.SIGKILL)

    # ------------------------------------------------------------------ the verdict

    def weights_equal(self) -> bool:
        """Train the same without a kill, and compare the final weights bit for bit."""
        import torch

        self.start("alone")
        assert self.finish() == 0, self.output()
        one, other = (
            torch.load(self.model(run) / "mlp_stage_model.pt", weights_only=True)
            for run in ("storm", "alone")
        )
        weights, others = one["model_state_dict"], other["model_state_dict"]
        return weights.keys() == others.keys() and all(
            torch.equal(value, others[key]) for key, value in weights.items()
        )


_SNAKEMAKE = ("snakemake", "--profile", "profiles/local")
_CONFIG = """\
cohort: storm
template: cohort/pca_mean.vtu
subjects: config/subjects.tsv
runs: config/runs.tsv
"""
_SUBJECTS = """\
manifest\tsplit
../cohort/demo-001/manifest.json\ttrain
../cohort/demo-002/manifest.json\ttrain
../cohort/demo-003/manifest.json\tval
"""
# Two linear layers and some 0.1 s per epoch: 16 steps of one sample, each of which takes 6 ms.
_RUNS = "run\tnetwork\tepochs\tbatch_size\tlayer_size\trmse_log_interval\n" + "".join(
    f"{run}\tmlp\t{{epochs}}\t1\t64\t10\n" for run in ("storm", "alone")
)


def main() -> int:
    """Run the storm and print its line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill_storm_") as folder:
        storm = Storm(Path(folder) / "project", arguments.epochs, arguments.seed)
        try:
            for number in range(arguments.kills):
                # Some epochs are left for the end, however the dice fall.
                left = arguments.epochs - 1 - len(storm.finished())
                most = max(1, left // (arguments.kills - number))
                # The head's takes a second start more: two of twelve.
                kind = "head" if number % 6 == 5 else KINDS[number % 2]
                storm.kill(kind, storm.random.randint(1, most))
            storm.start()
            code = storm.finish()
            assert code == 0, storm.output()
            often = storm.finished()
            equal = storm.weights_equal()
        finally:
            storm.end()
    most = max(often.values())
    good = equal and most <= 2 and sorted(often) == list(range(1, arguments.epochs + 1))
    kinds = ", ".join(f"{storm.kills[kind]} of the {kind}" for kind in KINDS)
    print(
        f"kill storm: {storm.kills.total()} kills ({kinds}), {often.total()} epochs trained for "
        f"{arguments.epochs}, none finished more than {most} times, weights "
        f"{'equal' if equal else 'DIFFER'}, {time.monotonic() - began:.0f} s: "
        f"{'good' if good else 'BAD'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
