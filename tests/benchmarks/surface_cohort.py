"""A cohort of closed surfaces that move smoothly, as files of other people and as ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyvista as pv

from meshstage.cohort.demo import displacement, draw_scores
from meshstage.cohort.ingest import ingest_subject
from meshstage.cohort.statistics import Statistics, compute_statistics
from meshstage.cohort.subject import Subject, load_subject
from meshstage.cohort.template import Template, build_template
from meshstage.files import write_json

TARGET_ARRAY = "displacement"


@dataclass(frozen=True)
class Raw:
    """What a user brings: the template's mesh, a manifest a subject, and its phases' files."""

    mesh: Path
    manifests: list[Path]
    phases: list[list[Path]]


@dataclass(frozen=True)
class Ingested:
    """The same as this program's own files."""

    template: Template
    subjects: list[Subject]
    statistics: Statistics


def sphere(n_points: int) -> pv.PolyData:
    """Triangulate a sphere of about so many points, radius 30 mm, float32 as most files are."""
    side = max(2, round((n_points / 2) ** 0.5))
    mesh = pv.Sphere(radius=30.0, theta_resolution=2 * side, phi_resolution=side + 2).clean()
    mesh.clear_data()
    mesh.points = mesh.points.astype(np.float32)
    return mesh


def write_surfaces(folder: Path, n_subjects: int, n_phases: int, n_points: int) -> Raw:
    """Write spheres that beat as the demo's ventricles do, in pyvista's default encoding."""
    folder.mkdir(parents=True, exist_ok=True)
    template = sphere(n_points)
    template.save(folder / "pca_mean.vtp")
    raw = Raw(folder / "pca_mean.vtp", [], [])
    for index in range(n_subjects):
        home = folder / f"case-{index:03d}"
        home.mkdir()
        scores = draw_scores(0, index)
        reference = template.copy()
        reference.points *= (1 + 0.05 * scores[:3]).astype(np.float32)
        reference.save(home / "reference.vtp")
        stages = np.arange(n_phases) / n_phases
        raw.phases.append([home / f"phase_{k:03d}.vtp" for k in range(n_phases)])
        for path, stage in zip(raw.phases[-1], stages, strict=True):
            phase = reference.copy()
            points = np.asarray(reference.points, np.float64)
            moved_by = displacement(points, np.zeros(len(points)), scores, stage)
            phase.point_data[TARGET_ARRAY] = moved_by.astype(np.float32)
            phase.points = (points + moved_by).astype(np.float32)
            phase.save(path)
        write_json(home / "pca.json", scores.tolist())
        manifest = {
            "subject_id": home.name,
            "fitted_reference_mesh": "reference.vtp",
            "pca_coefficients": "pca.json",
            "target_array": TARGET_ARRAY,
            "phases": [
                {"mesh": path.name, "stage": float(stage)}
                for path, stage in zip(raw.phases[-1], stages, strict=True)
            ],
        }
        write_json(home / "manifest.json", manifest)
        raw.manifests.append(home / "manifest.json")
    return raw


def ingest(mesh: Path, manifests: Sequence[Path], folder: Path) -> Ingested:
    """Ingest a cohort, all of whose subjects train."""
    template = build_template(mesh, folder / "template")
    for index, manifest in enumerate(manifests):
        ingest_subject(manifest, template, folder / "subjects" / str(index))
    subjects = [load_subject(folder / "subjects" / str(n)) for n in range(len(manifests))]
    return Ingested(template, subjects, compute_statistics(template, subjects))
