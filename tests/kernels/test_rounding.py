"""Variants for a call that say they round alike give the same bits, whatever the team."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import islice
from random import Random

import numpy as np
import pytest

from saccade.backends.cpu.fusions import Excite, ExpandDepthwise, SeparableConv2d
from saccade.backends.cpu.target import described_target
from saccade.ir import DType, TensorType, storage
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.expand_depthwise import CONV2D_EXPAND
from saccade.kernels.cpu.conv2d.few_inputs import CONV2D_FEW_INPUTS
from saccade.kernels.cpu.conv2d.lattice import CONV2D_LATTICE
from saccade.kernels.cpu.conv2d.separable import CONV2D_SEPARABLE
from saccade.kernels.cpu.conv2d.winograd import CONV2D_WINOGRAD
from saccade.kernels.cpu.conv_transpose2d.direct import CONV_TRANSPOSE2D_DIRECT
from saccade.kernels.cpu.excite.direct import EXCITE
from saccade.kernels.cpu.matmul.direct import MATMUL_DIRECT
from saccade.opdefs import Conv2d, ConvTranspose2d, MatMul
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import random_operands

F32, BF16 = DType.F32, DType.BF16
TEAMS = ((1, None), (2, (1, 0)), (7, (6, 2, 4, 0, 1, 5, 3)))
MOST = 2
"""Ways of one rounding for one team that are run: the first, and others by lot."""
ROUNDINGS = 3
"""Of a call, the fastest."""
MODES = ((F32, "avx512"), (BF16, "avx512"), (F32, "avx2"))

RELU = parse("relu($0)")
SAME = Conv2d(padding=(1, 1, 1, 1))
DEPTHWISE = dataclasses.replace(SAME, groups=40, epilogue=RELU)

CASES = {
    # kernel, operator, shapes of the operands; all but the first are constants
    "direct": (CONV2D_DIRECT, SAME, (2, 37, 9, 13), (72, 37, 3, 3)),
    "direct-1x1": (CONV2D_DIRECT, Conv2d(epilogue=RELU), (1, 67, 14, 9), (150, 67, 1, 1)),
    "direct-groups": (CONV2D_DIRECT, dataclasses.replace(SAME, groups=2), (1, 34, 9, 9),
                      (50, 17, 3, 3)),
    "direct-parts": (CONV2D_DIRECT, Conv2d(), (1, 1200, 1, 1), (48, 1200, 1, 1)),
    "direct-parts-3x3": (CONV2D_DIRECT, SAME, (1, 256, 4, 3), (40, 256, 3, 3)),
    "few-inputs": (CONV2D_FEW_INPUTS, Conv2d((2, 2), (1, 1, 1, 1)), (1, 3, 30, 41), (40, 3, 3, 3)),
    "winograd": (CONV2D_WINOGRAD, SAME, (1, 40, 21, 17), (72, 40, 3, 3)),
    "winograd-stride": (CONV2D_WINOGRAD, Conv2d((2, 2), (1, 1, 1, 1)), (1, 24, 21, 18),
                        (40, 24, 3, 3)),
    "lattice": (CONV2D_LATTICE, Conv2d(padding=(4, 4, 4, 4), dilation=(4, 4)), (1, 40, 11, 12),
                (72, 40, 3, 3)),
    "transpose": (CONV_TRANSPOSE2D_DIRECT, ConvTranspose2d((2, 2), (1, 1, 1, 1)), (1, 37, 6, 9),
                  (37, 40, 4, 4)),
    "matmul": (MATMUL_DIRECT, MatMul(), (2, 29, 300), (300, 88)),
    "separable": (CONV2D_SEPARABLE, SeparableConv2d(DEPTHWISE, Conv2d(), 0), (1, 40, 24, 13),
                  (40, 1, 3, 3), (56, 40, 1, 1)),
    "expand": (CONV2D_EXPAND, ExpandDepthwise(Conv2d(epilogue=RELU), DEPTHWISE, 0), (1, 24, 25, 13),
               (40, 24, 1, 1), (40, 1, 3, 3)),
    "excite": (EXCITE, Excite(63, Conv2d(epilogue=RELU), Conv2d(), 0), (1, 96, 9, 7),
               (24, 96, 1, 1), (96, 24, 1, 1)),
}  # fmt: skip


def a_call(name, kind, target, threads=2):
    """The kernel, a call of it, and random operands; half of the first are zeros."""
    kernel, op, *shapes = CASES[name]
    rng = np.random.default_rng(len(name))
    arrays = [random_operands(shape, kind, rng) for shape in shapes]
    arrays[0] = np.maximum(arrays[0], kind.numpy.type(0))
    first = row_major if kernel is CONV2D_FEW_INPUTS else stored
    views = [first(kind, shapes[0]), *(row_major(kind, shape) for shape in shapes[1:])]
    (result,) = storage.infer(op, [TensorType(kind, shape) for shape in shapes])
    constant = (False, *(True for _ in shapes[1:]))
    out = stored(kind, result.shape)
    return kernel, Call(op, tuple(views), (out,), constant, target, threads), arrays


def stored(kind, shape):
    return nhwc_view(kind, shape) if len(shape) == 4 else row_major(kind, shape)


@cache
def forced(kernel):
    """The kernel that does a call by a list's last variant: one, so that variants share code."""
    variants = []
    return launched_as(kernel, lambda _call: variants[-1].launches), variants


def bits(kernel, call, arrays, variant, order=None):
    """What one variant gives."""
    one, variants = forced(kernel)
    variants.append(variant)
    (result,) = run_kernel(
        one, call.op, arrays, call.outputs,
        inputs=call.inputs, constant=call.constant, isa=call.target, threads=call.threads,
        order=order,
    )  # fmt: skip
    return result.tobytes()


def by_rounding(kernel, call):
    groups = {}
    for variant in islice(kernel.variants(call), 400):
        groups.setdefault(variant.rounding, []).append(variant)
    return groups


@pytest.mark.parametrize(("kind", "isa"), MODES, ids=lambda one: getattr(one, "value", one))
@pytest.mark.parametrize("name", CASES)
def test_equal_roundings_are_equal_bits(name, kind, isa):
    chance, found, tried = Random(f"{name} {kind} {isa}"), {}, 0
    for threads, order in TEAMS:
        kernel, call, arrays = a_call(name, kind, runnable_target(isa), threads)
        assert kernel.supports(call) is None
        for rounding, variants in islice(by_rounding(kernel, call).items(), ROUNDINGS):
            others = chance.sample(variants[1:], min(MOST, len(variants)) - 1)
            for variant in (variants[0], *others):
                have = bits(kernel, call, arrays, variant, order)
                assert have == found.setdefault(rounding, have), (rounding, variant.launches)
                tried += 1
    assert tried >= len(TEAMS)


@pytest.mark.parametrize("name", CASES)
def test_every_team_has_the_way_that_the_nominal_team_chose(name):
    for kind, target in ((F32, ZEN4), (BF16, ZEN4), (F32, described_target("zen4", "avx2"))):
        kernel, call, _ = a_call(name, kind, target)
        chosen = kernel.best(call).rounding
        for threads in (1, 3, 7, 64):
            assert chosen in by_rounding(kernel, dataclasses.replace(call, threads=threads))


def test_ways_that_round_apart_are_seen():
    """The comparison above would catch a variant that says it rounds as another does."""
    kernel, call, arrays = a_call("direct-parts", F32, runnable_target())
    variants = [variants[0] for variants in by_rounding(kernel, call).values()]
    assert len({bits(kernel, call, arrays, variant) for variant in variants}) > 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_what_a_way_needs_is_what_its_phases_are_made_of(name, threads):
    """Selection looks for code by that alone, and once for variants of the same key."""
    kernel, call, _ = a_call(name, F32, ZEN4, threads)
    assert kernel.supports(call) is None
    by_code = {}
    for one in kernel.variants(call):
        assert one.needs == tuple(launch.config for launch in one.launches)
        if one.code is not None:
            assert by_code.setdefault((one.rounding, one.code), one.needs) == one.needs
