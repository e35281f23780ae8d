"""Imports go one way, heavy packages stay out of inference, and the package's root stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "saccade"

# Room -> rooms that it may import besides itself. Files at the root of the package are rooms too.
BASE = {"errors", "limits", "locks"}
MEANING = BASE | {"ir"}
LEAVES = MEANING | {"opdefs"}
# What the operating system and the interpreter give:
SERVICES = {
    "caches",
    "collector",
    "locks",
    "machines",
    "nursery",
    "options",
    "processes",
    "processor",
}
ALLOWED = {
    "errors": set(),
    "limits": {"errors"},
    "collector": BASE,
    "locks": set(),
    "processor": set(),
    "signature": set(),
    "graphfile": {"errors"},
    "machines": {"errors"},
    "options": BASE | {"machines"},
    "caches": BASE | {"locks", "options"},
    "nursery": BASE,
    "processes": BASE | {"nursery", "options"},
    "ir": BASE | {"graphfile"},
    "opdefs": MEANING,
    "codegen": LEAVES | {"machines", "processor"},
    "frontend": LEAVES | {"caches", "options"},
    "passes": LEAVES,
    "kernels": LEAVES | {"codegen", "machines"},
    "layout": LEAVES | {"codegen", "kernels"},
    "tuning": LEAVES | {"caches", "processor", "codegen", "kernels", "layout"},
    "plan": LEAVES | {"codegen", "kernels", "layout", "tuning"},
    "runtime": LEAVES
    | SERVICES
    | {"graphfile", "signature", "codegen", "kernels", "layout", "tuning", "plan"},
    "lowered": LEAVES | SERVICES | {"frontend", "passes"},
    "insitu": LEAVES | SERVICES | {"codegen", "kernels", "layout", "tuning", "plan", "runtime"},
    "profile": LEAVES | {"codegen", "kernels", "plan"},
}
ALLOWED["ahead"] = LEAVES | {"codegen", "kernels", "layout"}
ENGINE = set().union(*ALLOWED.values()) | set(ALLOWED)
ALLOWED["engine"] = ENGINE
ALLOWED["model"] = ENGINE | {"engine"}
ALLOWED["compile"] = ENGINE | {"engine", "model"}
ALLOWED["__init__"] = ENGINE | {"model", "compile"}
ALLOWED["testing"] = ENGINE | {"model", "compile"}
ALLOWED["ops"] = ENGINE | {"model", "compile", "__init__"}
ALLOWED["cli"] = ENGINE | {"model", "compile", "testing", "ops", "__init__"}

GPU = ("ops/", "runtime/cuda/", "kernels/*/cuda_*.py")
PEERS = {"onnxruntime", "openvino", "torch", "triton"}
MAY_IMPORT_PEERS = ("ops/", "runtime/cuda/", "cli/")


def files():
    return sorted(SOURCE.rglob("*.py"))


def room(path):
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


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
            yield node.module
            if node.module == "saccade":
                yield from (f"saccade.{alias.name}" for alias in node.names)


def is_room(name):
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    own = room(path)
    assert own in ALLOWED, f"{own} is a room that the table does not know"
    for module in imports(path):
        package, _, rest = module.partition(".")
        if package != "saccade":
            continue
        target = rest.partition(".")[0] or "__init__"
        if target == "__init__" and "__init__" not in ALLOWED[own]:
            continue  # `from saccade import room` names its room as well
        if is_room(target) or target == "__init__":
            allowed = ALLOWED[own] | {own}
            assert target in allowed, f"{path.relative_to(SOURCE)} imports {module}"


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_peers_and_gpus_stay_out_of_cpu_inference(path):
    name = path.relative_to(SOURCE).as_posix()
    if name.startswith(MAY_IMPORT_PEERS) or Path(name).match("kernels/*/cuda_*.py"):
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


def test_the_table_knows_every_room():
    rooms = {room(path) for path in files()}
    assert rooms <= set(ALLOWED)
    assert {"ir", "opdefs", "frontend", "passes", "codegen", "kernels", "layout"} <= rooms


def test_the_rooms_have_an_order():
    """No two rooms may import each other, so that the order of reading exists."""
    for name, allowed in ALLOWED.items():
        for other in allowed - {name}:
            assert name not in ALLOWED[other], f"{name} and {other} import each other"
