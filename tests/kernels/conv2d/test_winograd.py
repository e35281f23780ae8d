"""Winograd's convolution: exact with points 0, ±1, within its documented error elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.cpu.conv2d.epilogue_spec import conv_epilogue
from saccade.kernels.cpu.conv2d.winograd import CONV2D_WINOGRAD, launch_as, problem_of
from saccade.kernels.cpu.conv2d.winograd_points import bases, edge_for, expected_error
from saccade.kernels.cpu.conv2d.winograd_schedule import Schedule
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, nhwc_view, off_by, row_major, run_kernel
from saccade.testing.tolerance import exact_operands, random_operands

F32 = DType.F32
BIAS_RELU = parse("relu(add($0, $1))")
GROWTH = {2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 4}  # how much more than a plain sum a tile rounds
EXACT = (2, 3)
FAST = ("avx512", False, 1, None)
QUICK = (FAST, ("avx2", False, 3, (1, 2, 0)))
CHECKED = (*QUICK, ("avx512", True, 2, (1, 0)))
SHAPES = [
    # n, c, h, w, k, padding
    (1, 3, 7, 9, 17, (1, 1, 1, 1)),
    (2, 17, 5, 4, 3, (0, 1, 2, 0)),
    (1, 48, 4, 13, 48, (1, 0, 1, 2)),
    (1, 1, 1, 1, 2, (1, 1, 1, 1)),
    (2, 16, 9, 3, 96, (3, 4, 5, 3)),
    (0, 5, 6, 6, 7, (1, 1, 1, 1)),
]


def stride_of(m):
    """Every tile has stride 1 or 2."""
    return 1 if m in bases(1) else 2


def forced(m, phased=False, nv=2, blocks=3, clipped=False):
    """One variant, whatever its cost; there are several blocks and shorter tiles at the edges."""

    def launch(call):
        spec = conv_epilogue(call)
        problem = problem_of(call, spec)
        stride, sizes = stride_of(m), (problem.rows, problem.columns)
        edges = (0, 0) if clipped else tuple(edge_for(size, m, stride) for size in sizes)
        chosen = Schedule(m, edges, phased, nv, blocks, 2, 4 if phased else 0, stride)
        return launch_as(call, spec, problem, chosen)

    return launched_as(CONV2D_WINOGRAD, launch)


# Kernels compare by their functions: one of each keeps the compiled code shared.
TILES = (*bases(1), *bases(2))
KERNELS = {(m, phased): forced(m, phased) for m in TILES for phased in (False, True)}
CLIPPED = {m: forced(m, clipped=True) for m in TILES}


def operands(shape, m, seed=0):
    n, c, h, w, k, _ = shape
    rng = np.random.default_rng(seed)
    if m in EXACT:  # G halves twice: multiples of 4 keep everything an integer
        x, weights = (
            exact_operands((n, c, h, w), F32, rng),
            4 * exact_operands((k, c, 3, 3), F32, rng),
        )
        return [x, weights, exact_operands((1, k, 1, 1), F32, rng)]
    return [random_operands(s, F32, rng) for s in ((n, c, h, w), (k, c, 3, 3), (1, k, 1, 1))]


def views(arrays, pad=0):
    x, *rest = arrays
    return [nhwc_view(F32, x.shape, x.shape[1] + pad), *(row_major(F32, a.shape) for a in rest)]


def stored(op, arrays, pad=0):
    (kind,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    return [nhwc_view(F32, kind.shape, kind.shape[1] + pad)]


def check(hold, kernel, op, arrays, m, *, inputs=None, outputs=None, **more):
    constant = [False, True] + [True] * (len(arrays) - 2)
    depth = 9 * arrays[0].shape[1]
    return hold(
        kernel,
        op,
        arrays,
        inputs=inputs or views(arrays, 3),
        outputs=outputs or stored(op, arrays, 2),
        constant=constant,
        exact=m in EXACT,
        k=depth * GROWTH[m] ** 2,
        **more,
    )


@pytest.mark.parametrize("phased", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_exact_at_any_size_padding_and_channel_count(hold, phased, shape):
    op = Conv2d(padding=shape[-1], epilogue=BIAS_RELU)
    runs = CHECKED if shape is SHAPES[1] else QUICK[phased:][:1]
    check(hold, KERNELS[2, phased], op, operands(shape, 2), 2, runs=runs)


STRIDED = [
    # odd and even extents: results are 7x6, 4x3, 3x7, 1x1, 8x5, 9x4
    (1, 3, 13, 12, 17, (1, 1, 1, 1)),
    (2, 17, 7, 5, 3, (0, 1, 2, 0)),
    (1, 48, 4, 13, 48, (1, 0, 1, 2)),
    (1, 1, 1, 1, 2, (1, 1, 1, 1)),
    (2, 16, 9, 3, 96, (3, 4, 5, 3)),
    (0, 5, 6, 6, 7, (1, 1, 1, 1)),
    (1, 960, 17, 8, 16, (1, 1, 1, 1)),
]


@pytest.mark.parametrize("phased", [False, True])
@pytest.mark.parametrize("shape", STRIDED, ids=str)
def test_stride_2_is_exact_at_any_size_padding_and_channel_count(hold, phased, shape):
    op = Conv2d(padding=shape[-1], stride=(2, 2), epilogue=BIAS_RELU)
    runs = CHECKED if shape in (STRIDED[1], STRIDED[6]) else QUICK[phased:][:1]
    check(hold, KERNELS[3, phased], op, operands(shape, 3), 3, runs=runs)


@pytest.mark.parametrize("phased", [False, True])
@pytest.mark.parametrize(
    ("m", "shape", "runs"),
    [
        (4, SHAPES[0], QUICK),
        (4, SHAPES[2], (FAST,)),
        (6, SHAPES[0], QUICK),
        (6, SHAPES[3], QUICK),
        (5, STRIDED[0], QUICK),
        (5, STRIDED[2], (FAST,)),
        (7, STRIDED[0], QUICK),
        (7, STRIDED[4], (FAST,)),
    ],
    ids=str,
)
def test_larger_tiles(hold, m, phased, shape, runs):
    op = Conv2d(padding=shape[-1], stride=(stride_of(m),) * 2, epilogue=BIAS_RELU)
    check(hold, KERNELS[m, phased], op, operands(shape, m), m, runs=runs)


@pytest.mark.parametrize("rest", [(0, 0), (1, 2), (3, 4), (5, 5)], ids=str)
def test_every_shorter_tile(hold, rest):
    shape = (2, 18, 6 + rest[0], 12 + rest[1], 16, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1])
    check(hold, KERNELS[6, False], op, operands(shape, 6)[:2], 6, runs=(FAST,))


@pytest.mark.parametrize("rest", [(0, 0), (1, 2), (3, 4), (5, 6)], ids=str)
def test_every_shorter_tile_with_stride_2(hold, rest):
    shape = (2, 18, 2 * (7 + rest[0]), 2 * (14 + rest[1]), 16, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1], stride=(2, 2))
    check(hold, KERNELS[7, False], op, operands(shape, 7)[:2], 7, runs=(FAST,))


FAR = [
    # shape, dilation: the lattices of one image differ in size, and padding is any
    ((2, 17, 11, 9, 20, (2, 3, 2, 3)), (2, 3)),
    ((1, 20, 10, 13, 17, (3, 2, 5, 1)), (1, 3)),
    ((1, 16, 14, 9, 16, (4, 0, 4, 0)), (4, 2)),
]


@pytest.mark.parametrize("phased", [False, True])
@pytest.mark.parametrize(("shape", "dilation"), FAR, ids=str)
def test_taps_that_are_apart(hold, shape, dilation, phased):
    op = Conv2d(padding=shape[-1], dilation=dilation, epilogue=BIAS_RELU)
    runs = CHECKED if dilation == (2, 3) else (FAST,)
    check(hold, KERNELS[2, phased], op, operands(shape, 2), 2, runs=runs)
    check(hold, KERNELS[4, phased], op, operands(shape, 4), 4, runs=(FAST,))


def test_the_parts_of_every_lattice_are_interleaved(hold):
    op = Conv2d(padding=(2, 2, 2, 2), dilation=(2, 2), epilogue=parse("relu(add($0, $1))"))
    shape = (1, 20, 9, 8, 32, ())
    arrays = [*operands(shape, 2)[:2], exact_operands((1, 32, 9, 8), F32, np.random.default_rng(1))]
    inputs = [*views(arrays[:2]), nhwc_view(F32, (1, 32, 9, 8), 40)]
    hold(
        CLIPPED[2], op, arrays, inputs=inputs, outputs=stored(op, arrays), exact=True,
        constant=(False, True, False), runs=QUICK,
    )  # fmt: skip


@pytest.mark.parametrize("m", TILES)
def test_tiles_that_leave_the_image_are_clipped(hold, m):
    shape = (2, 17, 11, 9, 20, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1], stride=(stride_of(m),) * 2, epilogue=BIAS_RELU)
    check(hold, CLIPPED[m], op, operands(shape, m), m, runs=CHECKED if m == 4 else (FAST,))


@pytest.mark.parametrize("phased", [False, True])
def test_one_filter(hold, phased):
    shape = (1, 9, 6, 7, 1, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1], epilogue=BIAS_RELU)
    check(hold, KERNELS[2, phased], op, operands(shape, 2), 2, runs=QUICK)


@pytest.mark.parametrize("phased", [False, True])
@pytest.mark.parametrize("nv", [1, 3, 4])
def test_every_width_of_panel(hold, nv, phased):
    shape = (1, 6, 21, 9, 70, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1])
    check(hold, forced(2, phased, nv), op, operands(shape, 2)[:2], 2, runs=(FAST,))


@pytest.mark.parametrize("m", EXACT)
def test_images_beyond_the_l2_caches(hold, m):
    """The next patch is asked for early: nothing else changes, at the ends of rows neither."""
    stride = stride_of(m)
    shape = (1, 40, 120, 130, 16, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1], stride=(stride, stride), epilogue=BIAS_RELU)
    check(hold, KERNELS[m, False], op, operands(shape, m), m, runs=(FAST,))


def test_the_variant_that_is_chosen(hold):
    shape = (1, 32, 30, 30, 64, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1], epilogue=BIAS_RELU)
    check(hold, CONV2D_WINOGRAD, op, operands(shape, 4), 4, runs=QUICK)


@pytest.mark.parametrize("expr", ["relu(add(add($0, $1), $2))", "silu(mul(add($0, $1), $2))"])
@pytest.mark.parametrize("along", ["full", "image_channel"])
def test_epilogues_inline_and_staged(hold, expr, along):
    shape = (2, 8, 6, 7, 20, (1, 1, 1, 1))
    arrays = operands(shape, 4)
    rng = np.random.default_rng(1)
    arrays.append(random_operands((2, 20, 6, 7) if along == "full" else (2, 20, 1, 1), F32, rng))
    inputs = views(arrays, 3)
    if along == "full":
        inputs[3] = nhwc_view(F32, (2, 20, 6, 7), 23)
    op = Conv2d(padding=shape[-1], epilogue=parse(expr))
    check(hold, KERNELS[4, False], op, arrays, 4, inputs=inputs, runs=QUICK)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(hold, mode):
    shape = (1, 8, 5, 6, 12, (1, 1, 1, 1))
    op = Conv2d(padding=shape[-1], epilogue=BIAS_RELU, store=DepthToSpaceStore(2, mode))
    check(hold, KERNELS[2, False], op, operands(shape, 2), 2, runs=QUICK)


@pytest.mark.parametrize("position", [0, 1])
def test_interleaved_with_another_part(hold, position):
    shape = (1, 8, 5, 6, 20, (1, 1, 1, 1))
    arrays = operands(shape, 2)
    arrays.append(exact_operands((1, 20, 5, 6), F32, np.random.default_rng(2)))
    inputs = views(arrays)
    inputs[3] = nhwc_view(F32, (1, 20, 5, 6))
    op = Conv2d(padding=shape[-1], epilogue=BIAS_RELU, store=InterleaveStore(2, position))
    check(
        hold, KERNELS[2, True], op, arrays, 2, inputs=inputs, outputs=stored(op, arrays), runs=QUICK
    )


BF16 = DType.BF16
MIXES = {
    # image, weights, residual, result
    "bf16": (BF16, BF16, BF16, BF16),
    "to-f32": (BF16, F32, F32, F32),
    "from-f32": (F32, F32, BF16, BF16),
}


@pytest.mark.parametrize(("m", "phased"), [(2, False), (2, True), (3, False), (3, True)])
@pytest.mark.parametrize("mix", MIXES)
def test_bfloat16_is_only_storage(hold, mix, m, phased):
    """Borders, patches inside, shorter tiles and a residual in every mix: exact on integers."""
    rng = np.random.default_rng(5)
    x, w, r, y = MIXES[mix]
    stride = stride_of(m)
    shapes = ((1, 18, 7 * stride, 9 * stride), (20, 18, 3, 3), (1, 20, 7, 9))
    arrays = [exact_operands(s, kind, rng) for s, kind in zip(shapes, (x, w, r), strict=True)]
    arrays[1] = (arrays[1].astype(np.float32) * 4).astype(w.numpy)
    op = Conv2d(padding=(1, 1, 1, 1), stride=(stride, stride), epilogue=BIAS_RELU)
    hold(
        KERNELS[m, phased], op, arrays, exact=True, constant=[False, True, False],
        inputs=[nhwc_view(x, shapes[0], 21), row_major(w, shapes[1]), nhwc_view(r, shapes[2])],
        outputs=[nhwc_view(y, shapes[2], 24)], runs=QUICK,
    )  # fmt: skip


@pytest.mark.parametrize("m", TILES)
def test_error_of_many_channels(m):
    """The documented error of normal data is not exceeded, and is not far away."""
    stride = stride_of(m)
    shape = (1, 256, 14 * stride, 14 * stride, 32, (1, 1, 1, 1))
    arrays = operands(shape, 4)[:2]
    op = Conv2d(padding=shape[-1], stride=(stride, stride))
    truth = op.reference(*(a.astype(np.float64) for a in arrays))[0]
    (y,) = run_kernel(
        KERNELS[m, True], op, arrays, stored(op, arrays), inputs=views(arrays),
        constant=[False, True],
    )  # fmt: skip
    share = np.linalg.norm(y - truth) / np.linalg.norm(truth)
    share /= expected_error(m, 256, stride)
    assert 0.5 < share < 1.2


MUTANTS = {
    # which integer parameter is off, and by how much
    "blocks": -2, "images": -1, "tile_rows": -1, "tile_columns": -1, "channels": -1,
    "v_block": -16, "v_step": -33, "vectors": -1, "height": -1, "width": 1, "x_h": 1, "x_w": -1,
    "top": 1, "left": -1, "rows": -1, "columns": -1,
}  # fmt: skip


@pytest.mark.parametrize("m", EXACT)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(hold, name, m):
    stride = stride_of(m)
    # Odd extents: taps reach beyond the image on all sides.
    shape = (2, 18, 4 * stride + 1, 6 * stride + 1, 20, (1, 1, 1, 1))
    mutant = off_by(KERNELS[m, False], name, MUTANTS[name])
    op = Conv2d(padding=shape[-1], stride=(stride, stride), epilogue=BIAS_RELU)
    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(hold, mutant, op, operands(shape, m), m, runs=(FAST,))
