"""Wrong settings end with a sentence; a field is an option, a column and a row of the README."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import train_command
from meshstage.config.configuration import Configuration, check_config
from meshstage.config.methods import load_class
from meshstage.config.networks import COMMON, LOSSES, NETWORKS, kind_of
from meshstage.config.preparation import Preparation
from meshstage.config.runs import COLUMNS, columns, read_runs, resumed_runs
from meshstage.config.settings import Setting, default_of, settings
from meshstage.config.subjects import COLUMNS as SUBJECT_COLUMNS
from meshstage.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"cohort": "demo", "template": "t.vtp", "subjects": "s.tsv", "runs": "r.tsv"}
OWN = """
class TrainOwn(Base):
    model_tag: str = "mine"

class TrainNameless(Base):
    pass
"""


def checked(**changes):
    return check_config({**CONFIG, **changes}, "config.yaml")


def runs(tmp_path, text):
    path = tmp_path / "runs.tsv"
    path.write_text(text, encoding="utf-8")
    return read_runs(path)


# ---------------------------------------------------------------- config.yaml


def test_defaults_are_filled_in_and_given_values_kept():
    config = checked(edges="triangulated")
    assert config["edges"] == "triangulated"
    assert config["use_template_surface"] is False
    assert config["resume"] == {}
    assert config["folds"] is None and checked(folds="loo")["folds"] == "loo"
    # A list after --config comes as texts.
    assert checked(learning_curve=["5", "10"])["learning_curve"] == [5, 10]


def test_shipped_configuration_is_valid():
    config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    check_config(config, "config.yaml")
    kinds = [run.kind.name for run in read_runs(ROOT / config["runs"]).values()]
    assert kinds == ["gp", "pod", "mlp", "mgn", "mlp"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epoch": 5}, ["epoch", "unknown", "config.yaml"]),
        ({"edges": "sides"}, ["edges", "'sides'", "cells", "triangulated"]),
        ({"use_template_surface": "yes"}, ["use_template_surface", "'yes'", "true or false"]),
        ({"cohort": "../escape"}, ["cohort", "../escape"]),
        ({"template": ""}, ["template", "empty"]),
        ({"resume": {"mgn": 5}}, ["resume.mgn", "5", "mapping"]),
        ({"folds": 1}, ["folds", "1", "from 2, or loo"]),
        ({"folds": "five"}, ["folds", "'five'", "from 2, or loo"]),
        ({"refit_shape_model": True}, ["refit_shape_model", "set folds too"]),
        ({"learning_curve": [10, 5]}, ["learning_curve", "[10, 5]", "each above the last"]),
        ({"learning_curve": 5}, ["learning_curve", "a list of whole numbers"]),
    ],
)
def test_wrong_configuration_is_one_sentence(changes, words):
    with pytest.raises(InputError) as raised:
        checked(**changes)
    sentence = str(raised.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


@pytest.mark.parametrize("written", ["2024_11", "007"])
def test_a_cohort_that_yaml_takes_for_a_number_gets_what_to_type(written):
    """YAML 1.1 makes 202411 of the first and 7 of the second: two cohorts could be one."""
    value = yaml.safe_load(f"cohort: {written}")["cohort"]
    assert isinstance(value, int)
    with pytest.raises(InputError, match=r'cohort: "\.\.\."') as raised:
        checked(cohort=value)
    assert "--config" in str(raised.value)
    assert checked(cohort=yaml.safe_load(f'"{written}"'))["cohort"] == written


def test_missing_key_is_named():
    with pytest.raises(InputError, match=r"'runs' is missing"):
        check_config({"cohort": "x"}, "config.yaml")
    with pytest.raises(InputError, match=r"'template' and 'subjects' are missing.*or `prepare`"):
        check_config({"cohort": "x", "runs": "runs.tsv"}, "config.yaml")


def test_meshes_to_prepare_take_the_place_of_template_and_subjects():
    made = {"cohort": "x", "runs": "runs.tsv", "prepare": {"meshes": "raw", "pattern": "p"}}
    config = check_config(made, "config.yaml")
    assert config["prepare"]["align"] == "rigid"
    assert config["prepare"]["pattern"] == "p"  # the format's own
    with pytest.raises(InputError, match="`prepare` makes template and subjects, but template is"):
        check_config({**made, "template": "a.vtp"}, "config.yaml")
    with pytest.raises(InputError, match="modes and variance are both given"):
        check_config({**made, "prepare": {"meshes": "r", "modes": 2, "variance": 0.9}}, "c")
    with pytest.raises(InputError, match=r"prepare\.align is 'affine'"):
        check_config({**made, "prepare": {"meshes": "r", "align": "affine"}}, "c")


# ---------------------------------------------------------------- runs.tsv


def test_runs_parse_numbers_and_leave_empty_cells_out(tmp_path):
    table = runs(tmp_path, "run\tnetwork\tepochs\tlearning_rate\thidden_dim\na\tmgn\t7\t1e-4\t\n")
    # The interval between kept models is always known: the dry run names them.
    assert table["a"].settings == {"epochs": 7, "learning_rate": 1e-4, "rmse_log_interval": 100}
    assert table["a"].kept_epochs == [7]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run\tnetwork\tepoch\na\tmgn\t3\n", ["'epoch'", "unknown", "runs.tsv"]),
        ("run\tnetwork\tepochs\tepochs\na\tmgn\t3\t9\n", ["'epochs' stands twice"]),
        ("run\tnetwork\tepochs\na\tmgn\tmany\n", ["epochs", "'many'", "whole number", "line 2"]),
        ("run\tnetwork\tepochs\na\tmgn\t2.5\n", ["epochs", "2.5", "whole number"]),
        ("run\tnetwork\tepochs\na\tmgn\t1_5\n", ["epochs", "1_5", "whole number"]),
        ("run\tnetwork\tlearning_rate\na\tmgn\t1_5.0\n", ["learning_rate", "1_5.0", "number"]),
        ("run\tnetwork\na\tgnn\n", ["network", "'gnn'", "mgn"]),
        ("run\tnetwork\n\n\n\na\tgnn\n", ["line 5"]),
        ("run\tnetwork\nx_1\tmgn\n", ["run", "'x_1'", "resumed"]),
        ("run\tnetwork\na/b\tmgn\n", ["run", "'a/b'"]),
        ("run\tnetwork\na\tmgn\nA\tmlp\n", ["'A'", "listed already", "line 3"]),
        ("run\tnetwork\tlayer_size\na\tmgn\t64\n", ["layer_size", "mlp", "mgn"]),
        ("run\tnetwork\tmu_kpa\na\tmlp\t3\n", ["mu_kpa", "add strain_energy to losses"]),
        ("run\tnetwork\tlosses\na\tmlp\tenergy\n", ["losses", "'energy'", "strain_energy"]),
        ("run\tnetwork\tlearning_rate\na\tmgn\tnan\n", ["learning_rate", "nan"]),
        ("run\tnetwork\na\tmgn\textra\n", ["more cells than columns", "line 2"]),
        ("run\tnetwork\tepochs\na\tgp\t5\n", ["epochs", "gp is fitted at once", "leave it out"]),
        ("run\tnetwork\tlayer_size\na\tgp\t5\n", ["layer_size", "gp is fitted at once"]),
        ("run\tnetwork\n", ["no rows"]),
        ("network\nmgn\n", ["'run' is missing"]),
        ("run\tnetwork\n\tmgn\n", ["run is empty", "line 2"]),
        ("run\tnetwork\toptions\na\tmgn\t{}\n", ["options", "of your own", "mgn"]),
        ("run\tnetwork\na\tnone.py:TrainOwn\n", ["none.py", "line 2"]),
        ("run\tnetwork\na\town.py\n", ["own.py:NameOfTheClass"]),
        ("run\tnetwork\na\town.py:Other\n", ["own.py", "'Other'", "TrainOwn, TrainNameless"]),
        ("run\tnetwork\na\tbroken.py:A\n", ["broken.py", "no Python file"]),
        ("run\tnetwork\toptions\na\town.py:TrainOwn\t[1]\n", ["options", "no JSON object"]),
        ("run\tnetwork\toptions\na\town.py:TrainOwn\t{a:1}\n", ["options", "no JSON"]),
        ("run\tnetwork\thidden_dim\na\town.py:TrainOwn\t4\n", ["hidden_dim", "network mgn"]),
    ],
)
def test_wrong_table_of_runs_is_one_sentence(tmp_path, text, words):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("class A(:")
    with pytest.raises(InputError) as raised:
        runs(tmp_path, text)
    for word in words:
        assert word in str(raised.value)


def test_a_table_as_a_spreadsheet_saves_it(tmp_path):
    """Empty cells at the end of lines, rows of tabs, cells with spaces, quoted JSON."""
    (tmp_path / "own.py").write_text(OWN)
    table = runs(
        tmp_path,
        "run \tnetwork\tepochs\toptions\t\t\n\na \tmlp \t 3\t\t\t\n\t\t\n"
        'b\town.py:TrainOwn\t4\t"{""width"": 32}"\n',
    )
    assert {name: run.epochs for name, run in table.items()} == {"a": 3, "b": 4}
    assert table["b"].options == {"width": 32}


def test_a_network_of_ones_own_is_read_without_running_its_file(tmp_path):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "own.py").write_text("import nothing_that_exists\n" + OWN)
    table = runs(tmp_path, "run\tnetwork\na\tnets/own.py:TrainOwn\nb\tnets/own.py:TrainNameless\n")
    assert [run.kind.tag for run in table.values()] == ["mine", "own"]
    kind = table["a"].kind
    assert kind.file == tmp_path / "nets" / "own.py"
    assert kind.method == f"{tmp_path}/nets/own.py:TrainOwn"
    assert not kind.needs_edges


def test_a_class_is_loaded_from_its_file_once(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("class A:\n    pass\n")
    found = load_class(f"{file}:A")
    assert found.__name__ == "A" and load_class(f"{file}:A") is found
    assert sys.modules[found.__module__].__file__ == str(file)
    with pytest.raises(InputError, match=r"own\.py: has no class 'B'"):
        load_class(f"{file}:B")
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(InputError, match=r"bad\.py: cannot be imported \(ZeroDivisionError"):
        load_class(f"{tmp_path}/bad.py:A")


def test_a_loss_beside_any_network_brings_its_settings(tmp_path):
    table = runs(
        tmp_path, "run\tnetwork\tlosses\tmu_kpa\na\tmlp\tstrain_energy\t3\nb\tphysics\t\t4\n"
    )
    assert [run.losses for run in table.values()] == [("strain_energy",), ("strain_energy",)]
    assert [run.settings["mu_kpa"] for run in table.values()] == [3.0, 4.0]


# ---------------------------------------------------------------- one field, everywhere


def owners_of(name: str) -> list[str]:
    return [kind.name for kind in (*NETWORKS.values(), *LOSSES.values()) if name in kind.options]


def readme_row(setting: Setting) -> str:
    """Give the row of config/README.md that a column must have."""
    defaults = [f"{setting.default}"] if setting.default not in (None, "") else []
    for kind in NETWORKS.values():
        if (own := default_of(kind, setting.name)) != setting.default:
            defaults.append(f"{kind.name} {own}")
    owner = "".join(f"{', '.join(names)}: " for names in [owners_of(setting.name)] if names)
    return f"| `{setting.name}` | {', '.join(defaults)} | {owner}{setting.help} |"


def test_readme_says_of_every_column_what_its_setting_says():
    readme = (ROOT / "config" / "README.md").read_text(encoding="utf-8").splitlines()
    wanted = [f"| `{name}` |  | {meaning} |" for name, meaning in COLUMNS.items()]
    wanted += [readme_row(setting) for setting in columns().values()]
    start = readme.index(wanted[0])
    assert readme[start : start + len(wanted) + 1] == [*wanted, ""]


def test_readme_names_every_key_of_the_configuration_and_column_of_subjects():
    readme = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    for key in (*Configuration.model_fields, *Preparation.model_fields, *SUBJECT_COLUMNS):
        assert f"| `{key}` |" in readme, f"config/README.md does not explain {key}"


@pytest.mark.parametrize("kind", [*NETWORKS.values(), None])
def test_a_script_has_an_option_for_each_setting_of_its_network(kind):
    """And none for those of other networks; loss terms are everybody's."""
    options = {
        option
        for action in train_command._parser("", kind)._actions
        for option in action.option_strings
    }
    own = {*(kind.options if kind else ())}
    if kind is None or kind.has_epochs:
        own |= {*COMMON} | {name for loss in LOSSES.values() for name in loss.options}
    for name, setting in settings().items():
        assert (setting.option in options) == (name in own), name


def test_every_setting_belongs_to_something():
    listed = {*COMMON} | {name for kind in NETWORKS.values() for name in kind.options}
    listed |= {name for loss in LOSSES.values() for name in loss.options}
    assert listed == set(settings())


@pytest.mark.parametrize("setting", settings().values(), ids=settings())
def test_a_default_is_a_possible_value_and_text_of_it_is_read_back(setting):
    assert setting.checked(setting.default) == setting.default
    if setting.default is not None:
        assert setting.parsed(str(setting.default)) == setting.default


def test_numpy_numbers_are_plain_ones():
    checked = settings()["epochs"].checked(np.int64(5))
    assert checked == 5 and type(checked) is int
    rate = settings()["learning_rate"].checked(np.float32(0.5))
    assert rate == 0.5 and type(rate) is float


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", True), ("epochs", 0), ("epochs", 2.0), ("epochs", "5"), ("seed", -1),
        ("learning_rate", 0), ("learning_rate", np.nan), ("learning_rate", np.inf),
        ("max_skipped_fraction", 1.5), ("precision", "fp8"), ("losses", "a,strain_energy"),
        ("mu_array", 3),
    ],
)  # fmt: skip
def test_impossible_values_are_refused_with_the_rule(name, value):
    setting = settings()[name]
    with pytest.raises(InputError) as raised:
        setting.checked(value)
    assert str(raised.value) == f"{name} is {value!r}, it must be {setting.rule}"


def test_kinds_are_found_by_name_or_refused():
    assert kind_of("mlp", Path()) is NETWORKS["mlp"]
    with pytest.raises(InputError, match="none of mgn, mlp, physics"):
        kind_of("gnn", Path())


# ---------------------------------------------------------------- resume


@pytest.fixture
def a(tmp_path):
    """Give a run of ten epochs that keeps 4, 8 and 10."""
    return runs(
        tmp_path, "run\tnetwork\tepochs\trmse_log_interval\tlearning_rate\na\tmgn\t10\t4\t1e-3\n"
    )


def test_what_is_fitted_at_once_has_no_epochs_and_is_not_resumed(tmp_path):
    table = runs(tmp_path, "run\tnetwork\tepochs\ng\tgp\t\na\tmgn\t5\n")
    assert (table["g"].settings, table["g"].kept_epochs) == ({}, [])
    with pytest.raises(InputError, match=r"resume\.g_1 .*: 'g' is fitted at once: .*; list a new"):
        resumed_runs({"g_1": {"epochs": 5}}, table)


def test_resumed_runs_chain_and_inherit(a):
    resolved = resumed_runs(
        {"a_2": {"epochs": 30, "learning_rate": 1e-5}, "a_1": {"epochs": 20, "from_epoch": 8}}, a
    )
    first, second = resolved["a_1"], resolved["a_2"]
    assert (first.parent, first.number, first.start, first.epochs) == (a["a"], 1, 8, 20)
    assert first.settings["learning_rate"] == 1e-3
    # The second starts where the first ends.
    assert (second.parent, second.number, second.start) == (first, 2, 20)
    assert second.settings["learning_rate"] == 1e-5


def test_numbers_that_yaml_takes_for_text_are_numbers(a):
    """PyYAML reads `1e-4` as text, and `--config` gives nested numbers as text."""
    loaded = yaml.safe_load("a_1: {epochs: '80', learning_rate: 1e-4}")
    assert isinstance(loaded["a_1"]["learning_rate"], str)
    settings_of = resumed_runs(loaded, a)["a_1"].settings
    assert (settings_of["epochs"], settings_of["learning_rate"]) == (80, 1e-4)


def test_every_column_that_may_change_on_a_resume_is_taken(a):
    """And each that shapes the network is refused by its name."""
    run = replace(a["a"], kind=NETWORKS["physics"])
    for name, setting in columns().items():
        if name not in run.kind.settings_with():
            continue
        value = setting.default if setting.default is not None else "array"
        changes = {"epochs": 20} | ({name: value} if name != "epochs" else {})
        if setting.change == "never":
            with pytest.raises(InputError, match=rf"{name} cannot change"):
                resumed_runs({"a_1": changes}, {"a": run})
        else:
            resumed = resumed_runs({"a_1": changes}, {"a": run})["a_1"]
            assert resumed.settings.items() >= changes.items()


@pytest.mark.parametrize(
    ("resume", "words"),
    [
        ({"b_1": {"epochs": 20}}, ["'b'", "resume.b_1"]),
        ({"a_2": {"epochs": 20}}, ["'a_1'"]),
        ({"a_1": {"epochs": 10}}, ["epochs is 10", "already at 10"]),
        ({"a_1": {"epochs": 20, "from_epoch": 5}}, ["from_epoch is 5", "4, 8, 10"]),
        ({"a": {"epochs": 5}}, ["resume", "'a'", "mgn_1"]),
        ({"a_1": {"epochs": 15, "lr": 1}}, ["resume.a_1", "unknown key 'lr'", "learning_rate"]),
        ({"a_1": {}}, ["'epochs' is missing", "resume.a_1"]),
        ({"a_1": {"epochs": 0}}, ["resume.a_1", "epochs is 0", "at least 1"]),
        ({"a_1": {"epochs": 20, "layer_size": 4}}, ["layer_size cannot change"]),
        ({"a_1": {"epochs": 20, "mu_kpa": 4}}, ["mu_kpa", "add strain_energy to losses"]),
    ],
)
def test_resumed_run_without_a_start_is_one_sentence(a, resume, words):
    with pytest.raises(InputError) as raised:
        resumed_runs(resume, a)
    for word in words:
        assert word in str(raised.value)
