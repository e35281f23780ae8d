"""Weights that are infinite or NaN: the answer of ONNX's definition, whatever the team and history.

A tap in the padding is a product with zero, which is NaN where the weight is infinite.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from onnx import helper, numpy_helper
from runtime_models import model_of, tensor

import saccade
from saccade.ir import DType
from saccade.opdefs import Conv2d, ConvTranspose2d
from saccade.testing.tolerance import assert_close

TEAMS = (1, 2, 3, 7)
SIZES = ((1, 9, 9), (2, 7, 11), (1, 33, 29), (1, 40, 64))
CHANNELS = 16
PLAIN = Conv2d(padding=(1,) * 4)
CASES = {  # operator, shape of its weights
    "same": (PLAIN, (40, CHANNELS, 3, 3)),
    "stride": (Conv2d((2, 1), (0, 2, 1, 1)), (24, CHANNELS, 3, 3)),
    "wide": (Conv2d(padding=(2,) * 4), (24, CHANNELS, 5, 5)),
    "dilated": (Conv2d(padding=(12,) * 4, dilation=(12, 12)), (24, CHANNELS, 3, 3)),
    "few-outputs": (PLAIN, (5, CHANNELS, 3, 3)),
    "depthwise": (Conv2d(padding=(1,) * 4, groups=CHANNELS), (CHANNELS, 1, 3, 3)),
    "grouped": (Conv2d(padding=(1,) * 4, groups=2), (32, CHANNELS // 2, 3, 3)),
    "one-tap": (PLAIN, (24, CHANNELS, 1, 1)),
    "no-padding": (Conv2d(), (24, CHANNELS, 3, 3)),
    "up": (ConvTranspose2d((2, 2), (1,) * 4), (CHANNELS, 24, 4, 4)),
    "up-odd": (ConvTranspose2d((2, 2), (1,) * 4, (1, 1)), (CHANNELS, 24, 3, 3)),
    "back": (ConvTranspose2d(padding=(1,) * 4), (CHANNELS, 8, 3, 3)),
}


def hostile_weights(name):
    """A few filters with one infinity or NaN each, at corners of the window."""
    op, shape = CASES[name]
    w = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32) * 0.2
    filters = w if isinstance(op, Conv2d) else w.swapaxes(0, 1)
    filters[0, 0, 0, 0] = np.inf
    filters[1, 0, -1, -1] = -np.inf
    filters[2, 0, -1, 0] = np.nan
    return w


def node(name):
    op, _ = CASES[name]
    attributes = {
        "strides": op.stride, "pads": op.padding, "dilations": op.dilation, "group": op.groups
    }  # fmt: skip
    if isinstance(op, Conv2d):
        return helper.make_node("Conv", ["x", f"{name}.w"], [name], **attributes)
    return helper.make_node(
        "ConvTranspose", ["x", f"{name}.w"], [name],
        output_padding=op.output_padding, **attributes,
    )  # fmt: skip


def every_case():
    """Every operator of `CASES` over the one image, each an output."""
    constants = [numpy_helper.from_array(hostile_weights(name), f"{name}.w") for name in CASES]
    outputs = [tensor(name, [None] * 4) for name in CASES]
    inputs = [tensor("x", ["N", CHANNELS, "H", "W"])]
    return model_of([node(name) for name in CASES], inputs, outputs, constants)


def image(size):
    shape = (size[0], CHANNELS, *size[1:])
    return np.random.default_rng(sum(size)).standard_normal(shape).astype(np.float32)


@functools.cache
def answers(threads, sizes=SIZES, **options):
    """Of a model of its own, size after size."""
    data = every_case().SerializeToString()
    model = saccade.compile(data, threads=threads, cache=False, **options)
    return {size: model.run({"x": image(size)}) for size in sizes}


def differing(ours, theirs):
    """Which results differ in any bit."""
    return [
        f"{name} of {size}"
        for size in SIZES
        for name in CASES
        if ours[size][name].tobytes() != theirs[size][name].tobytes()
    ]


@pytest.mark.parametrize("threads", [t for t in TEAMS if t != 2])
def test_no_team_changes_a_bit(threads):
    assert not differing(answers(threads), answers(2))


@pytest.mark.parametrize("threads", TEAMS)
def test_no_size_before_changes_a_bit(threads):
    assert not differing(answers(threads, SIZES[::-1]), answers(2))


def test_no_team_changes_a_bit_of_bfloat16():
    ours = [answers(threads, precision="bf16") for threads in TEAMS]
    assert not [found for other in ours[1:] for found in differing(ours[0], other)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_definition(name, size):
    op, _ = CASES[name]
    x, w, found = image(size), hostile_weights(name), answers(3)[size][name]
    with np.errstate(all="ignore"):
        (wanted,) = op.reference(x.astype(np.float64), w.astype(np.float64))
    assert np.isfinite(wanted).any() and np.isnan(wanted).any()
    assert_close(found, wanted, dtype=DType.F32, k=int(np.prod(w.shape[1:])))
