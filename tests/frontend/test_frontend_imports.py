"""A warm start imports neither onnx nor onnx_ir."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnx_ir
import pytest
from frontend_models import text_model

from saccade import frontend

SCRIPT = """
import sys
from saccade import frontend
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
