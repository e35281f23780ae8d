"""Matrix products on a GPU: divided sums, orders of the grid, packing, operands in bfloat16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Packed
from saccade.kernels.cases import CASES
from saccade.kernels.cases.base import BF16, F16, WHOLE, Case, Operand, Whole
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.matmul.pack_matrix import pack_matrix
from saccade.kernels.cuda.matmul.product_axes import ProductAxes
from saccade.opdefs import MatMul
from saccade.testing.cases import hold, inputs_of, outputs_of
from saccade.testing.triton import H200, interpret

TILED, GEMV = kernel_named("matmul.tiled"), kernel_named("matmul.gemv")
PLAIN_KERNEL = kernel_named("matmul.elementwise")
ADD = parse("relu(add($0, $1))")


def call_of(case, target=H200, exact=False):
    known = tuple(operand.constant for operand in case.operands)
    return Call(case.op, inputs_of(case), outputs_of(case), known, target, 1, exact)


def product(a, b, *more, dtype=DType.F32, known=False, **attributes):
    operands = [Operand(a, dtype, values=WHOLE), Operand(b, dtype, constant=known, values=WHOLE)]
    operands += [Operand(shape, dtype, constant=True, values=WHOLE) for shape in more]
    return Case("product", MatMul(**attributes), tuple(operands), terms=0)


def run(kernel, case, launches=None):
    call = call_of(case)
    hold(case, lambda _case, arrays: interpret(kernel, call, arrays, launches))


def halves(case):
    operands = tuple(replace(o, dtype=F16) for o in case.operands)
    return replace(case, operands=operands)


PLAIN = [case for case in CASES["matmul"] if "bf16" not in case.name]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_cases_in_float16(case):
    run(TILED, halves(case))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "more"),
    [
        ((5, 700), (700, 33), (33,)),
        ((2, 3, 5, 450), (3, 450, 20), (3, 5, 1)),
        ((2, 1, 3, 400), (2, 3, 400, 17), (2, 1, 1, 17)),
    ],
)
def test_divided_sums(a, b, more, known):
    case = product(a, b, more, known=known, epilogue=ADD)
    call = call_of(case)
    divided = [v.launches for v in TILED.variants(call) if len(v.launches) > 1]
    assert {launches[1].integers["count"] for launches in divided} >= {2, 3}
    for launches in divided[:6]:
        run(TILED, case, launches)


def test_no_program_of_a_divided_sum_is_idle_in_the_wrong_place():
    """Seven steps among three programs: the last one has one step only."""
    case = product((3, 7 * 64 - 5), (7 * 64 - 5, 16))
    variants = (v.launches for v in TILED.variants(call_of(case)))
    found = [ls for ls in variants if len(ls) > 1 and ls[1].integers["count"] == 3]
    assert found
    for launches in found:
        run(TILED, case, launches)


def test_orders_of_the_grid_give_the_same():
    case = product((600, 20), (20, 70), (70,), known=True, epilogue=ADD)
    variants = [v.launches[0] for v in TILED.variants(call_of(case))]
    grouped = [launch for launch in variants if launch.config.group > 1]
    assert grouped
    run(TILED, case, (grouped[0],))


def wide(kernel):
    """The kernel with operands that are widened: the interpreter cannot multiply bfloat16."""

    def entry(config):
        made = kernel.entry(config)
        return replace(made, constants={**made.constants, "OPERAND": "fp32"})

    return replace(kernel, entry=entry)


BFLOATS = [case for case in CASES["matmul"] if "bf16" in case.name]


@pytest.mark.parametrize("case", BFLOATS, ids=lambda case: case.name)
def test_bfloat16(case):
    run(wide(TILED), case)


def test_constants_take_the_type_of_what_they_are_multiplied_with():
    case = product((5, 33), (33, 40), known=True)
    rounded = replace(case, operands=(replace(case.operands[0], dtype=BF16), case.operands[1]))
    launch = TILED.launch(call_of(rounded))[0]
    assert launch.config.axes.elements[:2] == ("bf16", "bf16")
    assert isinstance(launch.operands["b"], Packed)


def test_packed_matrices():
    b = np.arange(12.0, dtype=np.float32).reshape(2, 2, 3)
    packed = pack_matrix(b, "float16", False, 16, 16, False)
    assert packed.shape == (2, 16, 16) and packed.dtype == np.float16
    np.testing.assert_array_equal(packed[:, :2, :3], b)
    assert packed.sum() == b.sum()
    other = pack_matrix(b, "float16", True, 16, 16, True)
    assert other.flags.c_contiguous
    np.testing.assert_array_equal(other[:, :2, :3], b)


def test_matrix_units_read_float32_by_column():
    case = product((5, 33), (33, 40), known=True)
    units = [
        TILED.launch(call_of(case, replace(H200, tf32=tf32), exact))[0].config
        for tf32, exact in ((False, False), (True, False), (False, True))
    ]
    assert [one.axes.units[1] for one in units] == ["k", "k", "n"]
    assert [one.precision for one in units] == ["tf32x3", "tf32", "ieee"]
    half = call_of(product((5, 33), (33, 40), dtype=F16, known=True))
    assert TILED.launch(half)[0].config.axes.units[1] == "n"


def test_batches_that_share_b_are_rows():
    axes = ProductAxes.of(call_of(product((2, 3, 5, 6), (6, 7))))
    assert axes is not None
    assert (axes.matrices, axes.all_rows, axes.depends) == (1, 30, 0)
    axes = ProductAxes.of(call_of(product((2, 3, 5, 6), (3, 6, 7))))
    assert axes is not None
    assert (axes.matrices, axes.all_rows, axes.depends) == (3, 10, 1)


ONE_ROW = [case for case in CASES["matmul"] if GEMV.supports(call_of(case)) is None]


@pytest.mark.parametrize("case", ONE_ROW, ids=lambda case: case.name)
def test_few_rows_in_float16_and_in_parts(case):
    half = halves(case) if "bf16" not in case.name else case
    for variant in [*GEMV.variants(call_of(half))][:4]:
        run(GEMV, half, variant.launches)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_parts_of_one_row(dtype, known):
    case = product((1, 1500), (1500, 40), (40,), dtype=dtype, known=known, epilogue=ADD)
    variants = [*GEMV.variants(call_of(case))]
    divided = [v.launches for v in variants if len(v.launches) > 1]
    assert divided
    for launches in (variants[0].launches, *divided[:3]):
        run(GEMV, case, launches)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_few_rows_of_several_matrices(transposed):
    b = (2, 3, 33, 100) if transposed else (2, 3, 100, 33)
    case = product((2, 3, 3, 100), b, (3, 1, 33), transpose_b=transposed, epilogue=ADD)
    run(GEMV, case)


WHOLE_TYPES = [DType.I64, DType.I32, DType.I16, DType.I8, DType.U8, DType.U32, DType.U64, DType.F64]


@pytest.mark.parametrize("dtype", WHOLE_TYPES, ids=lambda dtype: dtype.value)
def test_integers(dtype):
    known = dtype in (DType.I32, DType.U8)
    run(PLAIN_KERNEL, product((2, 3, 20, 17), (3, 17, 33), dtype=dtype, known=known))


def test_integers_wrap():
    case = product((3, 200), (200, 5), dtype=DType.I8)
    low = tuple(replace(o, values=Whole(100, 127)) for o in case.operands)
    run(PLAIN_KERNEL, replace(case, operands=low))


def test_refusals():
    assert GEMV.supports(call_of(product((5, 6), (6, 7)))) == "5 rows"
    assert PLAIN_KERNEL.supports(call_of(product((5, 6), (6, 7)))) == "element types"
    added = product((5, 6), (6, 7), (7,), dtype=DType.I32, epilogue=ADD)
    assert PLAIN_KERNEL.supports(call_of(added)) == "an epilogue"
    many = product((2, 1, 2, 5, 6), (1, 3, 2, 6, 7))
    assert TILED.supports(call_of(many)) == "the batch axes do not merge into two"
    whole = product((5, 6), (6, 7), dtype=DType.I32)
    assert TILED.supports(call_of(whole)) == "element types"
    large = call_of(product((1 << 16, 1 << 15), (1 << 15, 4)))
    assert TILED.supports(large) == "2^31 elements or more"
