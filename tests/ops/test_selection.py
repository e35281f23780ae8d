"""Operators take the kernels that the engine takes, whatever the number of boxes is made of."""

from __future__ import annotations

import pytest

from saccade.backends.cpu.target import NOMINAL_THREADS
from saccade.backends.trace import SymbolicTrace
from saccade.errors import OptionError
from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu import kernels_for
from saccade.kernels.select import Candidates
from saccade.layout.select import Selector
from saccade.opdefs import RoiAlign, RoiPool
from saccade.ops._library import library
from saccade.testing.kernels import nchw_view, row_major
from saccade.testing.targets import ZEN4

X = {"small": nchw_view(DType.F32, (2, 6, 13, 18)), "large": nchw_view(DType.F32, (2, 64, 50, 60))}
OPS = {"align": RoiAlign((7, 7), 0.5, 2), "pool": RoiPool((3, 3), 0.5)}


class Backend:
    target = ZEN4
    nominal_threads, reuse_slowdown = NOMINAL_THREADS, 1.0

    def candidates(self, op):
        return kernels_for(op.family)


def bound(op, x, count):
    boxes = View(DType.F32, (count, 5), (5, 1))
    channels, (p, q) = x.shape[1], op.bins
    out = View(DType.F32, (count, channels, p, q), (channels * p * q, p * q, q, 1))
    return Call(op, (x, boxes), (out,), (False, False), Backend.target, 2)


@pytest.mark.parametrize("size", X)
@pytest.mark.parametrize("name", OPS)
def test_numbers_are_chosen_for_like_integers(name, size):
    op, x = OPS[name], X[size]
    for count in (1, 40, 3000):
        call = bound(op, x, count)
        selector = Selector(Backend())
        choice, launches = selector.select(call), selector.launches(call)
        same = bound(op, x, SymbolicTrace(count).count)
        candidates = Candidates.of(same, kernels_for(op.family), NOMINAL_THREADS)
        assert candidates.cheapest.kernel is choice.kernel
        found = candidates.cheapest.best.launches
        assert [one.config for one in found] == [one.config for one in launches]
        assert [str(one) for one in candidates.refused] == [
            str(one) for one in choice.passed if "estimated" not in one.reason
        ]


def test_what_nobody_takes_is_an_error_with_the_reasons():
    x = row_major(DType.I64, (2, 6, 13, 18))
    call = bound(OPS["align"], x, 3)
    with pytest.raises(OptionError, match=r"no kernel takes .*roi\.align: elements of type int64"):
        library().make(call.op, call.inputs, call.outputs, 2)
