"""Warn of geometry that does not fit together: units, mirrored meshes, spaces, foreign scores."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from meshstage.checks.leakage import Entry
from meshstage.cohort.geometry import FAR_IN_SIZE, size, size_factor
from meshstage.cohort.subject_record import ReferenceRecord, SubjectRecord
from meshstage.cohort.template import Template
from meshstage.errors import Problem


def geometry_warnings(entries: Sequence[Entry], template: Template) -> Iterator[Problem]:
    """Compare what examining the subjects has measured with the template and the cohort.

    Parameters
    ----------
    entries : sequence of Entry
    template : Template

    Yields
    ------
    Problem
        Warnings, one per subject and cause; what follows from another cause is not told.
    """
    known = [(e.record, e.record.reference) for e in entries if e.record.reference]
    usual = float(np.median([size(template.points), *(r.size for _, r in known)]))
    if (factor := size_factor(size(template.points), usual)) > FAR_IN_SIZE:
        yield Problem(
            f"the template is {factor:.4g} times smaller or larger than the subjects "
            f"({size(template.points):.4g}, they {usual:.4g} mm RMS from the centre)",
            "bring all meshes to millimetres",
            template.source,
            severity="warning",
        )
    turned = [record.label for record, r in known if r.degrees is not None and r.degrees > 90.0]
    for record, reference in known:
        is_turned = record.label in turned and len(turned) < len(known)
        found = (
            _size_warning(reference, usual)
            or _mirror_warning(reference)
            or (_turn_warning(reference) if is_turned else None)
            or _score_warning(reference, template)
        )
        if found:
            what, todo = found
            yield Problem(what, todo, reference.file, record.label, severity="warning")
        if not found or size_factor(reference.size, usual) <= FAR_IN_SIZE:
            yield from _phase_sizes(record, reference)
    yield from _spaces([entry.record for entry in entries])


def _size_warning(reference: ReferenceRecord, usual: float) -> tuple[str, str] | None:
    factor = size_factor(reference.size, usual)
    if factor <= FAR_IN_SIZE:
        return None
    how = "smaller" if reference.size < usual else "larger"
    what = (
        f"the reference mesh is {factor:.4g} times {how} than template and cohort "
        f"({reference.size:.4g}, they {usual:.4g} mm RMS from the centre)"
    )
    return what, "bring all meshes to millimetres"


def _mirror_warning(reference: ReferenceRecord) -> tuple[str, str] | None:
    """Half: a flat mesh is fitted as well by either hand, one that is no mirror image worse."""
    if reference.residual is None or reference.mirrored_residual is None:
        return None
    if reference.mirrored_residual >= 0.5 * reference.residual:
        return None
    what = (
        "the reference mesh is mirrored against the template: the best rotation leaves "
        f"{reference.residual:.1%} of its size, the best reflection "
        f"{reference.mirrored_residual:.1%}"
    )
    return what, "check left and right, and that all axes mean the same in all files"


def _turn_warning(reference: ReferenceRecord) -> tuple[str, str] | None:
    what = (
        f"the reference mesh is turned by {reference.degrees:.0f} degrees against the template, "
        "others are not (180 is RAS among LPS)"
    )
    return what, "save all meshes in one space"


def _score_warning(reference: ReferenceRecord, template: Template) -> tuple[str, str] | None:
    near, far = reference.from_scores, reference.from_mean
    # 1 %: modes cut down to a surface are not quite orthogonal. 1e-6: rounding of the files.
    if near is None or far is None or near <= 1.01 * far + 1e-6 * template.diagonal:
        return None
    what = (
        f"the reference mesh is {near:.3g} mm RMS from the shape that the shape scores describe, "
        f"further than from the mean shape ({far:.3g} mm)"
    )
    todo = (
        "check that the scores are this subject's, of this pca_model.json, and in standard "
        "deviations"
    )
    return what, todo


def _phase_sizes(record: SubjectRecord, reference: ReferenceRecord) -> Iterator[Problem]:
    for phase in record.phases:
        if phase.size is not None and size_factor(phase.size, reference.size) > FAR_IN_SIZE:
            yield Problem(
                f"the mesh is {phase.size:.4g} mm RMS from its centre, the reference mesh "
                f"{reference.size:.4g}",
                "bring all meshes to millimetres",
                phase.mesh,
                record.label,
                f"{phase.index}",
                severity="warning",
            )


def _spaces(records: Sequence[SubjectRecord]) -> Iterator[Problem]:
    """Find subjects whose meshes name another space than most."""
    named = [
        (record, mesh.space)
        for record in records
        for mesh in (record.reference, *record.phases)
        if mesh and mesh.space
    ]
    counts = Counter(space for _, space in named).most_common()
    for record, space in dict.fromkeys((r.label, s) for r, s in named if s != counts[0][0]):
        manifest = next(r.manifest for r in records if r.label == record)
        what = f"its meshes name the space {space}, most of the cohort {counts[0][0]}"
        yield Problem(what, "save all meshes in one space", manifest, record, severity="warning")
