"""The library is a house: a room imports from rooms below it only, and no modules in a circle."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[2] / "scripts" / "meshstage"

# Top first, as in CONTRIBUTING.md.
ROOMS = (
    "workflow", "figures", "judging", "prediction", "training", "losses", "checks", "preparation",
    "config", "models", "motion", "mechanics", "cohort", "meshes", "networks", "launch",
    "pages", "files", "errors",
)  # fmt: skip

# What the Snakefile may import while it is parsed: `import torch` costs seconds.
LIGHT = (
    "errors", "files", "pages", "launch", "meshes", "cohort", "motion", "checks", "preparation",
    "config",
)  # fmt: skip
HEAVY = {"torch", "physicsnemo", "torch_geometric"}

MODULES = {
    ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(LIBRARY.rglob("*.py"))
}


def imports(name: str, runs_on_import_only: bool = False) -> set[str]:
    """Modules and names that a module imports; those inside functions count too unless asked."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    # What only a type checker reads is never imported, but circles hide there.
    skipped = {
        inner
        for node in ast.walk(tree)
        if runs_on_import_only
        and (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        )
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_only_from_its_room_down(name):
    own = room(name)
    if not own:
        return
    assert own in ROOMS, f"{own} is no room: add it to ROOMS and to CONTRIBUTING.md"
    for module in imports(name):
        if module.startswith("meshstage."):
            other = room(module)
            assert ROOMS.index(other) >= ROOMS.index(own), f"{name} imports {module} from above"
        if module.split(".")[0] == "physicsnemo":
            assert own == "networks", f"{name} imports physicsnemo, only networks/ may"
    if own in LIGHT:
        heavy = HEAVY & {module.split(".")[0] for module in imports(name, runs_on_import_only=True)}
        assert not heavy, f"{name} imports {heavy} at module level"


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside one room and inside functions are seen too, and those for type checkers."""
    graph = {
        name: {m for m in imports(name) if m in MODULES and m != name and m.count(".")}
        for name in MODULES
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_what_the_workflow_imports_is_light():
    """Parsing the Snakefile must not import torch: that is seconds before a dry run answers."""
    code = (
        "import sys\n"
        "import meshstage.config.runs, meshstage.config.subjects, meshstage.launch.plan\n"
        "import meshstage.models.names\n"
        "heavy = {'torch', 'physicsnemo', 'torch_geometric', 'pyvista'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=LIBRARY.parent)
