"""A tiny cohort that many tests share: spheres that pulse, written, ingested and loaded."""

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import pyvista as pv

# Both bring an LLVM: imported after VTK has drawn something without a display, triton crashes.
with contextlib.suppress(ImportError):
    import triton  # noqa: F401

from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import Statistics, compute_statistics, write_statistics
from meshstage.cohort.subject import Subject, load_subject
from meshstage.cohort.template import Template, build_template
from meshstage.files import write_json
from meshstage.meshes.reading import write_mesh

N_SUBJECTS = {"train": 5, "val": 2, "test": 1}
STAGES = (0.0, 0.35, 0.7)
TARGET_ARRAY = "displacement"


@dataclass(frozen=True)
class TinyCohort:
    """42 points, 2 shape scores, 3 phases per subject; splits of 5, 2 and 1 subjects.

    Parameters
    ----------
    mesh_path : Path
        The mesh that the template was built from; ``pca_model.json`` lies beside it.
    manifests : dict of list of Path, by split
    template_directory : Path
    template : Template
    subject_directories : dict of list of Path, by split
    subjects : dict of list of Subject, by split
    statistics_path : Path
    statistics : Statistics
    """

    mesh_path: Path
    manifests: dict[str, list[Path]]
    template_directory: Path
    template: Template
    subject_directories: dict[str, list[Path]]
    subjects: dict[str, list[Subject]]
    statistics_path: Path
    statistics: Statistics


@pytest.fixture(autouse=True)
def _same_log_level() -> None:
    """Undo what the API and the scripts set for their caller: each test reads the log alike."""
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("meshstage").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def tiny_cohort(tmp_path_factory: pytest.TempPathFactory) -> TinyCohort:
    """Make the cohort once; nobody writes into it."""
    folder = tmp_path_factory.mktemp("tiny_cohort")
    mean = pv.Icosphere(radius=20.0, nsub=1)  # mm
    mean.clear_data()
    mesh_path = folder / "raw" / "mean.vtp"
    write_mesh(mesh_path, mean)
    # Two modes: all points outwards, and longer in z; unit vectors of 3 x 42 numbers.
    normals = mean.points / 20.0
    modes = np.stack([normals, normals * [0.0, 0.0, 1.0]]).reshape(2, -1)
    modes, _ = np.linalg.qr(modes.T)
    eigenvalues = [40.0, 20.0]  # mm^2
    write_json(
        mesh_path.with_name("pca_model.json"),
        {"eigenvalues": eigenvalues, "components": modes.T.tolist()},
    )
    template = build_template(mesh_path, folder / "template")
    generator = np.random.default_rng(7)
    manifests: dict[str, list[Path]] = {}
    directories: dict[str, list[Path]] = {}
    for split, number in N_SUBJECTS.items():
        for index in range(number):
            scores = generator.standard_normal(2)
            shape = mean.points + (modes @ (scores * np.sqrt(eigenvalues))).reshape(-1, 3)
            manifest = _write_subject(folder / "raw" / f"{split}-{index}", mean, shape, scores)
            manifests.setdefault(split, []).append(manifest)
            directory = folder / "subjects" / f"{split}-{index}"
            ingest_subject(manifest, template, directory)
            directories.setdefault(split, []).append(directory)
    subjects = {split: [load_subject(d) for d in paths] for split, paths in directories.items()}
    statistics = compute_statistics(template, subjects["train"])
    write_statistics(folder / "stats.json", statistics, template, subjects["train"])
    return TinyCohort(
        mesh_path=mesh_path,
        manifests=manifests,
        template_directory=folder / "template",
        template=template,
        subject_directories=directories,
        subjects=subjects,
        statistics_path=folder / "stats.json",
        statistics=statistics,
    )


def _write_subject(folder: Path, mean: pv.PolyData, shape: np.ndarray, scores: np.ndarray) -> Path:
    """Write reference, phases, scores and manifest of one subject: it swells, and turns in z."""
    reference = mean.copy()
    reference.points = shape
    write_mesh(folder / "reference.vtp", reference)
    write_json(folder / "pca.json", scores.tolist())
    phases: list[dict[str, str | float]] = []
    for index, stage in enumerate(STAGES):
        swell = 0.1 * np.sin(np.pi * stage) * (1 + 0.3 * np.tanh(scores[0]))
        moved_by = swell * shape + 0.05 * stage * scores[1] * shape[:, [1, 0, 2]] * [-1, 1, 0]
        phase = mean.copy()
        phase.points = shape + moved_by
        phase.point_data[TARGET_ARRAY] = moved_by.astype(np.float32)
        write_mesh(folder / f"phase_{index}.vtp", phase)
        phases.append({"mesh": f"phase_{index}.vtp", "stage": stage})
    write_json(
        folder / "manifest.json",
        {
            "subject_id": folder.name,
            "fitted_reference_mesh": "reference.vtp",
            "pca_coefficients": "pca.json",
            "target_array": TARGET_ARRAY,
            "phases": phases,
        },
    )
    return folder / "manifest.json"
