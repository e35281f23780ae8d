"""Convolutions of GPUs in Triton's interpreter, where the family's cases say nothing about them."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.base import GAPS, LAST, ROWS, Case, CaseStorage, Operand, Result
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.conv2d.fused_operands import fused_of
from saccade.kernels.cuda.conv2d.pack_taps import (
    pack_flat_taps,
    pack_taps,
    pack_transposed_taps,
)
from saccade.layout.views import padded
from saccade.opdefs import Conv2d, ConvTranspose2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.cases import arrays_of, hold, inputs_of, outputs_of
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.triton import H200, interpret

SAME = (1, 1, 1, 1)
SCALED = parse("relu(add(mul($0, $1), $2))")
BIASED = parse("relu(add($0, $1))")


def case_of(x, w, op, *more, storage=LAST, result=LAST, dtype=DType.F32):
    operands = (Operand(x, dtype, storage), Operand(w, dtype, constant=True))
    operands += tuple(replace(one, dtype=dtype) for one in more)
    return Case("own", op, operands, (Result(result),), 16 * w[1] * w[2] * w[3])


def call_of(case, constant=True):
    known = tuple(one.constant and constant for one in case.operands)
    return Call(case.op, inputs_of(case), outputs_of(case), known, H200, 1)


def holds(name, case, *, constant=True, most=1, pick=lambda _launches: True):
    """Hold the best variants, as many as asked for, that are of the picked kind."""
    kernel, call = kernel_named(name), call_of(case, constant)
    assert kernel.supports(call) is None
    tried = 0
    for variant in kernel.variants(call):
        if tried < most and pick(variant.launches):
            tried += 1
            hold(case, lambda _, given, v=variant: interpret(kernel, call, given, v.launches))
    assert tried


def channels(c, n=1):
    return Operand((n, c, 1, 1), constant=True)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize(
    ("name", "c", "groups"),
    [
        ("conv2d.implicit_gemm", 20, 1),
        ("conv2d.few_channels", 5, 1),
        ("conv2d.split_k", 20, 1),
        ("conv2d.depthwise", 6, 6),
        ("conv2d.depthwise", 6, 2),
        ("conv2d.grouped", 36, 2),
    ],
)
def test_prologue_comes_before_the_padding(name, c, groups, dtype):
    op = Conv2d(
        padding=SAME, groups=groups, prologue=SCALED, n_prologue=2, epilogue=parse("add($0, $1)")
    )
    case = case_of(
        (2, c, 5, 4), (12, c // groups, 3, 3), op, channels(c, 2), channels(c), channels(12),
        dtype=dtype,
    )  # fmt: skip
    holds(name, case)


@pytest.mark.parametrize("storage", [LAST, GAPS, ROWS])
@pytest.mark.parametrize("constant", [True, False])
def test_groups_on_the_matrix_units(storage, constant):
    op = Conv2d((2, 1), (1, 0, 1, 1), groups=3, epilogue=BIASED)
    case = case_of((2, 51, 5, 6), (60, 17, 3, 2), op, channels(60), storage=storage, result=storage)
    holds("conv2d.grouped", case, constant=constant)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("splits", [2, 4, 8, 16])
def test_each_number_of_parts(splits, constant):
    case = case_of((1, 130, 3, 4), (20, 130, 5, 5), Conv2d(padding=(2, 2, 2, 2), epilogue=BIASED),
                   channels(20), dtype=DType.F16)  # fmt: skip
    holds(
        "conv2d.split_k", case, constant=constant, pick=lambda two: two[0].config.splits == splits
    )


def test_orders_of_steps_and_blocks():
    case = case_of((1, 70, 8, 5), (40, 70, 3, 3), Conv2d(padding=SAME))
    seen = set()

    def fresh(launches):
        config = launches[0].config
        kind = (config.taps_inner, config.group)
        new = kind not in seen
        seen.add(kind)
        return new

    holds("conv2d.implicit_gemm", case, most=4, pick=fresh)
    assert {(True, 1), (False, 8), (False, 1)} <= seen


@pytest.mark.parametrize("result", [LAST, ROWS])
@pytest.mark.parametrize(("parts", "position"), [(2, 0), (2, 1), (3, 1), (4, 3)])
@pytest.mark.parametrize("name", ["conv2d.implicit_gemm", "conv2d.split_k"])
def test_interleaved_parts(name, parts, position, result):
    op = Conv2d(epilogue=BIASED, store=InterleaveStore(parts, position))
    others = [Operand((2, 19, 4, 3), storage=GAPS) for _ in range(parts - 1)]
    holds(name, case_of((2, 16, 4, 3), (19, 16, 1, 1), op, channels(19), *others, result=result))


@pytest.mark.parametrize("name", ["conv2d.depthwise", "conv2d.few_channels"])
def test_weights_that_are_no_constant(name):
    if name == "conv2d.depthwise":
        case = case_of((1, 7, 9, 6), (14, 1, 3, 3), Conv2d((2, 2), SAME, groups=7))
    else:
        case = case_of((1, 3, 9, 6), (9, 3, 3, 3), Conv2d((2, 2), SAME), storage=ROWS)
    holds(name, case, constant=False, most=2)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize(
    ("stride", "dilation", "taps"), [(1, 1, 3), (2, 1, 3), (1, 2, 3), (2, 1, 5), (1, 1, 5)]
)
def test_runs_of_depthwise_results(stride, dilation, taps, dtype):
    pad = dilation * (taps // 2)
    op = Conv2d((1, stride), (pad,) * 4, (1, dilation), groups=12, epilogue=BIASED)
    case = case_of((1, 12, 2, 9), (12, 1, taps, taps), op, channels(12), storage=GAPS,
                   dtype=dtype)  # fmt: skip
    seen = set()

    def fresh(launches):
        across = launches[0].config.tile[2]
        new = across not in seen
        seen.add(across)
        return new

    holds("conv2d.depthwise", case, most=4, pick=fresh)
    assert seen >= {1, 2, 4}


def test_runs_end_inside_the_image():
    op = Conv2d(groups=8, epilogue=BIASED)
    for width in (3, 6, 9, 11):
        case = case_of((1, 8, 2, width), (8, 1, 1, 3), op, channels(8), storage=GAPS, result=GAPS)
        holds("conv2d.depthwise", case, most=8)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize(
    ("stride", "taps", "pads"),
    [
        ((1, 1), (3, 3), (1, 1, 1, 1)), ((2, 2), (3, 3), (1, 1, 1, 1)),
        ((1, 1), (5, 5), (2, 2, 2, 2)), ((2, 2), (5, 5), (1, 2, 2, 2)),
        ((1, 2), (5, 3), (4, 0, 1, 2)), ((3, 1), (4, 2), (0, 1, 0, 0)), ((1, 1), (2, 2), (0,) * 4),
        ((2, 1), (7, 3), (6, 1, 5, 1)), ((1, 1), (3, 3), (5, 4, 4, 6)),
        ((2, 1), (3, 2), (7, 3, 6, 2)),
    ],
)  # fmt: skip
def test_rows_of_depthwise_results(stride, taps, pads, dtype):
    op = Conv2d(stride, pads, groups=20, epilogue=BIASED)
    case = case_of((2, 20, 9, 7), (20, 1, *taps), op, channels(20), storage=GAPS, dtype=dtype)
    seen = set()

    def fresh(launches):
        config = launches[0].config
        kind = (config.tile[2], config.whole, launches[0].integers["down"])
        new = kind not in seen
        seen.add(kind)
        return new

    holds("conv2d.depthwise_rows", case, most=9, pick=fresh)
    assert {across for across, *_ in seen} >= {2, 4}
    assert any(whole for _, whole, _ in seen)


def test_rows_of_depthwise_images_in_parts():
    """All that an image may be cut into, the last part being shorter than the others."""
    op = Conv2d(padding=SAME, groups=8, epilogue=BIASED)
    case = case_of((1, 8, 57, 3), (8, 1, 3, 3), op, channels(8), dtype=DType.F16)
    downs = set()

    def fresh(launches):
        new = launches[0].integers["down"] not in downs
        downs.add(launches[0].integers["down"])
        return new

    holds("conv2d.depthwise_rows", case, most=4, pick=fresh)
    assert downs == {57, 29, 15, 8}


def test_rows_of_no_depthwise_results():
    case = case_of((0, 8, 9, 9), (8, 1, 3, 3), Conv2d(padding=SAME, groups=8))
    kernel, call = kernel_named("conv2d.depthwise_rows"), call_of(case)
    assert kernel.launch(call)[0].chunks == 0
    (found,) = interpret(kernel, call, arrays_of(case))
    assert found.shape == (0, 8, 9, 9)


@pytest.mark.parametrize("place", [(0, 0), (6, 4), (3, 2)])
def test_what_is_off_the_image_is_not_multiplied(place):
    """An infinite element is in those results only whose windows have it, and zeros are no NaN."""
    op = Conv2d(padding=SAME, groups=8)
    case = case_of((1, 8, 7, 5), (8, 1, 3, 3), op)
    kernel, call = kernel_named("conv2d.depthwise_rows"), call_of(case)
    x, w = np.zeros((1, 8, 7, 5), np.float32), np.ones((8, 1, 3, 3), np.float32)
    x[(0, 0, *place)] = np.inf
    (found,) = interpret(kernel, call, (x, w))
    near = np.zeros((7, 5), bool)
    near[max(0, place[0] - 1) : place[0] + 2, max(0, place[1] - 1) : place[1] + 2] = True
    assert (found[0, 0] == np.where(near, np.inf, 0)).all()
    assert (found[0, 1:] == 0).all()


@pytest.mark.parametrize(
    ("x", "w", "op", "reason"),
    [
        ((1, 16, 9, 9), (16, 16, 3, 3), Conv2d(padding=SAME), "one group"),
        ((1, 16, 9, 9), (16, 4, 3, 3), Conv2d(groups=4), "groups of several channels"),
        ((1, 16, 9, 9), (32, 1, 3, 3), Conv2d(groups=16), "several results of a channel"),
        ((1, 16, 9, 9), (16, 1, 3, 3), Conv2d(dilation=(2, 1), groups=16), "dilations (2, 1)"),
        ((1, 16, 9, 9), (16, 1, 2, 2), Conv2d((2, 2), groups=16), "windows that do not overlap"),
        ((1, 16, 30, 30), (16, 1, 11, 11), Conv2d(groups=16), "windows of more weights than"),
    ],
)
def test_what_rows_of_depthwise_results_refuse(x, w, op, reason):
    assert reason in kernel_named("conv2d.depthwise_rows").supports(call_of(case_of(x, w, op)))


def test_rows_of_depthwise_results_refuse_prologues_and_channels_apart():
    kernel = kernel_named("conv2d.depthwise_rows")
    op = Conv2d(groups=16, prologue=SCALED, n_prologue=2)
    case = case_of((1, 16, 9, 9), (16, 1, 3, 3), op, channels(16), channels(16))
    assert kernel.supports(call_of(case)) == "a prologue"
    apart = case_of((1, 16, 9, 9), (16, 1, 3, 3), Conv2d(groups=16), storage=ROWS)
    assert kernel.supports(call_of(apart)) == "channels apart"


def test_estimates_of_rows_take_what_was_fastest():
    """Of layers of EfficientNet-B0 on one H200."""
    kernel = kernel_named("conv2d.depthwise_rows")

    def best(c, edge, taps, stride=1):
        op = Conv2d((stride, stride), (taps // 2,) * 4, groups=c, epilogue=BIASED)
        x = nhwc_view(DType.F16, (64, c, edge, edge))
        views = (x, row_major(DType.F32, (c, 1, taps, taps)), row_major(DType.F32, (1, c, 1, 1)))
        y = nhwc_view(DType.F16, (64, c, edge // stride, edge // stride))
        call = Call(op, views, (y,), (False, True, True), H200, 1)
        return kernel.launch(call)[0].config.tile

    assert best(240, 28, 5) == best(480, 14, 5) == (4, 64, 7)
    assert best(672, 14, 5) == best(672, 14, 5, 2) == best(1152, 7, 5) == (4, 64, 4)
    assert best(96, 112, 3, 2) == best(240, 28, 3, 2) == best(1152, 7, 3) == (4, 64, 4)
    assert best(144, 56, 5, 2)[:2] == (16, 16), "blocks of 64 would leave a fourth of them empty"
    assert best(480, 14, 3) == (4, 64, 2)


@pytest.mark.parametrize("result", [ROWS, LAST, GAPS])
@pytest.mark.parametrize(
    ("c", "k", "taps", "stride", "dilation"),
    [(16, 3, 3, 1, 1), (12, 8, 3, 2, 1), (32, 1, 3, 1, 2), (16, 5, 5, 1, 1), (4, 2, 1, 2, 1)],
)
def test_strips_of_few_outputs(c, k, taps, stride, dilation, result):
    pad = dilation * (taps // 2)
    op = Conv2d((stride, stride), (pad, pad, 0, pad), (dilation, dilation), epilogue=BIASED)
    wide = CaseStorage(channels_last=True, gap=8)
    case = case_of((2, c, 11, 35), (k, c, taps, taps), op, channels(k), storage=wide,
                   result=result, dtype=DType.F16)  # fmt: skip
    holds("conv2d.few_outputs", case, most=8)


def test_few_outputs_of_blocks_of_pixels():
    op = Conv2d(padding=SAME, epilogue=BIASED, store=DepthToSpaceStore(2, "CRD"))
    case = case_of((1, 16, 3, 5), (8, 16, 3, 3), op, channels(8), dtype=DType.F16)
    holds("conv2d.few_outputs", case, most=2)


def test_what_few_outputs_refuses():
    kernel = kernel_named("conv2d.few_outputs")

    def why(x, w, dtype=DType.F16):
        return kernel.supports(plain(x, w, dtype))

    assert why((1, 16, 9, 9), (3, 16, 3, 3)) is None
    assert why((1, 16, 9, 9), (9, 16, 3, 3)) == "9 output channels"
    assert why((1, 33, 9, 9), (3, 33, 3, 3)) == "33 input channels"
    assert why((1, 6, 9, 9), (3, 6, 3, 3)) == "input pixels are not aligned"
    assert why((1, 32, 9, 9), (3, 32, 5, 5)) == "5x5 taps"
    assert why((1, 16, 9, 9), (3, 16, 3, 3), DType.F32) == "products in float32"
    varying = replace(plain((1, 16, 9, 9), (3, 16, 3, 3)), constant=(False, False))
    assert kernel.supports(varying) == "weights are no constant"


def test_any_strides_of_x():
    odd = CaseStorage(strides=(1000, 3, 100, 12))
    case = case_of((1, 4, 5, 6), (9, 4, 3, 3), Conv2d(padding=SAME), storage=odd)
    holds("conv2d.few_channels", case)
    wide = CaseStorage(strides=(3000, 3, 600, 60))
    case = case_of((1, 18, 5, 6), (9, 18, 3, 3), Conv2d(padding=SAME), storage=wide)
    holds("conv2d.implicit_gemm", case)


def test_groups_of_a_transposed_convolution():
    op = ConvTranspose2d((2, 2), SAME, (1, 0), groups=2, epilogue=BIASED)
    operands = (Operand((1, 34, 4, 3), storage=GAPS), Operand((34, 9, 3, 3), constant=True))
    case = Case("own", op, (*operands, channels(18)), (Result(GAPS),), 34 * 9)
    for constant in (True, False):
        holds("conv_transpose2d.direct", case, constant=constant)


def plain(x, w, dtype=DType.F16):
    op = Conv2d(padding=(w[2] // 2,) * 4)
    n, k, p, q = op.sum_shape(x, w)
    views = (nhwc_view(dtype, x, x[1]), row_major(dtype, w))
    return Call(op, views, (nhwc_view(dtype, (n, k, p, q), k),), (False, True), H200, 1)


def best(call, *names):
    """The kernel whose best variant has the least estimate."""
    micros = {}
    for name in names:
        kernel = kernel_named(name)
        if kernel.supports(call) is None:
            micros[name] = min(variant.micros for variant in kernel.variants(call))
    return min(micros, key=micros.__getitem__)


def test_estimates_choose_the_class():
    names = ("conv2d.implicit_gemm", "conv2d.split_k", "conv2d.few_channels", "conv2d.few_outputs")
    assert best(plain((1, 512, 7, 7), (512, 512, 3, 3)), *names) == names[1]
    assert best(plain((1, 256, 14, 14), (256, 256, 3, 3)), *names) == names[1]
    assert best(plain((32, 128, 28, 28), (128, 128, 3, 3)), *names) == names[0]
    assert best(plain((1, 64, 56, 56), (64, 64, 3, 3)), *names) == names[0]
    assert best(plain((32, 3, 224, 224), (64, 3, 7, 7)), *names) == names[2]
    assert best(plain((1, 16, 2880, 5120), (3, 16, 3, 3)), *names) == names[3]


@pytest.mark.parametrize("name", ["conv2d.implicit_gemm", "conv2d.split_k"])
def test_first_variants_are_the_best(name):
    micros = [v.micros for v in kernel_named(name).variants(plain((1, 64, 14, 14), (64, 64, 3, 3)))]
    assert micros[0] == min(micros)


def test_what_is_refused():
    big = plain((1 << 12, 512, 64, 64), (64, 512, 1, 1))
    assert kernel_named("conv2d.implicit_gemm").supports(big) == "2^31 elements or more"
    double = plain((1, 16, 4, 4), (16, 16, 1, 1), DType.F64)
    assert kernel_named("conv2d.implicit_gemm").supports(double) == "element types"
    assert kernel_named("conv2d.grouped").supports(plain((1, 16, 4, 4), (16, 16, 1, 1)))
    assert kernel_named("conv2d.depthwise").supports(plain((1, 16, 4, 4), (16, 16, 1, 1)))


def test_sizes_are_no_part_of_the_code():
    kernel = kernel_named("conv2d.implicit_gemm")
    small, large = (plain((1, 64, n, n), (64, 64, 3, 3)) for n in (14, 28))
    by_tile = {v.launches[0].config.tile: v.launches[0].config for v in kernel.variants(small)}
    assert any(
        v.launches[0].config == by_tile.get(v.launches[0].config.tile)
        for v in kernel.variants(large)
    )


def test_packed_weights():
    w = np.arange(6 * 2 * 3 * 2, dtype=np.float32).reshape(6, 2, 3, 2)
    taps = pack_taps(w, DType.F16.value, 16, 16, 3)
    assert taps.shape == (3, 6, 16, 16) and taps.dtype == np.float16
    assert taps[2, 5, 1, 1] == w[5, 1, 2, 1] and not taps[:, :, 2:].any()
    flat = pack_flat_taps(w, DType.F32.value, 12, 16, "channels", 2)
    assert flat[1 * 6 + 2 * 2 + 1, 4] == w[4, 1, 2, 1] and not flat[:, 6:].any()
    assert (
        pack_flat_taps(w, DType.F32.value, 12, 16, "taps", 2)[(2 * 2 + 1) * 2 + 1, 4]
        == w[4, 1, 2, 1]
    )
    swapped = pack_transposed_taps(w, DType.F32.value, 16, 16, 2)
    assert swapped[1, 5, 2, 1] == w[3 + 2, 1, 2, 1]


def test_numbers_of_operands_go_on_from_the_prologue():
    op = Conv2d(prologue=SCALED, n_prologue=2, epilogue=BIASED)
    case = case_of((1, 9, 2, 2), (8, 9, 1, 1), op, channels(9), channels(9), channels(8))
    fused = fused_of(call_of(case))
    assert fused.config.epilogue == "relu(add($0, $3))"
    assert list(fused.operands) == ["e1", "e2", "e3"]


PROGRAM = """
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import Conv2d
from saccade.testing.kernels import nhwc_view, row_major
from saccade.backends.cuda.target import GpuTarget

x, kind = (1, 32, 8, 8), DType.BF16
for name, w, op in (
    ("conv2d.split_k", (32, 32, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ("conv2d.depthwise", (32, 1, 5, 5), Conv2d(padding=(2, 2, 2, 2), groups=32)),
    ("conv2d.depthwise_rows", (32, 1, 5, 5), Conv2d(padding=(2, 2, 2, 2), groups=32)),
    ("conv2d.few_outputs", (3, 32, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
):
    views = (nhwc_view(kind, x, 32), row_major(DType.F32, w))
    call = Call(op, views, (nhwc_view(kind, (1, w[0], 8, 8)),), (False, True), GpuTarget(), 1)
    kernel = kernel_named(name)
    for launch in kernel.launch(call):
        entry = kernel.entry(launch.config)
        whole = [name for name in entry.multiples if launch.integers[name] % 16 == 0]
        code = disassembled(compile_entry(entry, 90, (*launch.operands, *whole)))
        assert " STL" not in code, f"{name} spills"
"""


def test_bfloat16_compiles(tmp_path):
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**clean, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def padded_call(case):
    """A case's call with all feature maps padded: what a plan for a GPU gives."""
    call = call_of(case)

    def wide(view):
        if len(view.shape) != 4 or view.shape[2] * view.shape[3] == 1:
            return view
        return padded(view.dtype, view.shape, zeros=True)

    images = (wide(call.inputs[0]), call.inputs[1], *map(wide, call.inputs[2:]))
    return replace(call, inputs=images, outputs=tuple(map(wide, call.outputs)))


PADDED = (
    ("conv2d.implicit_gemm", (2, 37, 4, 5), (29, 37, 3, 3), Conv2d(padding=SAME, epilogue=BIASED)),
    ("conv2d.implicit_gemm", (1, 70, 3, 3), (45, 70, 1, 1), Conv2d(epilogue=BIASED)),
    ("conv2d.split_k", (1, 37, 4, 5), (29, 37, 3, 3), Conv2d(padding=SAME, epilogue=BIASED)),
    ("conv2d.few_channels", (2, 29, 5, 4), (45, 29, 3, 2), Conv2d((2, 1), SAME, epilogue=BIASED)),
    ("conv2d.few_channels", (2, 37, 3, 4), (37, 37, 1, 1), Conv2d(epilogue=BIASED)),
    ("conv2d.few_outputs", (2, 29, 4, 9), (7, 29, 3, 3), Conv2d(padding=SAME, epilogue=BIASED)),
    ("conv2d.row_taps", (1, 3, 9, 8), (29, 3, 3, 3), Conv2d((2, 2), SAME, epilogue=BIASED)),
    ("conv2d.depthwise", (2, 29, 4, 9), (29, 1, 3, 3), Conv2d(padding=SAME, epilogue=BIASED)),
    ("conv2d.depthwise", (1, 29, 4, 9), (58, 1, 3, 3), Conv2d(padding=SAME, epilogue=BIASED)),
    ("conv2d.depthwise_rows", (2, 29, 4, 9), (29, 1, 3, 3), Conv2d(padding=SAME, epilogue=BIASED)),
)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize(("name", "x", "w", "op"), PADDED)
def test_pixels_padded_with_zeros(name, x, w, op, dtype):
    sized = replace(op, groups=x[1] // w[1], epilogue=parse("hard_sigmoid(add($0, $1), 0.2, 0.5)"))
    case = case_of(x, w, sized, channels(w[0]), dtype=dtype)
    kernel, call = kernel_named(name), padded_call(case)
    if name == "conv2d.few_outputs" and dtype is DType.F32:
        pytest.skip("products in float32")
    if name != "conv2d.few_outputs":
        assert call.outputs[0].zeros
    for variant in list(kernel.variants(call))[:3]:
        hold(case, lambda _, given, v=variant: interpret(kernel, call, given, v.launches))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize(("parts", "position"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("name", ["conv2d.implicit_gemm", "conv2d.split_k", "conv2d.few_channels"])
def test_padded_parts(name, parts, position, dtype):
    op = Conv2d(
        epilogue=parse("relu(add(add($0, $1), $2))"), store=InterleaveStore(parts, position)
    )
    others = [Operand((2, 29, 4, 3), storage=GAPS) for _ in range(parts)]
    case = case_of((2, 37, 4, 3), (29, 37, 1, 1), op, channels(29), *others, dtype=dtype)
    kernel, call = kernel_named(name), padded_call(case)
    assert call.outputs[0].zeros
    words = kernel.launch(call)[-1].config
    words = (words if hasattr(words, "fused") else words.product).fused.operands
    assert sum("w" in word.split()[1] for word in words) == parts
    hold(case, lambda _, given: interpret(kernel, call, given))


@pytest.mark.parametrize(
    "name", ["conv2d.implicit_gemm", "conv2d.depthwise", "conv2d.depthwise_rows"]
)
def test_room_that_is_read_may_hold_anything(name):
    """What lies behind the channels is another value's: NaN here, as between all operands."""
    groups = 1 if name == "conv2d.implicit_gemm" else 29
    op = Conv2d(padding=SAME, groups=groups, epilogue=parse("relu(add(add($0, $1), $2))"))
    case = case_of((1, 29, 4, 5), (29, 29 // groups, 3, 3), op, channels(29),
                   Operand((1, 29, 4, 5)), dtype=DType.F16)  # fmt: skip
    kernel, call = kernel_named(name), padded_call(case)
    images = [view._replace(zeros=False) for view in call.inputs]
    call = replace(call, inputs=tuple(images))
    for variant in list(kernel.variants(call))[:3]:
        hold(case, lambda _, given, v=variant: interpret(kernel, call, given, v.launches))
