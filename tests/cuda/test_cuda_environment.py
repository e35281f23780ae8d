"""Bundles run where there is neither Triton, PyTorch, LLVM nor ONNX.

The environment is a folder with links to NumPy and ml_dtypes, and an interpreter that looks nowhere
else. A bundle for this machine's processor runs there for real; one for a GPU on a driver that is
made up, its kernel in NumPy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest

import saccade

SOURCE = Path(saccade.__file__).parents[1]
NEEDED = ("numpy", "ml_dtypes")
SHAPE = (1, 3, 5, 7)
MODEL = f"""
import json, sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if __name__ == "__main__":
    import saccade
    device, machine, path = sys.argv[1:]
    w = numpy_helper.from_array(np.arange(105, dtype=np.float32).reshape({SHAPE}) - 50, "w")
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, {SHAPE}) for n in "xy"]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:], [w])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model = saccade.compile(
        source.SerializeToString(), device=device, machine=machine or None, cache=False
    )
    model.save(path, {{"x": {SHAPE}}})
    (step,) = model.plan({SHAPE}).steps
    phases = [
        [step.kernel, [a.name for a in phase.arguments], dict(phase.integers)]
        for phase in step.phases
    ]
    print(json.dumps(phases))
"""
RUN = f"""
import ctypes, importlib.metadata, importlib.util, json, sys
import numpy as np

for name in ("triton", "torch", "onnx", "onnx_ir", "llvmlite", "cuda"):
    assert importlib.util.find_spec(name) is None, name
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        continue
    raise AssertionError(name)

import saccade

{{before}}
x = np.linspace(-2, 2, 105, dtype=np.float32).reshape({SHAPE})
model = saccade.compile(sys.argv[1])
found = [np.asarray(model(x)) for _ in range(3)]
wanted = np.maximum(x * (np.arange(105, dtype=np.float32).reshape({SHAPE}) - 50), 0)
assert all(np.array_equal(y, wanted) for y in found), found
{{after}}
"""
BEFORE = """
from saccade.backends.cuda.ahead import AHEAD
from saccade.backends.cuda.runtime import bindings
from saccade.testing.fake_driver import FakeDriver

pointers, integers = json.loads(sys.argv[2])

def at(address):
    return np.ctypeslib.as_array((ctypes.c_float * 105).from_address(address))

def kernel(programs, given):
    assert programs > 0 and all(given[name] == value for name, value in integers.items())
    y, *operands = (at(given[name]) for name in pointers)
    y[:] = np.maximum(operands[0] * operands[1], 0)

class MadeUp(FakeDriver):
    def load(self, code, symbol, shared):
        assert code.startswith(b"\\x7fELF") and symbol.encode() in code
        token = self.host_code(pointers, [*integers, *AHEAD], kernel)
        return super().load(token.code, token.symbol, shared)

driver = MadeUp(name="NVIDIA H200")
bindings.BoundDriver = lambda ordinal: driver
"""
AFTER = """
assert driver.counts["load"] == 1 and driver.counts["launch"] + driver.counts["launch_graph"] == 3
driver.memory.check()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Variables under which a bare interpreter finds NumPy, ml_dtypes and Saccade."""
    folder = tmp_path_factory.mktemp("environment")
    for package in NEEDED:
        found = files(package)
        assert found is not None, package
        for root in {file.parts[0] for file in found if file.parts[0] != ".."}:
            place = Path(found[0].locate()).parents[len(found[0].parts) - 1] / root
            if place.exists() and root != "__pycache__":
                (folder / root).symlink_to(place)
    (folder / "saccade").symlink_to(SOURCE / "saccade")
    return {"PYTHONPATH": str(folder), "PATH": os.environ.get("PATH", ""), "HOME": str(folder)}


def made(tmp_path, device, machine):
    script, path = tmp_path / "make.py", tmp_path / "model.saccade"
    script.write_text(MODEL)
    clean = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(script), device, machine, str(path)],
        capture_output=True, text=True, timeout=300, check=False, env=clean,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout)


def ran(environment, code, *arguments):
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-c", code, *arguments],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_bundle_for_a_gpu(tmp_path, environment):
    path, ((kernel, pointers, integers),) = made(tmp_path, "cuda", "h200")
    assert kernel == "pointwise.chain" and len(pointers) == 3
    code = RUN.format(before=BEFORE, after=AFTER)
    ran(environment, code, str(path), json.dumps([pointers, integers]))


def test_a_bundle_for_this_processor(tmp_path, environment):
    path, _ = made(tmp_path, "cpu", "")
    ran(environment, RUN.format(before="", after=""), str(path))
    ran(environment, RUN.format(before="", after=""), str(path))
