"""The library is a house: a module imports from lower floors only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[2] / "scripts" / "meshstage"

FLOORS = {
    "errors": 0, "files": 0, "model_files": 0, "sources": 0, "launching": 0,
    "ranks": 0, "slurm": 0,
    "manifest": 1, "subject_names": 1, "subjects_table": 1, "configuration": 1,
    "meshes": 1, "mesh_files": 1, "ply": 1, "cells": 1, "renumbering": 1,
    "shape_model": 1,
    "template": 2, "examine": 2, "cohort": 2, "statistics": 2, "demo": 2, "tetrahedra": 2,
    "leakage": 2, "check": 2, "check_files": 2, "check_report": 2,
    "subject_record": 2,
    "networks": 3, "dataset": 3, "checkpoint": 3, "distributed": 3, "mechanics": 3,
    "model_directory": 4, "inference": 4, "prediction": 4, "stress": 4,
    "exporting": 4, "training": 4,
    "metrics": 4, "baseline_fit": 4, "baselines": 4, "evaluation": 4, "evaluation_checks": 4,
    "evaluation_summary": 4, "runs_table": 4, "figures": 4, "watch": 4,
    "workflow": 5,
}  # fmt: skip

MODULES = sorted(LIBRARY.rglob("*.py"))


def name_of(path: Path) -> str:
    """First part of a module's name below meshstage: its room in the house."""
    return path.relative_to(LIBRARY).with_suffix("").parts[0]


def imported(tree: ast.Module, at_module_level_only: bool) -> set[str]:
    nodes = list(ast.walk(tree))
    if at_module_level_only:
        inside = {
            inner
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for inner in ast.walk(node)
        }
        # What only a type checker reads is never imported.
        inside |= {
            inner
            for node in nodes
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        nodes = [node for node in nodes if node not in inside]
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(LIBRARY)))
def test_module_imports_only_from_its_floor_down(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = name_of(path)
    if own == "__init__":
        return
    assert own in FLOORS, f"{own} stands on no floor: add it to FLOORS"
    for module in imported(tree, at_module_level_only=False):
        parts = module.split(".")
        if parts[0] == "meshstage" and len(parts) > 1 and parts[1] in FLOORS:
            assert FLOORS[parts[1]] <= FLOORS[own], f"{own} imports {parts[1]} from above"
        if parts[0] == "physicsnemo" and own != "exporting":
            assert own == "networks", f"{own} imports physicsnemo, only networks/ may"
    if FLOORS[own] <= 2:
        heavy = {"torch", "physicsnemo", "torch_geometric"}
        top = {module.split(".")[0] for module in imported(tree, at_module_level_only=True)}
        assert not top & heavy, f"{own} imports {top & heavy} at module level"


def test_data_floors_load_neither_torch_nor_physicsnemo():
    """Seen from outside: what the Snakefile imports costs no seconds."""
    code = (
        "import sys, meshstage.manifest, meshstage.meshes, meshstage.statistics, "
        "meshstage.configuration, meshstage.launching\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'physicsnemo'}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=LIBRARY.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "[]"
