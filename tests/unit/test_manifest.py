"""Manifests, shape scores, the table of subjects and the names of files made from ids."""

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshstage.cohort.manifest import read_manifest, read_shape_scores
from meshstage.cohort.names import subject_stem
from meshstage.config.subjects import (
    SubjectRow,
    input_files,
    read_subjects_table,
    stem_or_row,
    subject_stems,
)
from meshstage.errors import InputError
from meshstage.meshes.formats import template_name
from small_cohort import change, manifest, write, write_cohort

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

IDS = [
    "bravo", "BRAVO", "Bravo", "bRAVO", "bravo left 2", "Börn-心", "Bo\u0308rn-心", "x;touch pwned",
    "$(id)", ".hidden", "...", "trailing.", "CON", "con", "Con.txt", "row-0007", "ROW-7", "-rf",
    "a+1", "a", "A", "=20", " ", "P01", "P_1.x", "😀", "%s", "{subject}", "a'b\"c`d", "~", "*",
]  # fmt: skip


def test_reads_what_a_user_writes(tmp_path: Path) -> None:
    write_cohort(tmp_path)
    path = tmp_path / "bravo" / "manifest.json"
    found = read_manifest(path)
    assert found.subject_id == "bravo"
    assert found.stages.tolist() == [0.1, 0.4, 0.7]
    assert found.reference_path == tmp_path / "bravo" / "reference.vtp"
    assert found.resolve(found.phases[2].mesh) == tmp_path / "bravo" / "phase_2.vtp"


def test_absolute_and_parent_paths_are_kept(tmp_path: Path) -> None:
    value = manifest("x") | {
        "fitted_reference_mesh": "/data/r.vtp",
        "pca_coefficients": "../p.json",
    }
    write(tmp_path / "m.json", value)
    found = read_manifest(tmp_path / "m.json")
    assert found.reference_path == Path("/data/r.vtp")
    assert found.shape_scores_path == tmp_path / "../p.json"


def test_a_prediction_needs_id_and_scores_only(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write(path, {"subject_id": "x", "pca_coefficients": "p.json"})
    assert read_manifest(path, targets_required=False).phases == ()
    with pytest.raises(InputError) as error:
        read_manifest(path)
    text = "\n".join(problem.sentence() for problem in error.value.problems)
    for key in ("fitted_reference_mesh", "target_array", "phases"):
        assert f"the key '{key}' is missing" in text


def test_all_problems_of_one_manifest_are_raised_together(tmp_path: Path) -> None:
    value = manifest("a/b")
    del value["target_array"]
    value["Target_array"] = "displacement"
    value["phases"][0]["stage"] = True
    value["phases"][1]["stage"] = 0.7
    value["phases"].append("phase_3.vtp")
    write(tmp_path / "m.json", value)
    with pytest.raises(InputError) as error:
        read_manifest(tmp_path / "m.json")
    sentences = [problem.sentence() for problem in error.value.problems]
    expected = ["a/b", "rename 'Target_array'", "a bool (true), not a number", "0.7 stands twice"]
    for words in (*expected, "phases[3] is a string"):
        assert any(words in sentence for sentence in sentences), (words, sentences)
    assert all(str(tmp_path / "m.json") in sentence for sentence in sentences)


def test_negative_zero_is_stage_zero(tmp_path: Path) -> None:
    value = manifest("x")
    value["phases"][0]["stage"] = -0.0
    write(tmp_path / "m.json", value)
    assert str(read_manifest(tmp_path / "m.json").stages[0]) == "0.0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"a": 1,\n "b": {"x": 1, "x": 2}}',
            "'x' stands twice in one object at line 2, column 16",
        ),
        ('{"NaN": [1,\n  NaN]}', "NaN is no number of JSON at line 2, column 3"),
        ('["1e999", 1e999]', "1e999 overflows at line 1, column 11"),
        ("[-Infinity]", "-Infinity is no number of JSON at line 1, column 2"),
        ('{"a": 1, "\\u0061": 2}', "'a' stands twice"),
        ('{"a": 1,}', "line 1, column 9"),
        ("[" * 100_000, "nested too deeply"),
        ("[1" + "0" * 5000 + "]", "overflows"),
        ("", "empty"),
    ],
)
def test_json_that_is_not_strict_is_placed(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "pca.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(words)):
        read_shape_scores(path)


@pytest.mark.parametrize("value", ["x", True, {"a": 1}, [True], ["0.5"], [1, None], [[1.0]], [], 3])
def test_scores_are_a_list_of_numbers(value: Any, tmp_path: Path) -> None:
    write(tmp_path / "pca.json", value)
    with pytest.raises(InputError):
        read_shape_scores(tmp_path / "pca.json")


def test_scores_keep_their_precision_and_a_byte_order_mark_is_legal(tmp_path: Path) -> None:
    (tmp_path / "pca.json").write_text("\ufeff[1, -0.1, 1e-300]", encoding="utf-8")
    assert read_shape_scores(tmp_path / "pca.json").tolist() == [1.0, -0.1, 1e-300]


def subject_id_of(stem: str) -> str:
    body = stem.partition("+")[0]
    raw = re.sub(r"=([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), body)
    return raw.encode("latin-1").decode("utf-8")


def test_stems_are_reversible_safe_and_unique_without_case() -> None:
    stems = {name: subject_stem(name) for name in IDS if name.strip()}
    for name, stem in stems.items():
        assert subject_id_of(stem) == name
        assert re.fullmatch(r"[A-Za-z0-9_=][A-Za-z0-9_=.+-]*(?<!\.)", stem), stem
        assert not re.fullmatch(r"(?i)(con|nul)(\..*)?|row-\d+", stem)
    for one, other in itertools.combinations(stems.values(), 2):
        assert one.casefold() != other.casefold()
    assert stems["bravo"] == "bravo"


@pytest.mark.parametrize(
    "name", ["", "  ", ".", "..", "a/b", "../x", "a\\b", "a\nb", "a\0b", "\x1b[31m", "\ud800"]
)
def test_ids_that_are_no_file_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="subject_id"):
        subject_stem(name)


def test_a_stem_takes_at_most_200_bytes() -> None:
    assert len(subject_stem("x" * 200)) == 200
    # Each of these is two bytes of UTF-8, written with three characters each.
    assert len(subject_stem("é" * 33)) == 198
    for name in ("x" * 201, "é" * 34):
        with pytest.raises(InputError, match="200"):
            subject_stem(name)


def table(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "manifest\tsplit\na.json\ttrain\nb/c.json\tval\n",
        "\ufeffmanifest\tsplit\r\na.json\ttrain\r\nb/c.json\tval\r\n",
        "split\tmanifest\ntrain\ta.json\n\nval\tb/c.json\n\n\n",
        'manifest\tsplit\t\n"a.json"\ttrain  \t\nb/c.json\tval\t',
    ],
)
def test_tables_as_editors_and_spreadsheets_save_them(text: str, tmp_path: Path) -> None:
    rows = read_subjects_table(table(tmp_path / "t.tsv", text))
    assert [(row.manifest, row.split) for row in rows] == [
        (tmp_path / "a.json", "train"),
        (tmp_path / "b/c.json", "val"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("manifest\tsplit\n", "no rows"),
        ("manifest,split\na,train\n", "not parted by tabs"),
        ("manifest\na.json\n", "'split' is missing"),
        ("manifest\tsplit\tsplit\na\ttrain\ttrain\n", "'split' stands twice"),
        ("manifest\tsplit\tage\na\ttrain\t3\n", "'age' is unknown"),
        ("manifest\tsplit\na\ttrain\nb\tTrain\n", "line 3: the split is 'Train'"),
        ("manifest\tsplit\na\ttrain\nb\n", "line 3"),
        ('manifest\tsplit\n"a\ttrain\nb\ttrain\n', "line 2"),
        ("manifest\tsplit\n\ttrain\n", "line 2: names no manifest"),
        ("manifest\tsplit\na\ttrain\n".encode("utf-16"), "not UTF-8"),
        ("manifest\tsplit\n" + "x" * 200_000 + "\ttrain\n", "line 2"),
    ],
)
def test_tables_that_are_refused(text: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        read_subjects_table(table(tmp_path / "t.tsv", text))


def test_parsing_a_broken_cohort_never_raises(tmp_path: Path) -> None:
    write_cohort(tmp_path)
    (tmp_path / "alpha" / "manifest.json").write_bytes(b"\xff\xfe{")
    change(tmp_path / "bravo" / "manifest.json", lambda m: m.update(subject_id="..", phases=[3]))
    change(tmp_path / "charlie" / "manifest.json", lambda m: m.update(subject_id="delta"))
    (tmp_path / "delta" / "phase_1.vtp").unlink()
    rows = [
        *read_subjects_table(tmp_path / "subjects.tsv"),
        SubjectRow(tmp_path / "nowhere" / "manifest.json", "train", 6),
        SubjectRow(tmp_path / "delta/../delta/manifest.json", "val", 7),
    ]
    # The second manifest that says delta gets its row's name; the same manifest twice does not.
    stems = ["row-0001", "row-0002", "delta", "row-0004", "row-0005", "row-0006"]
    assert subject_stems(rows) == stems
    assert [stem_or_row(row, k) for k, row in enumerate(rows)][2:4] == ["delta", "delta"]
    assert input_files(rows[0]) == [tmp_path / "alpha" / "manifest.json"]
    assert tmp_path / "delta" / "phase_1.vtp" not in input_files(rows[3])
    assert tmp_path / "delta" / "phase_2.vtp" in input_files(rows[3])
    assert input_files(rows[4]) == []


@pytest.mark.parametrize(
    ("mesh", "surface", "name"),
    [
        ("m.vtu", False, ".vtu"),
        ("m.vtu", True, ".vtp"),
        ("m.PLY", False, ".vtp"),
        ("m.vtk", False, ".vtu"),
    ],
)
def test_the_templates_name_is_known_from_its_path(mesh: str, surface: bool, name: str) -> None:
    assert template_name(Path(mesh), surface) == f"pca_mean_template{name}"


@pytest.mark.spawn
def test_importing_manifests_loads_no_mesh_library() -> None:
    code = "import sys, meshstage.cohort.manifest; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SCRIPTS
    )
    for heavy in ("pyvista", "vtkmodules", "torch", "physicsnemo"):
        assert heavy not in done.stdout.split()


@pytest.mark.parametrize(
    ("stages", "hint"),
    [
        ([0, 35, 100], "percent are stages when divided by 100"),
        ([0, 50, 780], "milliseconds are stages when divided by the length of the cycle"),
        ([0, 0.5, 1.5], "write a number from 0 to 1"),
        ([-0.5, 0, 0.5], "write a number from 0 to 1"),
    ],
)
def test_stages_in_another_unit_are_told_how_to_convert(stages, hint, tmp_path) -> None:
    value = manifest("bravo")
    for phase, stage in zip(value["phases"], stages, strict=True):
        phase["stage"] = stage
    write(tmp_path / "manifest.json", value)
    with pytest.raises(InputError) as error:
        read_manifest(tmp_path / "manifest.json")
    outside = [stage for stage in stages if not 0 <= stage <= 1]
    assert [problem.todo for problem in error.value.problems] == [hint] * len(outside)
