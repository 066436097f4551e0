"""A cohort of a few spheres that move, written to a folder, to be spoilt by tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyvista as pv

SUBJECTS = {"alpha": "train", "bravo": "train", "charlie": "train", "delta": "val"}
STAGES = (0.1, 0.4, 0.7)


def sphere() -> pv.PolyData:
    """Give a sphere of 42 points and 80 triangles, radius 30 mm, float32 like most files."""
    mesh = pv.Icosphere(radius=30.0, nsub=1)
    mesh.clear_data()
    mesh.points = mesh.points.astype(np.float32)
    return mesh


def ball() -> pv.UnstructuredGrid:
    """Give the sphere filled with tetrahedra: point 42 is the centre, on no surface."""
    shell = sphere()
    points = np.vstack([np.asarray(shell.points), [[0.0, 0.0, 0.0]]])
    cells = np.column_stack([shell.regular_faces, np.full(shell.n_cells, shell.n_points)])
    return pv.UnstructuredGrid({pv.CellType.TETRA: cells}, points)


def write_cohort(folder: Path, template: Any = None, suffix: str = ".vtp") -> Path:
    """Write template, shape model, subjects and table; gives the template's path."""
    template = template if template is not None else sphere()
    rng = np.random.default_rng(7)
    path = folder / f"pca_mean{suffix}"
    template.save(path)
    modes = rng.normal(size=(2, 3 * template.n_points))
    modes /= np.linalg.norm(modes, axis=1, keepdims=True)
    write(folder / "pca_model.json", {"eigenvalues": [4.0, 1.0], "components": modes.tolist()})
    for name in SUBJECTS:
        home = folder / name
        home.mkdir()
        scores = rng.normal(size=2)
        reference = template.copy()
        shape = np.asarray(template.points, float) + (scores * [2, 1] @ modes).reshape(-1, 3)
        reference.points = shape.astype(np.float32)
        reference.save(home / f"reference{suffix}")
        for index in range(len(STAGES)):
            phase = reference.copy()
            target = rng.normal(size=(template.n_points, 3)).astype(np.float32)
            phase.point_data["displacement"] = target
            phase.points = np.asarray(reference.points) + target
            phase.save(home / f"phase_{index}{suffix}")
        write(home / "pca.json", scores.tolist())
        write(home / "manifest.json", manifest(name, suffix))
    rows = [f"{name}/manifest.json\t{split}" for name, split in SUBJECTS.items()]
    (folder / "subjects.tsv").write_text("\n".join(["manifest\tsplit", *rows]) + "\n")
    return path


def manifest(name: str, suffix: str = ".vtp") -> dict[str, Any]:
    """Give the manifest of one subject."""
    return {
        "subject_id": name,
        "fitted_reference_mesh": f"reference{suffix}",
        "pca_coefficients": "pca.json",
        "target_array": "displacement",
        "phases": [
            {"mesh": f"phase_{index}{suffix}", "stage": stage} for index, stage in enumerate(STAGES)
        ],
    }


def write(path: Path, value: Any) -> None:
    """Write JSON as a user would."""
    path.write_text(json.dumps(value), encoding="utf-8")


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit a JSON object in place."""
    value = json.loads(path.read_text(encoding="utf-8"))
    edit(value)
    write(path, value)


def change_mesh(path: Path, edit: Callable[[Any], Any]) -> None:
    """Edit a mesh file in place; an edit may give another mesh back."""
    mesh = pv.read(path)
    result = edit(mesh)
    (mesh if result is None else result).save(path)
