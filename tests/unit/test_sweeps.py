"""A row with braces is several runs, named by what differs, and the table of runs shows it."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshstage.config.runs import read_runs, resumed_runs
from meshstage.config.sweeps import varied_in
from meshstage.errors import InputError
from meshstage.figures.sweeps import plot_sweeps
from meshstage.judging.runs import Run, table_of_runs


def read(folder: Path, *lines: str) -> dict:
    path = folder / "runs.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_runs(path)


def test_rows_are_the_product_of_the_cells_in_braces(tmp_path: Path) -> None:
    runs = read(
        tmp_path,
        "run\tnetwork\tepochs\thidden_dim\tlearning_rate",
        "mgn\tmgn\t3\t{64, 128}\t{1e-3,0.002}",
        "mlp\tmlp\t5",
    )
    settings = {
        name: (run.settings.get("hidden_dim"), run.settings.get("learning_rate"))
        for name, run in runs.items()
    }
    assert settings == {
        "mgn.hidden_dim=64.learning_rate=1e-3": (64, 0.001),
        "mgn.hidden_dim=64.learning_rate=0.002": (64, 0.002),
        "mgn.hidden_dim=128.learning_rate=1e-3": (128, 0.001),
        "mgn.hidden_dim=128.learning_rate=0.002": (128, 0.002),
        "mlp": (None, None),
    }
    assert {run.epochs for run in runs.values()} == {3, 5}


def test_a_run_of_a_sweep_is_resumed_as_any_other(tmp_path: Path) -> None:
    runs = read(tmp_path, "run\tnetwork\tepochs\tseed", "mlp\tmlp\t3\t{1,2}")
    name = "mlp.seed=2_1"
    assert resumed_runs({name: {"epochs": 9}}, runs)[name].parent == runs["mlp.seed=2"]


@pytest.mark.parametrize(
    "run", ["mgn", "a.b", "mgn.hidden_dim=64.learning_rate=0.002", "mlp.base=ridge"]
)
def test_a_name_says_what_varies(run: str) -> None:
    told = varied_in(run)
    assert ".".join([run.split(".")[0], *(f"{k}={v}" for k, v in told.items())]) == (
        run if "=" in run else run.split(".")[0]
    )


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("{64,}", "hidden_dim is '{64,}': '' cannot be part of a run's name"),
        ("{64,a b}", "'a b' cannot be part of a run's name"),
        ("{64,64}", "mgn.hidden_dim=64' is listed already"),
        ("{64,wide}", "hidden_dim is 'wide'"),
        ("{64,1_2}", "'1_2' cannot be part of a run's name"),
    ],
)
def test_a_sweep_that_cannot_be_is_one_sentence(tmp_path: Path, cell: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, "run\tnetwork\thidden_dim", f"mgn\tmgn\t{cell}")
    assert words in str(raised.value)
    assert "line 2" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_with_values_are_not_written_by_hand(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this name is not allowed"):
        read(tmp_path, "run\tnetwork\thidden_dim", "mgn.hidden_dim=64\tmgn\t128")


def test_the_table_of_runs_has_a_column_for_what_varies() -> None:
    def run(name: str, rmse: float) -> Run:
        value = {"value": rmse, "low": None, "high": None, "missing": 0}
        test = {"n_subjects": 2, "n_samples": 4, "metrics": {"rmse_mm": value}, "baselines": {}}
        return Run(
            name, {"unit": "mm", "splits": {"train": None, "val": None, "test": test}}, Path()
        )

    header, body = table_of_runs([run("mgn.seed=1", 2), run("mgn.seed=2", 3), run("gp", 1)], True)
    assert header[:3] == ["run", "seed", "split"]
    assert [row[:5] for row in body] == [
        ["mgn.seed=1", "1", "test", "2", "2"],
        ["mgn.seed=2", "2", "test", "2", "3"],
        ["gp", "-", "test", "2", "1"],
    ]


def test_the_figure_has_a_panel_per_column_and_a_line_per_other_setting() -> None:
    def run(hidden: int, seed: int) -> Run:
        value = {"value": hidden / 64 + seed, "low": hidden / 64, "high": None, "missing": 0}
        test = {"n_subjects": 2, "n_samples": 4, "metrics": {"rmse_mm": value}, "baselines": {}}
        splits = {"train": None, "val": None, "test": test}
        name = f"mgn.hidden_dim={hidden}.seed={seed}"
        return Run(name, {"unit": "mm", "splits": splits}, Path())

    runs = [run(hidden, seed) for hidden in (64, 128, 256) for seed in (1, 2)]
    by_hidden, by_seed = plot_sweeps([replace(runs[0], name="gp"), *runs]).axes
    assert [axis.get_xlabel() for axis in (by_hidden, by_seed)] == ["hidden_dim", "seed"]
    assert [text.get_text() for text in by_hidden.get_xticklabels()] == ["64", "128", "256"]
    handles, labels = by_hidden.get_legend_handles_labels()
    assert labels == ["mgn.seed=1", "mgn.seed=2"]
    assert [list(handle[0].get_ydata()) for handle in handles] == [[2, 3, 5], [3, 4, 6]]
    assert len(by_seed.get_legend_handles_labels()[1]) == 3
