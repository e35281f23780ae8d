"""Implicit GEMM by teams on Hopper: what can be held without a GPU.

As for `conv2d.hopper`, a NumPy model does what the launch's integers say: it cuts the work, lets
the warp that brings and the teams go on by turns as barriers let them, and stores each result once.
That what is added and results share memory is held by the tests on a GPU alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hopper_model import (
    WINDOWS,
    as_stored,
    call,
    nhwc,
    number,
    operands,
    reference,
    run_where_it_compiles,
)

from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import View
from saccade.kernels.cuda.conv2d.hopper import CONV2D_HOPPER
from saccade.kernels.cuda.conv2d.hopper_teams import CONV2D_HOPPER_TEAMS
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.opdefs import Conv2d, DepthToSpaceStore

POINT, ADDED = Conv2d(), Conv2d(epilogue=parse("relu(add($0, $1))"))
TWICE = Conv2d(epilogue=parse("add(add($0, $1), $2)"))
PLAIN = call(2, 64, 9, 9, 128, (1, 1), POINT)
SLICE = nhwc((2, 128, 9, 9), 160)
OWN = "a prologue or a store of its own"
UNMOVED = "TMA cannot move the result or what is added"
REFUSED = {
    "sm_80": (replace(PLAIN, target=GpuTarget(arch=80)), "sm_80"),
    "prologue": (replace(PLAIN, op=Conv2d(prologue=parse("relu($0)"))), OWN),
    "store": (call(2, 64, 9, 9, 512, (1, 1), Conv2d(store=DepthToSpaceStore(2, "CRD"))), OWN),
    "part of wider pixels": (replace(PLAIN, outputs=(SLICE,)), UNMOVED),
    "added from wider pixels": (call(2, 64, 9, 9, 128, (1, 1), ADDED, extra=(SLICE,)), UNMOVED),
    "two images": (
        call(2, 64, 9, 9, 128, (1, 1), TWICE, extra=(nhwc((2, 128, 9, 9)),) * 2),
        "several operands of the epilogue that vary along pixels and channels",
    ),
    "few inputs": (call(2, 56, 9, 9, 128, (3, 3), POINT), "56 input channels"),
    "few outputs": (call(2, 64, 9, 9, 32, (3, 3), POINT), "32 output channels"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_what_it_cannot_do(name):
    asked, reason = REFUSED[name]
    assert CONV2D_HOPPER_TEAMS.supports(asked) == reason


class Barrier:
    """Turns after so many arrivals; lets those pass that wait for the parity of its last turn."""

    def __init__(self, count):
        self.count, self.left, self.turns = count, count, 0

    def arrive(self):
        self.left -= 1
        if not self.left:
            self.left, self.turns = self.count, self.turns + 1

    def passes(self, parity):
        return (self.turns & 1) != parity


class Program:
    """The tiles of one program: one generator brings, one of each team takes."""

    def __init__(self, launch, x, packed, added, y, which):
        self.i, self.config, self.tile = launch.integers, launch.config, launch.config.tile
        self.x, self.packed, self.added, self.y = x, packed, added, y
        self.tiles = range(which, self.i["tiles"], launch.chunks)
        self.blocks = -(-self.i["k"] * 8 // self.tile.width)
        r, s = self.config.window.taps
        self.taps, self.total = r * s, r * s * self.i["steps"]
        self.begun = CONV2D_HOPPER_TEAMS.entry(self.config).constants["BEGUN"]
        assert self.begun <= self.tile.stages
        self.stages = [None] * self.tile.stages
        self.come = [Barrier(1) for _ in self.stages]
        self.free = [Barrier(self.tile.teams) for _ in self.stages]
        self.done = [0] * self.tile.teams  # steps of each team

    def corner(self, tile):
        return tile // self.blocks * self.tile.rows, tile % self.blocks * self.tile.width

    def step(self, tile, t):
        """Pixels and weights of a step: zeros beyond the images and channels."""
        window, depth, steps = self.config.window, self.tile.depth, self.i["steps"]
        if self.config.taps_inner:
            block, tap = divmod(t, self.taps)
        else:
            tap, block = divmod(t, steps)
        m, col = self.corner(tile)
        dy, dx = divmod(tap, window.taps[1])
        found = np.zeros((self.tile.rows, depth), np.float32)
        _, h, w, _ = self.x.shape
        for row in range(min(self.tile.rows, self.i["rows"] - m)):
            line, pixel = divmod(m + row, self.i["q"])
            image, line = divmod(line, self.i["p"])
            top = line * window.stride[0] - window.padding[0] + dy * window.dilation[0]
            left = pixel * window.stride[1] - window.padding[1] + dx * window.dilation[1]
            if 0 <= top < h and 0 <= left < w:
                part = self.x[image, top, left, block * depth : (block + 1) * depth]
                found[row, : len(part)] = part
        at = (tap * steps + block) * depth
        weights = self.packed[col : col + self.tile.width, at : at + depth]
        return found, weights.astype(np.float32)

    def bring(self):
        for at in range(len(self.tiles) * self.total):
            round_, slot = divmod(at, self.tile.stages)
            # The first ones are asked for before warps have parts.
            while at >= min(self.begun, self.total) and not self.free[slot].passes(
                (round_ & 1) ^ 1
            ):
                yield
            # What lay there has been multiplied by all.
            assert min(self.done) > at - self.tile.stages
            self.stages[slot] = self.step(self.tiles[at // self.total], at % self.total)
            self.come[slot].arrive()

    def take(self, team):
        rows = slice(64 * team, 64 * (team + 1))
        for j, tile in enumerate(self.tiles):
            m, col = self.corner(tile)
            sums = np.zeros((64, self.tile.width), np.float32)
            for t in range(self.total):
                at = j * self.total + t
                round_, slot = divmod(at, self.tile.stages)
                while not self.come[slot].passes(round_ & 1):
                    yield
                pixels, weights = self.stages[slot]
                sums[:, : len(weights)] += pixels[rows] @ weights.T
                if t > 0:
                    self.done[team] = at
                    self.free[(at - 1) % self.tile.stages].arrive()
            self.done[team] = (j + 1) * self.total
            self.free[((j + 1) * self.total - 1) % self.tile.stages].arrive()
            self.store(m + rows.start, col, sums)

    def store(self, m, col, sums):
        pixels = slice(m, max(m, min(m + 64, self.i["rows"])))
        columns = slice(col, min(col + self.tile.width, self.i["filters"]))
        done = sums[: pixels.stop - m, : columns.stop - col]
        if self.added is not None:
            done = np.maximum(done + self.added[pixels, columns], 0)
        assert np.isnan(self.y[pixels, columns]).all()
        self.y[pixels, columns] = done

    def run(self):
        running = [self.bring(), *(self.take(team) for team in range(self.tile.teams))]
        turns = 0
        while running:
            # Whoever is not first in a round sees what others did before; so each is, by turns.
            turns += 1
            running = [*running[turns % len(running) :], *running[: turns % len(running)]]
            before = (list(self.done), [b.turns for b in self.come])
            left = [one for one in running if next(one, self) is not self]
            assert len(left) < len(running) or before != (self.done, [b.turns for b in self.come])
            running = left


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("window", ["3x3", "1x1", "1x1 stride 2", "uneven"])
@pytest.mark.parametrize(("c", "k"), [(72, 136), (136, 264)])
def test_a_model_of_the_code_convolves(c, k, window, added):
    op, taps = WINDOWS[window]
    x, weights = operands(2, c=c, h=13, w=17, k=k, taps=taps)
    _, _, p, q = op.sum_shape((2, c, 13, 17), (k, c, *taps))
    op = replace(op, epilogue=ADDED.epilogue) if added else op
    asked = call(2, c, 13, 17, k, taps, op, extra=(nhwc((2, k, p, q)),) if added else ())
    asked = replace(asked, target=GpuTarget(multiprocessors=3))
    assert CONV2D_HOPPER_TEAMS.supports(asked) is None
    image = np.random.default_rng(1).integers(-9, 9, (2 * p * q, k)).astype(np.float32)
    expected = reference(x, weights, op)
    if added:
        expected = np.maximum(expected + image.reshape(expected.shape), 0)
    variants = list(CONV2D_HOPPER_TEAMS.variants(asked))
    assert {variant.launches[0].config.tile.teams for variant in variants} == {1, 2, 3}
    for variant in variants:
        (launch,) = variant.launches
        entry = CONV2D_HOPPER_TEAMS.entry(launch.config)
        assert set(launch.integers) == entry.launch_integers
        # Tensor maps say where rows of results and of what is added lie.
        for described in entry.descriptors[2:]:
            assert [number(size, launch.integers) for size in described.sizes] == [2 * p * q, k]
            assert number(described.strides[0], launch.integers) == k
        packed = pack_filters(weights, *launch.operands["w"].packing.parameters)
        y = np.full((2 * p * q, k), np.nan, np.float32)
        for which in range(launch.chunks):
            Program(launch, x, packed, image if added else None, y, which).run()
        assert np.array_equal(as_stored(y.ravel(), asked.outputs[0]), expected)


def test_stages_and_results_fit_a_multiprocessor():
    residual = nhwc((128, 1024, 14, 14))
    for extra in ((), (residual,)):
        op = ADDED if extra else POINT
        big = call(128, 256, 14, 14, 1024, (1, 1), op, extra=extra)
        variants = list(CONV2D_HOPPER_TEAMS.variants(big))
        assert len(variants) >= 4
        for variant in variants:
            (launch,) = variant.launches
            tile = launch.config.tile
            stages = 2 * tile.stages * tile.depth * (tile.rows + tile.width)
            results = 2 * tile.rows * (tile.width if extra else tile.moved)
            assert stages + results <= 225 << 10 and tile.stages * tile.depth >= 192
            assert launch.chunks == min(132, launch.integers["tiles"])


def test_tiles_are_those_that_fill_the_machine():
    """32 images of 197 words and 768 channels are 132 tiles of 192x192; one of a batch, few."""
    asked = call(32, 768, 1, 197, 768, (1, 1), POINT)
    best = next(iter(CONV2D_HOPPER_TEAMS.variants(asked)))
    (launch,) = best.launches
    assert (launch.config.tile.rows, launch.config.tile.width, launch.chunks) == (192, 192, 132)
    assert best.micros < next(iter(CONV2D_HOPPER.variants(asked))).micros
    one = call(1, 768, 1, 197, 768, (1, 1), POINT)
    alone, beside = (
        next(iter(kernel.variants(one))).micros for kernel in (CONV2D_HOPPER_TEAMS, CONV2D_HOPPER)
    )
    assert alone > beside


def test_sizes_are_no_part_of_the_code():
    one, other = (call(n, 64, h, h, 128, (3, 3), POINT) for n, h in ((2, 130), (3, 141)))
    configs = [
        {v.launches[0].config for v in CONV2D_HOPPER_TEAMS.variants(asked)}
        for asked in (one, other)
    ]
    assert configs[0] == configs[1]


BIAS = View(DType.F32, (768, 1, 1), (1, 1, 1))
COMPILED = """
import re
from hopper_model import call, nhwc
from test_cuda_hopper_teams import BIAS, CONV2D_HOPPER_TEAMS, Conv2d, parse
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
for text, extra in (
    ("relu(add($0, $1))", (BIAS,)),
    ("relu(add(add($0, $1), $2))", (BIAS, nhwc((32, 768, 1, 197)))),
):
    asked = call(32, 768, 1, 197, 768, (1, 1), Conv2d(epilogue=parse(text)), extra=extra)
    for variant in CONV2D_HOPPER_TEAMS.variants(asked):
        (launch,) = variant.launches
        tile, entry = launch.config.tile, CONV2D_HOPPER_TEAMS.entry(launch.config)
        if (tile.teams, tile.width) not in ((3, 192), (2, 256)):
            continue
        names = [name for name, _ in (*entry.pointers, *entry.extra_pointers)]
        cubin = compile_entry(entry, 90, names)
        assert cubin.warps == 4 * (tile.teams + 1)
        stages = 2 * tile.stages * tile.depth * (tile.rows + tile.width)
        room = stages + 2 * tile.rows * (tile.width if len(extra) > 1 else tile.moved)
        assert room < cubin.shared <= room + 2048, (cubin.shared, room)
        sass = disassembled(cubin)
        blocks = 2 if tile.rest else 1
        assert sass.count("HGMMA") == tile.depth // 16 * blocks * tile.teams
        # Nothing is stored by threads, and the image that is added is loaded by none.
        assert not re.search(r"\\bSTG", sass)
        # A step's products are on their way while the next one's begin.
        order = re.findall(r"WARPGROUP\\.DEPBAR\\.LE gsb0, 0x(\\d)", sass)
        assert order == [str(blocks), "0"] * tile.teams, order
"""


def test_it_compiles():
    """In a process that never saw the interpreter; products wait for those of the step before."""
    run_where_it_compiles(COMPILED)


BY_CHANNEL = View(DType.F32, (1, 256, 1, 1), (256, 1, 1, 1))
BY_IMAGE = View(DType.F32, (2, 256, 1, 1), (256, 1, 1, 1))


@pytest.mark.parametrize(
    ("extra", "room"),
    [((BY_CHANNEL,), True), ((BY_CHANNEL, BY_CHANNEL), True), ((BY_IMAGE,), False), ((), False)],
    ids=["bias", "two", "of images", "nothing"],
)
def test_what_is_read_for_channels_is_asked_for_where_registers_are_left(extra, room):
    """Known before the products: operands of channels alone, beside few sums."""
    text = ("$0", "relu(add($0, $1))", "relu(mul(add($0, $1), $2))")[len(extra)]
    asked = call(2, 64, 9, 9, 256, (1, 1), Conv2d(epilogue=parse(text)), extra=extra)
    known = {}
    for variant in CONV2D_HOPPER_TEAMS.variants(asked):
        config = variant.launches[0].config
        known[config.tile.teams, config.tile.width] = "KNOWN" in (
            CONV2D_HOPPER_TEAMS.entry(config).functions
        )
    assert any(known.values()) == room
    # Sums of 256 channels of 64 pixels take 128 registers of a thread, what is known 64 more.
    assert not known.get((2, 256), False) and known[2, 128] == room
