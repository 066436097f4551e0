"""The section ``prepare:`` of config.yaml: how a cohort is made from a folder of meshes."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DISPLACEMENT = "displacement"


class Preparation(BaseModel):
    """Every key, its default and its meaning: also the options of ``prepare_cohort.py``.

    Other keys are options of the format's own, see `options`.
    """

    # Labels of phases may look like numbers to YAML.
    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True)

    meshes: str = Field(
        min_length=1,
        description="folder of meshes, table of meshes, or whatever else the format reads",
    )
    format: str = Field("generic", description="whose files they are")
    stage: Literal["percent", "fraction", "index", "seconds"] | None = Field(
        None,
        description="unit of the stages; index is i / n of a closed cycle (without it: what the "
        "format states, fraction for generic)",
    )
    period: float | None = Field(
        None, gt=0, description="length of the cycle: seconds, or the number of indices"
    )
    reference: str | None = Field(
        None,
        description="phase that is each subject's undeformed mesh (without it: the one nearest "
        "stage 0)",
    )
    align: Literal["none", "rigid", "similarity"] = Field(
        "rigid",
        description="how subjects are brought together (Procrustes): not, by rotation and "
        "translation, or with a scale too",
    )
    modes: int | None = Field(None, ge=1, description="number of shape modes to keep")
    variance: float | None = Field(
        None,
        gt=0,
        le=1,
        description="keep as many modes as explain this part of the variance (without both: 0.95)",
    )
    target: str = Field(
        DISPLACEMENT,
        min_length=1,
        description="displacement (phase - reference), or a point array that all meshes have",
    )
    split: str = Field(
        "0.7/0.15/0.15",
        description="parts of the subjects to train on, validate and test, where the source "
        "states no split",
    )
    seed: int = Field(42, ge=0, description="of the dealing of subjects to splits")

    @model_validator(mode="after")
    def _one_of_two(self) -> "Preparation":
        if self.modes is not None and self.variance is not None:
            raise ValueError("modes and variance are both given: give one")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Options of the format's own."""
        return dict(self.model_extra or {})
