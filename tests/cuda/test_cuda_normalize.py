"""Normalisations for GPUs in Triton's interpreter: held, swept and cut rows, hard numbers."""

from math import inf, nan

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import GroupNorm, LayerNorm, LocalResponseNorm, LpNormalize
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import assert_close
from saccade.testing.triton import H200, interpret

F16, F32 = DType.F16, DType.F32
ROWS, RESPONSE = kernel_named("normalize.rows"), kernel_named("normalize.local_response")


def called(op, *arrays, image=row_major):
    views = (image(F32, arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:]))
    return Call(op, views, views[:1], (False,) * len(views), H200)


def random(*shape, offset=0.0):
    return (np.random.default_rng(1).standard_normal(shape) + offset).astype(np.float32)


def close(kernel, call, arrays, variant=None, k=256):
    (result,) = interpret(kernel, call, arrays, variant and variant.launches)
    with np.errstate(all="ignore"):
        (truth,) = call.op.reference(*(a.astype(np.float64) for a in arrays))
    assert_close(result, truth, dtype=F32, k=k)


@pytest.mark.parametrize("image", [row_major, nhwc_view])
@pytest.mark.parametrize("groups", [3, 24, 1])
def test_every_way_to_normalise_groups(groups, image):
    x = random(2, 24, 13, 20, offset=3)
    arrays = (x, random(24), random(24))
    call = called(GroupNorm(groups), *arrays, image=image)
    phases = {}
    for variant in ROWS.variants(call):
        phases.setdefault(tuple(launch.config.phase for launch in variant.launches), variant)
    assert phases
    for variant in phases.values():
        close(ROWS, call, arrays, variant)


def test_few_long_rows_are_cut():
    arrays = (random(1, 8, 64, 300, offset=100), random(8), random(8))
    call = called(GroupNorm(1), *arrays)
    variants = list(ROWS.variants(call))
    cut = next(v for v in variants if len(v.launches) == 2)
    assert [launch.config.phase for launch in cut.launches] == ["statistics", "apply"]
    close(ROWS, call, arrays, cut, k=1024)


def test_a_mean_far_from_zero_costs_no_digits():
    x = random(3, 3000, offset=1e4)
    call = called(LayerNorm(1), x, np.ones(3000, np.float32))
    for variant in list(ROWS.variants(call))[:3]:
        (result,) = interpret(ROWS, call, [x, np.ones(3000, np.float32)], variant.launches)
        (truth,) = call.op.reference(x.astype(np.float64), np.ones(3000))
        assert np.abs(result - truth).max() < 2e-3  # the step of float32 at 1e4


def test_nan_and_infinities_stay_in_their_rows():
    x = random(5, 40)
    x[1, 3], x[2, 7], x[3, 0] = nan, inf, -inf
    arrays = (x, random(40))
    close(ROWS, called(LayerNorm(1), *arrays), arrays)


@pytest.mark.parametrize("p", [1, 2])
def test_rows_of_zeros_stay(p):
    x = random(4, 5000)
    x[2] = 0
    call = called(LpNormalize(1, p), x)
    for variant in list(ROWS.variants(call))[:3]:
        close(ROWS, call, [x], variant)


@pytest.mark.parametrize("beta", [0.75, 0.5, 1.3])
@pytest.mark.parametrize("size", [3, 12])
@pytest.mark.parametrize("image", [row_major, nhwc_view])
def test_local_responses(size, beta, image):
    x = random(1, 21, 3, 5)
    call = called(LocalResponseNorm(size, 0.3, beta, 2.0), x, image=image)
    close(RESPONSE, call, [x], k=16)


def test_another_size_of_rows_needs_no_code():
    configs = []
    for rows in (197, 1000):
        x, w = row_major(F16, (rows, 768)), row_major(F16, (768,))
        call = Call(LayerNorm(1), (x, w, w), (x,), (False, True, True), H200)
        configs.append(ROWS.launch(call)[0].config)
    assert configs[0] == configs[1]
