"""How patients' own spaces were brought into the template's: ``alignment.json``."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict

from meshstage.errors import InputError, Problem
from meshstage.files import read_record, write_json

ALIGNMENT = "alignment.json"

Align = Literal["none", "rigid", "similarity"]
Row = tuple[float, float, float, float]


def _transform(rows: tuple[Row, Row, Row, Row]) -> tuple[Row, Row, Row, Row]:
    matrix = np.array(rows)
    if not np.isfinite(matrix).all() or matrix[3].tolist() != [0.0, 0.0, 0.0, 1.0]:
        raise ValueError("is no affine transform")
    linear = matrix[:3, :3]
    scale = np.cbrt(np.linalg.det(linear))
    # Matrices that people copy have some 5 digits.
    if scale <= 0 or np.abs(linear.T @ linear - scale**2 * np.eye(3)).max() > 1e-4 * scale**2:
        raise ValueError("is no rotation with a scale, or mirrors")
    return rows


Transform = Annotated[tuple[Row, Row, Row, Row], AfterValidator(_transform)]


class Alignment(BaseModel):
    """One transform per subject, from the patient's space into the template's.

    ``transforms`` holds a 4 x 4 matrix per subject id: rotation, translation in mm, a scale if
    ``align`` is "similarity", never a reflection.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    align: Align
    transforms: dict[str, Transform]

    def matrix(self, subject_id: str) -> np.ndarray:
        """Give a subject's (4, 4) float64 matrix.

        Raises
        ------
        InputError
            If the subject is not among them.
        """
        if subject_id not in self.transforms:
            raise InputError(Problem("has no transform of this subject", "add it"))
        return np.array(self.transforms[subject_id], dtype=np.float64)


def read_alignment(path: Path) -> Alignment:
    """Read an ``alignment.json``.

    Raises
    ------
    InputError
        If it is missing, not strict JSON, or a transform is none or a reflection.
    """
    return read_record(path, Alignment, "prepare the cohort, or score the subject, again")


def write_alignment(path: Path, align: Align, matrices: dict[str, np.ndarray]) -> None:
    """Write the (4, 4) matrices of subjects by id."""
    write_json(path, {"align": align, "transforms": {k: m.tolist() for k, m in matrices.items()}})
