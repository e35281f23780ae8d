"""Rows are the same bits whatever comes behind them: a variant's code with other numbers."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from saccade.backends.cpu.runtime.fewer_rows import alike
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.base import LAST, ROWS, Case, CornerBoxes, Operand, Result, Whole
from saccade.kernels.cpu import kernel_named, kernels_for
from saccade.opdefs import (
    Conv2d,
    ConvTranspose2d,
    LayerNorm,
    MatMul,
    Pointwise,
    Pool2d,
    Reduce,
    RoiAlign,
    Softmax,
)
from saccade.testing.cases import arrays_of, inputs_of, outputs_of
from saccade.testing.kernels import launched_as, run_kernel
from saccade.testing.targets import runnable_target

COUNT = 37  # rows that are planned for: no other axis is as long
FEWER = (1, 2, 5, 8, 20)
_RELU = parse("relu(add($0, $1))")
_SAME = (1, 1, 1, 1)


def rows(*shape, storage=ROWS, **more):
    return Operand((COUNT, *shape), storage=storage, **more)


def known(*shape):
    return Operand(shape, constant=True)


CASES = (
    Case(
        "conv-3x3", Conv2d((1, 1), _SAME, epilogue=_RELU),
        (rows(40, 14, 14, storage=LAST), known(48, 40, 3, 3), known(1, 48, 1, 1)), (Result(LAST),),
    ),
    Case(
        "conv-3x3-of-rows", Conv2d((1, 1), _SAME),
        (rows(9, 7, 9), known(33, 9, 3, 3)), (Result(LAST),),
    ),
    Case(
        "conv-1x1", Conv2d(epilogue=parse("add($0, $1)")),
        (rows(64, 5, 3, storage=LAST), known(91, 64, 1, 1), rows(91, 5, 3, storage=LAST)),
        (Result(LAST),),
    ),
    Case(
        "conv-depthwise", Conv2d((2, 2), _SAME, groups=40),
        (rows(40, 13, 11, storage=LAST), known(40, 1, 3, 3)), (Result(LAST),),
    ),
    Case(
        "transposed", ConvTranspose2d((2, 2), epilogue=parse("relu($0)")),
        (rows(24, 7, 7, storage=LAST), known(24, 17, 4, 4)), (Result(ROWS),),
    ),
    Case("matmul", MatMul(epilogue=_RELU), (rows(301), known(301, 96), known(96)), (Result(ROWS),)),
    Case("matmul-batches", MatMul(), (rows(6, 33), rows(33, 10)), (Result(ROWS),)),
    Case(
        "pool", Pool2d("max", (3, 3), (2, 2), _SAME), (rows(24, 9, 9, storage=LAST),),
        (Result(LAST),),
    ),
    Case("chain", Pointwise(_RELU, DType.F32), (rows(24, 5), known(24, 1)), (Result(ROWS),)),
    Case("softmax", Softmax(1), (rows(91),), (Result(ROWS),)),
    Case("layer-norm", LayerNorm(1), (rows(70), known(70), known(70)), (Result(ROWS),)),
    Case("mean", Reduce("mean", (2, 3), keepdims=False), (rows(24, 7, 7, storage=LAST),)),
    Case(
        "regions", RoiAlign((7, 7), 0.25, 2),
        (Operand((1, 24, 30, 40), storage=LAST), rows(4, values=CornerBoxes(60, 90)),
            rows(dtype=DType.I64, values=Whole(0, 0))),
        (Result(ROWS),),
    ),
)  # fmt: skip


def call_of(case, count, target):
    """The call with so many rows."""

    def cut(views):
        return tuple(
            v._replace(shape=(count, *v.shape[1:])) if v.shape[:1] == (COUNT,) else v for v in views
        )

    constant = tuple(operand.constant for operand in case.operands)
    ins, outs = cut(inputs_of(case)), cut(outputs_of(case))
    return Call(case.op, ins, outs, constant, target, 2)


def results_of(kernel, call, launches, arrays):
    cut = [
        a[: view.shape[0]] if a.shape[:1] == (COUNT,) else a
        for a, view in zip(arrays, call.inputs, strict=True)
    ]
    return run_kernel(
        launched_as(kernel, lambda _call: launches), call.op, cut, call.outputs, inputs=call.inputs,
        constant=call.constant, isa=call.target, checked=True, threads=2,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_do_not_depend_on_how_many_there_are(case):
    target = runnable_target("native")
    call, arrays, held = call_of(case, COUNT, target), arrays_of(case), 0
    for kernel in kernels_for(case.op.family):
        if kernel.supports(call) is not None:
            continue
        # The one that is planned with, and others that tuning may choose.
        for planned in islice(kernel.variants(call), 3):
            whole = results_of(kernel, call, planned.launches, arrays)
            for count in FEWER:
                less = call_of(case, count, target)
                found = alike(kernel, less, count / COUNT, planned)
                if found is None:
                    continue
                configs = [launch.config for launch in found.launches]
                assert configs == [launch.config for launch in planned.launches]
                held += 1
                for a, b in zip(
                    whole, results_of(kernel, less, found.launches, arrays), strict=True
                ):
                    assert a[:count].tobytes() == b.tobytes(), (kernel.name, count)
    assert held >= len(FEWER) - 1  # one row may collapse to code of fewer axes


def test_other_rounding_is_seen():
    """What the test above compares differs where variants round in another way."""
    case, target = CASES[0], runnable_target("native")
    call, arrays = call_of(case, COUNT, target), arrays_of(case)
    kernel = kernel_named("conv2d.winograd")
    planned = next(iter(kernel.variants(call)))
    other = next(one for one in kernel.variants(call) if one.rounding != planned.rounding)
    results = (results_of(kernel, call, one.launches, arrays)[0] for one in (planned, other))
    first, second = (np.ascontiguousarray(result[:5]) for result in results)
    assert first.tobytes() != second.tobytes()
    refused = replace(call, target=replace(target, l2=1 << 30))
    assert alike(kernel, refused, 1.0, planned._replace(rounding=None)) is None
