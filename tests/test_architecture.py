"""Imports go one way, heavy packages stay out of inference, and the package's root stays light."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "saccade"

# Rooms within rooms; files beside these belong to the room around them.
INNER = (
    "backends/cpu/codegen",
    "backends/cpu/machines",
    "backends/cpu/processor",
    "backends/cpu/runtime",
    "backends/cpu/store",
    "backends/cpu/target",
    "backends/cpu",
    "backends/host",
    "backends/lengths",
    "backends/reference",
    "kernels/cpu",
)
# Room -> rooms that it imports besides itself: all of them, and no other. Files at the root of the
# package are rooms too.
IMPORTS = {
    "errors": set(),
    "files": set(),
    "locks": set(),
    "backends/cpu/processor": set(),
    "sources": set(),
    "backends/lengths": set(),
    "signature": set(),
    "backends/cpu/machines": {"errors"},
    "fork_server": {"errors"},
    "graphfile": {"errors"},
    "limits": {"errors"},
    "collector": {"locks"},
    "backends/cpu/target": {"backends/cpu/machines", "backends/cpu/processor", "errors", "locks"},
    "ir": {"errors", "graphfile", "locks"},
    "options": {"backends/cpu/machines", "errors", "limits"},
    "backends/cpu/codegen": {"backends/cpu/target", "errors", "ir"},
    "kernels": {"backends/cpu/machines", "backends/cpu/target", "ir"},
    "opdefs": {"errors", "ir", "limits"},
    "caches": {"errors", "files", "locks", "options"},
    "processes": {"errors", "fork_server", "locks", "options"},
    "kernels/cpu": {
        "backends/cpu/codegen",
        "backends/cpu/target",
        "ir",
        "kernels",
        "locks",
        "opdefs",
    },
    "layout": {"errors", "ir", "kernels", "limits", "opdefs"},
    "passes": {"errors", "ir", "limits", "opdefs"},
    "frontend": {"caches", "errors", "ir", "limits", "opdefs", "options"},
    "ahead": {"errors", "ir", "kernels", "layout", "limits"},
    "plan": {"errors", "ir", "kernels", "kernels/cpu", "layout", "limits", "locks", "opdefs"},
    "tuning": {"backends/cpu/processor", "caches", "errors", "ir", "kernels", "layout"},
    "lowered": {
        "caches",
        "errors",
        "frontend",
        "ir",
        "locks",
        "options",
        "passes",
        "processes",
        "sources",
    },
    "backends/host": {"ir", "plan"},
    "profile": {"errors", "ir", "kernels", "locks", "plan"},
    "backends/cpu/runtime": {
        "backends/cpu/codegen",
        "backends/cpu/target",
        "backends/host",
        "backends/lengths",
        "caches",
        "collector",
        "errors",
        "kernels",
        "kernels/cpu",
        "locks",
        "options",
        "processes",
        "sources",
    },
    "model": {"errors", "locks", "profile", "signature"},
    "backends/cpu/store": {
        "backends/cpu/codegen",
        "backends/cpu/processor",
        "backends/cpu/runtime",
        "backends/cpu/target",
        "caches",
        "errors",
        "graphfile",
        "kernels/cpu",
        "locks",
        "options",
        "plan",
        "signature",
        "sources",
    },
    "ops": {
        "backends/cpu/runtime",
        "backends/cpu/target",
        "errors",
        "ir",
        "kernels",
        "kernels/cpu",
        "locks",
        "opdefs",
        "processes",
    },
    "testing": {
        "backends/cpu/codegen",
        "backends/cpu/runtime",
        "backends/cpu/target",
        "backends/host",
        "backends/lengths",
        "errors",
        "frontend",
        "ir",
        "kernels",
        "kernels/cpu",
        "layout",
        "locks",
        "opdefs",
        "plan",
    },
    "backends/cpu": {
        "backends/cpu/runtime",
        "backends/cpu/store",
        "backends/cpu/target",
        "errors",
        "ir",
        "kernels",
        "kernels/cpu",
        "layout",
        "options",
        "plan",
        "processes",
        "tuning",
    },
    "backends/reference": {
        "backends/cpu",
        "backends/cpu/store",
        "backends/host",
        "backends/lengths",
        "errors",
        "ir",
        "kernels",
        "plan",
    },
    "backends": {"backends/cpu", "backends/cpu/store", "backends/reference", "locks"},
    "engine": {
        "ahead",
        "backends",
        "backends/cpu",
        "backends/cpu/store",
        "collector",
        "errors",
        "ir",
        "kernels",
        "layout",
        "locks",
        "lowered",
        "options",
        "plan",
        "processes",
        "signature",
        "tuning",
    },
    "compile": {
        "backends",
        "engine",
        "frontend",
        "locks",
        "lowered",
        "model",
        "options",
        "processes",
    },
    "__init__": {"compile", "errors", "limits", "locks", "options"},
    "cli": {
        "__init__",
        "backends/cpu/processor",
        "backends/cpu/runtime",
        "backends/cpu/store",
        "backends/cpu/target",
        "caches",
        "errors",
        "files",
        "ir",
        "ops",
        "options",
        "plan",
        "processes",
        "profile",
        "signature",
        "testing",
        "tuning",
    },
}

PEERS = {"onnxruntime", "openvino", "torch", "triton"}
MAY_IMPORT_PEERS = ("ops/", "cli/")


def files():
    return sorted(SOURCE.rglob("*.py"))


def room(name):
    """The room of a file or a module, by its path within the package."""
    name = name.removesuffix(".py")
    inner = [one for one in INNER if name == one or name.startswith(f"{one}/")]
    return max(inner, key=len) if inner else name.partition("/")[0]


def rooms_imported(path):
    """Rooms that a file imports from, but for its own."""
    name = path.relative_to(SOURCE).as_posix()
    found = {
        room(module.partition(".")[2].replace(".", "/") or "__init__")
        for module in imports(path)
        if module.partition(".")[0] == "saccade"
    }
    return found - {room(name)}


def is_module(name):
    """Whether a dotted name is one of ours."""
    path = SOURCE.parent / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def imports(path):
    """Modules that a file imports, wherever in it, but for those for type checkers alone."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else node.module


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_rooms_import_what_the_table_says(path):
    name = path.relative_to(SOURCE).as_posix()
    own = room(name)
    assert own in IMPORTS, f"{own} is a room that the table does not know"
    assert not rooms_imported(path) - IMPORTS[own], f"{name} imports what {own} may not"


def test_the_table_permits_nothing_that_nobody_uses():
    used = {one: set() for one in IMPORTS}
    for path in files():
        used[room(path.relative_to(SOURCE).as_posix())] |= rooms_imported(path)
    assert {one: IMPORTS[one] - used[one] for one in IMPORTS if IMPORTS[one] - used[one]} == {}


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_peers_and_gpus_stay_out_of_cpu_inference(path):
    name = path.relative_to(SOURCE).as_posix()
    if name.startswith(MAY_IMPORT_PEERS):
        return
    heavy = {module.partition(".")[0] for module in imports(path)} & PEERS
    assert not heavy, f"{name} imports {heavy}"


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_property_is_computed_under_a_lock_that_forks_leave_held(path):
    """Python 3.11 has one for all instances: `saccade.locks` has the property without it."""
    tree = ast.parse(path.read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    taken = {alias.name for node in imported if node.module == "functools" for alias in node.names}
    assert "cached_property" not in taken


def loaded_by(code):
    """Names of the modules that a fresh interpreter has after some code."""
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sorted(sys.modules))"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return {name.partition(".")[0] for name in found.stdout.split()}


HEAVY = {"onnx", "onnx_ir", "onnxscript", "typer", "rich", "PIL", "click", "platformdirs", *PEERS}


@pytest.mark.parametrize("code", ["import saccade", "import saccade; saccade.Model; saccade.Plan"])
def test_importing_the_package_imports_nothing_heavy(code):
    assert not loaded_by(code) & HEAVY


def test_the_rooms_have_an_order():
    """No circle of rooms, so that the order of reading exists."""
    TopologicalSorter(IMPORTS).prepare()
