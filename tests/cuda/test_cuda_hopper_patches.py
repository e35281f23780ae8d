"""Convolution by patches of pixels: what it refuses, how work is cut, a NumPy model of the code."""

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
)

from saccade.backends.cuda.target import GpuTarget
from saccade.ir.expr import parse
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.opdefs import Conv2d, DepthToSpaceStore

PATCHES = kernel_named("conv2d.hopper_patches")
OP = Conv2d(padding=SAME)
GROUPED = Conv2d(padding=SAME, groups=9)


def layer(op=OP, n=2, c=64, size=(9, 19), k=64, taps=(3, 3), **more):
    return call(n, c, *size, k, taps, op, **more)


REFUSALS = {
    "sm_80": layer(arch=80),
    "strides (1, 2), dilations (1, 1)": layer(replace(OP, stride=(1, 2))),
    "strides (3, 3), dilations (1, 1)": layer(replace(OP, stride=(3, 3))),
    "strides (1, 1), dilations (2, 2)": layer(replace(OP, dilation=(2, 2))),
    "one tap": layer(Conv2d(), taps=(1, 1)),
    "depthwise": layer(replace(OP, groups=64)),
    "a store map": layer(replace(OP, store=DepthToSpaceStore(2))),
    "a prologue": layer(replace(OP, prologue=parse("relu($0)"))),
    "channels of the result do not come in eights": layer(k=60, y=nhwc((2, 60, 9, 19), 64)),
    "weights and patches do not fit shared memory": layer(c=640, k=640),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_it_refuses_what_it_cannot_do(reason):
    assert PATCHES.supports(layer()) is None
    assert PATCHES.supports(layer(replace(GROUPED), c=72, k=72)) is None
    assert PATCHES.supports(REFUSALS[reason]) == reason


@pytest.mark.parametrize(("groups", "c", "k"), [(3, 9, 24), (2, 130, 8), (2, 8, 130)])
def test_groups_that_no_block_of_whole_vectors_holds_are_refused(groups, c, k):
    asked = layer(Conv2d(padding=SAME, groups=groups), c=groups * c, k=groups * k)
    assert PATCHES.supports(asked) is not None


def block_of(w, config, integers, block):
    """Weights of a block of channels, by row of taps and step."""
    tile, (r, s) = config.tile, config.window.taps
    rows = w.reshape(len(w), r, s * config.deep, tile.inputs).astype(np.float32)
    found = np.zeros((tile.outputs, *rows.shape[1:]), np.float32)
    part = rows[block * tile.outputs : (block + 1) * tile.outputs]
    found[: len(part)] = part
    return found.transpose(1, 2, 0, 3)


class Team:
    """One team's tiles in NumPy, from a ring of patches that come one tile ahead."""

    def __init__(self, launch, x, w, block):
        self.launch, self.x = launch, x
        config = launch.config
        self.tile, (self.r, self.s) = config.tile, config.window.taps
        self.stride = config.window.stride[0]
        self.each = self.tile.lines + (self.r - 1) // self.stride
        self.steps = self.s * config.deep
        assert self.steps % self.tile.stages == 0
        self.first = block * config.block[0]
        self.w = block_of(w, config, launch.integers, block)

    def corner(self, tile):
        i = self.launch.integers
        image, rest = divmod(tile, i["down"] * i["across"])
        line, pixel = divmod(rest, i["across"])
        return image, line * self.tile.lines, pixel * self.tile.pixels

    def patch(self, tile, t):
        """Rows of pixels as they lie behind one another: those of each remainder by the stride."""
        image, line, pixel = self.corner(tile)
        top, left = self.launch.config.window.padding
        column, deep = divmod(t, self.launch.config.deep)
        first = self.first + deep * self.tile.inputs
        _, h, w, _ = self.x.shape
        found = []
        for rest in range(min(self.stride, self.r)):
            rows = line * self.stride - top + rest + self.stride * np.arange(self.each)
            pixels = pixel * self.stride - left + column
            pixels = pixels + self.stride * np.arange(self.tile.pixels)
            box = np.zeros((self.each, self.tile.pixels, self.tile.inputs), np.float32)
            row_there = (rows >= 0) & (rows < h)
            there = (pixels >= 0) & (pixels < w)
            brought = self.x[image, rows[row_there]][:, pixels[there], first:]
            brought = brought[..., : self.tile.inputs]
            box[np.ix_(row_there, there, np.arange(brought.shape[-1]))] = brought
            found.append(box)
        return np.concatenate(found)

    def tiles(self, numbers):
        """Each tile's image, first row, first pixel, sums."""
        ring = Ring(self.tile.stages)
        stages = [(tile, t) for tile in numbers for t in range(self.steps)]
        ahead = self.tile.stages - 1
        for over, one in enumerate(stages[:ahead]):
            ring.ask(over, self.patch(*one))
        for over, (tile, t) in enumerate(stages):
            patch = ring.wait(over)
            if t == 0:
                sums = np.zeros((self.tile.lines * self.tile.pixels, self.tile.outputs), np.float32)
            for r in range(self.r):
                at = r % self.stride * self.each + r // self.stride
                part = patch[at : at + self.tile.lines].reshape(len(sums), -1)
                sums = sums + part @ self.w[r, t].T
            if over + ahead < len(stages):
                ring.ask(over + ahead, self.patch(*stages[over + ahead]))
            if t == self.steps - 1:
                yield *self.corner(tile), sums


def model(launch, x, w, y):
    """The code, in NumPy."""
    config, i = launch.config, launch.integers
    tile, outputs, blocks = config.tile, config.block[1], i["blocks"]
    assert launch.chunks % blocks == 0
    y_n, y_p, y_q = (8 * i[name] for name in ("y_n", "y_p", "y_q"))
    for program in range(launch.chunks):
        block = program % blocks
        channels = np.arange(block * outputs, min((block + 1) * outputs, 8 * i["k"]))
        for team in range(tile.teams):
            first = program // blocks * tile.teams + team
            numbers = range(first, i["tiles"], launch.chunks // blocks * tile.teams)
            for image, line, pixel, sums in Team(launch, x, w, block).tiles(numbers):
                for at, row in enumerate(sums):
                    p, q = line + at // tile.pixels, pixel + at % tile.pixels
                    if p >= i["p"] or q >= i["q"]:
                        continue
                    corner = image * y_n + p * y_p + q * y_q
                    if config.even:
                        corner = ((image * i["p"] + p) * i["q"] + q) * y_q
                    assert np.isnan(y[corner + channels]).all()
                    y[corner + channels] = row[: len(channels)]


WINDOWS = {
    "dense": (OP, 24, 72, (3, 3)),
    "deep": (OP, 136, 16, (3, 3)),
    "strided": (Conv2d(stride=(2, 2), padding=(1, 2, 0, 1)), 40, 32, (3, 3)),
    "one row": (Conv2d(padding=(0, 1, 0, 1)), 16, 40, (1, 4)),
    "5x5 strided": (Conv2d(stride=(2, 2), padding=(2, 2, 2, 2)), 16, 16, (5, 5)),
    "fours": (Conv2d(padding=SAME, groups=20), 80, 80, (3, 3)),
    "24s strided": (Conv2d(stride=(2, 2), padding=SAME, groups=3), 72, 72, (3, 3)),
    "multiplier": (Conv2d(padding=SAME, groups=5), 40, 80, (3, 2)),
    "divider": (Conv2d(padding=SAME, groups=5), 80, 40, (2, 2)),
}


def grouped_reference(x, w, op):
    parts = zip(np.split(x, op.groups, 3), np.split(w, op.groups), strict=True)
    return np.concatenate([reference(one, own, op) for one, own in parts], 3)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_model_of_the_code_convolves(name):
    op, c, k, taps = WINDOWS[name]
    x, _ = operands(2, c=c, h=9, w=19)
    _, w = operands(c=c // op.groups, k=k, taps=taps)
    asked = replace(layer(op, c=c, k=k, taps=taps), target=GpuTarget(90, 3))
    assert PATCHES.supports(asked) is None
    expected = grouped_reference(x, w, op)
    for variant in PATCHES.variants(asked):
        (launch,) = variant.launches
        assert set(launch.integers) == PATCHES.entry(launch.config).launch_integers
        packing = launch.operands["w"].packing
        packed = FUNCTIONS[packing.function](w, *packing.parameters)
        assert packed.nbytes == packing.nbytes
        assert packed.shape == (launch.integers["filters"], launch.integers["depth"])
        y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
        model(launch, x, packed, y)
        assert np.array_equal(as_stored(y, asked.outputs[0]), expected)


def test_parts_of_wider_pixels_are_stored_as_they_lie():
    x, w = operands(2, c=16, k=16)
    asked = layer(c=16, k=16, size=(9, 11), y=nhwc((2, 16, 9, 11), 40))
    (launch,) = next(iter(PATCHES.variants(asked))).launches
    packed = FUNCTIONS["cuda.filters"](w, *launch.operands["w"].packing.parameters)
    y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
    model(launch, x, packed, y)
    assert np.array_equal(as_stored(y, asked.outputs[0]), reference(x, w, OP))


def test_a_patch_comes_in_one_load_whatever_its_rows():
    (launch,) = next(
        variant.launches for variant in PATCHES.variants(layer())
        if variant.launches[0].config.tile.lines == 8
    )  # fmt: skip
    x = PATCHES.entry(launch.config).descriptors[0]
    assert x.block[1] == 1 and x.box[1] == 10 and not x.im2col
    strided = layer(replace(OP, stride=(2, 2)))
    (launch,) = next(iter(PATCHES.variants(strided))).launches
    assert PATCHES.entry(launch.config).descriptors[0].steps == (2, 2)


COMPILED = """
from test_cuda_hopper_patches import GROUPED, PATCHES, layer
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
for variant in PATCHES.variants(layer(GROUPED, c=72, k=72, size=(56, 56))):
    config = variant.launches[0].config
    cubin = compile_entry(PATCHES.entry(config), 90, [])
    sass, tile = disassembled(cubin), config.tile
    # Three columns of three taps, for 64 pixels and 16 channels each, of each team.
    products = 9 * tile.inputs // 16 * (tile.lines * tile.pixels // 64) * tile.teams
    assert "STACK:0" in sass and sass.count("HGMMA") == products, sass.count("HGMMA")
    # The weights of nine taps; of each team, three patches and two before the first tile.
    assert sass.count("UTMALDG") == 9 + 5 * tile.teams, sass.count("UTMALDG")
    assert cubin.shared <= tile.shared(3, 3, 1) <= 232448
"""


def test_it_compiles():
    """In a process that never saw the interpreter."""
    run_where_it_compiles(COMPILED)
