"""Resizing for GPUs in Triton's interpreter: storage, integers, ranks, every position."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import Resize
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import assert_close, assert_exact
from saccade.testing.triton import H200, interpret

F16, F32 = DType.F16, DType.F32
KERNEL = kernel_named("resize.direct")
COORDINATES = (
    "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric",
)  # fmt: skip


def called(op, x, source=nhwc_view, to=nhwc_view):
    dtype = DType.of(x.dtype)
    view = source(dtype, x.shape)
    return Call(op, (view,), (to(dtype, op.sizes),), (False,), H200)


def random(shape, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("source", [nhwc_view, row_major, lambda *v: nhwc_view(*v, 24)])
@pytest.mark.parametrize("to", [nhwc_view, row_major])
def test_every_variant_in_any_storage(source, to):
    x, op = random((1, 21, 3, 4)), Resize((1, 21, 6, 10), mode="linear")
    call = called(op, x, source, to)
    (truth,) = op.reference(x.astype(np.float64))
    for variant in list(KERNEL.variants(call))[:2]:
        result = interpret(KERNEL, call, [x], variant.launches)[0]
        assert_close(result, truth, dtype=F32, k=300)


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 2, 1, 7), (1, 2, 5, 1), (1, 2, 3, 5)])
def test_positions(coordinate, mode, sizes):
    x = random((1, 2, 4, 5))
    op = Resize(sizes, mode=mode, coordinate=coordinate, exclude_outside=mode == "cubic")
    (truth,) = op.reference(x.astype(np.float64))
    assert_close(interpret(KERNEL, called(op, x), [x])[0], truth, dtype=F32, k=300)


@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64", "bool"])
def test_nearest_of_any_type(nearest, dtype):
    x = np.random.default_rng(2).integers(0, 100, (1, 2, 4, 5)).astype(dtype)
    op = Resize((1, 2, 8, 5), nearest=nearest, coordinate="asymmetric")
    assert_exact(interpret(KERNEL, called(op, x), [x])[0], op.reference(x)[0])


def test_a_row_of_three_axes():
    x, op = random((2, 5, 6)), Resize((2, 5, 12), mode="linear")
    call = called(op, x, row_major, row_major)
    (truth,) = op.reference(x.astype(np.float64))
    assert_close(interpret(KERNEL, call, [x])[0], truth, dtype=F32, k=300)


@pytest.mark.parametrize(
    ("op", "shape", "reason"),
    [
        (Resize((2, 4, 4, 4), mode="linear"), (1, 4, 4, 4), "a resized batch or channels"),
        (Resize((4, 4)), (2, 2), "2 axes"),
    ],
)
def test_refusals(op, shape, reason):
    assert KERNEL.supports(called(op, random(shape), row_major, row_major)) == reason


def test_another_size_of_an_image_needs_no_code():
    configs = []
    for edge in (28, 56):
        op = Resize((8, 256, 2 * edge, 2 * edge), mode="linear")
        x, y = nhwc_view(F16, (8, 256, edge, edge)), nhwc_view(F16, op.sizes)
        configs.append(KERNEL.launch(Call(op, (x,), (y,), (False,), H200))[0].config)
    assert configs[0] == configs[1]
