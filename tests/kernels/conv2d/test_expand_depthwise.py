"""A 1x1 and a depthwise convolution in one pass, bit by bit against the reference on integers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cpu.fusions import ExpandDepthwise
from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Variant
from saccade.kernels.cpu.conv2d.expand_depthwise import CONV2D_EXPAND
from saccade.opdefs import Conv2d
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
RELU = parse("relu(add($0, $1))")
QUICK = (("avx512", False, 2, (1, 0)), ("avx2", False, 3, (1, 2, 0)))
CASES = [
    # n, depth, channels, h, w, taps, stride, padding
    (1, 5, 33, 9, 13, (3, 3), 1, (1, 1, 1, 1)),
    (2, 16, 64, 12, 10, (3, 3), 2, (1, 1, 1, 1)),
    (1, 3, 16, 11, 30, (5, 5), 2, (2, 2, 2, 2)),
    (1, 24, 20, 7, 7, (5, 3), 1, (0, 1, 3, 1)),
    (1, 8, 40, 3, 5, (3, 3), 1, (4, 1, 0, 1)),
    (0, 8, 16, 5, 5, (3, 3), 1, (1, 1, 1, 1)),
]


def setup(case, kinds=(F32, F32), make=exact_operands, second=RELU):
    n, depth, channels, h, w, taps, stride, padding = case
    rng = np.random.default_rng(1)
    conv = Conv2d((stride, stride), padding, groups=channels, epilogue=second)
    op = ExpandDepthwise(Conv2d(epilogue=RELU), conv, 1)
    shapes = [(n, depth, h, w), (channels, depth, 1, 1), (channels, 1, *taps)]
    shapes += [(1, channels, 1, 1)] * 2
    held = [kinds[0], F32, F32, F32, F32]
    return op, [make(s, kind, rng) for s, kind in zip(shapes, held, strict=True)]


def views_of(op, arrays, result):
    types = [TensorType(F32, a.shape) for a in arrays]
    (kind,) = op.infer(types)
    views = [nhwc_view(DType.of(arrays[0].dtype), arrays[0].shape, arrays[0].shape[1] + 3)]
    views += [row_major(DType.of(a.dtype), a.shape) for a in arrays[1:5]]
    views += [nhwc_view(F32, a.shape) for a in arrays[5:]]
    return views, [nhwc_view(result, kind.shape, kind.shape[1] + 2)]


def check(hold, op, arrays, kernel=CONV2D_EXPAND, result=F32, **more):
    inputs, outputs = views_of(op, arrays, result)
    constant = [False, True, True, True, True] + [False] * (len(arrays) - 5)
    more.setdefault("exact", True)
    return hold(kernel, op, arrays, inputs=inputs, outputs=outputs, constant=constant, **more)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_window_and_size(hold, case):
    more = {} if case in CASES[:2] else {"runs": QUICK}
    check(hold, *setup(case), **more)


def changed(**words):
    """The kernel with other integers than it would choose."""

    def variants(call):
        (launch,) = CONV2D_EXPAND.launch(call)
        found = {name: value(launch.integers[name]) for name, value in words.items()}
        other = dataclasses.replace(launch, integers={**launch.integers, **found})
        return (Variant(1.0, lambda: (other,)),)

    return dataclasses.replace(CONV2D_EXPAND, variants=variants)


def banded(rows):
    return changed(band=lambda _: rows)


def test_bands_share_rows(hold):
    results = [check(hold, *setup(CASES[0]), runs=QUICK)[0]]
    results += [check(hold, *setup(CASES[0]), kernel=banded(n), runs=QUICK)[0] for n in (1, 2)]
    assert all(r.tobytes() == results[0].tobytes() for r in results)


@pytest.mark.parametrize("result", [F32, BF16])
@pytest.mark.parametrize("kind", [F32, BF16])
def test_float32_and_bfloat16(hold, kind, result):
    check(hold, *setup(CASES[0], (kind, F32)), result=result, runs=QUICK)


def test_random_operands_and_a_residual(hold):
    second = parse("hardswish(add(add($0, $1), $2))")
    op, arrays = setup(CASES[0], make=random_operands, second=second)
    residual = random_operands((1, 33, 9, 13), F32, np.random.default_rng(2))
    check(hold, op, [*arrays, residual], exact=False, k=45, runs=QUICK)


def call(op=None, change=None):
    op, arrays = setup(CASES[0]) if op is None else (op, setup(CASES[0])[1])
    inputs, outputs = views_of(op, arrays, F32)
    constant = [False, True, True, True, True]
    made = Call(op, tuple(inputs), tuple(outputs), tuple(constant), ZEN4, 2)
    return made if change is None else dataclasses.replace(made, **change(made))


def test_refusals():
    assert CONV2D_EXPAND.supports(call()) is None
    x = (1, 5, 9, 13)
    refused = {
        "constant": lambda c: {"constant": (False, False, True, True, True)},
        "evenly": lambda c: {"inputs": (row_major(F32, x), *c.inputs[1:])},
        "neither": lambda c: {"inputs": (nhwc_view(DType.F64, x), *c.inputs[1:])},
        "plainly": lambda c: {"outputs": (row_major(F32, (1, 33, 9, 13)),)},
        "varies": lambda c: {
            "inputs": (*c.inputs[:3], nhwc_view(F32, (1, 33, 9, 13)), c.inputs[4])
        },
    }
    for reason, change in refused.items():
        assert reason in CONV2D_EXPAND.supports(call(change=change))


def test_variants_are_bands_that_fit_the_cache():
    found = list(CONV2D_EXPAND.variants(call()))
    assert len(found) > 1
    assert [v.micros for v in found] == sorted(v.micros for v in found)
    assert len({repr(v.launches) for v in found}) == len(found)


MUTANTS = {
    "rows": -1, "height": 1, "width": -1, "depth": -1, "x_h": 1, "x_w": -1, "top": -1, "left": 1,
    "taps": -1, "vectors": -1,
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(hold, name):
    mutant = changed(band=lambda _: 4, **{name: lambda n: n + MUTANTS[name]})
    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(hold, *setup(CASES[0]), kernel=mutant, runs=(("avx512", True, 1, None),))
