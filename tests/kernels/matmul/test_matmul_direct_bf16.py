"""Matrix products over bfloat16: every storage, packed ahead, paired up at run time, in place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType, storage
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.matmul.direct import MATMUL_DIRECT
from saccade.opdefs import MatMul
from saccade.testing.kernels import row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

RNG = np.random.default_rng(10)
F32, BF16 = DType.F32, DType.BF16
WITHOUT = "avx512-plain"  # without dot products of bfloat16
EACH = (
    ("avx512", False, 2, (1, 0)),
    ("avx512", True, 3, (2, 0, 1)),
    ("avx2", True, 1, None),
    ("avx2", False, 3, (2, 0, 1)),
    (WITHOUT, False, 1, None),
)
MIXES = {
    "bf16": (BF16, BF16, BF16),
    "to-f32": (BF16, BF16, F32),
    "from-f32": (F32, F32, BF16),
    "a-f32": (F32, BF16, F32),
    "b-f32": (BF16, F32, BF16),
}
SHAPES = [
    ((5, 7), (7, 9)),
    ((1, 100), (100, 300)),
    ((1, 33), (33, 70)),
    ((49, 33), (33, 130)),
    ((49, 48), (48, 130)),
    ((20, 1), (1, 20)),
    ((2, 3, 20, 17), (2, 3, 17, 33)),
    ((2, 1, 9, 6), (1, 3, 6, 7)),
    ((3, 4, 0), (3, 0, 5)),
    ((4, 5), (5, 0)),
]


def run(hold, op, arrays, y=BF16, constant=(False, False), inputs=None, **kwargs):
    views = inputs or [row_major(DType.of(a.dtype), a.shape) for a in arrays]
    out = row_major(y, storage.reference(op, arrays)[0].shape)
    known = (*constant, *(True for _ in arrays[2:]))
    kwargs = {"exact": True, "runs": EACH, **kwargs}
    hold(MATMUL_DIRECT, op, arrays, inputs=views, outputs=[out], constant=known, **kwargs)


def integers(*shapes, kinds=(BF16, BF16)):
    return [exact_operands(s, kind, RNG) for s, kind in zip(shapes, kinds, strict=True)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_integers_are_exact(hold, a, b, packed):
    run(hold, MatMul(), integers(a, b), constant=(False, packed))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mix", MIXES)
def test_mixes(hold, mix, packed):
    *kinds, y = MIXES[mix]
    for rows in (1, 23):
        arrays = integers((rows, 35), (35, 41), kinds=kinds)
        run(hold, MatMul(), arrays, y, (False, packed))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("inner", [34, 35])
@pytest.mark.parametrize("side", ["a", "b"])
def test_transposed(hold, side, inner, packed):
    op = MatMul(transpose_a=side == "a", transpose_b=side == "b")
    a = (2, 3, inner, 20) if side == "a" else (2, 3, 20, inner)
    b = (2, 3, 41, inner) if side == "b" else (2, 3, inner, 41)
    run(hold, op, integers(a, b), constant=(False, packed))


def test_random_operands_with_epilogue(hold):
    op = MatMul(epilogue=parse("relu(add(mul($0, $1), $2))"))
    shapes = ((2, 10, 65), (65, 90), (90,), (2, 10, 90))
    kinds = (BF16, BF16, F32, BF16)
    arrays = [random_operands(s, kind, RNG) for s, kind in zip(shapes, kinds, strict=True)]
    run(hold, op, arrays, constant=(False, True), k=65, exact=False)


def test_any_strides(hold):
    """Every second column of b, a with a pitch, NaN between the elements."""
    shapes = ((2, 4, 9, 7), (2, 4, 7, 11))
    heads = View(BF16, shapes[0], (9 * 32, 8, 32, 1))
    apart = View(BF16, shapes[1], (2000, 300, 23, 2))
    run(hold, MatMul(), integers(*shapes), inputs=[heads, apart])


def _phases(rows, target, constant):
    views = (row_major(BF16, (rows, 64)), row_major(BF16, (64, 48)))
    out = (row_major(BF16, (rows, 48)),)
    return MATMUL_DIRECT.launch(Call(MatMul(), views, out, (False, constant), target))


def test_pairs_are_used_where_they_pay():
    assert [launch.config.pairs for launch in _phases(1, ZEN4, True)] == [True]
    assert [launch.config.pairs for launch in _phases(1, ZEN4, False)] == [False]
    assert [launch.config.pairs for launch in _phases(40, ZEN4, False)][-1] is True
    without = dataclasses.replace(ZEN4, bf16=False)
    assert [launch.config.pairs for launch in _phases(40, without, True)] == [False]
    # Weights that few rows make a stream of bytes are halves of it on every machine.
    assert [launch.config.pairs for launch in _phases(4, without, True)] == [True]
    assert [launch.config.pairs for launch in _phases(4, without, False)] == [False]


def test_rows_are_copied_as_float32_where_they_would_be_widened_often():
    without = dataclasses.replace(ZEN4, bf16=False)
    assert [launch.config.copied for launch in _phases(40, ZEN4, True)] == [False]
    assert [launch.config.copied for launch in _phases(40, without, True)] == [True]
    assert [launch.config.copied for launch in _phases(4, without, True)] == [False]
    # A computed matrix is widened once, too, in a phase of its own.
    assert [launch.config.phase for launch in _phases(40, without, False)] == ["product"]
    assert [launch.config.phase for launch in _phases(64, without, False)] == ["pack", "product"]


@pytest.mark.parametrize("constant", [False, True])
def test_planted_mistakes_are_seen(constant):
    """b's rows in another order within their pairs."""
    a, b = integers((9, 8), (8, 20))
    mixed = b.reshape(4, 2, 20)[:, ::-1].reshape(8, 20)
    (wrong,) = run_kernel(
        MATMUL_DIRECT, MatMul(), [a, mixed], [row_major(F32, (9, 20))], constant=(False, constant)
    )
    with pytest.raises(AssertionError):
        assert_exact(wrong, storage.reference(MatMul(), [a, b])[0])
