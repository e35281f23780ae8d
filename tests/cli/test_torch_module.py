"""ONNX files as PyTorch modules: each operator against ONNX's own reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from saccade.errors import OptionError

torch = pytest.importorskip("torch")

from saccade.cli._torch_module import torch_module  # noqa: E402
from saccade.cli._torch_operators import OPERATORS, attention  # noqa: E402

RNG = np.random.default_rng(3)


def ints(*values):
    return np.array(values, np.int64)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


IMAGE = floats(2, 4, 9, 7)


def save(path, nodes, x, constants, outputs=1, opset=18):
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(outputs)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


def agree(path, x, tolerance=1e-5):
    module = torch_module(path, {"x": x.shape})
    found = module(torch.from_numpy(x))
    wanted = ReferenceEvaluator(str(path)).run(None, {"x": x})
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert tuple(a.shape) == b.shape
        np.testing.assert_allclose(a.numpy(), b, atol=tolerance, rtol=tolerance)
    return module


CASES = {
    "Conv": (
        [floats(6, 2, 3, 3), floats(6)],
        {"group": 2, "strides": (2, 1), "pads": (1, 0, 1, 0)},
    ),
    "Conv uneven": ([floats(6, 4, 3, 3)], {"pads": (0, 1, 1, 1), "dilations": (2, 1)}),
    "ConvTranspose": ([floats(4, 3, 3, 3)], {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "BatchNormalization": ([floats(4), floats(4), floats(4), floats(4) ** 2], {"epsilon": 1e-3}),
    "LayerNormalization": ([floats(7), floats(7)], {"axis": -1}),
    "MaxPool": ([], {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "MaxPool ceil": ([], {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": 1}),
    "AveragePool": ([], {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 0)}),
    "GlobalAveragePool": ([], {}),
    "ReduceMean": ([ints(2, 3)], {"keepdims": 0}),
    "Clip": ([np.float32(-0.5), np.float32(0.7)], {}),
    "Concat": ([floats(2, 3, 9, 7)], {"axis": 1}),
    "DepthToSpace": ([], {"blocksize": 2, "mode": "DCR"}),
    "DepthToSpace CRD": ([], {"blocksize": 2, "mode": "CRD"}),
    "Flatten": ([], {"axis": 2}),
    "Gather": ([np.array(1, np.int64)], {"axis": 2}),
    "Gather several": ([ints(2, 0, 2)], {"axis": 1}),
    "Gather from the end": ([ints(-1, 0, -2)], {"axis": 1}),
    "Gelu": ([], {}),
    "HardSigmoid": ([], {"alpha": 0.3, "beta": 0.4}),
    "HardSigmoid torch": ([], {"alpha": 1 / 6, "beta": 0.5}),
    "HardSwish": ([], {}),
    "LeakyRelu": ([], {"alpha": 0.2}),
    "MatMul": ([floats(7, 3)], {}),
    "Mul": ([np.float32(3.0)], {}),
    "Div": ([floats(4, 1, 1) + 5], {}),
    "Reshape": ([ints(0, -1, 7)], {}),
    "Resize": (["", "", ints(2, 4, 18, 15)], {"mode": "linear"}),
    "Resize aligned": (
        ["", np.array([1, 1, 2, 2], np.float32)],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "Resize nearest": (
        ["", np.array([1, 1, 2, 2], np.float32)],
        {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
    ),
    "Slice": ([ints(1, -6), ints(9, 99), ints(2, 3), ints(2, 1)], {}),
    "Softmax": ([], {"axis": 1}),
    "Squeeze": ([], {}),
    "Sqrt": ([], {}),
    "Transpose": ([], {"perm": (0, 2, 3, 1)}),
    "Unsqueeze": ([ints(-1, 1)], {}),
    "Expand": ([ints(3, 1, 1, 1, 7)], {}),
    "Pow": ([np.float32(2.0)], {}),
    "Pad": ([ints(0, 1, 2, 0, 1, 0, 3, 4)], {}),
    "ReduceMax": ([ints(1)], {}),
    "ReduceMin": ([ints(-1)], {"keepdims": 0}),
    "ReduceSum all": ([], {}),
    "GridSample": ([floats(2, 5, 3, 2)], {"align_corners": 1}),
    "GatherElements": ([RNG.integers(-4, 4, (2, 3, 9, 7))], {"axis": 1}),
    "ArgMax": ([], {"axis": 2, "keepdims": 0}),
    "InstanceNormalization": ([floats(4), floats(4)], {"epsilon": 1e-3}),
    "Tile": ([ints(1, 2, 1, 3)], {}),
    "Abs": ([], {}),
    "Sin": ([], {}),
    "Max": ([floats(7)], {}),
    "Min": ([floats(7), floats(9, 7), floats(1)], {}),
    "Pad some axes": ([ints(2, 1, 0, 3), np.float32(0.5), ints(-1, 1)], {}),
}


def test_elements_are_compared_chosen_and_ranked(tmp_path):
    nodes = [
        helper.make_node("Greater", ["x", "low"], ["above"]),
        helper.make_node("IsNaN", ["x"], ["none"]),
        helper.make_node("Not", ["none"], ["there"]),
        helper.make_node("And", ["above", "there"], ["both"]),
        helper.make_node("Where", ["both", "x", "low"], ["y0"]),
        helper.make_node("TopK", ["x", "k"], ["y1", "y2"], axis=2),
    ]
    constants = {"low": np.float32(0.25), "k": ints(3)}
    agree(save(tmp_path / "m.onnx", nodes, IMAGE, constants, outputs=3), IMAGE)


@pytest.mark.parametrize("case", CASES)
def test_an_operator(tmp_path, case):
    given, attributes = CASES[case]
    names = [
        f"c{i}" if isinstance(one, (np.ndarray, np.floating)) else "" for i, one in enumerate(given)
    ]
    constants = {n: np.asarray(one) for n, one in zip(names, given, strict=True) if n}
    kind = case.partition(" ")[0]
    node = helper.make_node(kind, ["x", *names], ["y0"], **attributes)
    x = np.abs(IMAGE) if kind == "Sqrt" else IMAGE
    opset = 20 if kind in ("Gelu", "DepthToSpace") else 18
    agree(save(tmp_path / "m.onnx", [node], x, constants, opset=opset), x)


def test_equal_parts_without_their_number(tmp_path):
    nodes = [helper.make_node("Split", ["x"], ["y0", "y1"], axis=1)]
    agree(save(tmp_path / "m.onnx", nodes, IMAGE, {}, outputs=2, opset=13), IMAGE)


def test_parts_and_linear_layers(tmp_path):
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Gemm", ["a", "w", "bias"], ["y0"], transB=1),
        helper.make_node("Gemm", ["b", "v"], ["y1"], alpha=0.5, transA=1),
    ]
    constants = {"sizes": ints(5, 3), "w": floats(4, 5), "bias": floats(4), "v": floats(6, 2)}
    x = floats(6, 8)
    agree(save(tmp_path / "m.onnx", nodes, x, constants, outputs=2), x)


def test_shapes_are_no_part_of_the_module(tmp_path):
    """What exporters write for x.reshape(x.shape[0], 2, -1): a shape is left of it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zero"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["wanted"], axis=0),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Reshape", ["same", "wanted"], ["y0"]),
    ]
    constants = {"zero": np.array(0, np.int64), "rest": ints(2, -1)}
    constants["zero"] = ints(0)
    nodes[2] = helper.make_node("Identity", ["n"], ["first"])
    module = agree(save(tmp_path / "m.onnx", nodes, IMAGE, constants), IMAGE)
    calls = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert calls == [OPERATORS["Reshape"].call]


@pytest.mark.parametrize("axis", [-1, 2])
def test_attention_is_one_operator(tmp_path, axis):
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["q"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=(0, 1, 3, 2)),
        helper.make_node("Mul", ["t", "scale"], ["k"]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=axis),
        helper.make_node("MatMul", ["p", "x"], ["y0"]),
    ]
    x = floats(2, 3, 5, 8)
    module = agree(save(tmp_path / "m.onnx", nodes, x, {"scale": np.float32(0.6)}), x)
    joined = [node for node in module.graph.nodes if node.target is attention]
    assert len(joined) == (axis == -1)
    if joined:
        assert joined[0].kwargs["scale"] == pytest.approx(0.36)
        assert sum(node.op == "call_function" for node in module.graph.nodes) == 2


def test_weights_follow_the_module(tmp_path):
    node = helper.make_node("Conv", ["x", "w"], ["y0"])
    path = save(tmp_path / "m.onnx", [node], IMAGE, {"w": floats(3, 4, 1, 1)})
    module = torch_module(path, {"x": IMAGE.shape}).double()
    (y,) = module(torch.from_numpy(IMAGE).double())
    assert y.dtype is torch.float64
    assert [one.dtype for one in module.parameters()] == [torch.float64]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (("Conv", ["x", "w"], {"auto_pad": "SAME_UPPER"}), "Conv with auto_pad"),
        (("Pad", ["x", "around"], {"mode": "reflect"}), "Pad of mode reflect"),
        (("CumSum", ["x", "one"], {}), "CumSum is none of the operators"),
        (("ArgMax", ["x"], {"select_last_index": 1}), "ArgMax of last indices"),
        (("Slice", ["x", "one", "one", "one", "back"], {}), "backward"),
        (("Resize", ["x", "", "", "sizes"], {"mode": "nearest"}), "Resize of mode nearest"),
    ],
)
def test_refusals(tmp_path, node, says):
    kind, inputs, attributes = node
    constants = {
        "w": floats(3, 4, 1, 1),
        "around": ints(0, 0, 1, 1, 0, 0, 1, 1),
        "one": ints(1),
        "back": ints(-1),
        "sizes": ints(2, 4, 3, 3),
    }
    made = helper.make_node(kind, inputs, ["y0"], **attributes)
    path = save(tmp_path / "m.onnx", [made], IMAGE, constants)
    with pytest.raises(OptionError, match=says):
        torch_module(path, {"x": IMAGE.shape})


def test_a_shape_that_depends_on_data_is_refused(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["w", "n"], ["y0"]),
    ]
    x = floats(2)
    path = save(tmp_path / "m.onnx", nodes, x, {"w": floats(2, 2)})
    with pytest.raises(OptionError, match=r"Reshape .* takes a shape that depends on data"):
        torch_module(path, {"x": x.shape})
