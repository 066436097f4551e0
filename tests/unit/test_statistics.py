"""Statistics against hand computation, and the places where rounding bites."""

from dataclasses import replace

import numpy as np
import pytest

from meshstage.cohort.statistics import (
    Statistics,
    compute_statistics,
    read_statistics,
    write_statistics,
)
from meshstage.errors import InputError
from meshstage.files import read_json


def test_statistics_are_means_and_deviations_of_train_alone(tiny_cohort):
    train = tiny_cohort.subjects["train"]
    statistics = compute_statistics(tiny_cohort.template, train)
    points = tiny_cohort.template.points
    for axis in range(3):
        mean = sum(points[:, axis]) / len(points)
        variance = sum((x - mean) ** 2 for x in points[:, axis]) / len(points)
        # Sums of 42 float64 numbers of size 20: some 42 eps * 20.
        assert statistics.coordinate_mean[axis] == pytest.approx(mean, abs=1e-12)
        assert statistics.coordinate_scale[axis] == pytest.approx(variance**0.5, rel=1e-12)
    for mode in range(2):
        scores = [subject.shape_scores[mode] for subject in train]
        assert statistics.pca_mean[mode] == pytest.approx(np.mean(scores), rel=1e-12)
        spread = max(np.std(scores), 0.5)  # 0.23 and 0.88: one below the floor, one above
        assert statistics.pca_scale[mode] == pytest.approx(spread, rel=1e-12)
    assert statistics.target_scale == max(np.abs(subject.targets).max() for subject in train)
    assert statistics.n_features == 3 + 2 + 1


def test_constant_columns_get_scale_one(tiny_cohort):
    """A flat template and a score that never varies: nothing is divided by rounding noise."""
    template = tiny_cohort.template
    flat = template.points.copy()
    flat[:, 2] = 1e6 + 1e-9 * np.arange(len(flat))  # below float64's eps * 1e6 * 10
    train = [replace(s, shape_scores=np.array([s.shape_scores[0], 0.25]))
             for s in tiny_cohort.subjects["train"]]  # fmt: skip
    statistics = compute_statistics(replace(template, points=flat), train)
    assert statistics.coordinate_scale[2] == 1.0
    assert statistics.coordinate_scale[0] > 1.0
    assert statistics.pca_scale[1] == 1.0
    assert statistics.pca_scale[0] != 1.0


def test_scores_that_hardly_differ_are_not_blown_up(tiny_cohort):
    """Two hearts alike: a third, one standard deviation away, is 2 units off and not 200."""
    train = [replace(s, shape_scores=np.array([0.3 + 0.01 * k, 2.0 * k]))
             for k, s in enumerate(tiny_cohort.subjects["train"][:2])]  # fmt: skip
    statistics = compute_statistics(tiny_cohort.template, train)
    # Two numbers d apart deviate by d / 2: 0.005, below the floor, and 1, above it.
    assert statistics.pca_scale == pytest.approx((0.5, 1.0), rel=1e-12)


def test_all_zero_targets_get_scale_one(tiny_cohort):
    train = [replace(s, targets=np.zeros_like(s.targets)) for s in tiny_cohort.subjects["train"]]
    assert compute_statistics(tiny_cohort.template, train).target_scale == 1.0


def test_normalised_coordinates_survive_a_large_offset(tiny_cohort):
    """At 1e6 mm the mean is taken off in float64: float32 would keep 0.06 mm of 20."""
    template = tiny_cohort.template
    offset = np.array([1e6, 2e6, -1e6])
    near = compute_statistics(template, tiny_cohort.subjects["train"])
    far_template = replace(template, points=template.points + offset)
    far = compute_statistics(far_template, tiny_cohort.subjects["train"])
    # 2e6 * eps = 4e-10 mm of rounding in the offset points, over a scale of some 10 mm.
    np.testing.assert_allclose(
        far.normalise_coordinates(far_template.points),
        near.normalise_coordinates(template.points),
        rtol=0,
        atol=1e-9,
    )


def test_statistics_survive_the_file(tiny_cohort, tmp_path):
    train = tiny_cohort.subjects["train"]
    path = tmp_path / "stats.json"
    write_statistics(path, tiny_cohort.statistics, tiny_cohort.template, train)
    assert read_statistics(path) == tiny_cohort.statistics
    assert read_statistics(path).digest() == tiny_cohort.statistics.digest()
    assert list(read_json(path)["train_subjects"]) == [subject.id for subject in train]


def test_digest_sees_any_change(tiny_cohort):
    other = replace(tiny_cohort.statistics, target_scale=tiny_cohort.statistics.target_scale + 1)
    assert other.digest() != tiny_cohort.statistics.digest()


def test_no_training_subject_is_a_sentence(tiny_cohort):
    with pytest.raises(InputError, match="no training subject"):
        compute_statistics(tiny_cohort.template, [])


def test_subjects_that_differ_are_named(tiny_cohort):
    first, second, *_ = tiny_cohort.subjects["train"]
    other = replace(second, shape_scores=np.zeros(3))
    with pytest.raises(InputError, match=f"of shape scores is 3, but 2 in subject {first.id}"):
        compute_statistics(tiny_cohort.template, [first, other])


def test_other_json_is_no_statistics_file(tmp_path):
    path = tmp_path / "stats.json"
    path.write_text('{"coordinate_mean": [0, 0, 0]}', encoding="utf-8")
    with pytest.raises(InputError, match="not a statistics file"):
        read_statistics(path)


def test_statistics_of_a_checkpoint_are_lists():
    values = {
        "coordinate_mean": [0, 0, 0], "coordinate_scale": [1, 1, 1], "pca_mean": [0.5],
        "pca_scale": [2], "target_scale": 3, "n_target": 3, "target_array": "u", "more": 1,
    }  # fmt: skip
    statistics = Statistics.from_dict(values)
    np.testing.assert_array_equal(statistics.normalise_scores(np.array([4.5])), [2.0])
    assert statistics.to_dict()["pca_mean"] == [0.5]
