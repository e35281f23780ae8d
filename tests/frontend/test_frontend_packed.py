"""Elements of less than a byte in files: packed in every form, and lengths that contradict them."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from frontend_mutants import mutate, problem
from narrow_models import CODES, NARROW, alike, bits, model, patterns
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade import Limits, Options
from saccade.errors import ModelError
from saccade.frontend import onnx as frontend
from saccade.ir import DType

PACKED = [d for d in NARROW if d.bits < 8]
SHAPES = [(), (1,), (2,), (3,), (5,), (3, 3), (0,), (2, 0, 3), (17, 5)]


def _packed(array):
    """The standard's order: the first element in the lowest bits."""
    width = DType.of(array.dtype).bits
    flat = bits(array).reshape(-1)
    each = 8 // width
    padded = np.zeros(-(-flat.size // each) * each, np.uint8)
    padded[: flat.size] = flat
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(width)
    return np.bitwise_or.reduce(padded.reshape(-1, each) << shifts, axis=1).astype(np.uint8)


def _tensor(array, way, folder=None):
    dtype = DType.of(array.dtype)
    tensor = TensorProto(name="w", data_type=CODES[dtype], dims=array.shape)
    content = _packed(array) if dtype.bits < 8 else bits(array).reshape(-1)
    if way == "raw":
        tensor.raw_data = content.tobytes()
    elif way == "int32":
        tensor.int32_data.extend(content.tolist())
    else:
        (folder / "w.bin").write_bytes(b"#" * 3 + content.tobytes())
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", 3), ("length", content.size)):
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def _reads(tensor):
    """A model that gives a constant as it is, and that as float32."""
    dtype = next(d for d, code in CODES.items() if code == tensor.data_type)
    nodes = [
        helper.make_node("Identity", ["w"], ["same"]),
        helper.make_node("Cast", ["w"], ["wide"], to=1),
    ]
    inputs = {"x": (DType.F32, [1])}
    return model(nodes, inputs, {"same": dtype, "wide": DType.F32}, [tensor])


def _values(dtype, shape):
    return np.resize(patterns(dtype)[::-1], shape).view(dtype.numpy)


@pytest.mark.parametrize("way", ["raw", "int32", "external"])
@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.value)
def test_constants_of_every_form(dtype, way, tmp_path):
    for shape in SHAPES:
        array = _values(dtype, shape)
        proto = _reads(_tensor(array, way, tmp_path))
        path = tmp_path / "m.onnx"
        onnx.save(proto, path)
        graph = frontend.load(path)
        same, wide = (graph.constants[value] for value in graph.outputs)
        alike(same, array, str(shape))
        alike(wide, array.astype(np.float32), str(shape))


@pytest.mark.parametrize("way", ["raw", "external"])
def test_packed_weights_run(way, tmp_path):
    """More of them than folding takes, so that the cast is a step."""
    array = _values(DType.I4, (1 << 11, 1025))
    path = tmp_path / "m.onnx"
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("Mul", ["d", "x"], ["y"]),
    ]
    weights = [_tensor(array, way, tmp_path), numpy_helper.from_array(np.float32(0.5), "s")]
    proto = model(nodes, {"x": (DType.F32, [1])}, {"y": DType.F32}, weights)
    onnx.save(proto, path)
    (y,) = saccade.compile(path).run({"x": np.float32([2])}).values()
    alike(y, array.astype(np.float32))


def test_attributes_are_packed_too():
    array = _values(DType.U2, (7,))
    node = helper.make_node("Constant", [], ["y"], value=_tensor(array, "raw"))
    graph = frontend.load(model([node], {"x": (DType.F32, [1])}, {"y": DType.U2}))
    alike(graph.constants[graph.outputs[0]], array)


@pytest.mark.parametrize("dtype", PACKED, ids=lambda d: d.value)
@pytest.mark.parametrize("way", ["raw", "int32", "external"])
@pytest.mark.parametrize("change", [-1, 1, 3])
def test_lengths_that_do_not_fit(dtype, way, change, tmp_path):
    tensor = _tensor(_values(dtype, (33,)), way, tmp_path)
    if way == "raw":
        tensor.raw_data = (tensor.raw_data + bytes(3))[: len(tensor.raw_data) + change]
    elif way == "int32":
        held = [*tensor.int32_data, 0, 0, 0][: len(tensor.int32_data) + change]
        del tensor.int32_data[:]
        tensor.int32_data.extend(held)
    else:
        # As many elements more or less as make another byte.
        tensor.dims[0] += change * (8 // dtype.bits)
    path = tmp_path / "m.onnx"
    onnx.save(_reads(tensor), path)
    with pytest.raises(ModelError, match=r"takes|has|bytes"):
        frontend.load(path)


@pytest.mark.parametrize("extent", [1 << 40, (1 << 63) - 1, -1])
@pytest.mark.parametrize("dtype", [DType.I2, DType.F4E2M1, DType.F8E5M2], ids=str)
def test_what_is_claimed_is_not_allocated(dtype, extent):
    for way in ("raw", "int32"):
        tensor = _tensor(_values(dtype, (4,)), way)
        tensor.dims[:] = [extent]
        with pytest.raises(ModelError, match="tensor 'w'"):
            frontend.load(_reads(tensor))


def test_a_sparse_file_is_not_unpacked_beyond_its_bound(tmp_path):
    """A file may claim any length without a byte of it on the disk."""
    tensor = _tensor(_values(DType.I2, (4,)), "external", tmp_path)
    tensor.dims[:] = [4 << 30]
    del tensor.external_data[2]
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate((1 << 30) + 3)
    path = tmp_path / "m.onnx"
    onnx.save(_reads(tensor), path)
    with pytest.raises(ModelError, match=r"Limits\.folded_bytes"):
        frontend.load(path)
    small = _tensor(_values(DType.I2, (64,)), "raw")
    with pytest.raises(ModelError, match="more than 47 bytes"):
        frontend.load(_reads(small), Options(limits=Limits(folded_bytes=47)))
    assert frontend.load(_reads(small), Options(limits=Limits(folded_bytes=1 << 10))).outputs


def _seed():
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1, block_size=2),
        helper.make_node("Mul", ["d", "x"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "t"], ["q"], output_dtype=CODES[DType.F8E4M3FN]),
        helper.make_node("Transpose", ["q"], ["r"], perm=[1, 0]),
        helper.make_node("BitCast", ["r"], ["b"], to=2),
        helper.make_node("Cast", ["x"], ["e"], to=CODES[DType.F8E8M0]),
        helper.make_node("CastLike", ["b", "w"], ["y"]),
        helper.make_node("Gather", ["e", "i"], ["k"]),
    ]
    weights = [
        _tensor(_values(DType.I4, (3, 4)), "raw"),
        numpy_helper.from_array(np.ones((3, 2), np.float32), "s"),
        numpy_helper.from_array(np.ones((3, 2), np.int8).astype(DType.I4.numpy), "z"),
        numpy_helper.from_array(np.float32(0.3), "t"),
        numpy_helper.from_array(np.array([0, 1]), "i"),
    ]
    outputs = {"y": DType.I4, "k": DType.F8E8M0}
    return model(nodes, {"x": (DType.F32, ["N", 4])}, outputs, weights, 26)


def test_mutants_import_or_are_refused():
    seed, dice = _seed(), random.Random(11)
    assert problem(seed.SerializeToString()) is None
    for index in range(150):
        data = mutate(seed, index, dice)
        assert problem(data) is None, index
