"""1x1 convolution on Hopper beside weights that stay: what can be held without a GPU.

As for `conv2d.hopper`, a NumPy model does what the launch's integers say: it cuts the work, counts
barriers and stages, says what lies in a block of results and when, and stores each result once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hopper_model import Ring, as_stored, call, nhwc, number, operands, run_where_it_compiles

from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import View
from saccade.kernels.cuda.conv2d.hopper_stationary import CONV2D_HOPPER_STATIONARY
from saccade.kernels.cuda.conv2d.hopper_teams import CONV2D_HOPPER_TEAMS
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.opdefs import Conv2d, DepthToSpaceStore

POINT, ADDED = Conv2d(), Conv2d(epilogue=parse("relu(add($0, $1))"))
TWICE = Conv2d(epilogue=parse("add(add($0, $1), $2)"))
PLAIN = call(2, 64, 9, 9, 64, (1, 1), POINT)
SLICE = nhwc((2, 64, 9, 9), 80)
SEVERAL = "a window of several taps, or padded"
OWN = "a prologue or a store of its own"
UNMOVED = "TMA cannot move the result or what is added"
REFUSED = {
    "sm_80": (replace(PLAIN, target=GpuTarget(arch=80)), "sm_80"),
    "taps": (call(2, 64, 9, 9, 64, (3, 3), POINT), SEVERAL),
    "padding": (call(2, 64, 9, 9, 64, (1, 1), Conv2d(padding=(1, 1, 1, 1))), SEVERAL),
    "prologue": (replace(PLAIN, op=Conv2d(prologue=parse("relu($0)"))), OWN),
    "store": (
        call(2, 64, 9, 9, 64, (1, 1), Conv2d(store=DepthToSpaceStore(2, "CRD"))), OWN
    ),
    "part of wider pixels": (replace(PLAIN, outputs=(SLICE,)), UNMOVED),
    "added from wider pixels": (call(2, 64, 9, 9, 64, (1, 1), ADDED, extra=(SLICE,)), UNMOVED),
    "added in float32": (
        call(2, 64, 9, 9, 64, (1, 1), ADDED, extra=(nhwc((2, 64, 9, 9), dtype=DType.F32),)),
        UNMOVED,
    ),
    "two images": (
        call(2, 64, 9, 9, 64, (1, 1), TWICE, extra=(nhwc((2, 64, 9, 9)),) * 2),
        "several operands of the epilogue that vary along pixels and channels",
    ),
    "wide": (call(2, 4096, 9, 9, 64, (1, 1), POINT), "weights do not fit shared memory"),
}  # fmt: skip


@pytest.mark.parametrize("kernel", [CONV2D_HOPPER_STATIONARY, CONV2D_HOPPER_TEAMS])
def test_parts_that_begin_at_multiples_of_16_bytes_are_moved(kernel):
    part = SLICE._replace(aligned=True)
    asked = call(2, 64, 9, 9, 64, (1, 1), ADDED, extra=(part,))
    asked = replace(asked, inputs=(part, *asked.inputs[1:]), outputs=(part,))
    assert kernel.supports(asked) is None
    launch = next(iter(kernel.variants(asked))).launches[0]
    integers = launch.integers
    assert (integers["x_apart"], integers["y_apart"], integers["e1_apart"]) == (80, 80, 80)


@pytest.mark.parametrize("kernel", [CONV2D_HOPPER_STATIONARY, CONV2D_HOPPER_TEAMS])
def test_pixels_are_rows_of_a_matrix_where_they_are_evenly_apart(kernel):
    """Then a tensor map has two axes; else windows are looked for in images."""
    rows_apart = View(DType.F16, (2, 64, 9, 9), (9 * 640, 1, 640, 64))
    for asked, matrix in (
        (PLAIN, True),
        (replace(PLAIN, inputs=(rows_apart, *PLAIN.inputs[1:])), False),
        (call(2, 64, 9, 9, 64, (1, 1), Conv2d(stride=(2, 2))), False),
    ):
        assert kernel.supports(asked) is None
        (launch,) = next(iter(kernel.variants(asked))).launches
        entry = kernel.entry(launch.config)
        assert set(launch.integers) == entry.launch_integers
        assert launch.config.matrix == entry.constants["MATRIX"] == matrix
        assert entry.descriptors[0].im2col != matrix
        if matrix:
            expect_rows(entry, launch, (2 * 9 * 9, 64), 64)


def expect_rows(entry, launch, sizes, apart):
    """That the map of x has so many rows and columns, the rows so far apart."""
    described = entry.descriptors[0]
    assert tuple(number(size, launch.integers) for size in described.sizes) == sizes
    assert number(described.strides[0], launch.integers) == apart


@pytest.mark.parametrize("kernel", [CONV2D_HOPPER_STATIONARY, CONV2D_HOPPER_TEAMS])
def test_a_single_pixel_is_a_row(kernel):
    (launch,) = next(iter(kernel.variants(call(1, 72, 1, 1, 64, (1, 1), POINT)))).launches
    assert launch.config.matrix
    expect_rows(kernel.entry(launch.config), launch, (1, 72), 72)


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_what_it_cannot_do(name):
    asked, reason = REFUSED[name]
    assert CONV2D_HOPPER_STATIONARY.supports(asked) == reason


class Team:
    """The tiles of one team of a program, one after the other."""

    def __init__(self, launch, x, packed, added, y, which, team):
        self.i, config = launch.integers, launch.config
        self.tile, self.steps, self.stride = config.tile, config.steps, config.stride
        self.x, self.packed, self.added, self.y = x, packed, added, y
        parts = -(-self.i["k"] * 8 // self.tile.columns)
        assert launch.chunks % parts == 0
        self.col, first = which % parts * self.tile.columns, which // parts * self.tile.teams + team
        self.tiles = range(first, self.i["tiles"], launch.chunks // parts * self.tile.teams)
        self.blocks = [""] * self.tile.results  # of results: what lies there

    def ask_added(self, j):
        """What is added to a tile comes to where results were that have left."""
        if self.added is not None and j < len(self.tiles):
            assert not self.blocks[j % self.tile.results]
            self.blocks[j % self.tile.results] = f"added {j}"

    def wait_for_results(self):
        self.blocks = ["" if held.startswith("result") else held for held in self.blocks]

    def pixels(self, at):
        """What is asked for as step `at` of the team: zeros beyond the pixels and channels."""
        j, t = divmod(at, self.steps)
        found = np.zeros((self.tile.rows, self.tile.depth), np.float32)
        for row, m in enumerate(range(self.tiles[j] * self.tile.rows, self.i["rows"])):
            if row == self.tile.rows:
                break
            line, pixel = divmod(m, self.i["q"])
            image, line = divmod(line, self.i["p"])
            place = self.x[image, line * self.stride[0], pixel * self.stride[1]]
            part = place[t * self.tile.depth : (t + 1) * self.tile.depth]
            found[row, : len(part)] = part
        return found

    def run(self):
        ring, count = Ring(self.tile.stages), len(self.tiles)
        ahead, total = self.tile.stages - 1, count * self.steps
        for at in range(min(ahead, total)):
            ring.ask(at, self.pixels(at))
        self.ask_added(0)
        for j in range(count):
            if self.tile.results == 1 and j:
                self.wait_for_results()
                self.ask_added(j)
            m = self.tiles[j] * self.tile.rows
            rows = slice(m, min(m + self.tile.rows, self.i["rows"]))
            columns = slice(self.col, min(self.col + self.tile.columns, self.i["filters"]))
            sums = np.zeros((self.tile.rows, self.tile.columns), np.float32)
            for t in range(self.steps):
                stage = ring.wait(j * self.steps + t)
                depth = slice(t * self.tile.depth, (t + 1) * self.tile.depth)
                taps = self.packed[columns, depth].astype(np.float32)
                sums[:, : len(taps)] += stage @ taps.T
                if j * self.steps + t + ahead < total:
                    at = j * self.steps + t + ahead
                    ring.ask(at, self.pixels(at))
            if self.tile.results == 2:
                self.wait_for_results()
                self.ask_added(j + 1)
            done = sums[: rows.stop - m, : columns.stop - self.col]
            if self.added is not None:
                assert self.blocks[j % self.tile.results] == f"added {j}"
                self.blocks[j % self.tile.results] = f"results of {j}"
                done = np.maximum(done + self.added[rows, columns], 0)
            assert np.isnan(self.y[rows, columns]).all()
            self.y[rows, columns] = done
        assert ring.waited == total == sum(ring.asked)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("c", "k", "stride"), [(72, 72, 1), (24, 136, 2), (256, 264, 1)])
def test_a_model_of_the_code_convolves(c, k, stride, added):
    x, weights = operands(2, c=c, h=13, w=17, k=k, taps=(1, 1))
    op = replace(ADDED if added else POINT, stride=(stride, stride))
    p, q = -(-13 // stride), -(-17 // stride)
    asked = call(2, c, 13, 17, k, (1, 1), op, extra=(nhwc((2, k, p, q)),) if added else ())
    asked = replace(asked, target=GpuTarget(multiprocessors=7))
    assert CONV2D_HOPPER_STATIONARY.supports(asked) is None
    image = np.random.default_rng(1).integers(-9, 9, (2 * p * q, k)).astype(np.float32)
    expected = x[:, ::stride, ::stride] @ weights[:, :, 0, 0].T
    if added:
        expected = np.maximum(expected + image.reshape(expected.shape), 0)
    variants = list(CONV2D_HOPPER_STATIONARY.variants(asked))
    tiles = [variant.launches[0].config.tile for variant in variants]
    assert {tile.teams for tile in tiles} == {2, 3}
    assert (2 in {tile.results for tile in tiles}) == added
    for variant in variants:
        (launch,) = variant.launches
        entry = CONV2D_HOPPER_STATIONARY.entry(launch.config)
        assert set(launch.integers) == entry.launch_integers
        assert entry.constants["BEGUN"] < launch.config.tile.stages
        # Tensor maps say where rows of results and of what is added lie.
        for described in entry.descriptors[2:]:
            sizes = [number(size, launch.integers) for size in described.sizes]
            assert sizes == [2 * p * q, k]
            assert number(described.strides[0], launch.integers) == k
        packed = pack_filters(weights, *launch.operands["w"].packing.parameters)
        y = np.full((2 * p * q, k), np.nan, np.float32)
        for which, team in product(range(launch.chunks), range(launch.config.tile.teams)):
            Team(launch, x, packed, image if added else None, y, which, team).run()
        assert np.array_equal(as_stored(y.ravel(), asked.outputs[0]), expected)


def test_weights_stay_where_there_is_room_and_tiles_share_the_machine():
    big = call(128, 256, 14, 14, 1024, (1, 1), ADDED, extra=(nhwc((128, 1024, 14, 14)),))
    for variant in CONV2D_HOPPER_STATIONARY.variants(big):
        (launch,) = variant.launches
        tile = launch.config.tile
        weights = 2 * 256 * tile.columns
        team = 2 * tile.rows * (tile.stages * tile.depth + tile.results * tile.columns)
        assert weights + tile.teams * team <= 226 << 10 and tile.stages >= 2
        assert launch.chunks <= 132 and launch.chunks % (1024 // tile.columns) == 0


@pytest.mark.parametrize(("c", "k"), [(16, 96), (24, 144), (64, 64), (80, 480)])
def test_one_program_alone_fits_a_multiprocessor(c, k):
    """Or two would crowd on one that is free early, and leave others idle."""
    narrow = call(64, c, 28, 28, k, (1, 1), POINT)
    tiles = [v.launches[0].config.tile for v in CONV2D_HOPPER_STATIONARY.variants(narrow)]
    assert len(tiles) > 3
    for tile in tiles:
        team = 2 * tile.rows * (tile.stages * tile.depth + tile.results * tile.columns)
        weights = 2 * -(-c // tile.depth) * tile.depth * tile.columns
        assert 227 << 9 < weights + tile.teams * team <= 226 << 10


def test_it_is_taken_where_bytes_bound_and_not_where_the_sum_is_long():
    """By its estimates beside those of `conv2d.hopper`, for the H200."""
    from saccade.kernels.cuda.conv2d.hopper import CONV2D_HOPPER  # noqa: PLC0415

    def fastest(kernel, c, edge, k, *extra):
        asked = call(128, c, edge, edge, k, (1, 1), ADDED if extra else POINT, extra=extra)
        return next(iter(kernel.variants(asked))).micros

    residual = nhwc((128, 1024, 14, 14))
    wins = fastest(CONV2D_HOPPER_STATIONARY, 256, 14, 1024, residual)
    assert 30 < wins < 45 and wins < fastest(CONV2D_HOPPER, 256, 14, 1024, residual)
    loses = fastest(CONV2D_HOPPER_STATIONARY, 1024, 14, 512)
    assert loses > fastest(CONV2D_HOPPER, 1024, 14, 512)


def test_sizes_are_no_part_of_the_code():
    one, other = (call(n, 64, h, h, 64, (1, 1), POINT) for n, h in ((2, 130), (3, 141)))
    configs = [
        {v.launches[0].config for v in CONV2D_HOPPER_STATIONARY.variants(asked)}
        for asked in (one, other)
    ]
    assert configs[0] == configs[1]


BIAS = View(DType.F32, (1024, 1, 1), (1, 1, 1))
COMPILED = """
import re
from hopper_model import call, nhwc
from test_cuda_hopper_stationary import BIAS, CONV2D_HOPPER_STATIONARY, Conv2d, parse
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
op = Conv2d(epilogue=parse("relu(add(add($0, $1), $2))"))
asked = call(128, 256, 14, 14, 1024, (1, 1), op, extra=(BIAS, nhwc((128, 1024, 14, 14))))
found = [variant.launches[0] for variant in CONV2D_HOPPER_STATIONARY.variants(asked)]
for rows, columns, teams in ((64, 128, 3), (128, 64, 2)):
    launch = next(
        one for one in found
        if (one.config.tile.rows, one.config.tile.columns, one.config.tile.teams)
        == (rows, columns, teams)
    )
    tile, entry = launch.config.tile, CONV2D_HOPPER_STATIONARY.entry(launch.config)
    cubin = compile_entry(entry, 90, [name for name, _ in (*entry.pointers, *entry.extra_pointers)])
    assert cubin.warps == teams * tile.warps
    team = 2 * rows * (tile.stages * tile.depth + tile.results * columns)
    room = 2 * 256 * columns + teams * team
    assert room < cubin.shared <= room + 1024, (cubin.shared, room)
    sass = disassembled(cubin)
    assert "STACK:0" in sass and sass.count("HGMMA") == 4 * 4 * rows // 64 * teams
    # Nothing is stored by threads, and the image that is added is loaded by none.
    assert not re.search(r"\\bSTG", sass)
    assert sass.count("UTMASTG") == teams, sass.count("UTMASTG")
    loop = sass[sass.index("HGMMA"):]
    order = re.findall(r"WARPGROUP\\.DEPBAR\\.LE gsb0, 0x(\\d)", loop)
    assert order[:5] == [*"11110"], order
"""


def test_it_compiles():
    """In a process that never saw the interpreter; products wait for those of the step before."""
    run_where_it_compiles(COMPILED)
