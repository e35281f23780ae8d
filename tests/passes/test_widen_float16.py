"""The CPU's own rewrite: float16 only where the caller meets it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pass_graphs import Build, ops

from saccade import passes
from saccade.backends.cpu.passes import tell_sizes
from saccade.backends.cpu.passes.widen_float16 import PASS
from saccade.devices import device_named
from saccade.ir import DType
from saccade.ir.printer import format_graph
from saccade.ir.verify import verify
from saccade.opdefs import Softmax, VectorNorm
from saccade.options import Options
from saccade.passes import apply
from saccade.testing.interpret import interpret

F16, F32, I64 = DType.F16, DType.F32, DType.I64


class Half(Build):
    """Everything in float16, as a frontend would have it."""

    def input(self, *shape, dtype=F16):
        return super().input(*shape, dtype=dtype)

    def const(self, array, dtype=np.float16):
        return super().const(array, dtype)

    def cast(self, x, dtype):
        return self.map("$0", x, dtype=dtype)


def widened(build, *outputs):
    """The graph after the pass, which is float16 at its inputs and outputs alone."""
    before = build.graph(*outputs)
    text = format_graph(before)
    after, notes = apply(PASS, before)
    verify(after)
    assert format_graph(before) == text and not notes
    assert [v.type for v in after.outputs] == [v.type for v in before.outputs]
    assert after.inputs == before.inputs and after.output_names == before.output_names
    ends = {*after.inputs, *after.outputs}
    assert all(v.dtype is not F16 for v in after.values() if v not in ends)
    return after


def dtypes(graph):
    return " ".join(node.outputs[0].dtype.value for node in graph.nodes)


def test_inputs_are_widened_first_and_outputs_rounded_last():
    b = Half()
    x, z = b.input(1, 3, 8, 8), b.input(1, 4, 8, 8)
    y = b.map("add($0, $1)", b.conv(x, 4), z)
    after = widened(b, y, y)
    assert ops(after) == "Pointwise Pointwise Conv2d Pointwise Pointwise Pointwise"
    assert dtypes(after) == "float32 float32 float32 float32 float16 float16"
    names = "x0.float32 x1.float32 v0 v1 y0.float16 y1.float16"
    assert [node.output.name for node in after.nodes] == names.split()
    (weights,) = after.constants.values()
    assert weights.dtype == np.float32 and not weights.flags.writeable
    assert [v.name for v in after.constants] == ["c0"]


def test_casts_between_the_two_go_and_others_say_float32():
    b = Half()
    x = b.input(2, 3, dtype=F32)
    half = b.map("neg($0)", b.cast(x, F16))
    number = b.cast(b.cast(half, I64), F16)
    wide = b.cast(b.map("add($0, $1)", half, number), F32)
    after = widened(b, b.map("exp($0)", wide))
    assert ops(after) == " ".join(["Pointwise"] * 5)
    assert dtypes(after) == "float32 int64 float32 float32 float32"
    assert {node.op.dtype for node in after.nodes} == {F32, I64}


def test_what_is_not_rounded_in_between_keeps_its_digits():
    b = Half()
    y = b.map("mul($0, 3.0)", b.map("div($0, 3.0)", b.input(4)))
    (found,) = interpret(widened(b, y), {"x0": np.array([1, 5, 7, 11], np.float16)}).values()
    np.testing.assert_array_equal(found, np.array([1, 5, 7, 11], np.float16), strict=True)


def test_operators_that_name_their_type_name_another():
    b = Half()
    x = b.input(2, 3)
    after = widened(b, b.op(VectorNorm(2.0, (1,), False, F16), x))
    assert after.nodes[1].op.dtype is F32


def test_inputs_and_constants_that_are_outputs_keep_their_bits():
    b = Half()
    x, c = b.input(3), b.const([0.1, 0.2, 0.3])
    y = b.map("add($0, $1)", x, c)
    after = widened(b, x, c, y)
    given = np.array([1.5, -0.0, np.inf], np.float16)
    found = interpret(after, {"x0": given})
    np.testing.assert_array_equal(found["y0"], given, strict=True)
    np.testing.assert_array_equal(found["y1"], b.constants[c], strict=True)
    exact = given.astype(np.float32) + b.constants[c].astype(np.float32)
    np.testing.assert_array_equal(found["y2"], exact.astype(np.float16), strict=True)


def test_inputs_that_nobody_reads_stay_alone():
    b = Half()
    x, _ = b.input(3), b.input(4)
    assert ops(widened(b, b.map("neg($0)", x))) == "Pointwise Pointwise Pointwise"


def test_names_that_are_taken_get_a_number():
    b = Half()
    x = replace(b.input(3), name="x")
    taken = replace(Half().input(3, dtype=F32), name="x.float32")
    b.inputs = [x, taken]
    after = widened(b, b.map("neg($0)", x), b.map("neg($0)", taken))
    assert after.nodes[0].output.name == "x.float32.1"


@pytest.mark.parametrize("dtype", [F32, DType.F64, DType.BF16, I64, DType.BOOL])
def test_other_types_are_left_alone(dtype):
    b = Build()
    x = b.input(2, 3, dtype=dtype)
    graph = b.graph(b.map("$0", x, dtype=F32 if dtype is DType.BF16 else dtype))
    after, _ = apply(PASS, graph)
    assert format_graph(after) == format_graph(graph)
    assert after.nodes == graph.nodes


def test_casts_from_and_to_other_types_stay():
    b = Build()
    x = b.input(2, 3, dtype=F32)
    graph = b.graph(b.map("$0", b.map("$0", x, dtype=I64), dtype=F32))
    after, notes = apply(PASS, graph)
    assert after.nodes == graph.nodes and not notes


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_is_the_first_of_the_cpu_s_passes(device, precision):
    steps = device_named(device).passes(Options.make(device, precision))
    shared = passes.BFLOAT16 if precision == "bf16" else passes.STANDARD
    assert steps == (PASS, *shared, tell_sizes.PASS)


def test_names_are_those_of_the_files():
    folder = Path(importlib.util.find_spec("saccade.backends.cpu.passes").origin).parent
    assert {path.stem for path in folder.glob("[a-z]*.py")} == {PASS.name, tell_sizes.PASS.name}


def test_device_independent_passes_take_float16_as_it_is():
    """So that a backend may keep it: they need no pass before them, and check between each."""
    b = Half()
    x = b.conv(b.input(1, 3, 8, 8), 4, bias=True)
    y = b.map("add(mul($0, $1), $2)", x, b.weights(1, 4, 1, 1), b.weights(1, 4, 1, 1))
    y = b.op(Softmax(1), b.map("relu($0)", y))
    graph = b.graph(y)
    after = passes.run(graph, check=True)
    assert all(v.dtype is F16 for node in after.nodes for v in node.outputs)
    feeds = {"x0": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float16)}
    (left,), (right,) = (interpret(g, feeds).values() for g in (graph, after))
    assert left.dtype == right.dtype == np.float16
    np.testing.assert_allclose(right.astype(float), left.astype(float), rtol=0, atol=1e-2)


PASSES = """
import sys
from saccade.devices import device_named
from saccade.options import Options
device_named("cpu").passes(Options())
print(*(name for name in ("llvmlite", "onnx", "onnx_ir", "torch") if name in sys.modules))
"""


def test_asking_for_the_passes_imports_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", PASSES], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
