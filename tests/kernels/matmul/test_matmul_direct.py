"""Matrix products: ranks, batches, transposes, packed and unpacked operands, epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Temp, View
from saccade.kernels.cpu.matmul.direct import MATMUL_DIRECT
from saccade.opdefs import MatMul
from saccade.testing.kernels import row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

RNG = np.random.default_rng(9)
F32 = DType.F32
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 1, None))
SHAPES = [
    ((5, 7), (7, 9)),
    ((1, 100), (100, 300)),
    ((49, 33), (33, 130)),
    ((2, 3, 20, 17), (2, 3, 17, 33)),
    ((3, 20, 17), (17, 40)),
    ((2, 1, 5, 6), (1, 3, 6, 7)),
    ((2, 1, 1, 6), (1, 1, 6, 7)),
    ((2, 3), (4, 3, 5)),
    ((3, 4, 0), (3, 0, 5)),
    ((0, 4), (4, 5)),
    ((4, 5), (5, 0)),
]


def run(hold, op, arrays, constant=(False, False), inputs=None, **kwargs):
    views = inputs or [row_major(F32, a.shape) for a in arrays]
    out = row_major(F32, op.reference(*arrays)[0].shape)
    known = (*constant, *(True for _ in arrays[2:]))
    return hold(MATMUL_DIRECT, op, arrays, inputs=views, outputs=[out], constant=known, **kwargs)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_integers_are_exact(hold, a, b, packed):
    arrays = [exact_operands(s, F32, RNG) for s in (a, b)]
    run(hold, MatMul(), arrays, (False, packed), exact=True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("side", ["a", "b"])
def test_transposed(hold, side, packed):
    op = MatMul(transpose_a=side == "a", transpose_b=side == "b")
    a = (2, 3, 35, 20) if side == "a" else (2, 3, 20, 35)
    b = (2, 3, 41, 35) if side == "b" else (2, 3, 35, 41)
    arrays = [exact_operands(s, F32, RNG) for s in (a, b)]
    run(hold, op, arrays, (False, packed), exact=True)


def test_random_operands_with_epilogue(hold):
    op = MatMul(epilogue=parse("relu(add(mul($0, $1), $2))"))
    arrays = [random_operands(s, F32, RNG) for s in ((2, 10, 64), (64, 90), (90,), (2, 10, 90))]
    plain = (("avx512", False, 2, None), ("avx2", False, 1, None))
    run(hold, op, arrays, (False, True), k=64, runs=plain)


EPILOGUES = {
    "columns": (33,),
    "rows": (20, 1),
    "scalar": (),
    "batch": (3, 1, 1),
    "all": (2, 3, 20, 33),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue_operands(hold, name):
    op = MatMul(epilogue=parse("add($0, $1)"))
    shapes = ((2, 3, 20, 17), (3, 17, 33), EPILOGUES[name])
    run(hold, op, [exact_operands(s, F32, RNG) for s in shapes], exact=True, runs=FEW)


def test_any_strides(hold):
    """Every second column of b, a with a pitch, heads behind one another: attention's views."""
    shapes = ((2, 4, 9, 8), (2, 4, 8, 11))
    arrays = [exact_operands(s, F32, RNG) for s in shapes]
    heads = View(F32, shapes[0], (9 * 32, 8, 32, 1))
    apart = View(F32, shapes[1], (2000, 300, 23, 2))
    run(hold, MatMul(), arrays, inputs=[heads, apart], exact=True)


def test_rows_far_apart_are_packed_first(hold):
    arrays = [exact_operands(s, F32, RNG) for s in ((100, 24), (24, 600))]
    run(hold, MatMul(), arrays, exact=True, runs=FEW)
    call = _call((100, 24), (24, 600), (100, 600))
    assert [len(MATMUL_DIRECT.launch(call)), isinstance(_first_operands(call)["panels"], Temp)] == [
        2,
        True,
    ]


def _first_operands(call):
    return MATMUL_DIRECT.launch(call)[0].operands


def _call(a, b, y, dtype=F32, views=None):
    inputs = views or tuple(row_major(dtype, s) for s in (a, b))
    return Call(MatMul(), inputs, (row_major(dtype, y),), (False, False), ZEN4)


def test_in_place_residual_is_offered():
    views = tuple(row_major(F32, s) for s in ((5, 6), (6, 7), (5, 7)))
    call = Call(MatMul(epilogue=parse("add($0, $1)")), views, views[2:], (False,) * 3, ZEN4)
    assert MATMUL_DIRECT.aliases(call) == ((2, 0),)


def test_refusals():
    half = _call((5, 6), (6, 7), (5, 7), DType.F16)
    assert "elements are float16" in MATMUL_DIRECT.supports(half)
    shape = (2, 3, 4, 5, 6)
    a = View(F32, shape, (1, 1000, 70, 6, 1))
    b = View(F32, (2, 3, 4, 6, 7), (1, 3000, 500, 7, 1))
    apart = _call(None, None, (2, 3, 4, 5, 7), views=(a, b))
    assert "do not merge" in MATMUL_DIRECT.supports(apart)


@pytest.mark.parametrize(
    "mutant", [MatMul(transpose_b=True), MatMul(epilogue=parse("mul($0, 2.0)"))]
)
def test_planted_mistakes_are_seen(mutant):
    arrays = [exact_operands((8, 8), F32, RNG) for _ in range(2)]
    (wrong,) = run_kernel(MATMUL_DIRECT, mutant, arrays, [row_major(F32, (8, 8))])
    with pytest.raises(AssertionError):
        assert_exact(wrong, MatMul().reference(*arrays)[0])


@pytest.mark.parametrize(
    ("rows", "known", "ahead"), [(40, True, 1), (40, False, 0), (1, True, 0), (2000, True, 0)]
)
def test_few_rows_ask_for_the_panel_behind(rows, known, ahead):
    views = tuple(row_major(F32, s) for s in ((rows, 120), (120, 1900)))
    call = Call(MatMul(), views, (row_major(F32, (rows, 1900)),), (False, known), ZEN4, 2)
    launch = MATMUL_DIRECT.launch(call)[-1]
    assert launch.integers["ahead"] == ahead
    builder = KernelBuilder("k", ZEN4)
    MATMUL_DIRECT.emit(builder, launch.config)
    code = str(builder.finish())
    assert ("i32 0, i32 2, i32 1)" in code) == launch.config.packed
    assert "i32 1, i32 3, i32 1)" in code  # lines that will be written
