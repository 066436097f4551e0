"""The page in 3-D, in a real headless Chromium: it opens alone, and turns."""

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvista as pv
from PIL import Image

from browser import Browser
from judged import MadeSubject
from meshstage.figures.cases import Case
from meshstage.figures.viewer import viewer_page

STAGES = np.array([0.5, 0.0, 0.25])  # not in order: the page shows them in order


@pytest.fixture(scope="module")
def mesh() -> pv.PolyData:
    return pv.Box(bounds=(0, 60, 0, 30, 100, 110), level=3).triangulate()


@pytest.fixture(scope="module")
def cases(mesh: pv.PolyData) -> list[Case]:
    """Boxes that grow by 20 % at the stage 0.5; the prediction is 1 mm off along x."""
    reference = np.asarray(mesh.points, float)
    amount = np.array([0.2, 0.0, 0.1])
    targets = (amount[:, None, None] * (reference - reference.mean(axis=0))).astype(np.float32)
    error = np.array([3.0, 1.0, 2.0], np.float32)[:, None, None] * np.float32([1, 0, 0])
    made = []
    for label, name in (("best", "</script><b>a"), ("worst", "b")):
        subject: Any = MadeSubject(name, STAGES, np.zeros(2), targets, reference)
        made.append(Case(label, subject, "val", targets + error, 1.0, None))
    return made


@pytest.fixture(scope="module")
def page(cases: list[Case], mesh: pv.PolyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viewer") / "viewer.html"
    means = [np.zeros_like(case.predicted) for case in cases]
    path.write_text(viewer_page(mesh, cases, "mm", means), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


def test_page_holds_the_data_to_16_bits(page: Path, cases: list[Case]) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 2  # a subject's name does not end the script
    data = json.loads(re.search(r'json">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    case, order = data["cases"][0], [1, 2, 0]
    assert case["stages"] == [0, 0.25, 0.5]
    assert case["rmse"] == pytest.approx([1, 2, 3])
    assert case["shown"] == 2 and case["skill"][0] is None
    for key, step, expected in (
        ("truth", data["target_step"], cases[0].subject.targets[order]),
        ("predicted", data["target_step"], cases[0].predicted[order]),
        ("reference", data["point_step"], cases[0].subject.reference - data["centre"]),
    ):
        values = np.frombuffer(base64.b64decode(case[key]), "<i2").reshape(expected.shape) * step
        # Rounded to whole steps, 1/32767 of the largest: half a step off.
        np.testing.assert_allclose(values, expected, rtol=0, atol=0.51 * step)
    assert data["target_step"] < 1e-3 and data["point_step"] < 2e-3  # mm


def test_page_fetches_nothing_by_its_text(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|src=|@import|fetch\(|XMLHttpRequest", text)


def look(browser: Browser, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Left and right half of the scene as (height, width, 3) int arrays."""
    png = browser.screenshot(path)
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    top, bottom = (
        int(browser.evaluate(f"document.getElementById('view').getBoundingClientRect().{edge}"))
        for edge in ("top", "bottom")
    )
    scene = picture[top + 30 : bottom]
    half = scene.shape[1] // 2
    return scene[:, :half], scene[:, half:]


def ink(picture: np.ndarray) -> int:
    return int((picture.sum(axis=2) < 720).sum())


def choose(browser: Browser, element: str, value: str) -> None:
    browser.evaluate(
        f"(() => {{ const e = document.getElementById('{element}'); e.value = '{value}';"
        "e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); })()"
    )


@pytest.mark.spawn
def test_page_opens_alone_turns_and_plays(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    left, right = look(browser, tmp_path / "start.png")
    assert ink(left) > 20_000 and ink(right) > 20_000  # pixels of about 200 000 a half
    numbers = browser.evaluate("document.getElementById('numbers').textContent")
    # Worst phase first: 3 mm where the motion is 20 % of the box.
    assert numbers.startswith("RMSE at this stage 3.00 mm, skill over the mean motion")

    browser.drag((250, 300), (400, 330))
    turned = look(browser, tmp_path / "turned.png")[0]
    assert (np.abs(turned - left).max(axis=2) > 30).sum() > 10_000
    browser.evaluate("document.getElementById('scene').dispatchEvent(new MouseEvent('dblclick'))")
    back = look(browser, tmp_path / "back.png")[0]
    assert (np.abs(back - left).max(axis=2) > 30).sum() == 0

    choose(browser, "stage", "0")
    smaller = look(browser, tmp_path / "stage.png")[0]
    # The box is 1.2 times as long and wide at the last stage: 1.44 times the area.
    assert ink(left) / ink(smaller) == pytest.approx(1.44, rel=0.05)
    assert "RMSE at this stage 1.00 mm" in browser.evaluate("document.body.textContent")

    choose(browser, "colour", "error")
    truth, predicted = look(browser, tmp_path / "error.png")
    drawn = truth.sum(axis=2) < 720
    # The truth has no error to show: plain grey. The prediction has the colours of the scale.
    assert np.ptp(truth[drawn], axis=1).max() < 12
    assert np.ptp(predicted[predicted.sum(axis=2) < 720], axis=1).max() > 30

    choose(browser, "case", "1")
    assert browser.evaluate("document.getElementById('stageText').textContent") == "0.500"
    browser.evaluate("document.getElementById('play').click()")  # steps at once, then each 0.8 s
    assert browser.evaluate("document.getElementById('stage').value") == "0"
    browser.evaluate("document.getElementById('play').click()")

    assert browser.console == []
    assert [url.split(":")[0] for url in browser.requests] == ["file"]


@pytest.mark.spawn
def test_targets_that_move_nothing_and_have_no_cells(
    browser: Browser, cases: list[Case], tmp_path: Path
) -> None:
    cloud = pv.PolyData(cases[0].subject.reference)
    values = np.ones((3, cloud.n_points, 1), np.float32)
    subject: Any = MadeSubject(
        "p", STAGES, np.zeros(2), values, cases[0].subject.reference, False, "pressure"
    )
    case = Case("only", subject, "test", 2 * values, 1.0, None)
    path = tmp_path / "points.html"
    path.write_text(viewer_page(cloud, [case], None), encoding="utf-8")
    before = len(browser.console)
    browser.open(path)
    left, right = look(browser, tmp_path / "points.png")
    assert ink(left) > 500 and ink(right) > 500
    text = browser.evaluate("document.getElementById('numbers').textContent")
    assert text == "RMSE at this stage 1.00"
    assert browser.console[before:] == []
