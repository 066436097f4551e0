"""Two evaluations side by side: paired differences against a computation by hand."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv

from judged import MadeSubject
from meshstage.errors import InputError
from meshstage.figures.comparison import plot_comparison
from meshstage.figures.style import save_figure
from meshstage.files import write_json, write_text
from meshstage.judging.comparison import compare_runs
from meshstage.judging.runs import Run

STAGES = (0.0, 0.5)


def run(
    folder: Path,
    name: str,
    errors: dict[str, tuple[float, float]],
    size: float = 5.0,
    unit: str | None = "mm",
    split: str = "test",
) -> Run:
    """Write an evaluation whose subjects have an RMSE at each of two stages."""
    ending = f"_{unit}" if unit else ""
    rows: list[dict[str, Any]] = [
        {
            "subject_id": subject,
            "split": split,
            "phase": phase,
            "stage": f"{STAGES[phase]:.9g}",
            f"rmse{ending}": error,
            f"rmse_zero{ending}": size,
        }
        for subject, pair in errors.items()
        for phase, error in enumerate(pair)
    ]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / f"{name}.csv", stream.getvalue())
    splits: dict[str, Any] = {"train": None, "val": None, "test": None, split: {"n": 1}}
    subjects = [{"subject_id": subject} for subject in errors]
    summary = {"run": name, "unit": unit, "splits": splits, "subjects": subjects}
    write_json(folder / f"{name}.json", summary)
    return Run(name, summary, folder / f"{name}.csv")


def test_differences_are_those_of_pooled_errors(tmp_path: Path) -> None:
    first = run(tmp_path, "a", {"x": (3, 4), "y": (0, 0), "z": (1, 1)})
    second = run(tmp_path, "b", {"x": (0, 5), "y": (2, 0), "z": (1, 1)})
    found = compare_runs(first, second)
    # Squares of all six samples: 9 + 16 + 0 + 0 + 1 + 1 = 27, and 0 + 25 + 4 + 0 + 1 + 1 = 31.
    assert found.overall.first == pytest.approx(np.sqrt(27 / 6))
    assert found.overall.second == pytest.approx(np.sqrt(31 / 6))
    assert found.overall.value == found.overall.first - found.overall.second
    assert found.by_subject["x"] == pytest.approx((np.sqrt(12.5), np.sqrt(12.5)))
    assert found.by_subject["y"] == pytest.approx((0, np.sqrt(2)))
    assert found.by_stage[0.0].value == pytest.approx(np.sqrt(10 / 3) - np.sqrt(5 / 3))
    low, high = found.overall.low, found.overall.high
    # Resamples of x alone differ by 0, of y alone by sqrt(2): the interval lies between.
    assert low is not None and high is not None
    assert -np.sqrt(2) <= low <= found.overall.value <= high <= 1e-12
    assert "a is better on 1 of 3 test subjects" in found.sentence()
    assert found.sentence().endswith("the difference is not clear")


def test_a_run_that_wins_on_every_subject_is_better(tmp_path: Path) -> None:
    errors = {f"s{k}": (1.0 + k, 2.0 + k) for k in range(6)}
    worse = {subject: (a + 1, b + 1) for subject, (a, b) in errors.items()}
    found = compare_runs(run(tmp_path, "a", worse), run(tmp_path, "b", errors))
    assert found.overall.is_clear and found.sentence().endswith("b is better")
    back = compare_runs(run(tmp_path, "b", errors), run(tmp_path, "a", worse))
    assert back.overall.value == -found.overall.value
    assert back.sentence().endswith("b is better")


def test_one_subject_has_no_interval(tmp_path: Path) -> None:
    found = compare_runs(run(tmp_path, "a", {"x": (1, 1)}), run(tmp_path, "b", {"x": (2, 2)}))
    assert found.overall.low is None and not found.overall.is_clear
    assert "too few subjects" in found.sentence()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"errors": {"x": (1, 1), "w": (1, 1)}}, "only one of them"),
        ({"size": 5.1}, "its targets at stage 0 are not the same"),
        ({"unit": None}, "its unit is None, that of a is mm"),
        ({"split": "val"}, "only one of them"),
    ],
)
def test_what_differs_is_one_sentence(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    same = {"x": (1.0, 1.0), "y": (2.0, 2.0)}
    first = run(tmp_path, "a", same)
    with pytest.raises(InputError) as raised:
        compare_runs(first, run(tmp_path, "b", **{"errors": same, **changes}))
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_a_split_without_subjects_is_refused(tmp_path: Path) -> None:
    first = run(tmp_path, "a", {"x": (1, 1)})
    with pytest.raises(InputError, match="no validation subject was evaluated"):
        compare_runs(first, first, "val")


def test_the_figure_shows_subjects_stages_and_the_mesh(tmp_path: Path) -> None:
    first = run(tmp_path, "a", {f"s{k}": (1.0, 2.0) for k in range(70)})
    second = run(tmp_path, "b", {f"s{k}": (1.0, 2.0 + 0.01 * k) for k in range(70)})
    mesh = pv.Icosphere(nsub=1)
    figure = plot_comparison(compare_runs(first, second), mesh, np.asarray(mesh.points)[:, 0])
    left, middle, right, _ = figure.axes
    assert left.get_title() == "test subjects, 60 of 70"
    assert [bar.get_width() for bar in left.patches] == sorted(b.get_width() for b in left.patches)
    np.testing.assert_array_equal(middle.lines[0].get_xdata(), STAGES)
    picture = np.asarray(right.images[0].get_array(), float)
    # Negative x is violet, positive x orange: red leads on one half, blue on the other.
    lead = picture[..., 0] - picture[..., 2]
    assert lead.min() < -20 and lead.max() > 20
    save_figure(tmp_path / "figure.png", figure)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_errors_are_pooled_at_each_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from meshstage.figures import comparison

    targets = np.zeros((2, 3, 3), np.float32)
    made: Any = [MadeSubject("s", np.array(STAGES), np.zeros(1), targets, np.zeros((3, 3)))]
    predicted = np.zeros((2, 3, 3), np.float32)
    predicted[0, 0], predicted[1, 0], predicted[1, 2] = (3, 0, 0), (0, 4, 0), (0, 0, 2)
    monkeypatch.setattr(comparison, "read_prediction", lambda folder, subject: predicted)
    found = comparison.rmse_by_point(made, tmp_path)
    np.testing.assert_allclose(found, [np.sqrt(12.5), 0, np.sqrt(2)])
