"""Convolution on Hopper by rows that stay for the taps of a column: what can be held without a GPU.

As for `conv2d.hopper`, a NumPy model does what the launch's integers say: it loads boxes of the
tensor map that the driver would be asked for, counts the phases of barriers, and stores where the
code stores, and when it may.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hopper_model import (
    OP,
    SAME,
    WINDOWS,
    Ring,
    as_stored,
    call,
    nhwc,
    number,
    operands,
    reference,
    run_where_it_compiles,
    shuffled,
    stored,
)

from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import View
from saccade.kernels.cuda.conv2d.hopper_rows import CONV2D_HOPPER_ROWS
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.opdefs import Conv2d

PLAIN = call(1, 64, 20, 70, 64, (3, 3), OP)
REFUSED = {
    "sm_80": replace(PLAIN, target=GpuTarget(arch=80)),
    "weights are no constant": replace(PLAIN, constant=(False, False)),
    "strides (2, 2), dilations (1, 1)": call(
        1, 64, 20, 70, 64, (3, 3), Conv2d(stride=(2, 2), padding=SAME)
    ),
    "strides (1, 1), dilations (1, 2)": call(1, 64, 9, 9, 64, (3, 3), Conv2d(dilation=(1, 2))),
    "windows of one row": call(1, 64, 9, 9, 64, (1, 3), Conv2d()),
    "a prologue": replace(
        call(1, 64, 9, 9, 64, (3, 3), Conv2d()), op=Conv2d(prologue=parse("relu($0)"))
    ),
    "weights do not fit shared memory": call(1, 512, 9, 9, 512, (3, 3), OP),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_it_refuses_what_it_cannot_do(reason):
    assert CONV2D_HOPPER_ROWS.supports(REFUSED[reason]) == reason


def box(memory, descriptor, integers, corner):
    """What one TMA load of a row brings; zeros outside."""
    sizes = [number(size, integers) for size in descriptor.sizes]
    strides = [number(step, integers) for step in descriptor.strides]
    x = np.lib.stride_tricks.as_strided(memory, sizes, [memory.itemsize * s for s in strides])
    found = np.zeros(descriptor.block, np.float32)
    where = [
        (max(0, at), max(0, min(size, at + count)))
        for at, size, count in zip(corner, sizes, descriptor.block, strict=True)
    ]
    if all(begin < end for begin, end in where):
        inside = tuple(slice(b - at, e - at) for (b, e), at in zip(where, corner, strict=True))
        found[inside] = x[tuple(slice(begin, end) for begin, end in where)]
    return found[0, 0]


class Program:
    """The tiles of one team of a program, one after the other."""

    def __init__(self, launch, memory, packed, y, which, team):
        self.launch, self.memory, self.packed, self.y = launch, memory, packed, y
        config, self.i = launch.config, launch.integers
        self.tile, self.blocks, (self.r, self.s) = config.tile, config.blocks, config.window.taps
        self.padding, self.stride = config.window.padding, config.window.stride[0]
        self.descriptor = CONV2D_HOPPER_ROWS.entry(config).descriptors[0]
        parts = -(-self.i["k"] * 8 // self.tile.columns)
        assert launch.chunks % parts == 0
        self.col, first = which % parts * self.tile.columns, which // parts * self.tile.teams + team
        self.tiles = range(first, self.i["tiles"], launch.chunks // parts * self.tile.teams)
        self.patch = (self.tile.lines - 1) * self.stride + self.r
        self.total = self.s * self.blocks * self.patch

    def place(self, tile):
        image, rest = divmod(tile, self.i["down"] * self.i["across"])
        down, across = divmod(rest, self.i["across"])
        return image, down * self.tile.lines, across * self.tile.pixels

    def row(self, at):
        """The row of input that is asked for as number `at` of the program."""
        j, t = divmod(at, self.total)
        image, top, left = self.place(self.tiles[j])
        column, block = divmod(t // self.patch, self.blocks)
        corner = [
            image, top * self.stride - self.padding[0] + t % self.patch,
            left - self.padding[1] + column, block * self.tile.depth,
        ]  # fmt: skip
        return box(self.memory, self.descriptor, self.i, corner)

    def taps(self, r, t):
        column, block = divmod(t // self.patch, self.blocks)
        depth = ((r * self.s + column) * self.blocks + block) * self.tile.depth
        return self.packed[self.col : self.col + self.tile.columns, depth : depth + self.tile.depth]

    def store(self, j, line, sums, needed):
        assert needed[line] == 0, "products for it are to come"
        image, top, left = self.place(self.tiles[j])
        begin = (image * self.i["p"] + top + line) * self.i["q"]
        end = begin + self.i["q"] if top + line < self.i["p"] else 0
        stored(self.launch, self.y, begin + left, end, self.col, sums[line])

    def run(self):
        ring, lines, count = Ring(self.tile.stages), self.tile.lines, len(self.tiles)
        ahead = self.tile.stages - 1
        assert self.total % self.tile.stages == 0  # so that each row has its stage
        for at in range(ahead if count else 0):
            ring.ask(at, self.row(at))
        for j in range(count):
            sums = np.zeros((lines, self.tile.pixels, self.tile.columns), np.float32)
            needed = [self.r * self.s * self.blocks] * lines
            for t in range(self.total):
                at = j * self.total + t
                row, line = ring.wait(at), t % self.patch
                for r in range(self.r):
                    to, rest = divmod(line - r, self.stride)
                    if rest == 0 and 0 <= to < lines:
                        taps = self.taps(r, t).astype(np.float32)
                        sums[to][:, : len(taps)] += row @ taps.T
                        needed[to] -= 1
                if t + ahead < self.total or j + 1 < count:
                    ring.ask(at + ahead, self.row(at + ahead))
                # A row of results is done once the row behind its last one is being multiplied.
                done, rest = divmod(t - self.total, self.stride)
                if rest == 0 and done + lines > 0:
                    self.store(j, done + lines - 1, sums, needed)
            self.store(j, lines - 1, sums, needed)
        assert ring.waited == sum(ring.asked)


OURS = [name for name in WINDOWS if name in ("3x3", "crd", "dcr")]


@pytest.mark.parametrize("apart", [0, 16])
@pytest.mark.parametrize(
    ("window", "c", "taps"),
    [*((name, 72, (3, 3)) for name in OURS), ("3x3", 24, (3, 3)), ("3x3", 16, (4, 2))],
)
def test_a_model_of_the_code_convolves(window, c, taps, apart):
    op, _ = WINDOWS[window]
    x, weights = operands(2, c=c, h=9, w=70, k=32 if op.store else 72, taps=taps)
    (n, h, w, _), k = x.shape, len(weights)
    asked = call(n, c, h, w, k, taps, op)
    asked = replace(asked, target=GpuTarget(multiprocessors=2))
    shape = asked.outputs[0].shape
    asked = replace(asked, outputs=(nhwc(shape, shape[1] + apart),))
    assert CONV2D_HOPPER_ROWS.supports(asked) is None
    variants = list(CONV2D_HOPPER_ROWS.variants(asked))
    tiles = {v.launches[0].config.tile for v in variants}
    assert len(tiles) == len(variants)
    assert {tile.teams for tile in tiles} == ({1} if c == 72 else {1, 2})
    expected = shuffled(reference(x, weights, op), op.store)
    for variant in variants:
        (launch,) = variant.launches
        assert set(launch.integers) == CONV2D_HOPPER_ROWS.entry(launch.config).launch_integers
        packed = pack_filters(weights, *launch.operands["w"].packing.parameters)
        assert packed.nbytes == launch.operands["w"].packing.nbytes
        y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
        for which, team in product(range(launch.chunks), range(launch.config.tile.teams)):
            Program(launch, x, packed, y, which, team).run()
        assert np.array_equal(as_stored(y, asked.outputs[0]), expected)


def test_programs_share_a_multiprocessor_where_that_fits():
    big = call(1, 64, 720, 1280, 64, (3, 3), OP)
    found = [variant.launches[0] for variant in CONV2D_HOPPER_ROWS.variants(big)]
    assert {launch.chunks for launch in found} >= {132, 264}
    for launch in found:
        tile = launch.config.tile
        weights = 2 * 9 * 64 * tile.columns
        programs = launch.chunks // 132 // -(-64 // tile.columns) or 1
        rows = tile.teams * tile.stages * tile.row
        assert programs * (weights + rows + tile.beside) <= 227 << 10


def test_sizes_are_no_part_of_the_code():
    one, other = (call(n, 64, h, h, 64, (3, 3), OP) for n, h in ((2, 130), (3, 141)))
    configs = [
        {v.launches[0].config for v in CONV2D_HOPPER_ROWS.variants(asked)} for asked in (one, other)
    ]
    assert configs[0] == configs[1]


BIAS = View(DType.F32, (128, 1, 1), (1, 1, 1))
COMPILED = """
import re
from hopper_model import OP, call, nhwc
from test_cuda_hopper_rows import BIAS, CONV2D_HOPPER_ROWS, parse, replace
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
op = replace(OP, epilogue=parse("relu(add($0, $1))"))
asked = call(1, 64, 720, 1280, 128, (3, 3), op, extra=(BIAS,))
for lines, teams, waits in ((2, 1, "1221"), (1, 2, "1111")):
    found = [variant.launches[0] for variant in CONV2D_HOPPER_ROWS.variants(asked)]
    tiles = [launch.config.tile for launch in found]
    at = next(i for i, tile in enumerate(tiles) if (tile.lines, tile.teams) == (lines, teams))
    tile, entry = tiles[at], CONV2D_HOPPER_ROWS.entry(found[at].config)
    aligned = [name for name, _ in (*entry.pointers, *entry.extra_pointers)]
    cubin = compile_entry(entry, 90, aligned)
    room = 2 * 9 * 64 * tile.columns + tile.teams * tile.stages * tile.row + tile.beside
    assert cubin.warps == tile.teams * tile.warps
    # 128 columns change places in two halves, for which one of each team's is room enough.
    halves = teams * tile.pixels * tile.columns if tile.columns == 128 else 0
    assert room - 1024 < cubin.shared + halves <= room, (cubin.shared, room)
    sass = disassembled(cubin)
    assert "STACK:0" in sass and sass.count("HGMMA") == 9 * 4 * tile.lines * tile.teams
    assert not re.search(r"STG\\.E(?!\\.128)", sass)
    loop = sass[sass.index("HGMMA"):]
    order = re.findall(r"WARPGROUP\\.DEPBAR\\.LE gsb0, 0x(\\d)", loop)
    assert order[:4] == [*waits], order
"""


def test_it_compiles():
    """In a process that never saw the interpreter; products wait for those of the row before."""
    run_where_it_compiles(COMPILED)
