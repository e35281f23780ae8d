from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.normalize.local_response import LOCAL_RESPONSE
from saccade.kernels.cpu.normalize.lp import LP_NORMALIZE
from saccade.kernels.cpu.normalize.mean_variance import GROUP_NORM, LAYER_NORM
from saccade.opdefs.normalize import GroupNorm, LayerNorm, LocalResponseNorm, LpNormalize
from saccade.testing.kernels import launched_as, nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(13)


def operands(*shapes, dtype=DType.F32):
    return [random_operands(s, dtype, RNG) for s in shapes]


@pytest.mark.parametrize(
    ("shape", "axis", "scale"),
    [((5, 37), 1, (37,)), ((2, 3, 70), 2, (70,)), ((2, 3, 20), 1, (3, 20)), ((4, 9), 0, (4, 9)),
     ((2, 5, 33), 1, (33,)), ((3, 16), 1, ()), ((0, 7), 1, (7,)), ((5, 1), 1, (1,))],
    ids=str,
)  # fmt: skip
def test_layer_norm(hold, shape, axis, scale):
    x, s, b = operands(shape, scale, scale)
    hold(LAYER_NORM, LayerNorm(axis), [x, s, b], k=64)
    hold(LAYER_NORM, LayerNorm(axis, 0.1), [x + 3, s], k=256)


def test_layer_norm_across(hold):
    """The last logical axis is not the one with neighbours in memory."""
    x, s, b = operands((2, 30, 24), (24,), (24,))
    stored = View(DType.F32, x.shape, (720, 1, 30))
    dense = [row_major(DType.F32, v.shape) for v in (s, b)]
    hold(LAYER_NORM, LayerNorm(2), [x, s, b], inputs=[stored, *dense], outputs=[stored], k=64)
    hold(LAYER_NORM, LayerNorm(2), [x, s, b], inputs=[stored, *dense], k=64)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 24, 5, 6), 3), ((2, 24, 5, 6), 24), ((1, 40, 7, 7), 1), ((2, 6, 33), 2),
     ((3, 8), 2), ((1, 20, 4, 9), 4)],
    ids=str,
)  # fmt: skip
def test_group_norm(hold, shape, groups):
    x, s, b = operands(shape, shape[1:2], shape[1:2])
    hold(GROUP_NORM, GroupNorm(groups), [x + 1, s, b], k=1024)
    if len(shape) == 4:
        dense = [row_major(DType.F32, v.shape) for v in (s, b)]
        view, out = nhwc_view(DType.F32, shape, 43), nhwc_view(DType.F32, shape)
        hold(
            GROUP_NORM, GroupNorm(groups), [x + 1, s, b], inputs=[view, *dense], outputs=[out],
            k=1024,
        )  # fmt: skip


def test_half_precision(hold):
    x, s, b = operands((4, 40), (40,), (40,), dtype=DType.F16)
    hold(LAYER_NORM, LayerNorm(1), [x, s, b], k=2)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("shape", [(2, 37, 3, 4), (1, 3, 5), (2, 64, 1, 1), (0, 4, 2, 2)], ids=str)
def test_local_response(hold, shape, size):
    (x,) = operands(shape)
    op = LocalResponseNorm(size, 0.3, 0.75, 2.0)
    hold(LOCAL_RESPONSE, op, [x], k=4)
    if len(shape) == 4:
        view, out = nhwc_view(DType.F32, shape, 70), nhwc_view(DType.F32, shape)
        hold(LOCAL_RESPONSE, op, [x], inputs=[view], outputs=[out], k=4)


def test_local_response_half_precision(hold):
    (x,) = operands((2, 20, 3, 3), dtype=DType.F16)
    hold(LOCAL_RESPONSE, LocalResponseNorm(5, 0.1), [x], k=1)


@pytest.mark.parametrize("p", [1, 2])
def test_lp(hold, p):
    """Along and across, with a row of zeros, channels-last, in half precision."""
    (x,) = operands((5, 37, 20))
    x[2], x[:, :, 3] = 0, 0
    for axis in (1, 2):
        hold(LP_NORMALIZE, LpNormalize(axis, p), [x], k=37)
    (x,) = operands((2, 37, 3, 4))
    view, out = nhwc_view(DType.F32, x.shape, 40), nhwc_view(DType.F32, x.shape)
    hold(LP_NORMALIZE, LpNormalize(1, p), [x], inputs=[view], outputs=[out], k=37)
    (x,) = operands((3, 50), dtype=DType.F16)
    hold(LP_NORMALIZE, LpNormalize(1, p), [x], outputs=[row_major(DType.F16, x.shape)], k=1)


def test_an_lp_mistake_is_caught(hold):
    (x,) = operands((5, 37))

    def wrong(call):
        (phase,) = LP_NORMALIZE.launch(call)
        return (dataclasses.replace(phase, config=dataclasses.replace(phase.config, p=1)),)

    with pytest.raises(AssertionError):
        hold(launched_as(LP_NORMALIZE, wrong), LpNormalize(1, 2), [x], k=37)


def test_bfloat16(hold, mixed):
    source, result = mixed
    x = random_operands((2, 24, 5, 7), source, RNG)
    s, b = operands((24,), (24,))
    dense = [row_major(DType.F32, s.shape)] * 2
    view, out = nhwc_view(source, x.shape, 27), nhwc_view(result, x.shape)
    hold(
        GROUP_NORM, GroupNorm(3), [x, s, b], inputs=[view, *dense], outputs=[out], k=1024
    )  # fmt: skip
    hold(
        LAYER_NORM, LayerNorm(1), [random_operands((4, 24), source, RNG), s, b], stored=result, k=24
    )
    hold(LOCAL_RESPONSE, LocalResponseNorm(5, 0.1), [x], stored=result, k=4)
    hold(LP_NORMALIZE, LpNormalize(1), [x], stored=result, k=24)


def test_refusals():
    target = ZEN4
    x, s = row_major(DType.F64, (3, 4)), row_major(DType.F64, (4,))
    assert "float64" in LAYER_NORM.supports(Call(LayerNorm(1), (x, s), (x,), (False,) * 2, target))
    y = row_major(DType.F32, (3, 400))
    assert "100" in LOCAL_RESPONSE.supports(
        Call(LocalResponseNorm(100), (y,), (y,), (False,), target)
    )


@pytest.mark.parametrize("change", [{"epsilon": 1.0}, {"bias": False}])
def test_mutants_are_caught(hold, change):
    def launch(call):
        (phase,) = LAYER_NORM.launch(call)
        config = dataclasses.replace(phase.config, **change)
        return (dataclasses.replace(phase, config=config),)

    mutant = launched_as(LAYER_NORM, launch)
    with pytest.raises((AssertionError, IndexError)):
        hold(mutant, LayerNorm(1), operands((3, 40), (40,), (40,)), k=64)
