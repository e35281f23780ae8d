from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cpu.reduce.scan import ARG_REDUCE, CUMSUM
from saccade.opdefs.reduce import ArgReduce, CumSum
from saccade.testing.kernels import launched_as, nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(14)
SHAPES = [((5, 37), 1), ((5, 37), 0), ((2, 3, 20), 1), ((40,), 0), ((3, 1), 1)]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((0, 3), 0), ((3, 0), 0)], ids=str)
def test_cumsum(hold, shape, axis, reverse, exclusive):
    op = CumSum(axis, exclusive, reverse)
    for dtype in (DType.F32, DType.I64, DType.I32):
        hold(CUMSUM, op, [exact_operands(shape, dtype, RNG)], exact=True)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_arg(hold, shape, axis, kind, last):
    # Many equal elements; integers of either width in turn.
    for keepdims, dtype in (
        (False, DType.F32),
        (True, DType.F32),
        (last, DType.I64),
        (last, DType.I32),
    ):
        x = exact_operands(shape, dtype, RNG)
        hold(ARG_REDUCE, ArgReduce(kind, axis, keepdims, last), [x], exact=True)


@pytest.mark.parametrize("axis", [1, 3])
def test_channels_last(hold, axis):
    x = random_operands((2, 21, 5, 18), DType.F32, RNG)
    view = nhwc_view(DType.F32, x.shape, 24)
    hold(ARG_REDUCE, ArgReduce("argmax", axis), [x], inputs=[view], exact=True)
    hold(CUMSUM, CumSum(axis), [x], inputs=[view], outputs=[view], k=21)


def test_nan_wins(hold):
    x = random_operands((7, 33), DType.F32, RNG)
    x[2, 5] = x[4, 5] = x[0, 7] = np.nan
    for kind in ("argmax", "argmin"):
        for last in (False, True):
            hold(ARG_REDUCE, ArgReduce(kind, 0, True, last), [x], exact=True)


def test_half_precision(hold):
    x = random_operands((9, 20), DType.F16, RNG)
    hold(ARG_REDUCE, ArgReduce("argmax", 0), [x], exact=True)
    hold(CUMSUM, CumSum(0), [x], k=1)


def test_bfloat16(hold, mixed):
    source, result = mixed
    x = random_operands((9, 20), source, RNG)
    hold(ARG_REDUCE, ArgReduce("argmax", 0), [x], exact=True)
    hold(CUMSUM, CumSum(0), [x], stored=result, k=9)


def test_refusals():
    target, view = ZEN4, row_major(DType.U8, (3, 4))
    out = row_major(DType.I64, (1, 4))
    call = Call(ArgReduce("argmax", 0), (view,), (out,), (False,), target)
    assert "uint8" in ARG_REDUCE.supports(call)
    assert "uint8" in CUMSUM.supports(Call(CumSum(0), (view,), (view,), (False,), target))


@pytest.mark.parametrize("change", [{"last": True}, {"kind": "argmin"}])
def test_mutants_are_caught(hold, change):
    def launch(call):
        (phase,) = ARG_REDUCE.launch(call)
        config = dataclasses.replace(phase.config, **change)
        return (dataclasses.replace(phase, config=config),)

    mutant = launched_as(ARG_REDUCE, launch)
    with pytest.raises(AssertionError):
        hold(mutant, ArgReduce("argmax", 0), [exact_operands((30, 9), DType.F32, RNG)], exact=True)
