"""Convolutions over short lattices: exact on integers, and as accurate as the direct sum."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scalar_transforms import Builder, Number

from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import apply, arg, parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.epilogue_spec import conv_epilogue
from saccade.kernels.cpu.conv2d.lattice import CONV2D_LATTICE, launch_as
from saccade.kernels.cpu.conv2d.lattice_forms import frequency_rows, lengths
from saccade.kernels.cpu.conv2d.lattice_points import (
    POINTS,
    forward,
    inverse,
    points_of,
    weight_matrix,
)
from saccade.kernels.cpu.conv2d.pack_lattice import pack_lattice
from saccade.kernels.cpu.conv2d.winograd import CONV2D_WINOGRAD
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, nhwc_view, off_by, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
BIAS_RELU = parse("relu(add($0, $1))")
FAST = ("avx512", False, 1, None)
QUICK = (FAST, ("avx2", False, 3, (1, 2, 0)))
WATCHED = ("avx512", True, 2, (1, 0))
CHECKED = (*QUICK, WATCHED, ("avx2", True, 2, (1, 0)))
CASES = [
    # n, c, h, w, k, dilation: lengths of lattices down; along
    (2, 17, 7, 5, 20, (3, 3)),  # 3 and 2; 2 and 1
    (1, 5, 3, 2, 33, (1, 2)),  # 3; 1
    (1, 16, 9, 9, 64, (4, 5)),  # 3 and 2; 2 and 1
    (1, 3, 4, 9, 5, (9, 3)),  # 1, more lattices than pixels; 3
    (1, 33, 4, 4, 16, (2, 4)),  # 2; 1
    (3, 1, 1, 1, 1, (1, 1)),  # 1; 1
    (0, 5, 6, 6, 7, (3, 2)),
]


def operands(case, seed=0, kind=F32):
    n, c, h, w, k, _ = case
    rng = np.random.default_rng(seed)
    weights = exact_operands((k, c, 3, 3), kind, rng).astype(np.float32) * 144
    return [
        exact_operands((n, c, h, w), kind, rng),
        weights.astype(kind.numpy),
        exact_operands((1, k, 1, 1), F32, rng),
    ]


def op_of(case, **more):
    dilation = case[-1]
    return Conv2d(padding=dilation * 2, dilation=dilation, epilogue=BIAS_RELU, **more)


def check(hold, kernel, case, op=None, arrays=None, **more):
    op, arrays = op or op_of(case), arrays or operands(case)
    x, *rest = arrays
    (kind,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    views = [nhwc_view(F32, x.shape, x.shape[1] + 3), *(row_major(F32, a.shape) for a in rest)]
    more = {
        "inputs": views,
        "outputs": [nhwc_view(F32, kind.shape, kind.shape[1] + 2)],
        "constant": [False] + [True] * len(rest),
        **more,
    }
    return hold(kernel, op, arrays, exact=True, **more)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_at_any_size_and_distance(hold, case):
    check(hold, CONV2D_LATTICE, case, runs=CHECKED if case is CASES[0] else QUICK)


@pytest.mark.parametrize("nv", [1, 2, 3, 4])
def test_every_width_of_panel(hold, nv):
    kernel = launched_as(CONV2D_LATTICE, lambda call: launch_as(call, conv_epilogue(call), nv))
    check(hold, kernel, (2, 20, 8, 7, 70, (3, 3)), runs=(FAST,))


def test_a_residual_and_a_long_epilogue(hold):
    case = (1, 18, 7, 8, 20, (3, 4))
    arrays = [*operands(case), exact_operands((1, 20, 7, 8), F32, np.random.default_rng(1))]
    op = dataclasses.replace(op_of(case), epilogue=parse("min(relu(add(add($0, $1), $2)), 4000)"))
    views = [nhwc_view(F32, arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:3])]
    views.append(nhwc_view(F32, arrays[3].shape, 40))
    constant = [False, True, True, False]
    check(hold, CONV2D_LATTICE, case, op, arrays, inputs=views, constant=constant, runs=QUICK)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(hold, mode):
    case = (1, 8, 5, 6, 12, (2, 3))
    op = op_of(case, store=DepthToSpaceStore(2, mode))
    check(hold, CONV2D_LATTICE, case, op, runs=QUICK)


@pytest.mark.parametrize("position", [0, 1])
def test_interleaved_with_another_part(hold, position):
    case = (1, 8, 5, 6, 20, (2, 3))
    arrays = [*operands(case), exact_operands((1, 20, 5, 6), F32, np.random.default_rng(2))]
    views = [nhwc_view(F32, arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:3])]
    views.append(nhwc_view(F32, arrays[3].shape))
    op = op_of(case, store=InterleaveStore(2, position))
    check(
        hold, CONV2D_LATTICE, case, op, arrays, inputs=views,
        outputs=[nhwc_view(F32, (1, 40, 5, 6))], runs=QUICK,
    )  # fmt: skip


@pytest.mark.parametrize("mix", [(BF16, BF16), (BF16, F32), (F32, BF16)], ids=str)
def test_bfloat16_is_only_storage(hold, mix):
    case = (2, 18, 7, 5, 20, (3, 3))
    (kind, result), (n, _, h, w, k, _) = mix, case
    arrays = operands(case, 5, kind)
    views = [nhwc_view(kind, arrays[0].shape, 21), row_major(kind, arrays[1].shape)]
    check(
        hold, CONV2D_LATTICE, case, None, arrays, runs=QUICK,
        inputs=[*views, row_major(F32, arrays[2].shape)],
        outputs=[nhwc_view(result, (n, k, h, w), 24)],
    )  # fmt: skip


@pytest.mark.parametrize("dilation", [3, 4, 8])
def test_the_error_is_near_that_of_the_direct_sum(dilation):
    rng = np.random.default_rng(dilation)
    arrays = [random_operands(s, F32, rng) for s in ((1, 256, 8, 8), (32, 256, 3, 3))]
    op = Conv2d(padding=(dilation,) * 4, dilation=(dilation,) * 2)
    truth = op.reference(*(a.astype(np.float64) for a in arrays))[0]
    errors = []
    for kernel in (CONV2D_LATTICE, CONV2D_DIRECT):
        (y,) = run_kernel(
            kernel, op, arrays, [nhwc_view(F32, truth.shape)], constant=[False, True],
            inputs=[nhwc_view(F32, arrays[0].shape), row_major(F32, arrays[1].shape)],
        )  # fmt: skip
        errors.append(np.linalg.norm(y - truth) / np.linalg.norm(truth))
    assert errors[0] < 2 * errors[1]


@pytest.mark.parametrize(("base", "n"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3)])
def test_a_row_between_zeros(base, n):
    rng = np.random.default_rng(base)
    x, taps = rng.standard_normal(n), rng.standard_normal(3)
    matrix, divisor = weight_matrix(base)
    weights = matrix @ taps / divisor
    values = forward(Builder(), base, [Number(v) for v in x])
    assert len(values) == points_of(base, n) <= len(weights) == POINTS[base]
    products = [v * w for v, w in zip(values, weights, strict=False)]
    found = [y.value for y in inverse(Builder(), base, n, products)]
    padded = np.pad(x, 1)
    truth = [padded[i : i + 3] @ taps for i in range(n)]
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-14)


def test_lattices_cover_the_image():
    for size in range(1, 40):
        for apart in range(1, 40):
            assert sum(n * count for n, count in lengths(size, apart)) == size
    assert lengths(33, 12) == ((3, 9), (2, 3))
    assert lengths(33, 24) == ((2, 9), (1, 15))
    assert lengths(33, 36) == ((1, 33),)


def test_products_of_deeplab():
    """Valid taps would be 5625, 2601 and 1089."""
    rows = [sum(frequency_rows(1, (lengths(33, d),) * 2)) for d in (12, 24, 36)]
    assert rows == [2304, 1764, 1089]


@pytest.mark.parametrize("bases", [(3, 2), (1, 3), (2, 2)])
def test_packed_weights_are_the_transformed_ones(bases):
    weights = random_operands((12, 5, 3, 3), F32, np.random.default_rng(3))
    packed = pack_lattice(weights, bases, 8)
    (g, a), (h, b) = map(weight_matrix, bases)
    truth = np.einsum("ai,kcij,bj->abck", g / a, weights.astype(np.float64), h / b)
    have = packed.transpose(0, 2, 1, 3).reshape(*truth.shape[:3], 16)
    assert not have[..., 12:].any()
    np.testing.assert_allclose(have[..., :12], truth, rtol=0, atol=3e-7 * np.abs(truth).max())


def call(op, x, w, constant=(False, True), view=None, exact=False):
    inputs = (view or nhwc_view(F32, x), row_major(F32, w))
    (kind,) = op.infer([TensorType(F32, v.shape) for v in inputs])
    output = nhwc_view(F32, kind.shape)
    return Call(op, inputs, (output,), constant, ZEN4, 2, exact)


X, W, FAR = (1, 8, 9, 9), (8, 8, 3, 3), Conv2d(padding=(3, 3, 3, 3), dilation=(3, 3))
REFUSED = [
    ("rounds", lambda: call(FAR, X, W, exact=True)),
    ("stride 1", lambda: call(dataclasses.replace(FAR, stride=(2, 2)), X, W)),
    ("3x3", lambda: call(dataclasses.replace(FAR, groups=2), X, (8, 4, 3, 3))),
    ("prologue", lambda: call(dataclasses.replace(FAR, prologue=apply("relu", arg(0))), X, W)),
    ("known", lambda: call(FAR, X, W, constant=(False, False))),
    ("channels-last", lambda: call(FAR, X, W, view=row_major(F32, X))),
    ("padding", lambda: call(dataclasses.replace(FAR, padding=(3, 3, 3, 2)), X, W)),
    ("longer than three", lambda: call(Conv2d(padding=(2, 3, 2, 3), dilation=(2, 3)), X, W)),
]


@pytest.mark.parametrize(("reason", "make"), REFUSED)
def test_refuses(reason, make):
    assert reason in CONV2D_LATTICE.supports(make())


def test_estimates_choose_it_where_it_saves_products():
    for d, size, better in ((12, 33, True), (24, 33, True), (36, 33, False), (1, 3, False)):
        op = Conv2d(padding=(d,) * 4, dilation=(d, d))
        far = call(op, (1, 960, size, size), (256, 960, 3, 3))
        others = [k for k in (CONV2D_DIRECT, CONV2D_WINOGRAD) if k.supports(far) is None]
        assert (CONV2D_LATTICE.cost(far) < min(k.cost(far) for k in others)) is better


def test_code_serves_sizes_whose_lattices_are_as_long():
    def configs(h, w, kernel=CONV2D_LATTICE):
        op = Conv2d(padding=(6, 6, 6, 6), dilation=(6, 6))
        return [one.config for one in kernel.launch(call(op, (1, 8, h, w), (8, 8, 3, 3)))]

    assert len({tuple(configs(h, w)) for h in range(1, 13) for w in range(1, 13)}) == 1
    assert len({configs(h, w)[1] for h in range(1, 19) for w in range(1, 19)}) == 1
    assert len({tuple(configs(h, w)) for h in range(13, 19) for w in range(1, 13)}) == 1


def test_generic_configs_are_the_code_of_every_size():
    op = Conv2d(padding=(6, 6, 6, 6), dilation=(6, 6))
    calls = [call(op, (1, 8, h, w), (8, 8, 3, 3)) for h in range(1, 19) for w in (1, 7, 12, 13, 18)]
    wanted = {one.config for each in calls for one in CONV2D_LATTICE.launch(each)}
    assert all(set(CONV2D_LATTICE.generic_configs(each)) == wanted for each in calls[::7])


@pytest.mark.parametrize("size", [(1, 6), (5, 7), (12, 3), (13, 12), (18, 18), (14, 2)], ids=str)
def test_one_code_for_every_length(hold, size):
    check(hold, CONV2D_LATTICE, (2, 18, *size, 20, (6, 6)), runs=(FAST, WATCHED))


MUTANTS = {
    "images": -1, "long_rows": -1, "short_rows": -1, "long_columns": -1,
    "short_columns": 1, "row_points": -1, "column_points": -1, "short_row_points": -1,
    "short_column_points": -1, "row_step": 1, "column_step": -1, "channels": -1, "v_block": -16,
    "v_step": -160, "m_step": -160, "panels": -1, "vectors": -1, "x_h": 1, "x_w": -1, "x_n": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(hold, name):
    mutant = off_by(CONV2D_LATTICE, name, MUTANTS[name])
    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(hold, mutant, CASES[0], runs=(WATCHED,))
