"""Imports go one way, heavy packages stay out of inference, and the package's root stays light."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "saccade"

# Room -> rooms that it imports besides itself: all of them, and no other. Files at the root of the
# package are rooms too. Files beside a room within a room belong to the room around it.
IMPORTS = {
    "locks": set(),
    "errors": {"memory"},
    "memory": set(),
    "backend": set(),
    "program": set(),
    "signature": {"errors"},
    "backends/cpu/processor": set(),
    "backends/lengths": set(),
    "sources": set(),
    "files": set(),
    "backends/cuda/ahead": set(),
    "backends/cuda/target": set(),
    "version": set(),
    "waits": set(),
    "collector": {"locks"},
    "held": {"errors", "signature"},
    "shapes": {"errors", "signature"},
    "tables": {"errors"},
    "devices": {"locks"},
    "backends/cpu/machines": {"errors"},
    "fork_server": {"errors"},
    "forking": {"fork_server", "locks"},
    "graphfile": {"errors"},
    "limits": {"errors"},
    "logs": {"locks"},
    "backends/cuda/gpus": {"errors"},
    "backends": {"errors", "locks", "signature"},
    "bundlefile": {"errors", "files", "signature"},
    "backends/cpu/target": {"backends/cpu/machines", "backends/cpu/processor", "errors", "locks"},
    "ir": {"errors", "graphfile", "locks"},
    "options": {"devices", "errors", "limits", "shapes"},
    "backends/cuda/runtime": {"backends/cuda/ahead", "errors", "ir", "locks", "waits"},
    "backends/cpu/codegen": {"backends/cpu/target", "errors", "ir", "locks"},
    "kernels": {"ir", "waits"},
    "opdefs": {"errors", "held", "ir", "limits", "locks"},
    "backends/cuda/codegen": {"backends/cuda/ahead", "errors", "ir"},
    "caches": {"errors", "files", "locks", "logs", "options"},
    "processes": {"errors", "fork_server", "forking", "locks", "options"},
    "kernels/cases": {"ir", "opdefs"},
    "layout": {"errors", "ir", "kernels", "limits", "opdefs", "waits"},
    "passes": {"errors", "ir", "limits", "opdefs"},
    "frontend": {
        "caches",
        "errors",
        "files",
        "held",
        "ir",
        "limits",
        "opdefs",
        "options",
        "shapes",
        "signature",
    },
    "ahead": {"errors", "ir", "kernels", "layout", "limits"},
    "backends/fusions": {"ir", "kernels/cases", "layout", "opdefs", "passes"},
    "backends/cpu/fusions": {
        "backends/cpu/target",
        "backends/fusions",
        "ir",
        "kernels/cases",
        "layout",
        "opdefs",
    },
    "plan": {"devices", "errors", "ir", "kernels", "layout", "limits", "locks", "tables", "waits"},
    "tuning": {"caches", "errors", "files", "ir", "kernels", "layout"},
    "backends/cuda/fusions": {"backends/fusions", "ir", "kernels/cases", "layout", "opdefs"},
    "backends/cpu/passes": {"backends/fusions", "ir", "opdefs", "options", "passes"},
    "lowered": {
        "caches",
        "devices",
        "errors",
        "frontend",
        "ir",
        "locks",
        "logs",
        "options",
        "passes",
        "processes",
        "sources",
    },
    "kernels/cpu": {
        "backends/cpu/codegen",
        "backends/cpu/fusions",
        "backends/cpu/machines",
        "backends/cpu/target",
        "backends/fusions",
        "ir",
        "kernels",
        "locks",
        "opdefs",
    },
    "backends/host": {"ir", "plan"},
    "profile": {"errors", "ir", "kernels", "locks", "plan", "tables"},
    "report": {
        "backends/cpu/processor",
        "devices",
        "errors",
        "ir",
        "kernels",
        "locks",
        "options",
        "plan",
        "profile",
        "signature",
        "sources",
        "version",
    },
    "kernels/cuda": {
        "backends/cuda/codegen",
        "backends/cuda/fusions",
        "backends/cuda/gpus",
        "backends/cuda/target",
        "backends/fusions",
        "ir",
        "kernels",
        "locks",
        "opdefs",
    },
    "engine": {
        "ahead",
        "bundlefile",
        "collector",
        "devices",
        "errors",
        "ir",
        "kernels",
        "layout",
        "logs",
        "lowered",
        "options",
        "plan",
        "processes",
        "signature",
        "tuning",
        "version",
    },
    "backends/cpu/runtime": {
        "backends",
        "backends/cpu/codegen",
        "backends/cpu/target",
        "backends/host",
        "backends/lengths",
        "caches",
        "collector",
        "errors",
        "held",
        "kernels",
        "kernels/cpu",
        "locks",
        "logs",
        "options",
        "plan",
        "processes",
        "sources",
        "waits",
    },
    "backends/reference": {
        "backends/host",
        "backends/lengths",
        "devices",
        "errors",
        "held",
        "ir",
        "kernels",
        "locks",
        "plan",
    },
    "model": {
        "errors",
        "held",
        "locks",
        "logs",
        "options",
        "profile",
        "report",
        "shapes",
        "signature",
        "tiling",
    },
    "backends/cuda": {
        "backends",
        "backends/cuda/ahead",
        "backends/cuda/codegen",
        "backends/cuda/fusions",
        "backends/cuda/gpus",
        "backends/cuda/runtime",
        "backends/cuda/target",
        "backends/fusions",
        "bundlefile",
        "caches",
        "errors",
        "ir",
        "kernels",
        "kernels/cuda",
        "layout",
        "locks",
        "opdefs",
        "options",
        "passes",
        "plan",
        "processes",
        "signature",
        "sources",
        "tuning",
    },
    "backends/cpu/store": {
        "backends/cpu/codegen",
        "backends/cpu/processor",
        "backends/cpu/runtime",
        "backends/cpu/target",
        "bundlefile",
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
        "backends",
        "backends/cpu/runtime",
        "backends/cpu/target",
        "backends/cuda",
        "backends/cuda/codegen",
        "backends/cuda/gpus",
        "backends/cuda/runtime",
        "backends/cuda/target",
        "bundlefile",
        "errors",
        "ir",
        "kernels",
        "kernels/cpu",
        "kernels/cuda",
        "locks",
        "opdefs",
        "processes",
        "signature",
        "version",
    },
    "bundled": {"bundlefile", "devices", "errors", "model", "options", "signature", "version"},
    "testing": {
        "backends/cpu/codegen",
        "backends/cpu/fusions",
        "backends/cpu/runtime",
        "backends/cpu/target",
        "backends/cuda",
        "backends/cuda/ahead",
        "backends/cuda/codegen",
        "backends/cuda/fusions",
        "backends/cuda/gpus",
        "backends/cuda/runtime",
        "backends/cuda/target",
        "backends/host",
        "backends/lengths",
        "compile",
        "errors",
        "frontend",
        "ir",
        "kernels",
        "kernels/cases",
        "kernels/cpu",
        "kernels/cuda",
        "layout",
        "locks",
        "opdefs",
        "plan",
        "processes",
        "sources",
        "waits",
    },
    "backends/cpu": {
        "backends",
        "backends/cpu/fusions",
        "backends/cpu/machines",
        "backends/cpu/passes",
        "backends/cpu/processor",
        "backends/cpu/runtime",
        "backends/cpu/store",
        "backends/cpu/target",
        "errors",
        "ir",
        "kernels",
        "kernels/cpu",
        "layout",
        "locks",
        "opdefs",
        "options",
        "plan",
        "processes",
        "tuning",
    },
    "by_value": {"errors", "locks", "model", "signature"},
    "onnxruntime": {"compile", "devices", "errors", "logs", "shapes", "signature"},
    "tiling": {"errors", "ir", "opdefs"},
    "vision": {"errors", "opdefs"},
    "prebuild": {
        "__init__",
        "backends/cpu",
        "backends/cpu/machines",
        "backends/cpu/runtime",
        "errors",
        "processes",
    },
    "compile": {
        "bundled",
        "by_value",
        "devices",
        "engine",
        "errors",
        "frontend",
        "locks",
        "lowered",
        "model",
        "options",
        "processes",
        "shapes",
        "signature",
    },
    "onnx_backend": {"compile", "devices", "errors", "model"},
    "__init__": {"compile", "errors", "limits", "locks", "options", "version"},
    "__main__": {"cli"},
    "cli": {
        "__init__",
        "backends/cuda/gpus",
        "bundlefile",
        "caches",
        "devices",
        "errors",
        "files",
        "forking",
        "ir",
        "memory",
        "ops",
        "options",
        "plan",
        "processes",
        "profile",
        "report",
        "shapes",
        "signature",
        "tables",
        "testing",
        "tuning",
        "version",
        "vision",
    },
}

# Rooms whose types are all told: mypy can hold each use against each definition.
TYPED = (
    "ahead", "backend", "devices", "engine", "frontend", "layout", "lowered", "model",
    "opdefs", "passes", "plan", "profile", "report", "tuning",
)  # fmt: skip

# Packages that stay where they belong: peers, compilers and drivers.
MAY_IMPORT = {
    "llvmlite": r"backends/cpu/(codegen/|runtime/|target\.py)",
    "torch": r"ops/|cli/",
    "onnxruntime": r"cli/",
    "openvino": r"cli/",
    "triton": r"backends/cuda/codegen/|kernels/cuda/.*_code\.py"
    r"|testing/(quick_)?(triton|operators)\.py",
    "cuda": r"backends/cuda/runtime/",
}


# Imports that may close a circle of modules, and what for. The one allowed form: a method of a type
# hands over to a file beside it that reads the type, and imports it when it is called.
HANDS_OVER = {
    ("saccade.plan.types", "saccade.plan.json"): "Plan.to_json, Plan.from_json",
    ("saccade.plan.types", "saccade.plan.text"): "Plan.__str__",
    ("saccade.report.types", "saccade.report.diff"): "Report.to_json",
    ("saccade.report.types", "saccade.report.page"): "Report.to_html",
}


def files():
    return sorted(SOURCE.rglob("*.py"))


def room(name):
    """The room of a file or a module, by its path within the package."""
    name = name.removesuffix(".py")
    inner = [one for one in IMPORTS if "/" in one and f"{name}/".startswith(f"{one}/")]
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


@cache
def is_module(name):
    """Whether a dotted name is one of ours."""
    path = SOURCE.parent / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


class Facts(NamedTuple):
    """Attributes: modules that a file imports; what it takes of functools; functions' lines."""

    imports: list[str]
    functools: set[str]
    lengths: list[tuple[str, int]]


@cache
def facts(path):
    """What is asked of a file; its tree, of thousands of objects, is let go of."""
    tree = ast.parse(path.read_text())
    return Facts(list(found_imports(path, tree)), set(taken(tree)), list(lengths(tree)))


def taken(tree):
    """Names that a file imports from functools."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "functools":
            yield from (alias.name for alias in node.names)


def imports(path):
    """Modules that a file imports, wherever in it, but for those for type checkers alone."""
    return facts(path).imports


def found_imports(path, tree):
    nodes = list(ast.walk(tree))
    skipped = {
        id(child)
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else node.module


# Of all files at once: to set a test up for each of them took longer than to look at them.
def test_rooms_import_what_the_table_says():
    found = {path.relative_to(SOURCE).as_posix(): rooms_imported(path) for path in files()}
    assert {room(name) for name in found} <= set(IMPORTS), "rooms that the table does not know"
    beyond = {name: rooms - IMPORTS[room(name)] for name, rooms in found.items()}
    assert {name: rooms for name, rooms in beyond.items() if rooms} == {}


def test_the_table_permits_nothing_that_nobody_uses():
    used = {one: set() for one in IMPORTS}
    for path in files():
        used[room(path.relative_to(SOURCE).as_posix())] |= rooms_imported(path)
    assert {one: IMPORTS[one] - used[one] for one in IMPORTS if IMPORTS[one] - used[one]} == {}


def test_peers_compilers_and_drivers_stay_where_they_belong():
    found = [
        (path.relative_to(SOURCE).as_posix(), module.partition(".")[0])
        for path in files()
        for module in imports(path)
    ]
    assert len(found) > 1000
    heavy = {(name, one) for name, one in found if one in MAY_IMPORT}
    assert {(name, one) for name, one in heavy if not re.match(MAY_IMPORT[one], name)} == set()


def test_no_property_is_computed_under_a_lock_that_forks_leave_held():
    """Python 3.11 has one for all instances: `saccade.locks` has the property without it."""
    found = {path.relative_to(SOURCE).as_posix(): facts(path).functools for path in files()}
    assert any(found.values())
    assert [name for name, names in found.items() if "cached_property" in names] == []


@pytest.mark.parametrize("room", ["kernels", "layout", "plan", "fusions", "passes", "models"])
def test_tests_describe_the_machine_that_they_plan_for(room):
    found = sorted((Path(__file__).parent / room).rglob("*.py"))
    assert found
    assert [path.name for path in found if re.search(r"\bhost_target\(", path.read_text())] == []


def lengths(tree):
    """Lines of a file's functions, by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def test_files_and_functions_are_short():
    long, functions = {}, {}
    for path in files():
        name, lines = path.relative_to(SOURCE).as_posix(), path.read_text().count("\n")
        if lines > 400:
            long[name] = lines
        most = 150 if re.match(r"kernels/cuda/.*_code\.py", name) else 70
        functions |= {(name, one): n for one, n in facts(path).lengths if n > most}
    assert long == {} and functions == {}


def test_lengths_are_those_of_whole_functions():
    text = "class A:\n    def f(self):\n        def g():\n            pass\n\n        return g\n"
    assert dict(lengths(ast.parse(text))) == {"f": 5, "g": 2}


def untyped(text):
    """Lines on which a file gives up on types: the name `Any`, or a comment that silences mypy."""
    tree = ast.parse(text)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        names = [getattr(node, "id", None), getattr(node, "attr", None)]
        if isinstance(node, ast.alias):
            names = [node.name]
        # Annotations may be quoted; docstrings only talk.
        if isinstance(node, ast.Constant) and not isinstance(parents[id(node)], ast.Expr):
            names = re.findall(r"\w+", str(node.value))
        if "Any" in names:
            yield node.lineno
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and re.search(r"type:\s*ignore|mypy:", token.string):
            yield token.start[0]


@pytest.mark.parametrize("name", TYPED)
def test_seams_are_typed(name):
    found = [path for path in files() if room(path.relative_to(SOURCE).as_posix()) == name]
    assert found, f"there is no room {name}"
    given_up = [
        f"{path.relative_to(SOURCE)}:{line}" for path in found for line in untyped(path.read_text())
    ]
    assert given_up == []


@pytest.mark.parametrize(
    "text",
    [
        "from typing import Any",
        "from typing import Any as Whatever",
        "import typing\nx: typing.Any = 1",
        "def f(x: Any) -> None: ...",
        "def f(x: 'list[Any]') -> None: ...",
        "x = cast('Any', 1)",
        "x = f(1)  # type: ignore[arg-type]",
        "x = f(1)  # noqa: E501  # type:ignore",
        "# mypy: ignore-errors",
    ],
)
def test_what_is_not_typed_is_found(text):
    assert list(untyped(text))


def test_words_are_no_types():
    assert not list(untyped('"""Any of them."""\n# Any type may be ignored\nAnything = anys = 1'))


def loaded_by(code):
    """Names of the modules that a fresh interpreter has after some code."""
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sorted(sys.modules))"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return {name.partition(".")[0] for name in found.stdout.split()}


HEAVY = {
    "onnx", "onnx_ir", "onnxscript", "typer", "rich", "PIL", "click", "platformdirs", *MAY_IMPORT,
}  # fmt: skip


@pytest.mark.parametrize(
    "code",
    [
        "import saccade; dir(saccade)",
        "import saccade; saccade.Model; saccade.Plan",
        "import saccade; saccade.vision.decode; saccade.onnxruntime.SessionOptions",
    ],
)
def test_importing_the_package_imports_nothing_heavy(code):
    assert not loaded_by(code) & HEAVY


def test_the_rooms_have_an_order():
    """No circle of rooms, so that the order of reading exists."""
    TopologicalSorter(IMPORTS).prepare()


@cache
def modules_imported():
    """Of each module, those of ours that it names in an import: not the packages around them."""
    found = {}
    for path in files():
        name = path.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", ".")
        ours = {one for one in imports(path) if one.partition(".")[0] == "saccade"}
        found[name.removesuffix(".__init__")] = ours
    return found


def circle(graph, closing=()):
    """A circle, first and last the same; None if there is none but by the edges of `closing`."""
    kept = {name: {to for to in graph[name] if (name, to) not in closing} for name in graph}
    try:
        TopologicalSorter(kept).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other():
    assert circle(modules_imported(), HANDS_OVER) is None


@pytest.mark.parametrize("closing", HANDS_OVER, ids="->".join)
def test_imports_that_may_close_a_circle_do(closing):
    assert circle(modules_imported(), set(HANDS_OVER) - {closing}) is not None


def test_circles_are_found_within_functions_too(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "if TYPE_CHECKING:\n    from saccade.ir import Graph\n"
        "def f():\n    from saccade.plan import text\n"
    )
    assert imports(path) == ["saccade.plan.text"]
    graph = {"a": {"b", "c"}, "b": set(), "c": {"a"}}
    assert circle(graph) in (["a", "c", "a"], ["c", "a", "c"])
    assert circle(graph, {("a", "c")}) is None
    assert circle({"a": {"a"}}) is not None
