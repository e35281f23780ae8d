# ruff: noqa: E501 - a table with one model a line
"""Broken and hostile files are refused with a reason, before anything is allocated for them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import text_model
from onnx import TensorProto, helper, numpy_helper

from saccade import Limits, Options
from saccade.errors import ModelError
from saccade.frontend import onnx as frontend
from saccade.testing.interpret import interpret

Change = Callable[[onnx.ModelProto], None]


def _plain() -> onnx.ModelProto:
    weights = {"w": np.ones((4, 3, 3, 3), np.float32)}
    return text_model("a = Conv(x, w) y = Relu(a)", weights=weights)


def _dims(*dims: int) -> Change:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].dims[:] = dims

    return change


def _cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "y"


def _self_loop(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[0] = "y"


def _dangling(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[0] = "nothing"


def _produced_twice(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = "a"


def _shadows_input(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = "x"


def _weight_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _missing_output(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "z"


def _no_output(model: onnx.ModelProto) -> None:
    del model.graph.output[:]


def _negative_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -3


def _unknown_dtype(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 77


def _old_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 0


def _future_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 4000


def _no_opset(model: onnx.ModelProto) -> None:
    del model.opset_import[:]


def _zero_stride(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("strides", [0, 1]))


def _wrong_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("pads", 1.5))


def _kernel_shape(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("kernel_shape", [5, 5]))


def _wrong_channels(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5


def _segment(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].segment.begin = 1


def _missing_operand(model: onnx.ModelProto) -> None:
    del model.graph.node[0].input[1]


CHANGES: dict[str, tuple[Change, str]] = {
    "cycle": (_cycle, "cycle"),
    "self loop": (_self_loop, "cycle"),
    "dangling input": (_dangling, "nothing produces"),
    "value produced twice": (_produced_twice, "produced twice"),
    "node writes an input": (_shadows_input, "produced twice"),
    "initializer twice": (_weight_twice, "there twice"),
    "output of no node": (_missing_output, "produced by no node"),
    "no output": (_no_output, "no outputs"),
    "negative axis of an input": (_negative_input, "axis of -3"),
    "negative axis of a weight": (_dims(4, -3, 3, 3), "has the shape"),
    "weights cut short": (_dims(4, 3, 3, 4), "takes 576 bytes, has 432"),
    "weights too long": (_dims(4, 3, 3, 2), "takes 288 bytes, has 432"),
    "2^62 elements of weights": (_dims(2**31, 2**31), "bytes, has 432"),
    "unknown element type": (_unknown_dtype, "unknown element type 77"),
    "segments": (_segment, "segments"),
    "old operators": (_old_opset, "operator set 0"),
    "operators of the future": (_future_opset, "operator set 4000"),
    "no operators": (_no_opset, "names no operator set"),
    "stride 0": (_zero_stride, "strides [0, 1]"),
    "attribute of another type": (_wrong_attribute, "'pads' of Conv"),
    "other kernel_shape": (_kernel_shape, "kernel_shape [5, 5]"),
    "other number of channels": (_wrong_channels, "number of input channels"),
    "missing operand": (_missing_operand, "lacks its input 1"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_refused_with_the_reason(name: str) -> None:
    change, reason = CHANGES[name]
    model = _plain()
    frontend.load(model)
    change(model)
    with pytest.raises(ModelError, match=reason.replace("[", r"\[")):
        frontend.load(model)


@pytest.mark.parametrize("data", [b"", b"\0", b"not an onnx file", b"\x08" * 50])
def test_no_onnx_at_all(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        frontend.load(data)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError):
        frontend.load(path)


def test_every_truncation_is_refused_or_a_smaller_model() -> None:
    data = _plain().SerializeToString()
    for end in range(0, len(data), 7):
        with pytest.raises(ModelError):
            frontend.load(data[:end])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        frontend.load(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="a folder, not a regular file"):
        frontend.load(tmp_path)
    with pytest.raises(ModelError):
        frontend.digest(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="path, bytes"):
        frontend.load(17)


# -- external data ---------------------------------------------------------------------------


def _external(folder: Path, **entries: str) -> Path:
    model = _plain()
    tensor = model.graph.initializer[0]
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(b"\0" * 64 + raw)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path: Path) -> None:
    path = _external(tmp_path, location="weights.bin", offset="64", length="432")
    graph = frontend.load(path)
    (weights,) = (a for v, a in graph.constants.items() if v.rank == 4)
    np.testing.assert_array_equal(weights, np.ones((4, 3, 3, 3), np.float32))
    assert not weights.flags.writeable


def test_digest_covers_external_data(tmp_path: Path) -> None:
    path = _external(tmp_path, location="weights.bin", offset="64", length="432")
    before = frontend.digest(path)
    (tmp_path / "weights.bin").write_bytes(b"\1" * 496)
    assert frontend.digest(path) != before


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"location": "/etc/passwd"}, "own folder"),
        ({"location": "../weights.bin"}, "own folder"),
        ({"location": "a/../../weights.bin"}, "own folder"),
        ({"location": ""}, "own folder"),
        ({"location": "we\0ights.bin"}, "own folder"),
        ({"location": "missing.bin"}, "no such file"),
        ({"location": "."}, "own folder|regular file"),
        ({"location": "inside"}, "regular file"),
        ({"location": "weights.bin", "offset": "65"}, "bytes 65 to 497 of 496"),
        ({"location": "weights.bin", "offset": "-4"}, "not a number of bytes"),
        ({"location": "weights.bin", "offset": "9" * 30}, "not a number of bytes"),
        ({"location": "weights.bin", "length": "-1"}, "not a number of bytes"),
        ({"location": "weights.bin", "length": "100"}, "100 bytes for a tensor of 432"),
        ({"location": "weights.bin", "offset": "1e2"}, "not a number of bytes"),
    ],
)
def test_external_data_elsewhere_is_refused(
    entries: dict[str, str], reason: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    path = _external(folder, **entries)
    (folder / "inside").mkdir()
    (tmp_path / "weights.bin").write_bytes(b"\0" * 1000)
    with pytest.raises(ModelError, match=reason):
        frontend.load(path)


@pytest.mark.parametrize("link", ["file", "folder"])
def test_external_data_behind_a_link_is_refused(link: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "data.bin").write_bytes(b"\0" * 1000)
    location = "link.bin" if link == "file" else "link/data.bin"
    path = _external(tmp_path / "model", location=location)
    target = secret / "data.bin" if link == "file" else secret
    (path.parent / location.split("/", 1)[0]).symlink_to(target)
    with pytest.raises(ModelError, match="links are not followed"):
        frontend.load(path)


def test_external_data_without_a_folder_is_refused(tmp_path: Path) -> None:
    path = _external(tmp_path, location="weights.bin", offset="64")
    with pytest.raises(ModelError, match="as a path"):
        frontend.load(path.read_bytes())


# -- bombs -----------------------------------------------------------------------------------


def test_deeply_nested_subgraphs_are_refused() -> None:
    graph = onnx.GraphProto()
    leaf = graph
    for _ in range(40):
        node = leaf.node.add(op_type="If", input=["c"], output=["y"])
        leaf = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    with pytest.raises(ModelError, match=r"nested deeper than 20 \(Limits\.depth\)"):
        frontend.load(model, Options(limits=Limits(depth=20)))


def _chained(count: int, order: Callable[[list[onnx.FunctionProto]], object]) -> onnx.ModelProto:
    """A model that calls a function that calls a function …"""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", f"f{level}", ["a"], ["b"],
            [helper.make_node(f"f{level - 1}" if level else "Relu", ["a"], ["b"],
                              domain="own" if level else "")],
            opsets,
        )
        for level in range(count)
    ]  # fmt: skip
    order(functions)
    model = text_model("y = Relu(x)")
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[0].op_type, model.graph.node[0].domain = f"f{count - 1}", "own"
    return model


@pytest.mark.parametrize("order", [len, list.reverse])
@pytest.mark.parametrize("most", [1, 5, 128])
def test_functions_may_call_each_other_so_deep(
    order: Callable[[list[onnx.FunctionProto]], object], most: int
) -> None:
    options = Options(limits=Limits(depth=most))
    assert len(frontend.load(_chained(most, order), options).nodes) == 1
    with pytest.raises(ModelError, match=rf"nested deeper than {most} \(Limits\.depth\)"):
        frontend.load(_chained(most + 1, order), options)


def test_a_depth_counts_functions_that_were_counted_before() -> None:
    model = _chained(6, len)
    first = model.graph.node[0]
    model.graph.node.insert(0, helper.make_node("f2", ["x"], ["z"], domain="own"))
    first.input[0] = "z"
    assert len(frontend.load(model, Options(limits=Limits(depth=6))).nodes) == 2
    with pytest.raises(ModelError, match=r"than 5 \(Limits\.depth\)"):
        frontend.load(model, Options(limits=Limits(depth=5)))


def test_functions_that_double_are_refused() -> None:
    functions = []
    for level in range(40):
        inner = f"f{level - 1}" if level else "Relu"
        domain = "own" if level else ""
        nodes = [
            helper.make_node(inner, ["a"], ["b"], domain=domain),
            helper.make_node(inner, ["b"], ["c"], domain=domain),
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["c"], nodes, opsets))
    model = text_model("y = Relu(x)")
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[0].op_type, model.graph.node[0].domain = "f39", "own"
    with pytest.raises(ModelError, match="expand to more than"):
        frontend.load(model)


def test_function_that_calls_itself_is_refused() -> None:
    node = helper.make_node("f", ["a"], ["b"], domain="own")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = text_model("y = Relu(x)")
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], [node], opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[0].op_type, model.graph.node[0].domain = "f", "own"
    with pytest.raises(ModelError, match="calls itself"):
        frontend.load(model)


def test_functions_are_inlined() -> None:
    node = helper.make_node("Relu", ["a"], ["b"])
    opsets = [helper.make_opsetid("", 17)]
    model = text_model("y = Relu(x)")
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], [node], opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[0].op_type, model.graph.node[0].domain = "f", "own"
    (imported,) = frontend.load(model).nodes
    assert str(imported.op.expr) == "relu($0)"  # type: ignore[attr-defined]


def _ints(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


BOMBS = {
    "constant_of_shape": ("y = ConstantOfShape(s)", {"s": _ints(2**31, 2**31)}),
    "expand": ("y = Expand(w, s)", {"s": _ints(2**40, 1)}),
    "tile": ("y = Tile(w, s)", {"s": _ints(2**40)}),
    "range": ("y = Range(a, b, c)", {"a": np.float32(0), "b": np.float32(1e30), "c": np.float32(1)}),
    "resize": ('v = Unsqueeze(w, z) y = Resize<mode="nearest">(v, , s)', {"s": np.float32([1, 1e6]), "z": _ints(0)}),
    "resize_sizes": ('v = Unsqueeze(w, z) y = Resize<mode="linear">(v, , , s)', {"s": _ints(1, 2**40), "z": _ints(0)}),
    "pad": ("y = Pad(w, s)", {"s": _ints(0, 2**40)}),
    "squared_sizes": (" ".join(f"s{i + 1} = Mul(s{i}, s{i})" for i in range(70)) + " y = Cast<to=1>(s70)", {"s0": _ints(3)}),
    "shape": ("a = ConstantOfShape(s) b = Shape(a) y = ConstantOfShape(b)", {"s": _ints(2**40)}),
    "outer": ("a = Unsqueeze(v, o) b = Unsqueeze(v, z) y = MatMul(a, b)", {"v": np.ones(1 << 18, np.float32), "o": _ints(1), "z": _ints(0)}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_nothing_large_is_allocated_while_folding(name: str) -> None:
    body, weights = BOMBS[name]
    model = text_model(body, weights={"w": np.ones(4, np.float32), **weights})
    frontend.load(_plain())  # imports do not count
    tracemalloc.start()
    try:
        frontend.load(model)
    except ModelError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 32 << 20


def test_expressions_of_sizes_cannot_explode() -> None:
    steps = " ".join(f"s{i + 1} = Mul(s{i}, s{i})" for i in range(200))
    model = text_model(f"s0 = Shape(x) {steps} y = ConstantOfShape(s200)", "float[N] x")
    graph = frontend.load(model)
    # Computed once sizes are known, and no longer than the file says.
    assert max(len(one.body.nodes) for one in graph.computed) < 250
    (y,) = interpret(graph, {"x": np.zeros(1, np.float32)}).values()
    assert y.shape == (1,)


def test_weightless_model_is_refused() -> None:
    model = _plain()
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].dims[:] = [1 << 15, 1 << 14]
    with pytest.raises(ModelError, match="has 0 elements"):
        frontend.load(model)


def test_typed_fields_are_read_and_counted() -> None:
    model = _plain()
    array = numpy_helper.to_array(model.graph.initializer[0])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend(array.ravel().tolist())
    frontend.load(model)
    del tensor.float_data[-1]
    with pytest.raises(ModelError, match="has 107 elements"):
        frontend.load(model)
