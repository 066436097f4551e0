"""The table of all runs, against what it is made of."""

from meshstage.judging.runs_table import runs_table


def split(subjects, rmse, mean, ridge):
    baselines = {"stage_mean": {"skill": mean}, "ridge": {"skill": ridge}}
    return {
        "n_subjects": subjects,
        "metrics": {"rmse_mm": {"value": rmse}},
        "baselines": baselines,
    }


def test_every_split_that_has_subjects_is_a_row():
    train, test = split(8, 0.5, 0.9, -0.5), split(1, 2.0, -0.25, None)
    splits = {"train": train, "val": None, "test": test}
    summaries = [{"run": name, "unit": "mm", "splits": splits} for name in ("one", "two")]
    assert [line.split() for line in runs_table(summaries).splitlines()[1:3]] == [
        ["one", "8", "train", "0.500", "mm", "0.90", "-0.50"],
        ["one", "1", "test", "2.000", "mm", "-0.25", "-"],
    ]
    assert len(runs_table(summaries).splitlines()) == 5


def test_without_baselines_and_unit():
    bare = {"n_subjects": 2, "metrics": {"rmse": {"value": 1.0}}, "baselines": {}}
    splits = {"train": bare, "val": None, "test": None}
    table = runs_table([{"run": "one", "unit": None, "splits": splits}])
    assert table.splitlines()[1].split() == ["one", "2", "train", "1.000", "-", "-"]
