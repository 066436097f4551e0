"""Samples: which is which, and that nothing is copied that need not be."""

from dataclasses import replace

import numpy as np
import pytest

from meshstage.errors import InputError
from meshstage.training.samples import PhaseSampleDataset


def test_one_sample_per_subject_and_phase(tiny_cohort):
    """Normalised as the statistics say: (value - mean) / scale, and targets by their scale."""
    subjects, statistics = tiny_cohort.subjects["train"], tiny_cohort.statistics
    points = tiny_cohort.template.points
    dataset = PhaseSampleDataset(subjects, statistics=statistics, points=points)
    assert len(dataset) == 5 * 3
    assert (dataset.n_points, dataset.n_target, dataset.n_features) == (42, 3, 6)
    assert dataset.subject_ids == [subject.id for subject in subjects for _ in range(3)]
    xyz = (points - statistics.coordinate_mean) / statistics.coordinate_scale
    for number, (subject, phase) in enumerate((s, p) for s in subjects for p in range(3)):
        features, targets = dataset[number]
        scores = (subject.shape_scores - statistics.pca_mean) / statistics.pca_scale
        expected = np.hstack([xyz, np.tile([*scores, subject.stages[phase]], (42, 1))])
        np.testing.assert_array_equal(features, expected.astype(np.float32))
        # One float32 division: half of 2^-23.
        np.testing.assert_allclose(
            targets, subject.targets[phase] / statistics.target_scale, rtol=6e-8
        )


def test_batch_of_targets_keeps_the_order_asked_for(tiny_cohort):
    dataset = PhaseSampleDataset(tiny_cohort.subjects["train"])
    batch = dataset.targets([7, 0, 7])
    assert batch.shape == (3, 42, 3)
    for row, index in zip(batch, [7, 0, 7], strict=True):
        np.testing.assert_array_equal(row, dataset.subjects[index // 3].targets[index % 3])


def test_targets_are_mapped_not_read(tiny_cohort):
    """The map is what lets all ranks of a machine share one copy."""
    dataset = PhaseSampleDataset(tiny_cohort.subjects["train"])
    assert np.shares_memory(dataset._targets(4), dataset.subjects[1].targets)


def test_cache_keeps_at_most_its_number_oldest_out_first(tiny_cohort):
    dataset = PhaseSampleDataset(tiny_cohort.subjects["train"], cache_max_samples=2)
    dataset.targets([0, 1, 2])
    assert list(dataset._cache) == [1, 2]
    np.testing.assert_array_equal(dataset.targets([1])[0], dataset.subjects[0].targets[1])


def test_sample_is_named_as_people_do(tiny_cohort):
    dataset = PhaseSampleDataset(tiny_cohort.subjects["train"])
    assert dataset.describe(4) == "subject train-1, phase 1 (stage 0.35)"


def test_what_makes_no_samples_is_a_sentence(tiny_cohort):
    with pytest.raises(InputError, match="no subject"):
        PhaseSampleDataset([])
    first, other = tiny_cohort.subjects["train"][:2]
    other = replace(other, shape_scores=np.append(other.shape_scores, 0.0))
    has, wanted = len(other.shape_scores), len(first.shape_scores)
    sentence = f"subject {other.id}: the number of shape scores is {has}, but {wanted} in subject"
    with pytest.raises(InputError, match=f"{sentence} {first.id}; ingest"):
        PhaseSampleDataset([first, other])
    with pytest.raises(InputError, match="-1"):
        PhaseSampleDataset(tiny_cohort.subjects["val"], cache_max_samples=-1)
