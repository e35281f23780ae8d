"""A block of a transformer from its file to results on a fake GPU, kernels in the interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
from cuda_programs import held_by_the_reference

TOKENS, WIDTH, HEADS = 9, 24, 2
EACH = WIDTH // HEADS


def block():
    """As PyTorch's: tokens of batches inside the attention, batches of tokens outside."""
    rng = np.random.default_rng(0)
    sizes = {
        "qkv": (WIDTH, 3 * WIDTH), "qkv_b": (3 * WIDTH,), "out": (WIDTH, WIDTH), "out_b": (WIDTH,),
        "s1": (WIDTH,), "s2": (WIDTH,), "up": (WIDTH, 40), "up_b": (40,), "down": (40, WIDTH),
        "mask": (TOKENS, TOKENS),
    }  # fmt: skip
    constants = [
        numpy_helper.from_array(0.3 * rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in sizes.items()
    ]
    constants.append(numpy_helper.from_array(np.float32(EACH**-0.5), "scale"))
    shapes = {
        "heads": (TOKENS, -1, HEADS, EACH),
        "rows": (-1, WIDTH),
        "tokens": (TOKENS, -1, WIDTH),
    }
    constants += [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in shapes.items()]

    def node(kind, inputs, output, **attributes):
        return helper.make_node(kind, inputs.split(), output.split(), **attributes)

    nodes = [
        node("LayerNormalization", "x s1", "n1"),
        node("Transpose", "n1", "t1", perm=[1, 0, 2]),
        node("MatMul", "t1 qkv", "m1"),
        node("Add", "m1 qkv_b", "a1"),
        node("Split", "a1", "q0 k0 v0", axis=2, num_outputs=3),
        *(node("Reshape", f"{name}0 heads", f"{name}1") for name in "qkv"),
        node("Transpose", "q1", "q", perm=[1, 2, 0, 3]),
        node("Transpose", "k1", "k", perm=[1, 2, 3, 0]),
        node("Transpose", "v1", "v", perm=[1, 2, 0, 3]),
        node("MatMul", "q k", "s0"),
        node("Mul", "s0 scale", "scores"),
        node("Add", "scores mask", "masked"),
        node("Softmax", "masked", "weights", axis=-1),
        node("MatMul", "weights v", "o0"),
        node("Transpose", "o0", "o1", perm=[2, 0, 1, 3]),
        node("Reshape", "o1 rows", "o2"),
        node("Gemm", "o2 out out_b", "o3"),
        node("Reshape", "o3 tokens", "o4"),
        node("Transpose", "o4", "o5", perm=[1, 0, 2]),
        node("Add", "x o5", "h"),
        node("LayerNormalization", "h s2", "n2"),
        node("MatMul", "n2 up", "m2"),
        node("Add", "m2 up_b", "a2"),
        node("Relu", "a2", "r2"),
        node("MatMul", "r2 down", "m3"),
        node("Add", "m3 h", "y"),
    ]
    value = helper.make_tensor_value_info
    shape = ["n", TOKENS, WIDTH]
    graph = helper.make_graph(
        nodes, "block", [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, shape)], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("model") / "block.onnx"
    onnx.save(block(), found)
    return found


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_a_block(path, precision, tolerance):
    def look(plan):
        assert [step.op.family for step in plan.steps if step.op.family != "Move"] == [
            "LayerNorm", "MatMul", "Attention", "MatMul", "LayerNorm", "MatMul", "MatMul",
        ]  # fmt: skip

    inputs = [
        np.random.default_rng(batch).standard_normal((batch, TOKENS, WIDTH)).astype(np.float32)
        for batch in (1, 3)
    ]
    held_by_the_reference(path, precision, tolerance, inputs, look)
