"""config.yaml, as Snakemake merged it from files and the command line."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from meshstage.config.faults import check_values
from meshstage.config.preparation import Preparation

_Text = Annotated[str, Field(min_length=1)]


class Configuration(BaseModel):
    """Every key, its default and its meaning; `config/README.md` says the same with more words."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cohort: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="name of the cohort, of letters, digits, dots, dashes and underscores; results "
        "go to results/{cohort}",
    )
    template: _Text | None = Field(
        default=None,
        description="the mesh that all subjects share; a pca_model.json beside it is its shape "
        "model",
    )
    subjects: _Text | None = Field(default=None, description="the table of subjects")
    prepare: Preparation | None = Field(
        default=None, description="meshes to make template and subjects from, instead of both"
    )
    runs: _Text = Field(description="the table of runs, one trained model per row")
    use_template_surface: bool = Field(
        default=False, description="train on the surface of a volume template"
    )
    edges: Literal["cells", "triangulated"] = Field(
        default="cells",
        description="a graph's edges are the sides of the cells, or of the triangles they are cut "
        "into",
    )
    cycle: Literal["closed", "open"] = Field(
        default="closed", description="whether the motion comes back, so that stage 1 is stage 0"
    )
    region: _Text | None = Field(
        default=None,
        description="point or cell array of the template with whole numbers; errors are given by "
        "region",
    )
    folds: int | str | None = Field(
        default=None,
        description="number of folds that the subjects of train and val are dealt to, or loo to "
        "leave out one after the other",
    )
    refit_shape_model: bool = Field(
        default=False,
        description="fit the shape model and the scores of each fold on its training subjects",
    )
    learning_curve: list[int] = Field(
        default=[], description="numbers of training subjects to train with as well, as [5, 10, 20]"
    )
    resume: dict[str, dict[str, Any]] = Field(
        default={}, description="what resumed runs change, by the name of the sibling ({run}_{n})"
    )

    @field_validator("folds", mode="before")
    @classmethod
    def _check_folds(cls, value: Any) -> Any:
        if value not in (None, "loo") and not (type(value) is int and value >= 2):
            raise ValueError("it must be a whole number from 2, or loo")
        return value

    @field_validator("refit_shape_model")
    @classmethod
    def _check_refit(cls, value: bool, others: ValidationInfo) -> bool:
        if value and others.data.get("folds") is None:
            raise ValueError("it is done in folds, and there are none: set folds too")
        return value

    @field_validator("learning_curve", mode="before")
    @classmethod
    def _check_sizes(cls, value: Any) -> Any:
        if isinstance(value, list):  # after --config a list holds texts
            value = [int(v) if isinstance(v, str) and v.isdecimal() else v for v in value]
        whole = isinstance(value, list) and all(type(size) is int and size >= 1 for size in value)
        if not whole or value != sorted(set(value)):
            raise ValueError("it must be a list of whole numbers from 1, each above the last")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> "Configuration":
        made = ("template", "subjects")
        given = [name for name in made if getattr(self, name) is not None]
        if self.prepare and given:
            raise ValueError(
                f"`prepare` makes template and subjects, but {' and '.join(given)} "
                f"{'is' if len(given) == 1 else 'are'} given too; keep one or the other"
            )
        missing = [name for name in made if name not in given]
        if missing and not self.prepare:
            meanings = {name: type(self).model_fields[name].description for name in missing}
            raise ValueError(
                f"the key{'s' if len(missing) > 1 else ''} {' and '.join(map(repr, missing))} "
                f"{'are' if len(missing) > 1 else 'is'} missing; add "
                + " and ".join(f"{name} ({meaning})" for name, meaning in meanings.items())
                + ", or `prepare`"
            )
        return self


def check_config(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Check the configuration and fill in defaults.

    Parameters
    ----------
    config : mapping
    name : str
        What to call it in a sentence.

    Raises
    ------
    InputError
        With every key that is unknown, missing or has a wrong value.
    """
    return check_values(Configuration, config, name).model_dump()
