"""Deformable convolution on Hopper: what can be held without a GPU.

What comes before and behind the products runs in Triton's interpreter; of the products, which are
Gluon's, a NumPy model does what the launch's integers say.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cuda import cubins
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.gpus import gpu
from saccade.backends.cuda.operation import bound
from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cuda import packing
from saccade.kernels.cuda.deform import hopper
from saccade.kernels.cuda.deform.columns import DEFORM_COLUMNS
from saccade.kernels.cuda.deform.hopper import DEFORM_HOPPER
from saccade.opdefs import DeformConv
from saccade.ops._cuda_library import Compiler
from saccade.testing.guarded import GuardedMemory
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.triton import H200, play

SAME = DeformConv(padding=(1, 1, 1, 1), mask=True)
FAR = DeformConv((1, 2), (1, 0, 1, 2), (2, 1), offset_groups=2, bias=True)


def shapes_of(op, x, outputs, window):
    n, c, h, w = x
    p, q = (
        (size + op.padding[i] + op.padding[i + 2] - (window[i] - 1) * op.dilation[i] - 1)
        // op.stride[i] + 1
        for i, size in enumerate((h, w))
    )  # fmt: skip
    taps = op.offset_groups * window[0] * window[1]
    shapes = [x, (outputs, c // op.groups, *window), (n, 2 * taps, p, q)]
    shapes += [(outputs,)] * op.bias + [(n, taps, p, q)] * op.mask
    return shapes, (n, outputs, p, q)


def call_of(op, x, outputs, window=(3, 3), dtype=DType.F16, last=False, target=H200):
    shapes, result = shapes_of(op, x, outputs, window)
    views, y = [row_major(dtype, shape) for shape in shapes], row_major(dtype, result)
    if last:
        views[0], y = nhwc_view(dtype, x, x[1]), nhwc_view(dtype, result, outputs)
    return Call(op, tuple(views), (y,), (False,) * len(views), target)


def drawn(call):
    """Pixels and weights are whole, offsets quarters, masks halves: samples have no rounding."""
    rng = np.random.default_rng(sum(call.inputs[0].shape))
    x, w, offset, *others = (view.shape for view in call.inputs)
    arrays = [rng.integers(-3, 4, x), rng.integers(-3, 4, w), rng.integers(-12, 13, offset) / 4]
    arrays += [rng.integers(0, 4, shape) / 2 for shape in others]
    return [a.astype(call.inputs[0].dtype.numpy) for a in arrays]


def elements(memory, place, dtype, count):
    return memory[place : place + count * np.dtype(dtype).itemsize].view(dtype)


class FusedModel:
    """The programs of one launch of the phase `fused`, over the memory of its call."""

    def __init__(self, memory, phase, call):
        self.i, self.tile = phase.integers, phase.config.tile
        self.taps = phase.config.taps[0] * phase.config.taps[1]
        places = {a.name: a.ref.offset for a in phase.arguments}
        c = call.inputs[0].shape[1]
        self.kind, self.groups = call.inputs[0].dtype.numpy, call.op.offset_groups
        i, k = self.i, phase.integers["k"]
        self.padded = -(-k // self.tile[1]) * self.tile[1]
        n, _, h, w = call.inputs[0].shape
        self.x = elements(memory, places["x"], self.kind, n * c * h * w).astype(np.float32)
        count = self.groups * 2 * self.taps * i["rows"] * 4
        self.squares = elements(memory, places["squares"], np.int32, count).reshape(
            self.groups, 2, self.taps, i["rows"], 4
        )
        count = c // 64 * self.taps * self.padded * 64
        self.w = elements(memory, places["w"], self.kind, count).reshape(
            c // 64, self.taps, self.padded, 64
        )
        splits = i["shares"] * self.groups
        count = splits * i["pixels"] * k
        self.parts = elements(memory, places["parts"], np.float32, count).reshape(splits, -1, k)

    def samples(self, group, tap, rows, block):
        corners = self.squares[group, 0, tap, rows]
        words = self.squares[group, 1, tap, rows]
        if self.kind == np.float16:
            assert np.array_equal(words & 0xFFFF, words >> 16 & 0xFFFF)
            weights = words.astype(np.uint16).view(np.float16)
        else:
            weights = words.view(np.float32)
        found = np.zeros((len(corners), 64), np.float32)
        for corner, weight in zip(corners.T, weights.astype(np.float32).T, strict=True):
            places = np.maximum(corner, 0)[:, None] * 8 + block * 64 + np.arange(64)
            found += np.where(corner[:, None] >= 0, self.x[places], 0) * weight[:, None]
        return found.astype(self.kind).astype(np.float32)

    def weights(self, block, tap, cols):
        """In the channels' order: a row's eighths are swizzled, and its terms permuted."""
        rows = self.w[block, tap, cols].astype(np.float32)
        eighths = np.arange(8)[None, :] ^ (cols % 8)[:, None]
        rows = np.take_along_axis(rows.reshape(-1, 8, 8), eighths[:, :, None], 1).reshape(-1, 64)
        channel = np.arange(64)
        return rows[
            :, channel // 32 * 32 + channel // 2 % 4 * 8 + channel // 8 % 4 * 2 + channel % 2
        ]

    def run(self, programs):
        i, (bm, bn, *_) = self.i, self.tile
        tiles, blocks = -(-i["pixels"] // bm), -(-i["k"] // bn)
        for pid in range(programs):
            col, row = pid % blocks * bn, pid // blocks % tiles * bm
            part = pid // (blocks * tiles)
            share = -(-i["shared"] // i["shares"])
            first = part % i["shares"] * share
            own = range(first, min(i["shared"], first + share))
            group = part // i["shares"]
            assert len(own) > 0
            rows = i["first_pixel"] + row + np.arange(bm)
            cols = col + np.arange(bn)
            sums = np.zeros((bm, bn), np.float32)
            for block in own:
                for tap in range(self.taps):
                    block_ = group * i["shared"] + block
                    a = self.samples(group, tap, rows, block_)
                    sums += a @ self.weights(block_, tap, cols).T
            height, width = min(bm, i["pixels"] - row), min(bn, i["k"] - col)
            self.parts[part, row : row + height, col : col + width] = sums[:height, :width]


def results(call, arrays, launches):
    placed = GuardedMemory(call, arrays, packing.FUNCTIONS)
    phases = placed.phases(launches)
    memory, guards = placed.filled()
    before = memory[guards].copy()
    for phase in phases:
        if phase.config.phase == "fused":
            FusedModel(memory, phase, call).run(phase.chunks)
        else:
            play(DEFORM_HOPPER.entry(phase.config), phase, [memory.ctypes.data])
    placed.check(before, memory, guards, DEFORM_HOPPER.name)
    return placed.result(memory, 0)


def check(call, variants=(0,)):
    assert DEFORM_HOPPER.supports(call) is None
    arrays = drawn(call)
    (truth,) = call.op.reference(*(a.astype(np.float64) for a in arrays))
    launches = [variant.launches for variant in DEFORM_HOPPER.variants(call)]
    for number in variants:
        found = results(call, arrays, launches[number]).astype(np.float64)
        assert np.array_equal(found, truth.astype(call.outputs[0].dtype.numpy)), number


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_right(dtype, last):
    check(call_of(SAME, (2, 128, 5, 9), 20, dtype=dtype, last=last))


def test_every_variant():
    call = call_of(SAME, (1, 192, 4, 5), 70)
    count = len(list(DEFORM_HOPPER.variants(call)))
    assert count == 9  # as many parts as blocks, and the sizes of tiles
    check(call, range(count))


def test_windows_groups_of_offsets_and_outputs_in_several_blocks():
    check(call_of(FAR, (1, 256, 6, 19), 300, (2, 3)))


def test_pieces_of_images(monkeypatch):
    call = call_of(SAME, (3, 64, 6, 7), 16)
    monkeypatch.setattr(hopper, "_SUMS", 4 * 2 * 42 * 16)
    phases = [launch.config.phase for launch in DEFORM_HOPPER.launch(call)]
    assert phases == ["arranged", "fused", "summed", "fused", "summed"]
    check(call)


def test_places_that_are_no_numbers():
    call = call_of(SAME, (1, 64, 4, 5), 3)
    arrays = drawn(call)
    offset, mask = arrays[2:]
    for place, value in enumerate((np.nan, np.inf, -np.inf, 60000)):
        offset[0, place, 1, place] = value
    mask[0, 5, 2, 2], mask[0, 7, 3, 1], mask[0, 0, 0, 0] = np.nan, np.inf, np.inf
    arrays[0][0, :, 0, 4] = np.inf
    with np.errstate(all="ignore"):
        (truth,) = call.op.reference(*(a.astype(np.float64) for a in arrays))
        found = results(call, arrays, DEFORM_HOPPER.launch(call))
    assert np.array_equal(np.isnan(found), np.isnan(truth))
    assert np.isnan(truth).any() and np.isfinite(truth).any()


PLAIN = call_of(SAME, (1, 64, 4, 5), 16)
WIDE = View(DType.F16, (1, 64, 4, 5), (4 * 5 * 68, 1, 5 * 68, 68))
REFUSED = {
    "sm_80": (dataclasses.replace(PLAIN, target=GpuTarget(arch=80)), "sm_80"),
    "float32": (call_of(SAME, (1, 64, 4, 5), 16, dtype=DType.F32), "element types"),
    "groups": (
        call_of(dataclasses.replace(SAME, groups=2), (1, 128, 4, 5), 16),
        "2 groups of 128 channels, 128 with the same offsets",
    ),
    "channels": (
        call_of(SAME, (1, 72, 4, 5), 16), "1 groups of 72 channels, 72 with the same offsets"
    ),
    "offset groups": (
        call_of(dataclasses.replace(SAME, offset_groups=4), (1, 128, 4, 5), 16),
        "1 groups of 128 channels, 32 with the same offsets",
    ),
    "pixels with gaps": (
        dataclasses.replace(PLAIN, inputs=(WIDE, *PLAIN.inputs[1:])),
        "pixels of x that do not begin at multiples of 16 bytes",
    ),
    "many taps": (call_of(SAME, (1, 64, 9, 9), 16, (7, 8)), "56 taps of 16 outputs"),
    "no images": (call_of(SAME, (0, 64, 4, 5), 16), "9 taps of 16 outputs"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_what_it_cannot_do(name):
    asked, reason = REFUSED[name]
    assert DEFORM_HOPPER.supports(asked) == reason


def test_it_is_taken_where_it_wins():
    for last in (False, True):
        call = call_of(SAME, (6, 512, 19, 34), 256, last=last)
        mine, columns = (next(iter(k.variants(call))) for k in (DEFORM_HOPPER, DEFORM_COLUMNS))
        assert mine.micros < columns.micros
        assert mine.launches[1].chunks == 124  # of 132 multiprocessors


@pytest.mark.parametrize(
    ("version", "kernel"),
    [("3.6.0", "deform.columns"), ("3.8.0", "deform.columns"), ("3.9.0", "deform.hopper")],
)
def test_an_older_triton_gets_columns(monkeypatch, version, kernel):
    """PyTorch brings one."""
    monkeypatch.setattr(cubins, "triton_version", lambda: version)
    compiler = Compiler(gpu("h200"), cubins.Cubins(90, disk=False))
    call = call_of(SAME, (6, 512, 19, 34), 256)
    assert compiler.launches(call.op, call.inputs, call.outputs)[1] == kernel


def test_an_older_triton_gets_code_that_was_carried(monkeypatch):
    monkeypatch.setattr(cubins, "triton_version", lambda: "3.6.0")
    call = call_of(SAME, (6, 512, 19, 34), 256)
    known = cubins.Cubins(90, disk=False)
    _, _, keys = bound(DEFORM_HOPPER.name, call, DEFORM_HOPPER.launch(call))
    code = Cubin("kernel", b"", (), 4, 0)
    known.carry({known.portable_name(key): code for key in keys[:2]})
    compiler = Compiler(gpu("h200"), known)
    # What the last phase needs any Triton compiles.
    assert compiler.launches(call.op, call.inputs, call.outputs)[1] == DEFORM_HOPPER.name
