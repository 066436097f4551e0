"""Wrong settings end with a sentence that names key and file."""

from pathlib import Path

import pytest
import yaml

from meshstage.config.networks import NETWORKS
from meshstage.config.runs import check_config, read_runs, resumed_runs
from meshstage.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "workflow" / "schemas"
CONFIG = {"cohort": "demo", "template": "t.vtp", "subjects": "s.tsv", "runs": "r.tsv"}


def checked(**changes):
    return check_config({**CONFIG, **changes}, SCHEMAS / "config.schema.yaml", "config.yaml")


def runs(tmp_path, text):
    path = tmp_path / "runs.tsv"
    path.write_text(text, encoding="utf-8")
    return read_runs(path, SCHEMAS / "runs.schema.yaml")


def test_defaults_are_filled_in_and_given_values_kept():
    config = checked(edges="triangulated")
    assert config["edges"] == "triangulated"
    assert config["use_template_surface"] is False
    assert config["resume"] == {}


def test_numbers_that_yaml_takes_for_text_are_numbers():
    """PyYAML reads `1e-4` as text, and `--config` gives nested numbers as text."""
    loaded = yaml.safe_load("mgn_1: {epochs: '80', learning_rate: 1e-4}")
    assert isinstance(loaded["mgn_1"]["learning_rate"], str)
    assert checked(resume=loaded)["resume"] == {"mgn_1": {"epochs": 80, "learning_rate": 1e-4}}


def test_shipped_configuration_is_valid():
    config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    check_config(config, SCHEMAS / "config.schema.yaml", "config.yaml")
    read_runs(ROOT / config["runs"], SCHEMAS / "runs.schema.yaml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epoch": 5}, ["epoch", "unknown", "config.yaml"]),
        ({"edges": "sides"}, ["edges", "'sides'", "cells", "triangulated"]),
        ({"use_template_surface": "yes"}, ["use_template_surface", "'yes'", "boolean"]),
        ({"cohort": "../escape"}, ["cohort", "../escape"]),
        ({"resume": {"mgn": {"epochs": 5}}}, ["resume", "'mgn'"]),
        ({"resume": {"mgn_1": {"epochs": 5, "lr": 1}}}, ["resume.mgn_1.lr", "unknown"]),
        ({"resume": {"mgn_1": {}}}, ["epochs", "missing", "resume.mgn_1"]),
        ({"resume": {"mgn_1": {"epochs": 0}}}, ["resume.mgn_1.epochs", "0", "at least 1"]),
    ],
)
def test_wrong_configuration_is_one_sentence(changes, words):
    with pytest.raises(InputError) as raised:
        checked(**changes)
    sentence = str(raised.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_missing_key_is_named():
    with pytest.raises(InputError, match=r"'template' is missing"):
        check_config({"cohort": "x"}, SCHEMAS / "config.schema.yaml", "config.yaml")


def test_runs_parse_numbers_and_leave_empty_cells_out(tmp_path):
    table = runs(tmp_path, "run\tnetwork\tepochs\tlearning_rate\thidden_dim\na\tmgn\t7\t1e-4\t\n")
    assert table["a"]["epochs"] == 7
    assert table["a"]["learning_rate"] == 1e-4
    assert "hidden_dim" not in table["a"]
    assert table["a"]["seed"] == 42


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run\tnetwork\tepoch\na\tmgn\t3\n", ["'epoch'", "unknown column", "runs.tsv"]),
        ("run\tnetwork\tepochs\na\tmgn\tmany\n", ["epochs", "'many'", "integer", "line 2"]),
        ("run\tnetwork\tepochs\na\tmgn\t2.5\n", ["epochs", "2.5", "integer"]),
        ("run\tnetwork\na\tgnn\n", ["network", "'gnn'", "mgn"]),
        ("run\tnetwork\nx_1\tmgn\n", ["run", "'x_1'", "resumed"]),
        ("run\tnetwork\na/b\tmgn\n", ["run", "'a/b'"]),
        ("run\tnetwork\na\tmgn\nA\tmlp\n", ["'A'", "listed already", "line 3"]),
        ("run\tnetwork\tlayer_size\na\tmgn\t64\n", ["layer_size", "mlp", "'a'"]),
        ("run\tnetwork\tlearning_rate\na\tmgn\tnan\n", ["learning_rate", "nan"]),
        ("run\tnetwork\na\tmgn\textra\n", ["more cells than columns", "line 2"]),
        ("run\tnetwork\n", ["no run is listed"]),
    ],
)
def test_wrong_table_of_runs_is_one_sentence(tmp_path, text, words):
    with pytest.raises(InputError) as raised:
        runs(tmp_path, text)
    for word in words:
        assert word in str(raised.value)


def test_network_options_are_columns_of_the_schema():
    schema = yaml.safe_load((SCHEMAS / "runs.schema.yaml").read_text(encoding="utf-8"))
    assert set(schema["properties"]["network"]["enum"]) == set(NETWORKS)
    for kind in NETWORKS.values():
        assert set(kind.options) <= set(schema["properties"])


def test_config_readme_names_every_key_and_column():
    readme = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    for name in ("config", "runs", "subjects"):
        schema = yaml.safe_load((SCHEMAS / f"{name}.schema.yaml").read_text(encoding="utf-8"))
        for key in schema["properties"]:
            assert f"| `{key}` |" in readme, f"config/README.md does not explain {key}"


RUNS = {"a": {"network": "mgn", "epochs": 10, "rmse_log_interval": 4, "learning_rate": 1e-3}}


def test_resumed_runs_chain_and_inherit():
    resolved = resumed_runs(
        {"a_2": {"epochs": 30, "learning_rate": 1e-5}, "a_1": {"epochs": 20, "from_epoch": 8}},
        RUNS,
    )
    first, second = resolved["a_1"], resolved["a_2"]
    assert (first["parent"], first["start"], first["epochs"]) == ("a", 8, 20)
    assert first["learning_rate"] == 1e-3
    # The second goes on from where the first ends.
    assert (second["parent"], second["base"], second["start"]) == ("a_1", "a", 20)
    assert second["learning_rate"] == 1e-5


@pytest.mark.parametrize(
    ("resume", "words"),
    [
        ({"b_1": {"epochs": 20}}, ["'b'", "resume.b_1"]),
        ({"a_2": {"epochs": 20}}, ["'a_1'"]),
        ({"a_1": {"epochs": 10}}, ["epochs is 10", "already at 10"]),
        ({"a_1": {"epochs": 20, "from_epoch": 5}}, ["from_epoch is 5", "4, 8, 10"]),
    ],
)
def test_resumed_run_without_a_start_is_one_sentence(resume, words):
    with pytest.raises(InputError) as raised:
        resumed_runs(resume, RUNS)
    for word in words:
        assert word in str(raised.value)
