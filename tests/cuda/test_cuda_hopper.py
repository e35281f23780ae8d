"""Convolution by TMA and wgmma: what can be held without a GPU.

The interpreter has no Gluon, so a NumPy model of the code does what the launch's integers say: it
gathers as TMA's im2col mode does, from the tensor maps that the driver would be asked for.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from saccade.backends.cuda.codegen.compile import Cubin, decode_cubin, encode_cubin
from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.runtime.graph import Launches, PhaseCode, check_arguments
from saccade.backends.cuda.runtime.tensor_maps import encode, words
from saccade.backends.cuda.target import GpuTarget
from saccade.errors import LaunchError
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Launch, View
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.kernels.cuda.conv2d.hopper import CONV2D_HOPPER, hopper_tiles
from saccade.kernels.cuda.conv2d.hopper_rows import CONV2D_HOPPER_ROWS
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.opdefs import Conv2d, DepthToSpaceStore
from saccade.testing.fake_driver import FakeEncoders


def nhwc(shape, pitch=0, dtype=DType.F16):
    _, c, h, w = shape
    pitch = pitch or c
    return View(dtype, shape, (h * w * pitch, 1, w * pitch, pitch))


def call(n, c, h, w, k, taps, op, *, arch=90, extra=(), y=None):
    r, s = taps
    weights = View(DType.F16, (k, c, r, s), (c * r * s, r * s, s, 1))
    shape = op.sum_shape((n, c, h, w), (k, c, r, s))
    b = op.store.block if op.store else 1
    _, k, p, q = shape
    y = y or nhwc((n, k // (b * b), p * b, q * b))
    inputs = (nhwc((n, c, h, w)), weights, *extra)
    return Call(op, inputs, (y,), (False, True, *(False,) * len(extra)), GpuTarget(arch=arch))


class Recorder:
    """Stands in for the driver: keeps what it is asked for as plain numbers."""

    def __init__(self, status=0):
        self.status, self.asked = status, []

    def _take(self, mode, *arguments):
        numbers = [list(a) if isinstance(a, ctypes.Array) else getattr(a, "value", None)
                   for a in arguments]  # fmt: skip
        self.asked.append((mode, *numbers[1:]))
        return self.status

    def cuTensorMapEncodeTiled(self, *arguments):  # noqa: N802
        return self._take("tiled", *arguments)

    def cuTensorMapEncodeIm2col(self, *arguments):  # noqa: N802
        return self._take("im2col", *arguments)


def test_a_tiled_map_is_asked_for_as_the_driver_wants_it():
    descriptor = Descriptor("w", "bf16", (512, 32), ("k", "depth"), ("pitch", 1))
    driver = Recorder()
    tensor_map = encode(descriptor, 4096, {"k": 40, "depth": 96, "pitch": 128}, driver)
    assert ctypes.sizeof(tensor_map) == 128 and ctypes.addressof(tensor_map) % 64 == 0
    # Type, rank, address, sizes, strides in bytes, box, steps; then interleave, 64-byte swizzle,
    # promotion and fill. The innermost comes first; no box has more than 256 rows.
    assert driver.asked == [
        ("tiled", 9, 2, 4096, [96, 40], [256], [32, 256], [1, 1], 0, 2, 2, 0)
    ]  # fmt: skip


def test_an_im2col_map_is_asked_for_as_the_driver_wants_it():
    descriptor = Descriptor(
        "x", "fp16", (128, 64), ("n", "h", "w", 64), (5000, 400, 80, 1), (-3, -1), ("u", 7), (2, 4)
    )
    driver = Recorder()
    encode(descriptor, 32, {"n": 2, "h": 10, "w": 5, "u": -9}, driver)
    assert driver.asked == [
        ("im2col", 6, 4, 32, [64, 5, 10, 2], [160, 800, 10000], [-1, -3], [7, -9], 64, 128,
         [1, 4, 2, 1], 0, 3, 2, 0)
    ]  # fmt: skip


def test_sizes_and_strides_follow_the_map_outermost_first():
    descriptor = Descriptor("x", "fp16", (128, 64), ("n", 3), ("pitch", 1))
    found = words(descriptor, {"n": 2, "pitch": 1 << 33})
    assert [(type(w), w.value) for w in found] == [
        (ctypes.c_int32, 2), (ctypes.c_int32, 3), (ctypes.c_int64, 1 << 33), (ctypes.c_int64, 1),
    ]  # fmt: skip


def test_arguments_follow_the_bases_as_maps_and_as_pointers():
    one = Descriptor("x", "fp16", (128, 64), ("n", "m"), ("pitch", 1))
    cubin = Cubin("kernel", b"", ("x", "y", "n"), 4, 0, descriptors=(one,))
    refs = {"x": Ref(1, 32, 640), "y": Ref(0, 64, 640)}
    arguments = tuple(Argument(name, Role.INPUT, ref) for name, ref in refs.items())
    phase = Phase(None, arguments, {"n": 5, "m": 7, "pitch": 8}, 3)
    code = check_arguments(PhaseCode(0, phase, cubin, 1))
    launches = Launches([code, code], 2, FakeEncoders())
    assert launches.point(np.array([4096, 8192])) == [0, 1]
    for launch in launches.each:
        places = launch.table.tolist()
        values = [ctypes.c_int64.from_address(at).value for at in places]
        assert values[1:] == [5, 7, 8, 1, 4096 + 64, 5, 0, 0]
        assert values[0] == 8192 + 32 and places[0] % 64 == 0
    assert launches.point(np.array([4096, 1024])) == [0, 1]
    values = [ctypes.c_int64.from_address(one.table.tolist()[0]).value for one in launches.each]
    assert values == [1024 + 32] * 2


def test_an_integer_that_nothing_takes_is_refused():
    one = Descriptor("x", "fp16", (128, 64), ("n", "m"), ("pitch", 1))
    cubin = Cubin("kernel", b"", ("x",), 4, 0, descriptors=(one,))
    arguments = (Argument("x", Role.INPUT, Ref(0, 0, 640)),)
    phase = Phase(None, arguments, {"n": 5, "m": 7, "pitch": 8, "other": 1}, 3)
    with pytest.raises(LaunchError, match="other"):
        check_arguments(PhaseCode(0, phase, cubin, 1))


def test_a_map_that_the_driver_refuses_raises():
    descriptor = Descriptor("x", "fp16", (128, 64), (2, 3), (64, 1))
    with pytest.raises(LaunchError, match="tensor map of x: error 1"):
        encode(descriptor, 8, {}, Recorder(1))


def test_cubins_keep_their_descriptors():
    one = Descriptor(
        "x", "fp16", (128, 64), ("n", 3), (64, 1), (-1, -1), ("u", 2), (2, 2)
    )  # fmt: skip
    other = Descriptor("w", "fp16", (64, 64), (2, "k"), ("k", 1))
    cubin = Cubin("kernel", b"\n\0code", ("x", "w", "n"), 12, 99, True, (one, other))
    assert decode_cubin(encode_cubin(cubin)) == cubin


def test_filters_are_packed_with_their_terms_side_by_side():
    w = np.arange(8 * 3 * 2 * 1, dtype=np.float32).reshape(8, 3, 2, 1)
    packed = pack_filters(w, "float16", 8, 1).reshape(8, 2, 8)
    assert (
        np.array_equal(packed[:, :, :3], w[:, :, :, 0].swapaxes(1, 2))
        and not packed[:, :, 3:].any()
    )
    pixels = pack_filters(w, "float16", 8, 4).reshape(8, 2, 8)
    assert np.array_equal(pixels, packed[[0, 4, 1, 5, 2, 6, 3, 7]])


OP = Conv2d(padding=(1, 1, 1, 1))
REFUSED = {
    "sm_80": call(1, 8, 5, 5, 8, (3, 3), OP, arch=80),
    "2 groups": replace(
        call(1, 8, 5, 5, 8, (3, 3), OP), op=Conv2d(padding=(1, 1, 1, 1), groups=2)
    ),
    "a prologue": replace(
        call(1, 8, 5, 5, 8, (3, 3), OP), op=replace(OP, prologue=parse("relu($0)"))
    ),
    "weights are no constant": replace(call(1, 8, 5, 5, 8, (3, 3), OP), constant=(False, False)),
    "4 input and 8 output channels": call(1, 4, 5, 5, 8, (3, 3), OP),
    "strides (9, 1)": call(1, 8, 20, 5, 8, (1, 1), Conv2d(stride=(9, 1))),
    "taps 256 pixels apart": call(
        1, 8, 300, 5, 8, (2, 1), Conv2d(dilation=(256, 1), padding=(100, 0, 100, 0))
    ),
    "corners [-129, 0, 0, 0]": call(
        1, 8, 9, 9, 8, (3, 1), Conv2d(padding=(129, 0, 2, 0))
    ),
    "pixels of x are no multiples of 16 bytes apart": replace(
        call(1, 8, 5, 5, 8, (3, 3), OP),
        inputs=(nhwc((1, 8, 5, 5), pitch=12), *call(1, 8, 5, 5, 8, (3, 3), OP).inputs[1:]),
    ),
    "not channels-last": call(
        1, 8, 5, 5, 8, (3, 3), OP, y=View(DType.F16, (1, 8, 5, 5), (200, 25, 5, 1))
    ),
    "element types": call(1, 8, 5, 5, 8, (3, 3), OP, y=nhwc((1, 8, 5, 5), dtype=DType.F32)),
    "an operand of the epilogue of another element type": call(
        1, 8, 5, 5, 8, (3, 3), replace(OP, epilogue=parse("add($0, $1)")),
        extra=(nhwc((1, 8, 5, 5), dtype=DType.F32),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_it_refuses_what_it_cannot_do(reason):
    assert CONV2D_HOPPER.supports(REFUSED[reason]) == reason


def im2col(x, descriptor, integers, start, tap, channels):
    """What one TMA load brings: pixels from `start` on, in the order columns, rows, images."""

    def number(name):
        return name if isinstance(name, int) else integers[name]

    n, h, w, _ = (number(size) for size in descriptor.sizes)
    lower, upper = ([number(v) for v in corner] for corner in (descriptor.lower, descriptor.upper))
    rows, columns = descriptor.block
    found = np.zeros((rows, columns), np.float32)
    (image, top, left), (dy, dx) = start, tap
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


def model(launch: Launch, x, packed, y):
    """The code, in NumPy: x [N, H, W, C] and packed weights to y [N, P, Q, K]."""
    entry, tile = CONV2D_HOPPER.entry(launch.config), launch.config.tile
    i, config = launch.integers, launch.config
    (r, s), rows = config.taps, i["n"] * i["p"] * i["q"]
    blocks = -(-i["k"] // tile.columns)
    seen = np.zeros((rows, i["k"]), int)
    for program in range(launch.chunks):
        for at in range(program, -(-rows // tile.rows) * blocks, launch.chunks):
            col, m = at % blocks * tile.columns, at // blocks * tile.rows
            assert not tile.held or at % blocks == program % blocks
            place = m // (i["p"] * i["q"]), m // i["q"] % i["p"], m % i["q"]
            steps = zip(place[1:], config.stride, config.padding, strict=True)
            start = [place[0], *(p * step - pad for p, step, pad in steps)]
            acc = np.zeros((tile.rows, tile.columns), np.float32)
            for step in range(i["steps"]):
                for tap in range(r * s):
                    offset = tap // s * config.dilation[0], tap % s * config.dilation[1]
                    depth = tap * i["steps"] * tile.depth + step * tile.depth
                    a = im2col(x, entry.descriptors[0], i, start, offset, step * tile.depth)
                    b = packed[col : col + tile.columns, depth : depth + tile.depth]
                    acc[:, : len(b)] += a @ b.T.astype(np.float32)
            valid, wide = min(tile.rows, rows - m), min(tile.columns, i["k"] - col)
            pixel = np.arange(m, m + valid)
            for j in range(wide):
                part, channel = divmod(col + j, i["channels"])
                dy, dx = divmod(part, config.block)
                line, row = pixel % i["q"], pixel // i["q"] % i["p"]
                image = pixel // (i["p"] * i["q"])
                to = image, row * config.block + dy, line * config.block + dx, channel
                y[to] = acc[:valid, j]
                seen[pixel, col + j] += 1
    assert (seen == 1).all()


def walk_model(launch: Launch, x, packed, sums):
    """The code that goes down strips, in NumPy: to sums [N·P·Q, K], each written once.

    Asserts that no load would have to wait for a block that is only freed after it is needed.
    """
    entry, tile = CONV2D_HOPPER_ROWS.entry(launch.config), launch.config.tile
    i, config = launch.integers, launch.config
    r, s = config.taps
    p, q = i["p"], i["q"]
    blocks, strips, pieces = -(-i["k"] // tile.columns), -(-q // tile.rows), -(-p // i["span"])
    assert launch.chunks % blocks == 0
    for walker in range(launch.chunks * 2):
        program, which = divmod(walker, 2)
        col = program % blocks * tile.columns
        loads, freed = [], set()
        begin_at, used = program // blocks * 2 + which, 0
        for piece in range(begin_at, i["n"] * strips * pieces, launch.chunks // blocks * 2):
            begin, strip = piece % pieces * i["span"], piece // pieces % strips
            image, rows = piece // (pieces * strips), min(i["span"], p - begin)
            left = strip * tile.rows
            for y in range(begin, begin + rows + r - 1):
                top = min(y, p - 1)
                start = image, top - config.padding[0], left - config.padding[1]
                for dx in range(s):
                    offset = y - top, dx * config.dilation[1]
                    loads.append(im2col(x, entry.descriptors[0], i, start, offset, 0))
            for row in range(rows):
                acc = np.zeros((tile.rows, tile.columns), np.float32)
                for t in range(r * s):
                    at = used + t
                    assert at < tile.stages or at - tile.stages in freed
                    b = packed[col : col + tile.columns, t * tile.depth : (t + 1) * tile.depth]
                    acc[:, : len(b)] += loads[at] @ b.T.astype(np.float32)
                    if t < s or row == rows - 1:
                        freed.add(at)
                used += s
                line = (image * p + begin + row) * q
                valid, wide = min(tile.rows, q - left), min(tile.columns, i["k"] - col)
                target = sums[line + left : line + left + valid, col : col + wide]
                assert np.isnan(target).all()
                target[:] = acc[:valid, :wide]
            used += (r - 1) * s
        assert len(freed) == len(loads)


WALKS = {
    "3x3": (Conv2d(padding=(1, 1, 1, 1)), (3, 3), (2, 40, 9, 70, 72)),
    "uneven": (Conv2d(padding=(2, 0, 0, 3), dilation=(1, 2)), (2, 3), (1, 24, 14, 66, 24)),
    "2x1": (Conv2d(), (2, 1), (3, 8, 5, 130, 8)),
}


@pytest.mark.parametrize("window", WALKS)
def test_a_model_of_the_code_that_walks_convolves(window):
    op, (r, s), (n, c, h, w, k) = WALKS[window]
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (n, h, w, c)).astype(np.float32)
    weights = rng.integers(-2, 3, (k, c, r, s)).astype(np.float32)
    asked = replace(call(n, c, h, w, k, (r, s), op), target=GpuTarget(multiprocessors=5))
    assert CONV2D_HOPPER_ROWS.supports(asked) is None
    expected = reference(x, weights, op)
    for variant in CONV2D_HOPPER_ROWS.variants(asked):
        (launch,) = variant.launches
        assert set(launch.integers) == CONV2D_HOPPER_ROWS.entry(launch.config).launch_integers
        packed = pack_filters(weights, *launch.operands["w"].packing.parameters)
        sums = np.full((expected.size // k, k), np.nan, np.float32)
        walk_model(launch, x, packed, sums)
        assert np.array_equal(sums, expected.reshape(-1, k))


def test_walking_refuses_what_it_cannot_do():
    taps = (3, 3)
    reasons = [
        CONV2D_HOPPER_ROWS.supports(asked)
        for asked in (
            call(1, 64, 20, 20, 64, taps, Conv2d(stride=(1, 2))),
            call(1, 64, 20, 20, 64, (1, 3), Conv2d()),
            call(1, 128, 20, 20, 64, taps, Conv2d()),
            call(1, 4, 20, 20, 64, taps, Conv2d()),
        )
    ]
    assert reasons == [
        "strides (1, 2), dilations (1, 1)", "windows of one row",
        "weights (64, 128, 3, 3) do not stay in shared memory", "4 input and 64 output channels",
    ]  # fmt: skip


WINDOWS = {
    "3x3": (Conv2d(padding=(1, 1, 1, 1)), (3, 3)),
    "1x1 stride 2": (Conv2d(stride=(2, 2)), (1, 1)),
    "uneven": (Conv2d(stride=(2, 3), padding=(2, 0, 1, 3), dilation=(1, 2)), (3, 2)),
    "5x1": (Conv2d(padding=(2, 0, 2, 0), dilation=(2, 1)), (5, 1)),
    "crd": (Conv2d(padding=(1, 1, 1, 1), store=DepthToSpaceStore(2, "CRD")), (3, 3)),
    "dcr": (Conv2d(padding=(1, 1, 1, 1), store=DepthToSpaceStore(2, "DCR")), (3, 3)),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_a_model_of_the_code_convolves(window):
    op, (r, s) = WINDOWS[window]
    n, c, h, w, k = 2, 40, 9, 11, 24
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (n, h, w, c)).astype(np.float32)
    weights = rng.integers(-2, 3, (k, c, r, s)).astype(np.float32)
    asked = call(n, c, h, w, k, (r, s), op)
    asked = replace(asked, target=GpuTarget(multiprocessors=5))
    assert CONV2D_HOPPER.supports(asked) is None
    variants = list(CONV2D_HOPPER.variants(asked))
    assert len(variants) == len(hopper_tiles(asked)) > 3
    for variant in variants[:2] + variants[-1:]:
        (launch,) = variant.launches
        assert set(launch.integers) == CONV2D_HOPPER.entry(launch.config).launch_integers
        packed = pack_filters(weights, *launch.operands["w"].packing.parameters)
        assert packed.nbytes == launch.operands["w"].packing.nbytes
        sums = reference(x, weights, op)
        b = op.store.block if op.store else 1
        y = np.full((n, sums.shape[1] * b, sums.shape[2] * b, k // b**2), np.nan, np.float32)
        model(launch, x, packed, y)
        assert np.array_equal(y, shuffled(sums, op.store))


def reference(x, weights, op):
    n, h, w, _ = x.shape
    k, _, r, s = weights.shape
    top, left, bottom, right = op.padding
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    _, _, p, q = op.sum_shape((n, x.shape[3], h, w), weights.shape)
    sums = np.zeros((n, p, q, k), np.float32)
    for dy in range(r):
        for dx in range(s):
            rows = dy * op.dilation[0] + op.stride[0] * np.arange(p)
            columns = dx * op.dilation[1] + op.stride[1] * np.arange(q)
            sums += padded[:, rows][:, :, columns] @ weights[:, :, dy, dx].T
    return sums


def shuffled(sums, store):
    if store is None:
        return sums
    n, p, q, k = sums.shape
    b = store.block
    if store.mode == "CRD":
        parts = sums.reshape(n, p, q, k // b**2, b, b).transpose(0, 1, 4, 2, 5, 3)
    else:
        parts = sums.reshape(n, p, q, b, b, k // b**2).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(n, p * b, q * b, k // b**2)


def test_it_compiles():
    """In a process that never saw the interpreter."""
    text = """
from test_cuda_hopper import OP, call, nhwc, parse, replace, CONV2D_HOPPER
from saccade.backends.cuda.codegen.compile import compile_entry
op = replace(OP, epilogue=parse("relu(add(add($0, $1), $2))"))
from saccade.ir import DType
from saccade.kernels.base import View
bias = View(DType.F32, (64, 1, 1), (1, 1, 1))
asked = call(2, 64, 30, 30, 64, (3, 3), op, extra=(bias, nhwc((2, 64, 30, 30))))
(launch,) = next(iter(CONV2D_HOPPER.variants(asked))).launches
entry = CONV2D_HOPPER.entry(launch.config)
aligned = [name for name, _ in (*entry.pointers, *entry.extra_pointers)]
cubin = compile_entry(entry, 90, [*aligned, *entry.multiples])
assert cubin.parameters[:3] == ("x", "w", "y_box"), cubin.parameters
assert cubin.warps >= launch.config.tile.warps * launch.config.tile.consumers + 1
assert cubin.shared <= 227 << 10
"""
    here = str(Path(__file__).parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([here, *map(os.path.abspath, sys.path)]),
    }
    environment.pop("TRITON_INTERPRET", None)
    subprocess.run([sys.executable, "-c", text], check=True, env=environment)


def test_the_epilogue_reads_tiles_by_way_of_shared_memory():
    op = replace(OP, epilogue=parse("add($0, $1)"))
    asked = call(1, 8, 5, 5, 8, (3, 3), op, extra=(nhwc((1, 8, 5, 5)),))
    entry = CONV2D_HOPPER.entry(CONV2D_HOPPER.launch(asked)[0].config)
    assert "out.store(fetched[0])" in entry.functions["EPILOGUE"]
    assert "tl.load(extra[0]" in entry.functions["FETCH"]
    assert entry.extra_integers == ("e1_p", "e1_q") and entry.gluon
