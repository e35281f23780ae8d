"""Convolution down strips: what it refuses, how work is cut, a NumPy model of the code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hopper_model import (
    SAME,
    Ring,
    as_stored,
    call,
    nhwc,
    operands,
    reference,
    run_where_it_compiles,
    shuffled,
)

from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import View
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.opdefs import Conv2d, DepthToSpaceStore

STRIPS = kernel_named("conv2d.hopper_strips")
OP = Conv2d(padding=SAME)
ADDED = Conv2d(padding=SAME, epilogue=parse("relu(add(add($0, $1), $2))"))
CRD, DCR = DepthToSpaceStore(2, "CRD"), DepthToSpaceStore(2, "DCR")
BIAS = View(DType.F32, (64, 1, 1), (1, 1, 1))


def layer(op=OP, n=2, c=64, size=(9, 150), k=64, taps=(3, 3), **more):
    return call(n, c, *size, k, taps, op, **more)


def added(*views, k=64):
    op = replace(ADDED, epilogue=parse("add(add($0, $1), $2)"))
    return layer(op, k=k, extra=(BIAS, *views))


REFUSALS = {
    "sm_80": layer(arch=80),
    "strides (1, 2), dilations (1, 1)": layer(replace(OP, stride=(1, 2))),
    "windows of one row": layer(Conv2d(), taps=(1, 3)),
    "weights do not fit shared memory": layer(c=640),
    "blocks of pixels whose rows have 24 channels": layer(
        replace(OP, store=DepthToSpaceStore(3)), k=72
    ),
    "pixels of the result are parts of wider ones": layer(y=nhwc((2, 64, 9, 150), 96)),
    "TMA cannot move what is added": added(View(DType.F32, (2, 64, 9, 150), (86400, 1, 9600, 64))),
    "something is added to blocks of pixels": layer(
        replace(OP, store=CRD, epilogue=parse("add($0, $1)")), k=32,
        extra=(View(DType.F16, (2, 8, 18, 300), (43200, 1, 2400, 8)),),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "view",
    [
        nhwc((2, 64, 9, 150), 96),
        View(DType.F16, (2, 64, 9, 150), (86404, 1, 9600, 64)),
        View(DType.F16, (2, 64, 9, 150), (86400, 1350, 150, 1)),
        nhwc((1, 64, 9, 150)),
    ],
    ids=["parts of wider pixels", "unaligned images", "planes", "one image for all"],
)
def test_it_refuses_what_tma_cannot_bring(view):
    assert STRIPS.supports(added(view)) == "TMA cannot move what is added"


@pytest.mark.parametrize("reason", REFUSALS)
def test_it_refuses_what_it_cannot_do(reason):
    assert STRIPS.supports(layer()) is None
    assert STRIPS.supports(added(nhwc((2, 64, 9, 150)))) is None
    assert STRIPS.supports(REFUSALS[reason]) == reason


class Team:
    """One team's rows in NumPy, from a ring of stages that the warp which brings fills."""

    def __init__(self, launch, x, w):
        self.launch, self.x = launch, x
        config, i = launch.config, launch.integers
        self.tile, (self.r, self.s) = config.tile, config.window.taps
        self.top, self.left = config.window.padding
        self.steps = self.s * config.blocks
        depth = self.steps // self.s * self.tile.depth
        self.w = w.reshape(len(w), self.r * self.s, depth).astype(np.float32)
        self.lines = i["length"] + self.r - 1
        assert self.lines % self.r == 0

    def part(self, number):
        """Its image, its first row, its first pixel."""
        i = self.launch.integers
        image, rest = divmod(number, i["across"] * i["runs"])
        return image, rest // i["across"] * i["length"], rest % i["across"] * 64

    def stage(self, number, at):
        """A row of input for a column of taps and some channels; zeros beyond the image."""
        image, top, left = self.part(number)
        line, step = divmod(at, self.steps)
        column, block = step // self.launch.config.blocks, step % self.launch.config.blocks
        first = block * self.tile.depth
        found = np.zeros((64, self.tile.depth), np.float32)
        row, pixels = top - self.top + line, left - self.left + column + np.arange(64)
        there = (pixels >= 0) & (pixels < self.x.shape[2])
        if image < len(self.x) and 0 <= row < self.x.shape[1]:
            values = self.x[image, row, pixels[there], first : first + self.tile.depth]
            found[there, : values.shape[1]] = values
        return found

    def rows(self, numbers, col):
        """Each row of sums that is stored: image, row, first pixel, sums."""
        ring, per_part = Ring(self.tile.ring), self.lines * self.steps
        sums = [np.zeros((64, self.tile.columns), np.float32) for _ in range(self.r)]
        stages = [(number, at) for number in numbers for at in range(per_part)]
        asked = min(len(stages), self.tile.ring - 1)
        for over, one in enumerate(stages[:asked]):
            ring.ask(over, self.stage(*one))
        for over, (number, at) in enumerate(stages):
            stage = ring.wait(over)
            if over + asked < len(stages):
                ring.ask(over + asked, self.stage(*stages[over + asked]))
            (line, step), depth = divmod(at, self.steps), self.tile.depth
            column, block = divmod(step, self.launch.config.blocks)
            for r in range(self.r):
                taps = self.w[:, r * self.s + column, block * depth :][:, :depth]
                taps = taps[col : col + self.tile.columns]
                if r == step == 0:
                    sums[line % self.r][:] = 0
                sums[(line - r) % self.r][:, : len(taps)] += stage @ taps.T
            image, top, left = self.part(number)
            row = top + line - (self.r - 1)
            stored = line >= self.r - 1 and row < self.launch.integers["p"]
            if step == self.steps - 1 and stored:
                yield image, row, left, sums[(line + 1) % self.r]


def model(launch, x, w, y):
    """The code, in NumPy."""
    config, i = launch.config, launch.integers
    columns, block = config.tile.columns, i["y_inner"]
    blocks = -(-i["k"] * 8 // columns)
    assert launch.chunks % blocks == 0
    for program in range(launch.chunks):
        col = program % blocks * columns
        for team in range(2):
            first, apart = program // blocks * 2 + team, launch.chunks // blocks * 2
            parts = range(first, i["parts"], apart)
            for image, row, left, sums in Team(launch, x, w).rows(parts, col):
                pixels = left + np.arange(64)
                pixels = pixels[pixels < i["y_pixels"]]
                for at in range(col, min(col + columns, i["k"] * 8)):
                    inner, channel = divmod(at, config.wide) if config.wide else (0, at)
                    place = image * i["y_by_image"] + row * i["y_by_row"] + inner * i["y_by_inner"]
                    place = place + pixels * i["y_by_pixel"] + channel
                    assert inner < block and np.isnan(y[place]).all()
                    y[place] = sums[: len(pixels), at - col]


@pytest.mark.parametrize(
    ("op", "c", "k", "taps"),
    [
        (OP, 64, 64, (3, 3)),
        (Conv2d(padding=(1, 2, 0, 0)), 24, 72, (2, 3)),
        (replace(OP, store=CRD), 16, 64, (3, 3)),
        (replace(OP, store=DCR), 16, 128, (3, 3)),
    ],
    ids=["plain", "uneven", "crd", "dcr"],
)
def test_a_model_of_the_code_convolves(op, c, k, taps):
    x, w = operands(2, c=c, h=9, w=70, k=k, taps=taps)
    asked = replace(layer(op, c=c, size=(9, 70), k=k, taps=taps), target=GpuTarget(90, 3))
    assert STRIPS.supports(asked) is None
    expected = shuffled(reference(x, w, op), op.store)
    for variant in STRIPS.variants(asked):
        (launch,) = variant.launches
        assert set(launch.integers) == STRIPS.entry(launch.config).launch_integers
        packing = launch.operands["w"].packing
        packed = FUNCTIONS[packing.function](w, *packing.parameters)
        y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
        model(launch, x, packed, y)
        assert np.array_equal(as_stored(y, asked.outputs[0]), expected)


@pytest.mark.parametrize("size", [(1, 1), (7, 64), (720, 1280), (5000, 3)])
@pytest.mark.parametrize("taps", [(2, 2), (3, 3), (5, 5)])
def test_parts_are_all_rows_of_all_strips(size, taps):
    asked = layer(Conv2d(padding=(taps[0] // 2,) * 4), c=16, k=32, size=size, taps=taps)
    _, _, p, q = asked.outputs[0].shape
    for variant in STRIPS.variants(asked):
        i = variant.launches[0].integers
        assert i["across"] * 64 >= q > (i["across"] - 1) * 64
        assert i["runs"] * i["length"] >= p > (i["runs"] - 1) * i["length"]
        assert i["parts"] == i["n"] * i["across"] * i["runs"]
        assert (i["length"] + taps[0] - 1) % taps[0] == 0


def test_strides_of_one_row_or_image_are_those_of_packed_ones():
    """What they are is nobody's business, and TMA takes multiples of 16 bytes alone."""
    y = View(DType.F16, (1, 64, 1, 150), (3, 1, 5, 64))
    (launch,) = next(iter(STRIPS.variants(layer(n=1, size=(1, 150), y=y)))).launches
    i = launch.integers
    assert (i["y_by_image"], i["y_by_row"], i["y_by_pixel"]) == (9600, 9600, 64)


def test_what_is_added_comes_by_tma_and_the_rest_is_read_once():
    (launch,) = next(iter(STRIPS.variants(added(nhwc((2, 64, 9, 150)))))).launches
    entry = STRIPS.entry(launch.config)
    assert [one.name for one in entry.descriptors] == ["x", "w", "y", "e2"]
    assert [name for name, _ in entry.extra_pointers] == ["e1"]
    assert "tl.load" not in entry.functions["EPILOGUE"]
    assert entry.functions["KNOWN"].count("tl.load") == 1


COMPILED = """
from test_cuda_hopper_strips import STRIPS, layer
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
for variant in STRIPS.variants(layer(size=(720, 1280))):
    entry = STRIPS.entry(variant.launches[0].config)
    cubin = compile_entry(entry, 90, [])
    sass = disassembled(cubin)
    # Three rows of three taps, each of four products for three rows of sums, for two teams.
    assert "STACK:0" in sass and sass.count("HGMMA") == 216, sass.count("HGMMA")
    # Products wait once a step, not for one another.
    assert sass.count("WARPGROUP.DEPBAR") == 18
    # Results leave by TMA, once a row of sums.
    assert sass.count("UTMASTG") == 6 and "STG.E" not in sass and cubin.shared <= 232448
"""


def test_it_compiles():
    """In a process that never saw the interpreter."""
    run_where_it_compiles(COMPILED)
