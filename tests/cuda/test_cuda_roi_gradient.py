"""Gradients of operators over boxes: boxes and bins that the cases have not, and each variant."""

import os
import subprocess
import sys

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.roi import gradient_steps
from saccade.kernels.cuda.roi.align_gradient import ROI_ALIGN_GRADIENT
from saccade.kernels.cuda.roi.pool_gradient import ROI_POOL_GRADIENT
from saccade.kernels.cuda.roi.ps_gradient import PS_ROI_GRADIENT
from saccade.opdefs import PsRoiGradient, RoiAlignGradient, RoiPoolGradient
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.triton import H200, interpret

HUGE = [
    (1, -3e7, -5, 8, 6e7),
    (0, -1e6, -1e6, 1e6 + 12, 1e6 + 10),
    (0, -3e38, -3e38, 3e38, 3e38),
    (0, 9, 9, -2e9, -2e9),
]
BOXES = [
    (0, 1, 1, 8, 7),
    (1, 3, 2, 3.5, 2.25),  # all bins on a few pixels
    (0, 9, 6, 2, 1),  # inverted
    (1, 0, 0, 9, 9),
    (2, 0, 0, 5, 5),  # no such image
    (1, -4, -4, 14, 12),
    (0, np.nan, 0, 5, 5),
]
IMAGES = [(n, 1, 1, 6, 5) for n in (np.nan, -0.5, 0.5, 1.99, 2, np.inf, -1e30, -0.0, 1)]
SIZES = (2, 10, 9)


def call_of(op, arrays, *, last=False):
    view = nhwc_view if last else lambda dtype, shape, _pitch: row_major(dtype, shape)
    with np.errstate(all="ignore"):
        truth = op.reference(*arrays)
    grids = [a for a in arrays if a.ndim == 4]
    inputs = [view(DType.of(a.dtype), a.shape, a.shape[1]) for a in grids]
    inputs += [row_major(DType.of(a.dtype), a.shape) for a in arrays if a.ndim != 4]
    outputs = [view(DType.of(truth[0].dtype), truth[0].shape, truth[0].shape[1])]
    outputs += [row_major(DType.of(a.dtype), a.shape) for a in truth[1:]]
    known = (False,) * len(inputs)
    return Call(op, tuple(inputs), tuple(outputs), known, H200), truth


def check(kernel, op, arrays, *, last=False, every=False):
    call, truth = call_of(op, arrays, last=last)
    variants = list(kernel.variants(call))
    assert [v.micros for v in variants] == sorted(v.micros for v in variants)
    for variant in variants if every else variants[:1]:
        found = interpret(kernel, call, arrays, variant.launches)
        for have, true in zip(found, truth, strict=True):
            assert np.allclose(have, true, rtol=1e-4, atol=2e-5)
    return found


def grads(rows, channels, bins, seed=0):
    drawn = np.random.default_rng(seed).standard_normal((len(rows), channels, *bins))
    return [drawn.astype(np.float32), np.array(rows, np.float32).reshape(-1, 5)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("ratio", [0, 3])
def test_align_has_every_bin_of_a_tile(last, ratio):
    op = RoiAlignGradient((3, 5), 1.0, ratio, aligned=bool(ratio), images=SIZES)
    check(ROI_ALIGN_GRADIENT, op, grads(BOXES, 9, (3, 5)), last=last, every=not ratio)


def test_align_has_more_bins_than_a_block_of_tables():
    op = RoiAlignGradient((19, 2), 1.0, 1, images=SIZES)
    check(ROI_ALIGN_GRADIENT, op, grads(BOXES, 2, (19, 2)))


def test_images_wider_than_a_block_of_tables():
    rows = [(0, -3, 10, 90, 70), (0, 60, 1, 68, 4), (0, 0, 0, 100, 90)]
    align = RoiAlignGradient((2, 3), 1.0, 2, images=(1, 70, 85))
    check(ROI_ALIGN_GRADIENT, align, grads(rows, 3, (2, 3)))
    check(PS_ROI_GRADIENT, PsRoiGradient((2, 3), 1.0, "pool", images=(1, 70, 85)),
          grads(rows, 2, (2, 3)))  # fmt: skip


@pytest.mark.parametrize("mode", ["align", "pool"])
def test_ps_has_every_variant_and_bin(mode):
    op = PsRoiGradient((3, 4), 1.0, mode, images=SIZES, report=True)
    check(PS_ROI_GRADIENT, op, grads(BOXES, 3, (3, 4)), every=True)


def test_enormous_boxes():
    check(ROI_ALIGN_GRADIENT, RoiAlignGradient((2, 1), images=(2, 4, 3)), grads(HUGE, 2, (2, 1)))
    check(PS_ROI_GRADIENT, PsRoiGradient((1, 2), images=(2, 4, 3)), grads(HUGE, 2, (1, 2)))
    check(PS_ROI_GRADIENT, PsRoiGradient((1, 2), 1.0, "pool", images=(2, 4, 3)),
          grads(HUGE, 2, (1, 2)))  # fmt: skip


def pointers(rows, channels, bins, sizes):
    grad, boxes = grads(rows, channels, bins)
    rng = np.random.default_rng(1)
    places = rng.integers(-2, sizes[1] * sizes[2] + 2, grad.shape).astype(np.int32)
    places[0, :, 0, 0] = 4  # many at one pixel
    return [grad, places, boxes]


@pytest.mark.parametrize("last", [False, True])
def test_pool_has_every_variant(last):
    arrays = pointers(BOXES, 20, (3, 2), SIZES)
    check(ROI_POOL_GRADIENT, RoiPoolGradient(SIZES), arrays, last=last, every=True)


def test_pool_has_more_bins_than_a_block():
    check(ROI_POOL_GRADIENT, RoiPoolGradient(SIZES), pointers(BOXES, 2, (9, 8), SIZES))


@pytest.mark.parametrize(
    ("kernel", "op", "arrays"),
    [
        (ROI_ALIGN_GRADIENT, RoiAlignGradient((2, 2), 1.0, 1, report=True, images=SIZES),
         grads(IMAGES, 3, (2, 2))),
        (ROI_POOL_GRADIENT, RoiPoolGradient(SIZES, report=True),
         pointers(IMAGES, 3, (2, 2), SIZES)),
        (PS_ROI_GRADIENT, PsRoiGradient((2, 2), 1.0, "align", 1, report=True, images=SIZES),
         grads(IMAGES, 3, (2, 2))),
    ],
)  # fmt: skip
def test_images_by_any_number(kernel, op, arrays):
    check(kernel, op, arrays)


def test_images_apart():
    grad, boxes = grads(BOXES[:6], 3, (2, 2))
    arrays = [grad, np.ascontiguousarray(boxes[:, 1:]), boxes[:, 0].astype(np.int64)]
    check(ROI_ALIGN_GRADIENT, RoiAlignGradient((2, 2), 1.0, 2, images=SIZES), arrays)


def test_lists_longer_than_a_block_are_in_order():
    rng = np.random.default_rng(2)
    corners = np.sort(rng.uniform(-1, 6, (520, 2, 2)), 1).reshape(520, 4)
    rows = [(n % 13 - 1, *row) for n, row in enumerate(corners)]
    op = RoiAlignGradient((1, 1), 1.0, 1, images=(2, 4, 4))
    check(ROI_ALIGN_GRADIENT, op, grads(rows, 1, (1, 1)))


def test_lists_of_bounded_memory(monkeypatch):
    monkeypatch.setattr(gradient_steps, "_LISTS", 4 * len(BOXES))
    op = RoiAlignGradient((2, 2), 1.0, 2, images=(2, 33, 20))
    arrays = grads(BOXES, 130, (2, 2))
    call, _ = call_of(op, arrays)
    assert gradient_steps.Square.of(call, (4, 4)) == gradient_steps.Square((64, 64), 1, 1)
    check(ROI_ALIGN_GRADIENT, op, arrays)
    check(ROI_POOL_GRADIENT, RoiPoolGradient(SIZES), pointers(BOXES, 20, (3, 2), SIZES))


@pytest.mark.parametrize("sizes", [(0, 4, 4), (2, 0, 4), (2, 4, 0)])
def test_images_without_pixels(sizes):
    align = RoiAlignGradient((2, 2), 1.0, 1, report=True, images=sizes)
    check(ROI_ALIGN_GRADIENT, align, grads(BOXES, 2, (2, 2)))
    ps = PsRoiGradient((2, 2), 1.0, "pool", report=True, images=sizes)
    check(PS_ROI_GRADIENT, ps, grads(BOXES, 2, (2, 2)))


def test_no_bins_and_no_channels():
    for channels, bins in [(3, (0, 2)), (0, (2, 2))]:
        align = RoiAlignGradient(bins, 1.0, 1, images=SIZES)
        check(ROI_ALIGN_GRADIENT, align, grads(BOXES, channels, bins))
        pool = RoiPoolGradient(SIZES, report=True)
        grad, boxes = grads(BOXES, channels, bins)
        check(ROI_POOL_GRADIENT, pool, [grad, np.zeros(grad.shape, np.int32), boxes])


def test_what_is_not_finite_stays_with_its_tiles():
    grad, boxes = grads([(0, 0, 0, 3, 3), (1, 0, 0, 3, 3)], 1, (1, 1))
    grad[0] = np.inf
    op = RoiAlignGradient((1, 1), 1.0, 2, images=(2, 40, 40))
    call, truth = call_of(op, [grad, boxes])
    found = interpret(ROI_ALIGN_GRADIENT, call, [grad, boxes])[0]
    assert np.isfinite(found[0, :, 16:, 16:]).all()
    assert np.isinf(found[0, 0, 1, 1])
    assert np.allclose(found[1], truth[0][1], atol=1e-6)


def test_refusals():
    grad, boxes, y = (row_major(DType.F32, s) for s in ((3, 1, 1, 1), (3, 5), (1, 1, 4, 40000)))
    op = RoiAlignGradient((1, 1), 1.0, 4096, images=(1, 4, 40000))
    call = Call(op, (grad, boxes), (y,), (False, False), H200)
    assert ROI_ALIGN_GRADIENT.supports(call) == "4096 samples of a bin along an axis"
    op = RoiAlignGradient((1, 1), 1.0, 1, images=(1, 4, 40000))
    call = Call(op, (grad, boxes), (y,), (False, False), H200)
    reason = "32768 rows, columns or bins along an axis, or more"
    assert ROI_ALIGN_GRADIENT.supports(call) == reason


_COMPILED = """
import re
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.roi.align_gradient import ROI_ALIGN_GRADIENT as kernel
from saccade.opdefs import RoiAlignGradient
from saccade.testing.kernels import nhwc_view, row_major
from saccade.backends.cuda.target import GpuTarget
op = RoiAlignGradient((7, 7), 0.25, 2, images=(1, 32, 32))
inputs = nhwc_view(DType.F32, (4, 128, 7, 7), 128), row_major(DType.F32, (4, 5))
output = nhwc_view(DType.F32, (1, 128, 32, 32), 128)
call = Call(op, inputs, (output,), (False, False), GpuTarget())
for launch in kernel.launch(call):
    entry = kernel.entry(launch.config)
    print(launch.config.phase, entry.contract, len(compile_entry(entry, 90, ()).code) > 1000)
"""


def test_phases_compile_and_places_are_not_contracted():
    # A process that ran the interpreter compiles nothing.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-c", _COMPILED],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert run.stdout.splitlines() == ["axes False True", "listed True True", "align True True"]
