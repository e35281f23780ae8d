"""A warm start imports neither onnx nor onnx_ir."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnx_ir
import pytest
from frontend_models import text_model

from saccade.frontend import onnx as frontend
from saccade.frontend.onnx.remembered import recall

SCRIPT = """
import sys
from saccade.frontend import onnx as frontend
frontend.digest(sys.argv[1])
slow = ("onnx", "onnx_ir", "onnxscript", "google.protobuf")
print([name for name in slow if name in sys.modules])
"""


def test_importing_and_hashing_import_no_onnx(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(text_model("y = Relu(x)"), path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", ["path", "text", "bytes", "memoryview", "proto", "ir"])
def test_every_kind_of_source(kind: str, tmp_path: Path) -> None:
    model = text_model("y = Relu(x)")
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    source = {
        "path": path,
        "text": str(path),
        "bytes": path.read_bytes(),
        "memoryview": memoryview(path.read_bytes()),
        "proto": model,
        "ir": onnx_ir.from_proto(model),
    }[kind]
    graph = frontend.load(source)
    assert [value.name for value in graph.inputs] == ["x"]
    assert graph.output_names == ("y",)
    assert (frontend.digest(source) is None) == (kind in ("proto", "ir"))


def test_bytes_and_file_have_the_same_content_but_memory_has_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(text_model("y = Relu(x)"), path)
    assert frontend.digest(path) == frontend.digest(path)
    assert frontend.digest(path.read_bytes()) == frontend.digest(bytearray(path.read_bytes()))


def test_a_file_is_known_once_it_was_digested_and_believed_once_it_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save(text_model("y = Relu(x)"), path)
    assert not frontend.seen(path) and frontend.seen(path.read_bytes())
    digest = frontend.digest(path)
    assert frontend.seen(path) and recall(path) is None, "it changed a moment ago"
    monkeypatch.setattr("saccade.frontend.onnx.remembered._SETTLED_NS", 0)
    assert frontend.digest(path) == digest and recall(path) == digest
    onnx.save(text_model("y = Sigmoid(x)"), path)
    assert not frontend.seen(path) and frontend.digest(path) != digest
    assert frontend.seen(tmp_path / "missing.onnx")


LATE = """
import sys
from saccade.frontend.onnx.late import put_off_sympy
put_off_sympy()
from saccade.frontend import onnx as frontend
graph = frontend.load(sys.argv[1])
assert "onnx_ir" in sys.modules
print(sum(name.partition(".")[0] == "sympy" for name in sys.modules), len(graph.nodes))
import onnx_ir, sympy
print(onnx_ir.SymbolicDim("N") + 1, sympy.simplify("2 * x - x"))
print(sum(name.partition(".")[0] == "sympy" for name in sys.modules) > 100)
"""


def test_lowering_needs_no_sympy_where_it_is_put_off(tmp_path: Path) -> None:
    """It is there for whoever asks it for something."""
    path = tmp_path / "model.onnx"
    onnx.save(text_model("s = Shape(x) y = Reshape(x, s)"), path)
    done = subprocess.run(
        [sys.executable, "-c", LATE, str(path)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].split()[0] == "1", "the module that stands in its place, no more"
    assert lines[1:] == ["N + 1 x", "True"]
