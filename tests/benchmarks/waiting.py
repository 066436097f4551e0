"""Measure how OpenMP's threads should wait for each other, on a busy machine and on a quiet one.

    python tests/benchmarks/waiting.py --output waiting.json

Trainings of the same network, one process for each way to wait, take turns of some seconds: while
one trains the others wait for their turn without a thread that runs. Between the rounds, processes
that do nothing but count take the cores (by default six), and leave them again. Figures are the
time of a step by that of the first variant in the same round, medians over the rounds.

Without these, the load is whatever else the machine does: it is quiet if nobody else uses it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

THREADS = 2
VARIANTS = {
    "as OpenMP comes": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "spin 1000": {"GOMP_SPINCOUNT": "1000"},
    "spin 10000": {"GOMP_SPINCOUNT": "10000"},
}
POINTS, SAMPLES, BATCH = 1500, 8, 4


class Training:
    """A training in a process of its own, which trains when it is told to."""

    def __init__(self, network: str, environment: dict[str, str], cohort: Path) -> None:
        base = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_"))}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", network, "--cohort", cohort],
            env=base | {"OMP_NUM_THREADS": str(THREADS)} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> str:
        """Read a line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def step(self, seconds: float) -> float:
        """Train for so many seconds, and give those of a step."""
        assert self.process.stdin is not None
        print(seconds, file=self.process.stdin, flush=True)
        return float(self.answer())

    def end(self) -> None:
        """Leave no process behind."""
        self.process.kill()
        self.process.wait()


def work(network: str, cohort: Path) -> None:
    """Train in turns: seconds come in, seconds of a step go out."""
    from surface_cohort import Ingested
    from training_loop import open_loop

    from meshstage.cohort.statistics import compute_statistics
    from meshstage.cohort.subject import load_subject
    from meshstage.cohort.template import load_template

    if network == "mlp":
        from meshstage.training.mlp import TrainPhysicsNeMoMLP

        trainer = TrainPhysicsNeMoMLP()
        trainer.set_layer_size(64)
        trainer.set_num_layers(4)
    else:
        from meshstage.training.mgn import TrainPhysicsNeMoMGN

        trainer = TrainPhysicsNeMoMGN()  # type: ignore[assignment]
        trainer.set_hidden_dim(32)  # type: ignore[attr-defined]
        trainer.set_processor_size(2)  # type: ignore[attr-defined]
    trainer.set_batch_size(BATCH)
    template, subject = load_template(cohort / "template"), load_subject(cohort / "subjects/0")
    read = Ingested(template, [subject], compute_statistics(template, [subject]))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_loop(trainer, read, Path(folder)) as loop,
    ):
        loop._train_epoch()
        print("ready", flush=True)
        for line in sys.stdin:
            start, epochs = time.perf_counter(), 0
            while epochs == 0 or time.perf_counter() - start < float(line):
                loop._train_epoch()
                epochs += 1
            print((time.perf_counter() - start) * BATCH / (SAMPLES * epochs), flush=True)


@contextmanager
def busy(n_processes: int) -> Iterator[None]:
    """Let processes that only count take the cores."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(n_processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(
    network: str, variants: list[str], cohort: Path, rounds: int, seconds: float, loads: list[int]
) -> dict[int, dict[str, list[float]]]:
    """Give the seconds of a step, by load and variant, one per round."""
    with ExitStack() as stack:
        trainings = {}
        for name in variants:
            trainings[name] = Training(network, VARIANTS[name], cohort)
            stack.callback(trainings[name].end)
            assert trainings[name].answer() == "ready\n"
        times: dict[int, dict[str, list[float]]] = {n: {v: [] for v in variants} for n in loads}
        for _ in range(rounds):
            for n_others in loads:
                with busy(n_others):
                    time.sleep(0.5)
                    for name, training in trainings.items():
                        times[n_others][name].append(training.step(seconds))
    return times


def main() -> None:
    """Measure both networks, print the table, write the JSON."""
    from surface_cohort import ingest, write_surfaces

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="a turn")
    parser.add_argument("--others", type=int, default=6, help="processes that take the cores")
    parser.add_argument("--networks", nargs="+", default=["mlp", "mgn"])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--output", type=Path, metavar="FILE")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--cohort", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.cohort)
        return
    result: dict[str, dict[str, dict[str, list[float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="waiting_") as name:
        raw = write_surfaces(Path(name) / "raw", 1, SAMPLES, POINTS)
        ingest(raw.mesh, raw.manifests, Path(name))
        print("network  others  variant           ms per step by the first")
        for network in arguments.networks:
            times = measure(
                network,
                arguments.variants,
                Path(name),
                arguments.rounds,
                arguments.seconds,
                sorted({0, arguments.others}),
            )
            result[network] = {str(n): found for n, found in times.items()}
            for n_others, found in times.items():
                first = found[arguments.variants[0]]
                for variant, seconds in found.items():
                    ratio = statistics.median(a / b for a, b in zip(seconds, first, strict=True))
                    milliseconds = 1e3 * statistics.median(seconds)
                    print(
                        f"{network:7} {n_others:6}  {variant:16} {milliseconds:10.1f} {ratio:12.2f}"
                    )
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
