"""Gradients of deformable convolution against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from deform_cases import CASES, RNG, operands, results, stored

from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cpu.deform.gradient import DEFORM_CONV2D_GRADIENT
from saccade.opdefs import DeformConvGradient
from saccade.testing.kernels import launched_as, mistaken, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

RUNS = (
    ("avx512", False, 1, None),
    ("avx512", True, 7, (6, 2, 4, 0, 1, 5, 3)),
    ("avx2", True, 2, (1, 0)),
)
FEW = (RUNS[0], RUNS[1])
ALL = DeformConvGradient.WANTED


def gradient_operands(op, shape, outputs, window, dtype=DType.F32, other=None, exact=False):
    x, w, offset, _, mask = operands(RNG, op, shape, outputs, window, dtype, other, exact)
    size = (shape[0], outputs, *offset.shape[2:])
    grad = (exact_operands if exact else random_operands)(size, dtype, RNG)
    return [grad, x, w, offset, *([mask] if op.mask else [])]


def held(hold, op, arrays, *, last=False, exact=False, kernel=DEFORM_CONV2D_GRADIENT, **more):
    views = [stored(a, last, 3 * (i < 2)) for i, a in enumerate(arrays)]
    outs = [stored(r, last) for r in results(op, arrays)]
    k = arrays[0].size // max(1, arrays[0].shape[1]) + arrays[2].shape[0]
    return hold(kernel, op, arrays, inputs=views, outputs=outs, k=k, exact=exact, **more)


@pytest.mark.parametrize("last", [False, True], ids=["planar", "last"])
@pytest.mark.parametrize(("shape", "outputs", "window", "attributes"), CASES, ids=str)
def test_exact(hold, shape, outputs, window, attributes, last):
    wanted = tuple(name for name in ALL if not last or name != "mask")
    op = DeformConvGradient(mask=not last, wanted=wanted, **attributes)
    arrays = gradient_operands(op, shape, outputs, window, exact=True)
    held(hold, op, arrays, last=last, exact=True, runs=FEW if last else RUNS)


@pytest.mark.parametrize("wanted", [("x",), ("weight",), ("offset",), ("bias",), ("mask",),
                                    ("x", "offset"), ("weight", "bias", "mask")])  # fmt: skip
def test_only_what_is_wanted(hold, wanted):
    op = DeformConvGradient(mask=True, wanted=wanted, padding=(1, 0, 1, 0))
    arrays = gradient_operands(op, (2, 18, 5, 6), 7, (2, 2))
    held(hold, op, arrays, runs=FEW)


@pytest.mark.parametrize("dtype", [DType.F64, DType.F16], ids=str)
def test_dtypes(hold, dtype):
    op = DeformConvGradient(mask=True, wanted=ALL, padding=(1, 1, 1, 1), offset_groups=2)
    arrays = gradient_operands(op, (2, 38, 6, 7), 21, (3, 3), dtype, DType.F32)
    held(hold, op, arrays, runs=FEW)


def test_bfloat16(hold):
    """Samples are rounded where the target multiplies pairs; whole ones need none."""
    op = DeformConvGradient(mask=True, wanted=ALL, padding=(1, 1, 1, 1), groups=3)
    shape = (2, 51, 5, 7)
    arrays = gradient_operands(op, shape, 21, (3, 3), DType.BF16, DType.F32, exact=True)
    arrays[3], arrays[4] = np.round(arrays[3]), np.round(arrays[4])
    held(hold, op, arrays, exact=True, runs=FEW)


def test_what_fills_a_pair_up_is_zero(hold):
    """An odd number of pixels, of which the last one is infinite: 0 times it would be NaN."""
    op = DeformConvGradient(wanted=("weight",), stride=(1, 2))
    arrays = gradient_operands(op, (1, 17, 1, 5), 5, (1, 1), DType.BF16, DType.F32, exact=True)
    arrays[0][...], arrays[3][...] = 1, 0
    arrays[1][0, 4, 0, 4] = np.inf
    (expected,) = op.reference(*(one.astype(np.float64) for one in arrays))
    assert np.isposinf(expected[:, 4]).all()
    assert np.isfinite(np.delete(expected, 4, 1)).all()
    held(hold, op, arrays, exact=True, runs=FEW)


def test_wherever_offsets_point(hold):
    op = DeformConvGradient(wanted=("x", "weight", "offset"), padding=(1, 1, 1, 1))
    arrays = gradient_operands(op, (1, 19, 5, 6), 8, (3, 3))
    special = [-1.0, 1.0, 5.0, 6.0, -2.0, 1e9, -1e30, 3e38, np.inf, -np.inf, 0.5]
    arrays[3][...] = RNG.choice(np.array(special, np.float32), arrays[3].shape)
    held(hold, op, arrays, runs=FEW)


def test_small_images_have_chunks_for_a_large_team():
    """And those of the gradients' parts follow from sizes, not from the team's."""
    shape, weight = (1, 512, 28, 28), (256, 512, 3, 3)
    sizes = ((1, 256, 28, 28), shape, weight, (1, 18, 28, 28))
    views = tuple(row_major(DType.F32, s) for s in sizes)
    op = DeformConvGradient(wanted=("x", "weight", "offset"), padding=(1, 1, 1, 1))
    outs = tuple(views[i] for i in (1, 2, 3))
    found = [
        [
            (phase.config.phase, phase.chunks)
            for phase in DEFORM_CONV2D_GRADIENT.launch(
                Call(op, views, outs, (False,) * 4, ZEN4, threads)
            )
        ]
        for threads in (1, 64)
    ]
    assert found[0] == found[1]
    chunks = dict(found[0])
    assert chunks["columns"] >= 64
    assert chunks["weight"] >= 64


MUTANTS = {  # integers of a phase
    "blocks": ("image", "column", "row", "rows"),
    "images": ("image", "column", "pitch"),
    "columns": ("pixels", "across", "width", "stride_y", "capacity", "grad_steps"),
    "weight": ("pixels", "across", "width", "stride_y", "capacity", "plane", "all_outputs"),
    "slopes": ("pixels", "height", "stride_x", "left", "capacity"),
    "weight_gradient": ("output", "channel", "row", "column"),
    "bias": ("images", "plane"),
}


@pytest.mark.parametrize("phase", MUTANTS)
def test_mutants_are_caught(hold, phase):
    attributes = {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 2, 1, 2)}
    op = DeformConvGradient(mask=True, wanted=ALL, groups=2, offset_groups=4, **attributes)
    arrays = gradient_operands(op, (2, 40, 9, 12), 44, (3, 3))
    for name in MUTANTS[phase]:

        def launch(call, name=name):
            return tuple(_less(p, phase, name) for p in DEFORM_CONV2D_GRADIENT.launch(call))

        with pytest.raises((AssertionError, OutOfBoundsError)):
            mutant = launched_as(DEFORM_CONV2D_GRADIENT, launch)
            held(hold, op, arrays, kernel=mutant, runs=FEW[1:2])


def _less(launch, phase, name):
    """The phase with one of its integers less by one."""
    return mistaken(launch, name, -1) if launch.config.phase == phase else launch
