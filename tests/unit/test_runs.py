"""Evaluations read side by side, and the table of all runs, against what it is made of."""

from pathlib import Path
from typing import Any

import pytest

from meshstage.errors import InputError
from meshstage.files import write_json
from meshstage.judging.runs import Run, read_evaluations, table_of_runs


def split(subjects: int, rmse: float, **skills: float | None) -> dict[str, Any]:
    return {
        "n_subjects": subjects,
        "n_samples": 2 * subjects,
        "metrics": {"rmse_mm": {"value": rmse, "low": None, "high": None, "missing": 0}},
        "baselines": {name: {"skill": skill} for name, skill in skills.items()},
    }


def summary(run: str, *ids: str, unit: str | None = "mm") -> dict[str, Any]:
    train, test = split(8, 0.5, stage_mean=0.9, ridge=-0.5), split(1, 2, stage_mean=-0.25, new=None)
    splits = {"train": train, "val": None, "test": test}
    subjects = [{"subject_id": name} for name in ids]
    return {"run": run, "unit": unit, "splits": splits, "subjects": subjects}


def test_every_split_that_has_subjects_is_a_row() -> None:
    runs = [Run(name, summary(name, "a"), Path()) for name in ("one", "two")]
    header, body = table_of_runs(runs, short=True)
    # A baseline that the table of titles lacks is still shown, by its name.
    assert header[3:] == [
        "RMSE (mm)",
        "95 % interval",
        "skill over mean motion at the stage",
        "skill over ridge on shape scores",
        "skill over new",
    ]
    assert body[:2] == [
        ["one", "train", "8", "0.5", "-", "0.9", "-0.5", "-"],
        ["one", "test", "1", "2", "-", "-0.25", "-", "-"],
    ]
    assert len(body) == 4
    full_header, full = table_of_runs(runs)
    assert [row[:8] for row in full] == body and {len(r) for r in full} == {len(full_header)}


def test_without_baselines_and_unit() -> None:
    bare = split(2, 1.0)
    bare["metrics"] = {"rmse": bare["metrics"]["rmse_mm"]}
    splits = {"train": bare, "val": None, "test": None}
    run = Run("one", {"unit": None, "splits": splits}, Path())
    header = ["run", "split", "subjects", "RMSE", "95 % interval"]
    assert table_of_runs([run], short=True) == (header, [["one", "train", "2", "1", "-"]])


def test_only_evaluations_of_one_cohort_stand_side_by_side(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.json" for name in ("one", "two", "three", "four", "five")]
    one, two, three, four, five = paths
    write_json(one, summary("one", "a", "b"))
    write_json(two, summary("two", "b", "a"))
    write_json(three, summary("three", "a", "c"))
    write_json(four, summary("four", "a", "b", unit=None))
    assert [run.name for run in read_evaluations([one, two])] == ["one", "two"]
    with pytest.raises(InputError, match=r"three\.json: evaluated on other subjects than .*one"):
        read_evaluations([one, three])
    with pytest.raises(InputError, match=r"four\.json: evaluated in another unit than .*one"):
        read_evaluations([one, four])
    for other in (
        [1],
        {"splits": 3, "subjects": [], "unit": None},
        {"splits": {}, "subjects": [], "unit": None},
        "text",
    ):
        write_json(five, other)
        with pytest.raises(InputError, match=r"five\.json: is not an evaluation; name a \.json"):
            read_evaluations([one, five])
    # The rows are read when they are needed: the table of runs needs none.
    with pytest.raises(InputError, match=r"one\.csv: not the rows of an evaluation"):
        _ = read_evaluations([one])[0].rows
