"""The table of all runs, against what it is made of."""

from meshstage.runs_table import runs_table


def split(rmse, skill):
    return {"metrics": {"rmse_mm": {"value": rmse}}, "baselines": {"stage_mean": {"skill": skill}}}


def test_held_out_is_test_then_validation_then_nothing():
    train = split(0.5, 0.9)
    table = runs_table(
        [
            {"run": "both", "unit": "mm",
             "splits": {"train": train, "val": split(1.0, 0.4), "test": split(2.0, -0.25)}},
            {"run": "val", "unit": "mm",
             "splits": {"train": train, "val": split(1.0, 0.4), "test": None}},
            {"run": "none", "unit": "mm", "splits": {"train": train, "val": None, "test": None}},
        ]
    )  # fmt: skip
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["both", "0.500", "mm", "2.000", "mm", "-0.25"],
        ["val", "0.500", "mm", "1.000", "mm", "0.40"],
        ["none", "0.500", "mm", "-", "-"],
    ]
