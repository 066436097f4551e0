"""What ``subject.json`` holds of an ingested subject."""

from pydantic import BaseModel, ConfigDict

from meshstage.errors import Problem


class PhaseRecord(BaseModel):
    """What is known of one phase; null where the phase could not be read that far.

    ``content`` holds two sums of each column of points and targets (see `Template.sketch`),
    ``extent`` the largest absolute coordinate, mm: enough to recognise a phase in another
    encoding. ``size_bytes`` and ``crc32`` tell whether the file may be the same. ``size`` is the
    RMS distance from the centre, mm, ``space`` what the file names, ``target_equals`` what the
    targets are: ``phase - reference``, its reverse, ``phase`` or ``phase - template``.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    index: int
    mesh: str
    stage: float | None
    size_bytes: int | None = None
    crc32: int | None = None
    n_points: int | None = None
    n_target: int | None = None
    max_abs_target: float | None = None
    extent: float | None = None
    content: list[list[float]] | None = None
    size: float | None = None
    space: str | None = None
    target_equals: list[str] = []


class ReferenceRecord(BaseModel):
    """What was measured of the reference mesh, against the template and its shape model.

    ``size`` is the RMS distance from the centre, mm; ``degrees``, ``residual`` and
    ``mirrored_residual`` as in `meshstage.cohort.geometry.Pose`; ``from_mean`` and
    ``from_scores`` the RMS distances, mm, from the mean shape and from the one that the shape
    scores describe, null without scores or shape model.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    file: str
    size: float
    space: str | None
    degrees: float | None = None
    residual: float | None = None
    mirrored_residual: float | None = None
    from_mean: float | None = None
    from_scores: float | None = None


class SubjectRecord(BaseModel):
    """What ``subject.json`` holds; as far as it is known where there are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str | None
    label: str
    stem: str | None
    manifest: str
    template_fingerprint: str
    stages: list[float]
    shape_scores_file: str | None
    shape_scores: list[float]
    target_array: str | None
    n_points: int
    n_target: int | None
    is_displacement: bool
    reference: ReferenceRecord | None
    phases: list[PhaseRecord]
    hashes: dict[str, str]
    errors: list[Problem]
    warnings: list[Problem]
