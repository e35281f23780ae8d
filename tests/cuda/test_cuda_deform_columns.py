"""Deformable convolution by its columns: groups, layouts, pieces, and float32 in parts."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.deform import columns
from saccade.kernels.cuda.deform.columns import DEFORM_COLUMNS
from saccade.kernels.cuda.deform.gradient import DEFORM_GRADIENT
from saccade.opdefs import DeformConv, DeformConvGradient
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.triton import H200, interpret

TF32 = dataclasses.replace(H200, tf32=True)
LOOSE = {DType.F32: 2e-6, DType.F16: 1e-3, DType.F64: 1e-13}


def operands(op, images=2, channels=12, outputs=6, size=(4, 5), dtype=DType.F32):
    rng = np.random.default_rng(images)
    p, q = (size[0] - 1, size[1] - 1)
    found = [
        rng.standard_normal((images, channels, *size)),
        rng.standard_normal((outputs, channels // op.groups, 2, 2)),
        rng.standard_normal((images, 8 * op.offset_groups, p, q)),
    ]
    if op.bias:
        found.append(rng.standard_normal(outputs))
    if op.mask:
        found.append(rng.random((images, 4 * op.offset_groups, p, q)))
    return [a.astype(dtype.numpy) for a in found]


def truth_of(op, arrays):
    with np.errstate(all="ignore"):
        return op.reference(*(a.astype(np.float64) for a in arrays))[0]


def call_of(op, arrays, last=False, target=H200):
    dtype = {np.dtype(d.numpy): d for d in LOOSE}[arrays[0].dtype]
    views = [row_major(dtype, a.shape) for a in arrays]
    shape = truth_of(op, arrays).shape
    y = row_major(dtype, shape)
    if last:
        views[0] = nhwc_view(dtype, arrays[0].shape, arrays[0].shape[1])
        y = nhwc_view(dtype, shape, shape[1])
    return Call(op, tuple(views), (y,), (False,) * len(views), target)


def error(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", LOOSE)
@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 3), (3, 2)])
def test_right(groups, offset_groups, dtype, last):
    op = DeformConv(groups=groups, offset_groups=offset_groups, bias=groups < 3, mask=groups > 1)
    arrays = operands(op, dtype=dtype)
    (found,) = interpret(DEFORM_COLUMNS, call_of(op, arrays, last), arrays)
    assert error(found, truth_of(op, arrays)) < LOOSE[dtype]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_every_variant(dtype):
    """Sums in parts, too, for which there have to be enough terms."""
    op = DeformConv(mask=True)
    arrays = operands(op, 1, 200, 3, (3, 4), dtype)
    call, truth = call_of(op, arrays), truth_of(op, arrays)
    splits = set()
    for variant in DEFORM_COLUMNS.variants(call):
        (found,) = interpret(DEFORM_COLUMNS, call, arrays, variant.launches)
        assert error(found, truth) < LOOSE[dtype]
        splits |= {la.integers["splits"] for la in variant.launches if "splits" in la.integers}
    assert {1, 2, 4} <= splits


def test_pieces_of_images(monkeypatch):
    op = DeformConv(bias=True)
    arrays = operands(op, images=3)
    monkeypatch.setattr(columns, "_PIECE", 2 * 4 * 12 * 4 * 12)
    call = call_of(op, arrays)
    (found,) = interpret(DEFORM_COLUMNS, call, arrays)
    assert error(found, truth_of(op, arrays)) < 2e-6
    phases = [launch.config.phase for launch in DEFORM_COLUMNS.launch(call)]
    assert phases.count("sampled") == phases.count("multiplied") == 2
    assert phases.count("prepare") == 1


@pytest.mark.parametrize("scales", [(1e-30, 1e25, 1.0), (3e38, 1e-20, 1e-6), (1e-36, 1.0, 1e20)])
def test_any_scale_of_float32(scales):
    """Halves hold six decades: operands are brought to them and back."""
    op = DeformConv(mask=True)
    arrays = operands(op)
    for at, scale in zip((0, 1, 3), scales, strict=True):
        arrays[at] = np.clip(arrays[at], -1, 1) * np.float32(scale)
    (found,) = interpret(DEFORM_COLUMNS, call_of(op, arrays), arrays)
    assert error(found, truth_of(op, arrays)) < 2e-6


def test_small_pixels_beside_large_ones():
    """2^-26 of the largest is as precise as that is."""
    op = DeformConv()
    arrays = operands(op)
    arrays[0][0] *= 2.0**26
    (found,), truth = interpret(DEFORM_COLUMNS, call_of(op, arrays), arrays), truth_of(op, arrays)
    assert error(found[0], truth[0]) < 2e-6
    assert error(found[1], truth[1]) < 2e-6


def test_nothing_but_zeros():
    op = DeformConv()
    arrays = operands(op)
    arrays[0][:] = 0
    (found,) = interpret(DEFORM_COLUMNS, call_of(op, arrays), arrays)
    assert not found.any()


def test_what_is_not_finite_stays_where_it_is():
    op = DeformConv(mask=True)
    arrays = operands(op)
    arrays[2][:] = 0.25
    arrays[0][0, 3, 1, 1], arrays[0][1, 2, 2, 2], arrays[3][1, 2, 0, 0] = np.inf, np.nan, -np.inf
    (found,), truth = interpret(DEFORM_COLUMNS, call_of(op, arrays), arrays), truth_of(op, arrays)
    assert np.array_equal(np.isfinite(found), np.isfinite(truth))
    assert np.array_equal(np.isnan(found), np.isnan(truth))
    known, infinite = np.isfinite(truth), np.isinf(truth)
    assert infinite.any()
    assert np.array_equal(found[infinite], truth[infinite])
    assert error(found[known], truth[known]) < 2e-6


def test_one_part_where_tf32_may_be():
    op = DeformConv(mask=True)
    arrays = operands(op)
    call = call_of(op, arrays, target=TF32)
    (found,) = interpret(DEFORM_COLUMNS, call, arrays)
    assert 1e-5 < error(found, truth_of(op, arrays)) < 1e-3
    (config,) = {la.config for la in DEFORM_COLUMNS.launch(call) if la.config.phase == "multiplied"}
    assert config.parts == 1


def test_gradients_of_any_scale_and_in_one_part():
    op = DeformConvGradient(mask=True, wanted=DeformConvGradient.WANTED)
    x, w, offset, mask = operands(DeformConv(mask=True))
    # Sums within float64's range, each operand at another end of float32's.
    grad = np.random.default_rng(3).standard_normal((2, 6, 3, 4)).astype(np.float32) * 1e-30
    arrays = [grad, x * np.float32(1e20), w * np.float32(1e15), offset, mask]
    views = tuple(row_major(DType.F32, a.shape) for a in arrays)
    results = (*views[1:4], row_major(DType.F32, (6,)), views[4])
    truth = op.reference(*(a.astype(np.float64) for a in arrays))
    for target, loose in ((H200, 3e-6), (TF32, 1e-3)):
        call = Call(op, views, results, (False,) * 5, target)
        found = interpret(DEFORM_GRADIENT, call, arrays)
        for name, have, true in zip(op.wanted, found, truth, strict=True):
            assert error(have, true) < loose, name


def test_memory_is_bounded():
    """Of the case that is measured, in both types, and of a batch ten times as large."""
    op = DeformConv(padding=(1, 1, 1, 1), mask=True)
    for dtype, images in ((DType.F16, 6), (DType.F32, 6), (DType.F16, 60), (DType.F32, 60)):
        shapes = [(images, 512, 19, 34), (256, 512, 3, 3), (images, 18, 19, 34),
                  (images, 9, 19, 34), (images, 256, 19, 34)]  # fmt: skip
        views = [row_major(dtype, shape) for shape in shapes]
        call = Call(op, tuple(views[:4]), (views[4],), (False,) * 4, H200)
        copy = views[0].nbytes  # of x with its channels last
        for variant in DEFORM_COLUMNS.variants(call):
            temps = {}
            for launch in variant.launches:
                for operand in launch.operands.values():
                    if type(operand).__name__ == "Temp":
                        temps[operand.index] = max(temps.get(operand.index, 0), operand.nbytes)
            assert sum(temps.values()) <= copy + (64 << 20)


COMPILE = """
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.deform.columns import DEFORM_COLUMNS
from saccade.opdefs import DeformConv
from saccade.testing.kernels import row_major
from saccade.testing.triton import H200
phases = set()
for dtype in (DType.F16, DType.F32, DType.F64):
    views = [row_major(dtype, s) for s in
             ((1, 16, 5, 5), (16, 16, 2, 2), (1, 8, 4, 4), (16,), (1, 4, 4, 4))]
    op = DeformConv(bias=True, mask=True)
    call = Call(op, tuple(views), (row_major(dtype, (1, 16, 4, 4)),), (False,) * 5, H200)
    for config in {launch.config for launch in DEFORM_COLUMNS.launch(call)}:
        assert compile_entry(DEFORM_COLUMNS.entry(config), 90, aligned=()).code[:4] == b"\\x7fELF"
        phases.add(config.phase)
print(*sorted(phases))
"""


def test_every_phase_compiles():
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [
        "cleared", "largest", "multiplied", "prepare", "sampled", "summed",
    ]  # fmt: skip
