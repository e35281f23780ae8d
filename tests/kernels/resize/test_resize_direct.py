from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.resize.direct import RESIZE
from saccade.kernels.cpu.resize.pack_axes import axis_indices
from saccade.opdefs.resize import Resize
from saccade.testing.kernels import nhwc_view, off_by, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(10)
COORDINATES = [
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
]
SIZES = [
    ((2, 5, 3, 4), (6, 8)),
    ((1, 33, 7, 5), (4, 9)),
    ((1, 70, 1, 6), (1, 3)),
    ((1, 3, 4, 4), (4, 16)),
]


def last(shape, pitch=None, dtype=DType.F32):
    return nhwc_view(dtype, shape, pitch)


def run(hold, op, x, *operands, k=16, **options):
    dtype = DType.of(x.dtype)
    out = last(op.sizes, op.sizes[1] + 2, dtype)
    views = [last(x.shape, x.shape[1] + 1, dtype), *(row_major(dtype, o.shape) for o in operands)]
    return hold(RESIZE, op, [x, *operands], inputs=views, outputs=[out], k=k, **options)


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("shape", "size"), SIZES, ids=str)
def test_modes(hold, mode, coordinate, shape, size):
    x = random_operands(shape, DType.F32, RNG)
    op = Resize((*shape[:2], *size), None, mode, coordinate)
    # Positions are float32: a weight is off by a few units in the last place of the position.
    run(hold, op, x, k=300)


@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_roundings(hold, nearest):
    x = random_operands((1, 20, 8, 8), DType.F32, RNG)
    for coordinate in ("half_pixel", "asymmetric"):
        run(hold, Resize((1, 20, 16, 4), None, "nearest", coordinate, nearest), x)


def test_scales_decide_over_sizes(hold):
    x = random_operands((1, 7, 5, 5), DType.F32, RNG)
    op = Resize((1, 7, 7, 12), (1.0, 1.0, 1.5, 2.5), "linear", "half_pixel")
    run(hold, op, x, k=300)
    run(hold, dataclasses.replace(op, mode="cubic", exclude_outside=True), x, k=300)


def test_epilogue_and_half_precision(hold):
    x, scale = (
        random_operands((2, 19, 4, 4), DType.F32, RNG),
        random_operands((19, 1, 1), DType.F32, RNG),
    )
    op = Resize((2, 19, 8, 8), None, "linear", epilogue=parse("relu(mul($0, $1))"))
    run(hold, op, x, scale)
    run(hold, dataclasses.replace(op, epilogue=parse("$0")), x.astype(np.float16), k=2)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (1, 0, 4, 4)], ids=str)
def test_empty(hold, shape):
    op = Resize((*shape[:2], 8, 8), None, "linear")
    run(hold, op, random_operands(shape, DType.F32, RNG))


def _onnx_runtime(x, scales, attributes):
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", 1, x.shape)], [value("y", 1, None)],
        [helper.make_tensor("s", 1, [4], [1, 1, *scales])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("scale", [0.6, 1.1, 1.7, 2.0, 2.7, 0.31])
@pytest.mark.parametrize("coordinate", ["asymmetric", "half_pixel", "align_corners"])
def test_nearest_falls_where_onnx_runtime_falls(coordinate, scale):
    x = np.arange(37 * 41, dtype=np.float32).reshape(1, 1, 37, 41)
    for nearest in ("floor", "round_prefer_floor", "ceil"):
        attributes = {
            "mode": "nearest", "coordinate_transformation_mode": coordinate, "nearest_mode": nearest
        }  # fmt: skip
        expected = _onnx_runtime(x, (scale, scale), attributes)
        shape = expected.shape
        op = Resize(shape, (1.0, 1.0, scale, scale), "nearest", coordinate, nearest)
        (actual,) = run_kernel(RESIZE, op, [x], [last(shape)], inputs=[last(x.shape)])
        np.testing.assert_array_equal(actual, expected)


def test_positions_are_float32():
    # 3 / 0.6 is 5 in float32, and 4.9999998 for the same float32 scale in float64.
    assert axis_indices("nearest", "asymmetric", "floor", 10, 6, float(np.float32(0.6)))[3, 0] == 5


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_bfloat16(hold, mixed, mode):
    source, result = mixed
    x = random_operands((2, 19, 4, 5), source, RNG)
    op = Resize((2, 19, 8, 9), None, mode)
    out = nhwc_view(result, (2, 19, 8, 9), 21)
    hold(RESIZE, op, [x], inputs=[nhwc_view(source, x.shape, 20)], outputs=[out], k=300)


def test_refusals():
    op, target = Resize((1, 4, 8, 8)), ZEN4
    planar, out = row_major(DType.F32, (1, 4, 4, 4)), last((1, 4, 8, 8))
    assert "planar" in RESIZE.supports(Call(op, (planar,), (out,), (False,), target))
    inner, wide = last((1, 4, 4, 4)), row_major(DType.F32, (1, 4, 8, 8))
    assert "not channels-last" in RESIZE.supports(Call(op, (inner,), (wide,), (False,), target))
    more = Resize((1, 8, 8, 8))
    inner = last((1, 4, 4, 4))
    assert "channels" in RESIZE.supports(
        Call(more, (inner,), (last((1, 8, 8, 8)),), (False,), target)
    )
    flat = row_major(DType.F32, (4, 4))
    assert "axes" in RESIZE.supports(Call(Resize((8, 8)), (flat,), (flat,), (False,), target))


@pytest.mark.parametrize("name", ["channels", "p", "q", "x_h", "x_w", "y_h", "y_w"])
def test_mutants_are_caught(hold, name):
    mutant = off_by(RESIZE, name)
    x = random_operands((2, 17, 4, 5), DType.F32, RNG)
    op = Resize((2, 17, 7, 9), None, "linear")
    with pytest.raises((AssertionError, IndexError)):
        hold(
            mutant, op, [x], inputs=[last(x.shape, 18)], outputs=[last(op.sizes, 19)], k=16,
            runs=[("avx512", True, 1, None)],
        )  # fmt: skip
