"""What many kernels refuse alike: element types, and results whose elements share memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from saccade.ir import DType, TensorType
from saccade.ir.expr import apply, arg
from saccade.kernels.base import Call, View
from saccade.kernels.cpu import kernel_named
from saccade.kernels.cpu.refusals import refuse_repeats, refuse_types
from saccade.layout.views import row_major
from saccade.opdefs import (
    CumSum,
    GroupNorm,
    LayerNorm,
    LocalResponseNorm,
    LpNormalize,
    Pointwise,
    Reduce,
    Softmax,
)
from saccade.testing.targets import ZEN4

F32, SHAPE = DType.F32, (2, 4, 6)
ROW, CHANNELS = (6,), (4,)
CASES = {
    "softmax.direct": (Softmax(2), SHAPE),
    "normalize.lp": (LpNormalize(2), SHAPE),
    "normalize.local_response": (LocalResponseNorm(3), SHAPE),
    "normalize.layer": (LayerNorm(2), SHAPE, ROW),
    "normalize.group": (GroupNorm(2), SHAPE, CHANNELS, CHANNELS),
    "pointwise.chain": (Pointwise(apply("relu", arg(0)), F32), SHAPE),
    "reduce.direct": (Reduce("sum", (2,)), SHAPE),
    "reduce.scan": (CumSum(2), SHAPE),
}


def call_of(name):
    op, *shapes = CASES[name]
    inputs = tuple(row_major(F32, shape) for shape in shapes)
    (out,) = op.infer([TensorType(F32, shape) for shape in shapes])
    return Call(op, inputs, (row_major(out.dtype, out.shape),), (False,) * len(inputs), ZEN4)


def test_the_first_unknown_type_is_named():
    views = [row_major(dtype, (2,)) for dtype in (F32, DType.I8, DType.BOOL)]
    assert refuse_types(views, {F32}) == "elements of type int8"
    assert refuse_types(views[:1], {F32}) is None


@pytest.mark.parametrize(
    ("shape", "strides", "repeats"),
    [
        ((2, 3), (3, 1), False),
        ((2, 3), (0, 1), True),
        ((2, 3), (1, 0), True),
        ((1, 3), (0, 1), False),
        ((0, 3), (1, 0), False),
        ((), (), False),
    ],
)
def test_only_a_result_of_shared_places_repeats(shape, strides, repeats):
    found = refuse_repeats(View(F32, shape, strides))
    assert found == ("the result repeats elements" if repeats else None)


@pytest.mark.parametrize("name", CASES)
def test_kernels_refuse_results_that_repeat(name):
    call, kernel = call_of(name), kernel_named(name)
    assert kernel.supports(call) is None
    (out,) = call.outputs
    repeated = out._replace(strides=(out.strides[0], 0, *out.strides[2:]))
    assert kernel.supports(replace(call, outputs=(repeated,))) == "the result repeats elements"


# Chains of pointwise operators take elements of every type.
@pytest.mark.parametrize("name", [name for name in CASES if name != "pointwise.chain"])
def test_kernels_refuse_types_by_name(name):
    call, kernel = call_of(name), kernel_named(name)
    # What is summed may be of 64 bits, but no narrow integer.
    unknown = DType.I8 if name.startswith("reduce.") else DType.F64
    other = tuple(view._replace(dtype=unknown) for view in call.inputs)
    assert kernel.supports(replace(call, inputs=other)) == f"elements of type {unknown.value}"


def test_chains_take_every_type():
    call, kernel = call_of("pointwise.chain"), kernel_named("pointwise.chain")
    for dtype in DType:
        views = tuple(view._replace(dtype=dtype) for view in call.inputs)
        refused = kernel.supports(replace(call, inputs=views)) or ""
        assert not refused.startswith("elements of type")
