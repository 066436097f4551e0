"""What ``subject.json`` holds of an ingested subject."""

from pydantic import BaseModel, ConfigDict

from meshstage.errors import Problem


class PhaseRecord(BaseModel):
    """What is known of one phase; null where the phase could not be read that far.

    ``content`` holds two sums of each column of points and targets (see `Template.sketch`),
    ``extent`` the largest absolute coordinate, mm: enough to recognise a phase in another
    encoding. ``size_bytes`` and ``crc32`` tell whether the file may be the same.
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
    phases: list[PhaseRecord]
    hashes: dict[str, str]
    errors: list[Problem]
    warnings: list[Problem]
