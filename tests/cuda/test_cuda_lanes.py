"""Convolutions whose operands go straight to lanes: what can be held without a GPU.

A NumPy model multiplies as the code does, by the numbering of terms and of rows of results; the
machine code is looked at; a GPU runs the family's cases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hopper_model import call, nhwc, operands, reference, run_where_it_compiles

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import View
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.conv2d.pack_lanes import lane_columns, lane_terms
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

FEW_OUTPUTS = kernel_named("conv2d.few_outputs_lanes")
FEW_CHANNELS = kernel_named("conv2d.few_channels_lanes")
STEM = kernel_named("conv2d.stem_lanes")
SAME = Conv2d(padding=(1, 1, 1, 1))
HALVES = Conv2d((2, 2), (3, 3, 3, 3))
DEPTH_TO_SPACE = DepthToSpaceStore(2, "CRD")


def planes(n, k, p, q, dtype=DType.F32):
    return View(dtype, (n, k, p, q), (k * p * q, p * q, q, 1))


def to_few(c=16, k=3, taps=(3, 3), op=SAME, size=(12, 40), arch=90, y=None):
    r, s = taps
    _, _, p, q = op.sum_shape((1, c, *size), (k, c, r, s))
    return call(1, c, *size, k, taps, op, arch=arch, y=y or planes(1, k, p, q))


def of_few(c=3, k=24, taps=(3, 3), op=SAME, size=(12, 40), **more):
    return call(1, c, *size, k, taps, op, **more)


def stem(c=3, k=64, taps=(7, 7), op=HALVES, size=(30, 44), dtype=DType.F32, **more):
    made = call(1, c, *size, k, taps, op, **more)
    return replace(made, inputs=(planes(1, c, *size, dtype), *made.inputs[1:]))


REFUSED_OUTPUTS = {
    "sm_75": to_few(arch=75),
    "strides (2, 1), dilations (1, 1)": to_few(op=Conv2d(stride=(2, 1))),
    "strides (1, 1), dilations (1, 2)": to_few(op=Conv2d(dilation=(1, 2))),
    "weights are no constant": replace(to_few(), constant=(False, False)),
    "a prologue": replace(to_few(), op=Conv2d(prologue=parse("relu($0)"))),
    "a store that moves channels": replace(to_few(), op=replace(SAME, store=InterleaveStore(2, 0))),
    "5 output channels of 3x3 taps": to_few(k=5),
    "3 output channels of 5x6 taps": to_few(taps=(5, 6)),
    "3 output channels of 17x1 taps": to_few(taps=(17, 1), size=(20, 20)),
    "40 input channels": to_few(c=40),
    "neither pixels of x nor rows of y are neighbours": to_few(y=nhwc((1, 3, 12, 40))),
    "input pixels are not aligned": to_few(c=12),
}
REFUSED_CHANNELS = {
    "sm_75": of_few(arch=75),
    "sums of 9 channels and 1x1 taps": of_few(c=9, taps=(1, 1)),
    "sums of 3 channels and 7x7 taps": of_few(taps=(7, 7)),
    "weights are no constant": replace(of_few(), constant=(False, False)),
    "element types": of_few(y=nhwc((1, 24, 12, 40), dtype=DType.F32)),
    "a store that moves channels": of_few(k=32, op=replace(SAME, store=DEPTH_TO_SPACE)),
    "pixels of the result are no vectors": of_few(k=20),
    "pixels are no multiples of 16 bytes apart": of_few(y=nhwc((1, 24, 12, 40), pitch=28)),
}


REFUSED_STEMS = {
    "sm_80": stem(arch=80),
    "5 input channels, 7 rows of taps": stem(c=5),
    "4 input channels, 12 rows of taps": stem(c=4, taps=(12, 7)),
    "rows of 8 taps, strides (2, 2), dilations (1, 1)": stem(taps=(7, 8)),
    "rows of 7 taps, strides (2, 1), dilations (1, 1)": stem(op=Conv2d((2, 1), (3, 3, 3, 3))),
    "rows of 7 taps, strides (2, 2), dilations (1, 2)": stem(op=replace(HALVES, dilation=(1, 2))),
    "rows of x are no pairs of neighbours": stem(size=(30, 43)),
    "pixels of the result are no vectors": stem(k=20),
}


@pytest.mark.parametrize("reason", REFUSED_STEMS)
def test_what_stems_refuse(reason):
    assert STEM.supports(stem()) is None
    assert STEM.supports(stem(taps=(7, 8), op=Conv2d((2, 2), (3, 2, 3, 4)))) is None
    assert STEM.supports(REFUSED_STEMS[reason]) == reason


@pytest.mark.parametrize("reason", REFUSED_OUTPUTS)
def test_what_few_outputs_refuse(reason):
    assert FEW_OUTPUTS.supports(to_few()) is None
    assert FEW_OUTPUTS.supports(REFUSED_OUTPUTS[reason]) == reason


@pytest.mark.parametrize("reason", REFUSED_CHANNELS)
def test_what_few_channels_refuse(reason):
    assert FEW_CHANNELS.supports(of_few()) is None
    assert FEW_CHANNELS.supports(REFUSED_CHANNELS[reason]) == reason


def test_terms_are_channels_and_a_lane_has_neighbours():
    for depth in (16, 32):
        terms = lane_terms(depth)
        assert sorted(terms) == list(range(depth))
        for q in range(4):
            own = [t + 16 * step for step in range(depth // 16) for t in
                   (2 * q, 2 * q + 1, 2 * q + 8, 2 * q + 9)]  # fmt: skip
            assert list(terms[own]) == list(range(q * depth // 4, (q + 1) * depth // 4))


def rows_of_results(x, launch, packed, k):
    """What a program's rows give: one strip of all pixels of an image, as the code counts."""
    config, tile = launch.config, launch.config.tile
    (r, s), (top, left), room = config.taps, config.padding, config.room
    h, w, _ = x.shape
    p, q = launch.integers["p"], launch.integers["q"] * config.vector
    found = np.full((k, p, q), np.nan)
    for strip in range(0, p, tile.strip):
        acc = np.zeros((16, q))
        for y0 in range(tile.strip + r - 1):
            line = strip - top + y0
            for tap in range(s):
                block = np.zeros((config.depth, q))
                at = np.arange(q) - left + tap
                inside = (at >= 0) & (at < w)
                if 0 <= line < h:
                    block[: x.shape[2], inside] = x[line, at[inside]].T
                acc += packed[y0 % r, tap].astype(float) @ block[lane_terms(config.depth)]
            place, row = (y0 + 1) % r, strip + y0 - (r - 1)
            if y0 >= r - 1 and row < p:
                assert np.isnan(found[:, row]).all()
                found[:, row] = acc[place * room : place * room + k]
            acc[place * room : (place + 1) * room] = 0
    return found


@pytest.mark.parametrize(
    ("c", "k", "taps", "padding"),
    [(16, 3, (3, 3), (1, 1, 1, 1)), (32, 4, (3, 2), (0, 2, 1, 1)), (16, 2, (5, 5), (2, 2, 2, 2)),
     (16, 16, (1, 3), (0, 0, 0, 0)), (32, 8, (2, 1), (1, 0, 0, 0))],
)  # fmt: skip
def test_rows_add_to_all_results_under_way(c, k, taps, padding):
    op = Conv2d(padding=padding)
    x, weights = operands(1, c=c, h=21, w=13, k=k, taps=taps)
    made = to_few(c, k, taps, op, (21, 13))
    for launch in (variant.launches[0] for variant in FEW_OUTPUTS.variants(made)):
        packing = launch.operands["w"].packing
        packed = FUNCTIONS[packing.function](weights, *packing.parameters)
        assert packed.nbytes == packing.nbytes
        found = rows_of_results(x[0], launch, packed, k)
        np.testing.assert_array_equal(found, reference(x, weights, op)[0].transpose(2, 0, 1))


def test_filters_lie_by_their_terms():
    weights = np.arange(5 * 3 * 2 * 2, dtype=np.float32).reshape(5, 3, 2, 2)
    packed = FUNCTIONS["cuda.lane_filters"](weights, DType.F16.value, 16, 8)
    np.testing.assert_array_equal(packed[:5, :12], weights.reshape(5, 12))
    assert not packed[5:].any() and not packed[:, 12:].any()


def test_a_lane_s_columns_are_neighbours():
    for columns, run in ((16, 4), (32, 8), (64, 8), (128, 8)):
        channels = lane_columns(columns)
        assert sorted(channels) == list(range(columns))
        for q in range(4):
            own = [8 * part + 2 * q + i for part in range(columns // 8) for i in (0, 1)]
            found = channels[own].reshape(-1, run)
            assert (np.diff(found) == 1).all() and (found[:, 0] % run == 0).all()


@pytest.mark.parametrize("op", [HALVES, Conv2d((1, 2), (2, 2, 1, 0)), Conv2d((4, 4), (0, 1, 0, 0))])
def test_rows_of_taps_begin_at_even_pixels(op):
    x, weights = operands(1, c=3, h=21, w=26, k=40, taps=(5, 6))
    made = stem(3, 40, (5, 6), op, (21, 26))
    (launch,) = next(iter(STEM.variants(made))).launches
    packing, columns = launch.operands["w"].packing, launch.config.tile.columns
    packed = FUNCTIONS[packing.function](weights, *packing.parameters).astype(float)
    assert packed.shape == (launch.integers["filters"], launch.integers["depth"])
    _, _, p, q = op.sum_shape((1, 3, 21, 26), weights.shape)
    before = op.padding[1] + op.padding[1] % 2
    wide = np.pad(x[0], ((op.padding[0], 40), (before, 40), (0, 0)))
    found = np.zeros((p, q, len(packed)))
    for row, left in np.ndindex(p, q):
        taps = wide[row * op.stride[0] : row * op.stride[0] + 5, left * op.stride[1] :][:, :8]
        terms = np.zeros(packed.shape[1])
        terms[: 3 * 5 * 8] = taps.transpose(2, 0, 1).ravel()
        found[row, left] = packed @ terms
    order = np.concatenate([i + lane_columns(columns) for i in range(0, len(packed), columns)])
    found = found[..., np.argsort(order)][..., :40]
    np.testing.assert_array_equal(found, reference(x, weights, op)[0])


def test_estimates_choose_them():
    large = to_few(size=(2880, 5120))
    plain = kernel_named("conv2d.few_outputs")
    assert next(FEW_OUTPUTS.variants(large)).micros < next(plain.variants(large)).micros
    thin = of_few(k=64, size=(720, 1280))
    for name in ("conv2d.few_channels", "conv2d.row_taps"):
        other = next(iter(kernel_named(name).variants(thin))).micros
        assert next(FEW_CHANNELS.variants(thin)).micros < other, name
    halved = stem(size=(224, 224))
    for name in ("conv2d.few_channels", "conv2d.row_taps", "conv2d.hopper_stem"):
        other = next(iter(kernel_named(name).variants(halved))).micros
        assert next(STEM.variants(halved)).micros < other, name


CODE = """
import re
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
from test_cuda_lanes import FEW_CHANNELS, FEW_OUTPUTS, STEM, of_few, stem, to_few

def codes(kernel, call, arch=90):
    for variant in kernel.variants(call):
        (launch,) = variant.launches
        entry = kernel.entry(launch.config)
        code = disassembled(compile_entry(entry, arch, tuple(launch.operands)))
        assert not re.search("LDS|STS|LDSM", code), "through shared memory"
        assert "STL" not in code and ("HMMA.16816" in code or "HGMMA" in code)
        yield code

for code in codes(FEW_OUTPUTS, to_few()):
    assert "LDG.E.64" in code and "STG.E.64" in code and "UBLKPF" in code
for code in codes(FEW_OUTPUTS, to_few(c=32)):
    assert "LDG.E.128" in code
for code in codes(FEW_OUTPUTS, to_few(arch=80), 80):
    assert "LDG.E.64" in code and "UBLKPF" not in code
for code in codes(FEW_CHANNELS, of_few()):
    assert "STG.E.128" in code
next(codes(FEW_CHANNELS, of_few(arch=80), 80))
for code in codes(STEM, stem()):
    assert "LDG.E.64" in code and "STG.E.128" in code and "UBLKPF" in code
    assert code.count("PRMT") < 16, "operands are put together of halves"
"""


def test_nothing_goes_through_shared_memory():
    run_where_it_compiles(CODE)
