"""Convolution by TMA and wgmma: what can be held without a GPU.

The interpreter has no Gluon, so a NumPy model of the code does what the launch's integers say: it
gathers as TMA's im2col mode does, from the tensor maps that the driver would be asked for, counts
the phases of barriers, and stores where the code stores.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hopper_model import (
    OP,
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

from saccade.backends.cuda.codegen.compile import Cubin, compile_entry, parameters_of
from saccade.backends.cuda.runtime.graph import Launches, PhaseCode, check_arguments
from saccade.backends.cuda.target import GpuTarget
from saccade.errors import CompileError
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, In, Launch, Out, View
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.kernels.cuda.conv2d.hopper import CONV2D_HOPPER, loose_result
from saccade.kernels.cuda.conv2d.hopper_tiles import hopper_tiles, layer_of
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.kernels.cuda.matmul.hopper import MATMUL_HOPPER
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore, MatMul
from saccade.testing.fake_encoders import FakeEncoders


def best(asked):
    (launch,) = next(iter(CONV2D_HOPPER.variants(asked))).launches
    return launch


def test_filters_are_packed_with_their_terms_side_by_side():
    w = np.arange(8 * 3 * 2 * 1, dtype=np.float32).reshape(8, 3, 2, 1)
    packed = pack_filters(w, "float16", 8).reshape(8, 2, 8)
    assert packed.dtype == np.float16 and not packed[:, :, 3:].any()
    assert np.array_equal(packed[:, :, :3], w[:, :, :, 0].swapaxes(1, 2))
    pixels = pack_filters(w, "float16", 8, 2).reshape(8, 2, 8)
    assert np.array_equal(pixels, packed[[0, 4, 1, 5, 2, 6, 3, 7]])


PLAIN = call(1, 8, 5, 5, 8, (3, 3), OP)


def wide(shape, **strides):
    """A part of wider pixels, or with one stride changed."""
    found = dict(zip("nchw", nhwc(shape).strides, strict=True)) | strides
    return View(DType.F16, shape, tuple(found.values()))


REFUSED = {
    "sm_80": call(1, 8, 5, 5, 8, (3, 3), OP, arch=80),
    "2 groups": replace(PLAIN, op=replace(OP, groups=2)),
    "a prologue, which padding has none of": replace(
        PLAIN, op=replace(OP, prologue=parse("relu($0)"))
    ),
    "an interleaving store": replace(PLAIN, op=replace(OP, store=InterleaveStore(2, 0))),
    "weights are no constant": replace(PLAIN, constant=(False, False)),
    "4 input channels": call(1, 4, 5, 5, 8, (3, 3), OP),
    "channels that become pixels do not come in eights": call(
        1, 8, 5, 5, 12, (3, 3), replace(OP, store=DepthToSpaceStore(2, "DCR"))
    ),
    "strides (9, 1)": call(1, 8, 20, 5, 8, (1, 1), Conv2d(stride=(9, 1))),
    "taps 256 pixels apart": call(
        1, 8, 300, 5, 8, (2, 1), Conv2d(dilation=(256, 1), padding=(100, 0, 100, 0))
    ),
    "corners [-129, 0, 0, 0]": call(1, 8, 9, 9, 8, (3, 1), Conv2d(padding=(129, 0, 2, 0))),
    "x is a part of wider pixels": replace(
        PLAIN, inputs=(nhwc((1, 8, 5, 5), pitch=16), PLAIN.inputs[1])
    ),
    "rows of x are apart by no whole number of pixels": replace(
        PLAIN, inputs=(wide((1, 8, 5, 5), h=44), PLAIN.inputs[1])
    ),
    "pixels are no multiples of 16 bytes apart": call(
        1, 8, 5, 5, 8, (3, 3), OP, x=nhwc((1, 8, 5, 5), pitch=12)._replace(aligned=True)
    ),
    "not channels-last": replace(PLAIN, outputs=(View(DType.F16, (1, 8, 5, 5), (200, 25, 5, 1)),)),
    "element types": replace(PLAIN, outputs=(nhwc((1, 8, 5, 5), dtype=DType.BF16),)),
    "nothing to do": call(0, 8, 5, 5, 8, (3, 3), OP),
}  # fmt: skip


def test_parts_that_begin_at_multiples_of_16_bytes_are_read():
    part = nhwc((1, 8, 5, 5), pitch=16)._replace(aligned=True)
    asked = replace(PLAIN, inputs=(part, PLAIN.inputs[1]))
    assert CONV2D_HOPPER.supports(asked) is None
    launch = next(iter(CONV2D_HOPPER.variants(asked))).launches[0]
    assert [launch.integers[f"x_{axis}"] for axis in "nhw"] == [400, 80, 16]


@pytest.mark.parametrize("reason", REFUSED)
def test_it_refuses_what_it_cannot_do(reason):
    assert CONV2D_HOPPER.supports(REFUSED[reason]) == reason


def im2col(memory, descriptor, integers, start, tap, channels):
    """What one TMA load brings: pixels from `start` on, in the order columns, rows, images."""
    sizes = n, h, w, _ = [number(size, integers) for size in descriptor.sizes]
    strides = [number(step, integers) for step in descriptor.strides]
    x = np.lib.stride_tricks.as_strided(memory, sizes, [memory.itemsize * s for s in strides])
    lower, upper = (
        [number(v, integers) for v in corner] for corner in (descriptor.lower, descriptor.upper)
    )
    rows, columns = descriptor.block
    found = np.zeros((rows, columns), np.float32)
    (image, top, left), (dy, dx) = start, tap
    assert 0 <= dy < 256 and 0 <= dx < 256
    for i in range(rows):
        y, at = top + dy, left + dx
        if 0 <= image < n and 0 <= y < h and 0 <= at < w:
            part = x[image, y, at, channels : channels + columns]
            found[i, : len(part)] = part
        left += descriptor.steps[1]
        if left > w - 1 + upper[1]:
            left, top = lower[1], top + descriptor.steps[0]
        if top > h - 1 + upper[0]:
            top, image = lower[0], image + 1
    return found


class Tile:
    """One tile's loads and sums."""

    def __init__(self, launch: Launch, memory, packed, number):
        self.launch, self.memory, self.packed = launch, memory, packed
        self.descriptor = CONV2D_HOPPER.entry(launch.config).descriptors[0]
        tile, i, window = launch.config.tile, launch.integers, launch.config.window
        blocks = -(-i["k"] * launch.config.unit // tile.columns)
        self.col, self.m = number % blocks * tile.columns, number // blocks * tile.rows
        self.total = window.taps[0] * window.taps[1] * i["steps"]
        line = self.m // i["q"]
        self.start = (
            line // i["p"], line % i["p"] * window.stride[0] - window.padding[0],
            self.m % i["q"] * window.stride[1] - window.padding[1],
        )  # fmt: skip

    def operands(self, t):
        tile, i, window = self.launch.config.tile, self.launch.integers, self.launch.config.window
        r, s = window.taps
        inner = self.launch.config.taps_inner or r * s == 1
        tap, block = (t % (r * s), t // (r * s)) if inner else divmod(t, i["steps"])
        offsets = tap // s * window.dilation[0], tap % s * window.dilation[1]
        channels = block * tile.depth
        a = im2col(self.memory, self.descriptor, i, self.start, offsets, channels)
        depth = (tap * i["steps"] + block) * tile.depth
        b = self.packed[self.col : self.col + tile.columns, depth : depth + tile.depth]
        return a, b.astype(np.float32)

    def sums(self, ring, before=0, then=None):
        """Steps are counted from `before` on; `then` is the tile that the program does next."""
        tile = self.launch.config.tile
        acc = np.zeros((tile.rows, tile.columns), np.float32)
        for t in range(self.total):
            a, b = ring.wait(before + t)
            acc[:, : len(b)] += a @ b.T
            ahead = t + tile.stages - 1
            if ahead < self.total:
                ring.ask(before + ahead, self.operands(ahead))
            elif then is not None:
                ring.ask(before + ahead, then.operands(ahead - self.total))
        return acc


def model(launch: Launch, memory, packed, y):
    """The code, in NumPy."""
    config, i = launch.config, launch.integers
    tiles = -(-i["rows"] // config.tile.rows) * -(-i["k"] * config.unit // config.tile.columns)
    assert config.tile.persistent or launch.chunks == tiles
    for program in range(launch.chunks):
        own = [Tile(launch, memory, packed, n) for n in range(program, tiles, launch.chunks)]
        ring = Ring(config.tile.stages)
        assert not config.tile.persistent or own[0].total >= config.tile.stages - 1
        for t in range(min(config.tile.stages - 1, own[0].total)):
            ring.ask(t, own[0].operands(t))
        for j, (tile, then) in enumerate(zip(own, [*own[1:], None], strict=True)):
            sums = tile.sums(ring, j * tile.total, then)
            stored(launch, y, tile.m, i["rows"], tile.col, sums)
        assert ring.waited == sum(ring.asked)


@pytest.mark.parametrize("pitch", [0, 48])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_model_of_the_code_convolves(window, pitch):
    op, taps = WINDOWS[window]
    x, weights = operands(2 * max(op.stride) ** 2, taps=taps, k=32 if op.store else 40)
    (n, h, w, c), k = x.shape, len(weights)
    asked = replace(call(n, c, h, w, k, taps, op), target=GpuTarget(multiprocessors=1))
    asked = replace(asked, outputs=(nhwc(asked.outputs[0].shape, pitch),))
    assert CONV2D_HOPPER.supports(asked) is None
    variants = list(CONV2D_HOPPER.variants(asked))
    several = [v for v in variants if v.launches[0].config.tile.persistent]
    assert len(variants) >= len(several) + len(hopper_tiles(layer_of(asked))) and several
    expected = shuffled(reference(x, weights, op), op.store)
    for variant in variants[:3] + several[:1] + several[-1:]:
        (launch,) = variant.launches
        assert set(launch.integers) == CONV2D_HOPPER.entry(launch.config).launch_integers
        packed = pack_filters(weights, *launch.operands["w"].packing.parameters)
        assert packed.nbytes == launch.operands["w"].packing.nbytes
        y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
        model(launch, x, packed, y)
        assert np.array_equal(as_stored(y, asked.outputs[0]), expected)


LOOSE = {
    "neighbours": nhwc,
    "with a gap": lambda shape: nhwc(shape, shape[1] + 6),
    "float32": lambda shape: nhwc(shape, dtype=DType.F32),
    "zeros behind": lambda shape: nhwc(shape, -(-shape[1] // 8) * 8)._replace(
        room=-shape[1] % 8, zeros=True
    ),
}


@pytest.mark.parametrize("stored", LOOSE)
@pytest.mark.parametrize("k", [3, 19, 91])
def test_results_of_any_number_of_channels(k, stored):
    x, weights = operands(c=72, k=k)
    asked = call(2, 72, 9, 11, k, (3, 3), OP)
    view = LOOSE[stored](asked.outputs[0].shape)
    asked = replace(asked, outputs=(view,), target=GpuTarget(multiprocessors=1))
    assert CONV2D_HOPPER.supports(asked) is None and loose_result(asked) is not None
    variants = list(CONV2D_HOPPER.variants(asked))
    expected = reference(x, weights, OP)
    for variant in (variants[0], variants[-1]):
        (launch,) = variant.launches
        assert (launch.config.unit, launch.config.room) == (1, view.room)
        assert launch.config.result == ("fp32" if stored == "float32" else "")
        packed = pack_filters(weights, *launch.operands["w"].packing.parameters)
        y = np.full(view.extent + 5, np.nan, np.float32)
        model(launch, x, packed, y)
        wide = view._replace(shape=(2, k + view.room, 9, 11))
        found = as_stored(y, wide)
        assert np.array_equal(found[..., :k], expected) and not found[..., k:].any()


def test_float32_results_in_eights_stay_together():
    asked = replace(PLAIN, outputs=(nhwc((1, 8, 5, 5), dtype=DType.F32),))
    entry = CONV2D_HOPPER.entry(best(asked).config)
    assert entry.pointers == (("y", "fp32"),) and entry.constants["UNIT"] == 8
    # Cheaper steps of an epilogue are for what is rounded to 16 bits.
    op = replace(OP, epilogue=parse("gelu($0)"))
    texts = [
        CONV2D_HOPPER.entry(best(replace(one, op=op)).config).functions["EPILOGUE"]
        for one in (asked, PLAIN)
    ]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("apart", [0, 16])
def test_a_model_of_the_code_multiplies_matrices(transposed, apart):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (2, 3, 50, 72)), rng.integers(-2, 3, (72, 40))
    view = View(DType.F16, a.shape, (150 * 72, 50 * 72, 72, 1))
    stored = b.T if transposed else b
    matrix = View(DType.F16, stored.shape, (stored.shape[1], 1))
    pitch = 40 + apart
    y = View(DType.F16, (2, 3, 50, 40), (150 * pitch, 50 * pitch, pitch, 1))
    op = MatMul(transpose_b=transposed)
    asked = Call(op, (view, matrix), (y,), (False, True), GpuTarget(multiprocessors=1))
    assert MATMUL_HOPPER.supports(asked) is None
    variants = list(MATMUL_HOPPER.variants(asked))
    for variant in (variants[0], variants[-1]):
        (launch,) = variant.launches
        packing = launch.operands["w"].packing
        packed = FUNCTIONS[packing.function](stored.astype(np.float32), *packing.parameters)
        assert packed.nbytes == packing.nbytes
        found = np.full(y.extent, np.nan, np.float32)
        model(launch, a.astype(np.float32), packed, found)
        rows = found[: 299 * pitch + 40]
        rows = np.lib.stride_tricks.as_strided(rows, (300, 40), (4 * pitch, 4))
        assert np.array_equal(rows, (a.reshape(300, 72) @ b).astype(np.float32))
        assert np.isnan(found).sum() == 299 * apart


def test_products_it_refuses():
    a, b = View(DType.F16, (5, 16), (16, 1)), View(DType.F16, (16, 8), (8, 1))
    y = View(DType.F16, (5, 8), (8, 1))
    plain = Call(MatMul(), (a, b), (y,), (False, True), GpuTarget())
    assert MATMUL_HOPPER.supports(plain) is None
    turned = View(DType.F16, (16, 5), (5, 1))
    stacked = View(DType.F16, (2, 16, 8), (128, 8, 1))
    batches = View(DType.F16, (2, 5, 16), (80, 16, 1)), View(DType.F16, (2, 5, 8), (40, 8, 1))
    refused = {
        "sm_80": replace(plain, target=GpuTarget(arch=80)),
        "b is no constant": replace(plain, constant=(False, False)),
        "b differs by matrix": replace(plain, inputs=(batches[0], stacked), outputs=(batches[1],)),
        "neighbours of a row are apart": replace(
            plain, op=MatMul(transpose_a=True), inputs=(turned, b)
        ),
        "element types": replace(plain, outputs=(View(DType.I32, (5, 8), (8, 1)),)),
    }
    assert {reason: MATMUL_HOPPER.supports(one) for reason, one in refused.items()} == {
        reason: reason for reason in refused
    }


def test_a_prologue_is_made_in_registers_and_not_by_persistent_programs():
    se = View(DType.F16, (2, 72, 1, 1), (72, 1, 1, 1))
    plain = call(2, 72, 30, 30, 64, (1, 1), Conv2d(), extra=(se,))
    op = Conv2d(prologue=parse("mul($0, $1)"), n_prologue=1)
    asked = replace(plain, op=op)
    assert CONV2D_HOPPER.supports(asked) is None
    configs = [variant.launches[0].config for variant in CONV2D_HOPPER.variants(asked)]
    assert configs and not any(config.tile.persistent for config in configs)
    (text,) = {CONV2D_HOPPER.entry(config).functions["PROLOGUE"] for config in configs}
    assert "def prologue(acc, n, k" in text and "extra[0]" in text
    before = [v.micros for v in CONV2D_HOPPER.variants(replace(plain, inputs=plain.inputs[:2]))]
    assert min(before) < next(iter(CONV2D_HOPPER.variants(asked))).micros


def test_sizes_are_no_part_of_the_code():
    one, other = (call(n, 64, h, h, 64, (3, 3), OP) for n, h in ((2, 30), (3, 41)))
    tiles = set(hopper_tiles(layer_of(one))) & set(hopper_tiles(layer_of(other)))
    configs = [
        {v.launches[0].config for v in CONV2D_HOPPER.variants(asked)} for asked in (one, other)
    ]
    assert len(configs[0] & configs[1]) >= len(tiles) > 3


def test_one_image_may_have_any_stride():
    shape = (1, 8, 1, 5)
    asked = call(1, 8, 1, 5, 8, (1, 1), Conv2d())
    asked = replace(asked, inputs=(wide(shape, n=3, h=7), asked.inputs[1]))
    assert CONV2D_HOPPER.supports(asked) is None
    found = best(asked).integers
    assert [found[name] for name in ("x_n", "x_h", "x_w")] == [40, 40, 8]


BIAS = View(DType.F32, (64, 1, 1), (1, 1, 1))


def test_the_epilogue_reads_tiles_before_the_products_and_by_way_of_shared_memory():
    op = replace(OP, epilogue=parse("relu(add(add($0, $1), $2))"))
    asked = call(2, 64, 30, 30, 64, (3, 3), op, extra=(BIAS, nhwc((2, 64, 30, 30), 96)))
    launch = best(asked)
    entry = CONV2D_HOPPER.entry(launch.config)
    assert "tl.convert_layout(fetched[0], acc.type.layout)" in entry.functions["EPILOGUE"]
    assert "e2_n" not in entry.extra_integers and launch.integers["e2_q"] == 96 // 8
    assert entry.functions["FETCH"].count("tl.load(") == 1 and entry.constants["EARLY"]
    assert launch.operands["e2"] == In(3) and launch.operands["y"] == Out(0)


def test_operands_that_lie_unevenly_are_found_by_image_and_row():
    op = replace(OP, epilogue=parse("mul($0, $1)"))
    per_image = View(DType.F32, (2, 64, 1, 1), (64, 1, 1, 1))
    entry = CONV2D_HOPPER.entry(
        best(call(2, 64, 30, 30, 64, (3, 3), op, extra=(per_image,))).config
    )
    assert not entry.constants["EVEN"] and entry.extra_integers == ("e1_n",)
    none = CONV2D_HOPPER.entry(best(call(2, 64, 30, 30, 64, (3, 3), OP)).config)
    assert none.constants["EVEN"] and "FETCH" not in none.functions


def test_a_driver_gets_it_as_its_code_takes_it():
    op = replace(OP, epilogue=parse("relu(add(add($0, $1), $2))"))
    launch = best(call(2, 64, 30, 30, 64, (3, 3), op, extra=(BIAS, nhwc((2, 64, 30, 30)))))
    entry = CONV2D_HOPPER.entry(launch.config)
    cubin = Cubin(
        "kernel", b"", parameters_of(entry), entry.warps, launch.config.tile.shared, True,
        entry.descriptors,
    )  # fmt: skip
    refs = {name: Ref(i % 2, 1024 * i, 64) for i, name in enumerate(launch.operands)}
    arguments = tuple(Argument(name, Role.INPUT, ref) for name, ref in refs.items())
    phase = Phase(launch.config, arguments, launch.integers, launch.chunks)
    launches = Launches([check_arguments(PhaseCode(0, phase, cubin, 1))], 2, FakeEncoders())
    launches.point(np.array([1 << 20, 1 << 24]))
    (made,) = launches.each
    values = [ctypes.c_int64.from_address(at).value for at in made.table.tolist()]
    at = {name: (1 << 20, 1 << 24)[ref.base] + ref.offset for name, ref in refs.items()}
    x = [at["x"], 2, 30, 30, 64, 57600, 1920, 64, 1]
    w = [at["w"], 64, 576, 576, 1]
    integers = [8, 1800, 8, 30, 30, 8, 1, 7200, 240, 8]
    assert values == [*x, *w, at["y"], at["e1"], at["e2"], *integers, 0, 0]
    assert made.table.tolist()[0] % 64 == made.table.tolist()[9] % 64 == 0


def test_an_older_triton_is_told_apart(monkeypatch):
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton, "__version__", "3.7.1")
    with pytest.raises(
        CompileError, match=r"convolve\w* needs Triton 3\.8 or later, here is 3\.7\.1"
    ):
        compile_entry(CONV2D_HOPPER.entry(best(PLAIN).config), 90, ())


COMPILED = """
import re
from test_cuda_hopper import BIAS, OP, call, nhwc, parse, replace, CONV2D_HOPPER
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
op = replace(OP, epilogue=parse("relu(add(add($0, $1), $2))"))
asked = call(32, 64, 56, 56, 64, (3, 3), op, extra=(BIAS, nhwc((32, 64, 56, 56))))
found = [variant.launches[0] for variant in CONV2D_HOPPER.variants(asked)]
launch = next(one for one in found if one.config.tile.persistent is PERSISTENT)
entry = CONV2D_HOPPER.entry(launch.config)
aligned = [name for name, _ in (*entry.pointers, *entry.extra_pointers)]
cubin = compile_entry(entry, 90, aligned)
assert cubin.parameters[:3] == ("x", "w", "y"), cubin.parameters
assert cubin.warps == launch.config.tile.warps and cubin.shared <= launch.config.tile.shared
sass = disassembled(cubin)
assert "STACK:0" in sass and "LDG.E.128" in sass and "STG.E.128" in sass
assert not re.search(r"STG\\.E(?!\\.128)", sass)
loop = sass[sass.index("SYNCS.PHASECHK"):]
words = r"BAR\\.SYNC|WARPGROUP\\.(?:ARRIVE|DEPBAR)|HGMMA|SYNCS\\.ARRIVE|UTMALDG\\.\\d"
order = re.findall(words, loop)
order = [word for i, word in enumerate(order) if word != "HGMMA" or order[i - 1] != word]
assert order[:10] == [
    "BAR.SYNC", "WARPGROUP.ARRIVE", "HGMMA", "WARPGROUP.DEPBAR", "BAR.SYNC", "SYNCS.ARRIVE",
    "BAR.SYNC", "UTMALDG.4", "BAR.SYNC", "UTMALDG.2",
], order
"""


@pytest.mark.parametrize("several", [False, True])
def test_it_compiles(several):
    """In a process that never saw the interpreter; synchronised as the code that has run on one."""
    run_where_it_compiles(f"PERSISTENT = {several}\n{COMPILED}")
