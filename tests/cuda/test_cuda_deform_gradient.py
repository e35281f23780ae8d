"""Gradients of deformable convolution: pieces, crowded cells, places that are no numbers."""

import os
import subprocess
import sys

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.deform import gradient_sizes
from saccade.kernels.cuda.deform.gradient import DEFORM_GRADIENT
from saccade.kernels.cuda.deform.gradient_config import CudaDeformGradientConfig, entry_of
from saccade.kernels.cuda.deform.gradient_sizes import sizes_of
from saccade.opdefs import DeformConvGradient
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.triton import H200, interpret, play_entry

WANTED = DeformConvGradient.WANTED


def call_of(op, arrays, last=False, dtype=DType.F32):
    types = [row_major(dtype, a.shape) for a in arrays]
    if last:
        types[:2] = [nhwc_view(dtype, a.shape, a.shape[1]) for a in arrays[:2]]
    shapes = dict(
        zip(WANTED, (*(a.shape for a in arrays[1:4]), (arrays[0].shape[1],)), strict=False)
    )
    if op.mask:
        shapes["mask"] = arrays[4].shape
    outputs = tuple(row_major(dtype, shapes[name]) for name in op.wanted)
    return Call(op, tuple(types), outputs, (False,) * len(types), H200)


def operands(images=2, channels=8, outputs=4, groups=1, offset_groups=1, size=(5, 4)):
    rng = np.random.default_rng(images)
    offset = rng.integers(-8, 9, (images, 8 * offset_groups, size[0] - 1, size[1] - 1)) / 4
    grad = rng.integers(-2, 3, (images, outputs, size[0] - 1, size[1] - 1))
    x = rng.integers(-3, 4, (images, channels, *size))
    w = rng.integers(-2, 3, (outputs, channels // groups, 2, 2))
    mask = rng.integers(0, 4, (images, 4 * offset_groups, size[0] - 1, size[1] - 1)) / 2
    return [a.astype(np.float32) for a in (grad, x, w, offset, mask)]


def check(op, arrays, **how):
    call = call_of(op, arrays, **how)
    found = interpret(DEFORM_GRADIENT, call, arrays)
    with np.errstate(all="ignore"):
        truth = op.reference(*arrays)
    for name, have, true in zip(op.wanted, found, truth, strict=True):
        assert np.allclose(have, true, rtol=1e-5, atol=1e-4, equal_nan=True), name
    return call


@pytest.mark.parametrize("last", [False, True])
def test_pieces_of_images(monkeypatch, last):
    """Channels-last maps need no copies, so more images fit."""
    op, arrays = DeformConvGradient(mask=True, wanted=WANTED), operands(images=3)
    monkeypatch.setattr(gradient_sizes, "_PIECE", 9000 if last else 13000)
    call = check(op, arrays, last=last)
    assert list(sizes_of(call).batches()) == [(0, 2), (2, 1)]


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (1, 2), (4, 1)])
def test_pieces_of_channels(monkeypatch, groups, offset_groups):
    op = DeformConvGradient(groups=groups, offset_groups=offset_groups, mask=True, wanted=WANTED)
    arrays = operands(1, 80, 4, groups, offset_groups, (4, 3))
    monkeypatch.setattr(gradient_sizes, "_PIECE", 1)
    pieces = list(sizes_of(check(op, arrays)).channel_pieces())
    assert len(pieces) > 2
    assert sum(piece.channels for piece in pieces) == 80 // offset_groups


def test_all_samples_in_one_cell():
    op, arrays = DeformConvGradient(mask=True, wanted=WANTED), operands()
    p, q = arrays[3].shape[2:]
    for tap in range(4):
        arrays[3][:, 2 * tap] = 1.25 - tap // 2 - np.arange(p)[:, None]
        arrays[3][:, 2 * tap + 1] = 2.5 - tap % 2 - np.arange(q)
    check(op, arrays)


def test_places_that_are_no_numbers():
    op, arrays = DeformConvGradient(mask=True, wanted=WANTED), operands(1)
    offset, mask = arrays[3:]
    offset[0, 0, 0, 0], offset[0, 1, 0, 1], offset[0, 2, 1, 0] = np.nan, np.inf, -np.inf
    offset[0, 3, 2, 2], offset[0, 4, 1, 1], offset[0, 5, 1, 1] = 1e30, np.inf, np.nan
    mask[0, 0, 2, 2], mask[0, 1, 2, 1] = np.nan, np.inf
    check(op, arrays)


@pytest.mark.parametrize("images", [0, 1])
def test_without_pixels(images):
    op = DeformConvGradient(wanted=WANTED[:4])
    shape = (1, 0) if images else (2, 2)
    arrays = [
        np.zeros((images, 4, *shape), np.float32), np.ones((images, 8, shape[0] + 1, shape[1] + 1),
        np.float32), np.ones((4, 8, 2, 2), np.float32), np.zeros((images, 8, *shape), np.float32),
    ]  # fmt: skip
    found = interpret(DEFORM_GRADIENT, call_of(op, arrays), arrays)
    assert not any(a.any() for a in found)


def test_records_do_not_depend_on_who_came_first():
    """Samples of a cell in any order: records are the same."""
    number, taps = 40, 2
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 6, number).astype(np.int32)
    counts = np.append(np.bincount(cells, minlength=6), number).astype(np.int32)
    start = (np.cumsum(counts[:6]) - counts[:6]).astype(np.int32)
    tables = [rng.random(number).astype(np.float32) for _ in range(3)]
    entry = entry_of(
        CudaDeformGradientConfig(
            "records", ("i32", *("fp32",) * 3, *("i32",) * 4, "fp32"), (16, 8, 0, 4, 1), (False,)
        )
    )
    results = []
    for _ in range(2):
        found = np.lexsort((rng.random(number), cells)).astype(np.int32)
        row, weight = np.full(number, -1, np.int32), np.zeros((4, number), np.float32)
        arrays = [cells, *tables, counts, start, found, row, weight]
        places = {n: a.ctypes.data for (n, _), a in zip(entry.pointers, arrays, strict=True)}
        integers = {"number": number, "pixels": 20, "taps": taps, "offset_groups": 1,
                    "image_cells": 6, "buckets": 6}  # fmt: skip
        play_entry(entry, 3, {**places, **integers})
        results.append((row, weight))
    ordered = np.lexsort((np.arange(number), cells))
    assert np.array_equal(results[0][0], ordered % 20 * taps + ordered // 20)
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)


def test_types_that_differ_are_refused():
    arrays = operands()
    call = call_of(DeformConvGradient(mask=True, wanted=WANTED), arrays)
    mixed = call.inputs[0], call.inputs[1]._replace(dtype=DType.F16), *call.inputs[2:]
    reason = DEFORM_GRADIENT.supports(Call(call.op, mixed, call.outputs, call.constant, H200))
    assert reason == "x, weights and the result's gradient of different types"


def test_memory_is_bounded():
    """Of the issue's case, in both types, and of a batch ten times as large."""
    for dtype, images in ((DType.F16, 6), (DType.F32, 6), (DType.F16, 60)):
        shapes = [(images, 256, 19, 34), (images, 512, 19, 34), (256, 512, 3, 3),
                  (images, 18, 19, 34), (images, 9, 19, 34)]  # fmt: skip
        arrays = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
        op = DeformConvGradient(padding=(1, 1, 1, 1), mask=True, wanted=WANTED)
        for variant in DEFORM_GRADIENT.variants(call_of(op, arrays, dtype=dtype)):
            temps = {}
            for launch in variant.launches:
                for operand in launch.operands.values():
                    if type(operand).__name__ == "Temp":
                        temps[operand.index] = max(temps.get(operand.index, 0), operand.nbytes)
            assert sum(temps.values()) <= 64 << 20


COMPILE = """
import numpy as np
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.deform.gradient import DEFORM_GRADIENT
from saccade.opdefs import DeformConvGradient
from saccade.testing.kernels import row_major
from saccade.testing.triton import H200
op = DeformConvGradient(mask=True, wanted=DeformConvGradient.WANTED)
views = [row_major(DType.F16, s) for s in
         ((1, 16, 4, 4), (1, 16, 5, 5), (16, 16, 2, 2), (1, 8, 4, 4), (1, 4, 4, 4))]
results = (*views[1:4], row_major(DType.F16, (16,)), views[4])
call = Call(op, tuple(views), results, (False,) * 5, H200)
configs = {launch.config for launch in DEFORM_GRADIENT.launch(call)}
for config in configs:
    assert compile_entry(DEFORM_GRADIENT.entry(config), 90, aligned=()).code[:4] == b"\\x7fELF"
print(len(configs))
"""


def test_every_phase_compiles():
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == 13
