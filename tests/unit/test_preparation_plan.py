"""Subjects, stages and splits from names and tables alone: no mesh here has a byte."""

from pathlib import Path
from typing import Any

import pytest

from meshstage.config.preparation import Preparation
from meshstage.errors import InputError
from meshstage.preparation.plan import Plan, plan_cohort
from meshstage.preparation.splits import deal, parse_parts

PATTERN = r"(?P<subject>\w+)_(?P<phase>\w+)\.vtp"


def folder_of(path: Path, *names: str) -> str:
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).touch()
    return str(path)


def plan(meshes: str, **settings: Any) -> Plan:
    given = {"pattern": PATTERN, "stage": "percent", "split": "1/0/0"}
    return plan_cohort(Preparation(meshes=meshes, **{**given, **settings}))


def refused(meshes: str, **settings: Any) -> list[str]:
    with pytest.raises(InputError) as raised:
        plan(meshes, **settings)
    found = [problem.sentence() for problem in raised.value.problems]
    assert all("\n" not in sentence for sentence in found)
    return found


def table_of(path: Path, *rows: str) -> str:
    for name in ("a0", "a1", "b0", "b1", "c0", "c1"):
        (path / f"{name}.vtp").touch()
    (path / "meshes.tsv").write_text("\n".join(rows) + "\n")
    return str(path / "meshes.tsv")


def stages_of(found: Plan) -> dict[str, tuple[float, ...]]:
    return {subject.id: subject.stages for subject in found.subjects}


# ---------------------------------------------------------------- stages


@pytest.mark.parametrize(
    ("labels", "settings", "stages"),
    [
        (("0", "25", "50"), {"stage": "percent"}, (0.0, 0.25, 0.5)),
        (("0", "2", "10"), {"stage": "index"}, (0.0, 1 / 3, 2 / 3)),
        (("1", "2", "3"), {"stage": "index", "period": 10}, (0.0, 0.1, 0.2)),
        (("ed", "es"), {"stage": "index"}, (0.0, 0.5)),
        (("0", "1"), {"stage": "seconds", "period": 4}, (0.0, 0.25)),
    ],
)
def test_stages_by_unit(tmp_path, labels, settings, stages):
    meshes = folder_of(tmp_path, *(f"{name}_{label}.vtp" for name in "abc" for label in labels))
    assert set(stages_of(plan(meshes, **settings)).values()) == {stages}


def test_numbers_in_labels_sort_as_numbers(tmp_path):
    names = [f"{name}_phase{number}.vtp" for name in "abc" for number in (10, 2, 1)]
    found = plan(folder_of(tmp_path, *names), stage="index").subjects[0]
    assert [mesh.phase for mesh in found.phases] == ["phase1", "phase2", "phase10"]


def test_a_column_gives_each_subject_its_period(tmp_path):
    rows = [f"{name}{k}.vtp\t{name}\t{k}\t{p}" for name, p in zip("abc", (2, 4, 8), strict=True)
            for k in (0, 1)]  # fmt: skip
    found = plan(table_of(tmp_path, "mesh\tsubject\tstage\tperiod", *rows), stage="seconds",
                 pattern=None)  # fmt: skip
    assert stages_of(found) == {"a": (0.0, 0.5), "b": (0.0, 0.25), "c": (0.0, 0.125)}


def test_every_stage_that_is_none_is_told(tmp_path):
    meshes = folder_of(tmp_path, "a_0.vtp", "a_150.vtp", "b_0.vtp", "b_es.vtp", "c_0.vtp")
    found = refused(meshes)
    assert len(found) == 1 and "b_es.vtp" in found[0] and "no number of percent" in found[0]
    (tmp_path / "b_es.vtp").unlink()
    (found,) = refused(meshes)
    assert "its stage is 150 of 100 (percent), outside of the cycle" in found
    (found,) = refused(folder_of(tmp_path / "s", "a_0.vtp", "b_0.vtp", "c_0.vtp"), stage="seconds")[
        :1
    ]
    assert "length nothing says; give a period" in found


# ---------------------------------------------------------------- references


def test_the_reference_is_the_phase_nearest_stage_0_or_the_one_named(tmp_path):
    meshes = folder_of(tmp_path, *(f"{name}_{p}.vtp" for name in "abc" for p in ("10", "60")))
    assert {s.reference.phase for s in plan(meshes).subjects} == {"10"}
    assert {s.reference.phase for s in plan(meshes, reference="60").subjects} == {"60"}
    found = refused(meshes, reference="30")
    assert len(found) == 3
    assert "subject a: lacks the phase 30, which is to be the reference; it has 10, 60" in found[0]


def test_a_mesh_that_is_the_reference_alone_is_no_phase(tmp_path):
    names = [f"{name}_{p}.vtp" for name in "abc" for p in ("rest", "10", "60")]
    found = plan(folder_of(tmp_path, *names), reference="rest").subjects[0]
    assert (found.reference.phase, found.stages) == ("rest", (0.1, 0.6))


# ---------------------------------------------------------------- splits


def test_splits_of_the_table_win_and_the_rest_is_dealt(tmp_path):
    rows = [f"{name}{k}.vtp\t{name}\t{k}\t{split}" for name, split in
            (("a", "train"), ("b", "train"), ("c", "train")) for k in (0, 1)]  # fmt: skip
    meshes = table_of(tmp_path, "mesh\tsubject\tstage\tsplit", *rows)
    assert [s.split for s in plan(meshes, pattern=None, split="0/0/1").subjects] == ["train"] * 3


def test_dealing_follows_the_parts_and_the_seed_alone():
    names = [f"s{k}" for k in range(20)]
    dealt = deal(names, (0.7, 0.15, 0.15), seed=1)
    assert [list(dealt.values()).count(split) for split in ("train", "val", "test")] == [14, 3, 3]
    assert deal(names[::-1], (0.7, 0.15, 0.15), seed=1) == dealt
    assert deal(names, (0.7, 0.15, 0.15), seed=2) != dealt
    # 0.7 * 5 = 3.5, 0.75, 0.75: the largest remainders are those of val and test.
    few = list(deal(names[:5], (0.7, 0.15, 0.15), seed=1).values())
    assert [few.count(split) for split in ("train", "val", "test")] == [3, 1, 1]


@pytest.mark.parametrize("text", ["0.7/0.3", "0.7/0.2/0.2", "a/b/c", "1.2/-0.1/-0.1", ""])
def test_a_split_that_is_none(text):
    with pytest.raises(InputError, match="three parts whose sum is 1"):
        parse_parts(text)


# ---------------------------------------------------------------- sources


def test_a_folder_and_its_pattern(tmp_path):
    meshes = folder_of(tmp_path / "one", "a_0.vtp")
    (found,) = refused(meshes, pattern=None)
    assert "nothing says which file is whose; give a pattern" in found
    (found,) = refused(meshes, pattern=r"(?P<subject>\w+)/(?P<phase>\d+)\.vtp")
    assert "holds 1 meshes, none of which matches the pattern" in found and "a_0.vtp" in found
    (found,) = refused(meshes, pattern="(")
    assert "is no regular expression" in found
    (found,) = refused(folder_of(tmp_path / "none"))
    assert "holds no mesh" in found


def test_meshes_that_the_pattern_leaves_out_are_named(tmp_path, caplog):
    """A pattern that fits all but one subject's names would lose that subject unseen."""
    names = [f"{subject}_{phase}.vtp" for subject in "abc" for phase in (0, 50)]
    with caplog.at_level("INFO"):
        found = plan(folder_of(tmp_path, *names, "d-0.vtp", "notes.txt"))
    assert [subject.id for subject in found.subjects] == ["a", "b", "c"]
    assert "1 meshes do not match the pattern and are left out: d-0.vtp" in caplog.text


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (("subject\tstage", "a\t0"), "the column 'mesh' is missing"),
        (("subject\tmesh\tstage", "a\tgone.vtp\t0"), "does not exist"),
        (("subject\tmesh\tstage", "a\ta0.vtp\tnow"), "the stage 'now' is no number"),
        (("subject\tmesh\tstage", "a\ta0.vtp\t"), "names no phase or stage"),
        (("subject\tmesh\tstage", "../a\ta0.vtp\t0"), "would leave the output folder"),
        (("subject\tmesh\tstage", "a\ta0.vtp\t0", "a\ta1.vtp\t0"), "same phase (duplicates)"),
    ],
)
def test_a_broken_table_is_one_sentence(tmp_path, rows, words):
    found = refused(table_of(tmp_path, *rows), pattern=None)
    assert words in found[0]
    assert "meshes.tsv" in found[0] or "a1.vtp" in found[0]


def test_a_format_that_is_none_and_an_option_of_another(tmp_path):
    (found,) = refused(str(tmp_path), format="nrrd")
    assert "there is no format 'nrrd'; write one of generic, shapeworks" in found
    (found,) = refused(folder_of(tmp_path, "a_0.vtp"), mean_mesh="x.vtk")
    assert "the format generic has no option --mean-mesh" in found
