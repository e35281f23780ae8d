from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.softmax.direct import SOFTMAX
from saccade.opdefs.reduce import Softmax
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(12)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5, 37), 1), ((5, 37), 0), ((2, 3, 197), 2), ((3, 21, 4, 6), 1), ((2, 40, 3), 1), ((7,), 0),
     ((4, 1), 1), ((0, 4), 1), ((4, 0), 1), ((1, 1000), 1)],
    ids=str,
)  # fmt: skip
def test_axes(hold, shape, axis, log):
    hold(SOFTMAX, Softmax(axis, log), [random_operands(shape, DType.F32, RNG) * 3], k=64)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_channels_last(hold, axis):
    shape = (2, 21, 5, 18)
    x = random_operands(shape, DType.F32, RNG)
    views = [nhwc_view(DType.F32, shape, 24)], [nhwc_view(DType.F32, shape, 21)]
    hold(SOFTMAX, Softmax(axis), [x], inputs=views[0], outputs=views[1], k=16)
    hold(SOFTMAX, Softmax(axis), [x], inputs=views[0], k=16)


def test_extremes(hold):
    x = random_operands((6, 50), DType.F32, RNG)
    x[0] *= 1e4
    x[1] = -np.inf
    x[2, 3] = -np.inf
    x[3, 3] = np.inf
    x[4, 49] = np.nan
    x[5] -= 3e38
    for axis in (0, 1):
        for log in (False, True):
            hold(SOFTMAX, Softmax(axis, log), [x], k=50)


def test_half_precision(hold):
    x = random_operands((3, 70), DType.F16, RNG)
    for axis in (0, 1):
        hold(SOFTMAX, Softmax(axis), [x], k=1)


@pytest.mark.parametrize("axis", [0, 1])
def test_bfloat16(hold, mixed, axis):
    source, result = mixed
    x = random_operands((35, 37), source, RNG)
    for log in (False, True):
        hold(SOFTMAX, Softmax(axis, log), [x], stored=result, k=37)


def test_refusals():
    view, target = row_major(DType.F64, (4, 4)), ZEN4
    assert "float64" in SOFTMAX.supports(Call(Softmax(0), (view,), (view,), (False,), target))
    x, out = row_major(DType.F32, (4, 3)), View(DType.F32, (4, 3), (0, 1))
    assert "repeats" in SOFTMAX.supports(Call(Softmax(0), (x,), (out,), (False,), target))


def _with_log(phase):
    return dataclasses.replace(phase, config=dataclasses.replace(phase.config, log=True))


def _shorter(phase):
    return mistaken(phase, "swept_sizes", -1)


@pytest.mark.parametrize("mutate", [_with_log, _shorter])
def test_mutants_are_caught(hold, mutate):
    mutant = launched_as(SOFTMAX, lambda call: tuple(mutate(p) for p in SOFTMAX.launch(call)))
    with pytest.raises((AssertionError, IndexError)):
        hold(mutant, Softmax(1), [random_operands((3, 40), DType.F32, RNG)], k=40)
