"""Every row of the shared table of faulty cohorts comes out as the table says."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshstage.checks.cohort import Report
from meshstage.checks.files import check_files
from meshstage.checks.report import text_table
from meshstage.cohort.template import prepare_template
from meshstage.meshes.cells import mesh_edges
from meshstage.meshes.reading import read_mesh
from shared_data import SHARED, shared

TABLE = SHARED / "data" / "cases" / "cases.tsv"
REPOSITORY = Path(__file__).resolve().parents[2]


def _rows() -> list[Any]:
    if not TABLE.exists():
        return [pytest.param({"case": "missing"}, id="missing")]
    with TABLE.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [pytest.param(row, id=row["case"]) for row in rows]


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all cases once, by the shared script itself."""
    output = tmp_path_factory.mktemp("cases")
    script = shared("data", "cases", "make_cases.py")
    subprocess.run([sys.executable, script, output], check=True, cwd=output)
    return output


def _mesh(folder: Path) -> Path:
    return next(p for p in (folder / "pca_mean.vtp", folder / "pca_mean.vtu") if p.exists())


def _network(row: dict[str, str]) -> str | None:
    options = dict(option.split("=") for option in row["options"].split())
    return options.get("network")


def _says(text: str, must_say: str) -> bool:
    groups = [group for group in must_say.split(" ; ") if group]
    return all(any(word.lower() in text.lower() for word in group.split("|")) for group in groups)


def _lines(report: Report, severity: str) -> str:
    return text_table([p for p in report.problems if p.severity == severity])


@pytest.mark.parametrize("row", _rows())
def test_case(row: dict[str, str], cases: Path) -> None:
    folder = cases / row["case"]
    report = check_files(_mesh(folder), folder / "subjects.tsv", network=_network(row))
    errors = _lines(report, "error")
    if row["expected"] == "error":
        assert report.n_errors > 0
        assert _says(errors, row["must_say"]), errors
    else:
        assert report.n_errors == 0, errors
    if row["expected"] == "ok-with-warning":
        assert _says(_lines(report, "warning"), row["must_say"])


@pytest.mark.parametrize("case", ["template-mixed-cells", "template-tets"])
def test_edges_of_templates_are_the_expected_ones(case: str, cases: Path) -> None:
    folder = cases / case
    expected = json.loads((folder / "expected_edges.json").read_text())["undirected_edges"]
    for name in ("pca_mean.vtp", "pca_mean.vtu", "same_cells.vtu"):
        if (folder / name).exists():
            assert mesh_edges(read_mesh(folder / name)).tolist() == expected


def test_a_template_far_away_gives_the_edges_of_one_at_home(cases: Path) -> None:
    """Moved by 1e6 mm in float64, whose spacing there is 1e-10 mm: features are float32."""
    near, far = (
        prepare_template(cases / case / "pca_mean.vtp").template
        for case in ("base", "template-offset")
    )
    assert np.array_equal(near.edge_index, far.edge_index)
    # float32 holds 30 mm to 2e-6 mm, which the base's own coordinates are rounded to.
    np.testing.assert_allclose(near.edge_features, far.edge_features, rtol=0, atol=1e-5)


@pytest.mark.spawn
@pytest.mark.parametrize(
    ("case", "code"), [("base", 0), ("array-all-zero", 0), ("mesh-truncated", 2), ("json-utf16", 2)]
)
def test_script_exits_with_the_code_of_the_result(case: str, code: int, cases: Path) -> None:
    folder = cases / case
    before = sorted(folder.rglob("*"))
    script = str(REPOSITORY / "scripts" / "check_cohort.py")
    options = ["--mesh", str(_mesh(folder)), "--subjects-table", str(folder / "subjects.tsv")]
    done = subprocess.run(
        [sys.executable, script, *options, "--jobs", "2"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before, "the check writes nothing unless it is asked to"
