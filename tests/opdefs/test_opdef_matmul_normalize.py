"""Matrix products and normalisations against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.dim import symbol
from saccade.ir.expr import parse
from saccade.opdefs import GroupNorm, LayerNorm, LocalResponseNorm, LpNormalize, MatMul
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

F32 = DType.F32


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 5), (5, 7)),
        ((2, 1, 3, 5), (4, 5, 2)),
        ((1, 1), (1, 1)),
        ((0, 3, 5), (5, 7)),
        ((3, 0), (0, 7)),
    ],
)
def test_matmul_agrees(a, b, rng, peer, agrees):
    x, y = random_operands(a, F32, rng), random_operands(b, F32, rng)
    agrees(MatMul(), (x, y), peer("MatMul", (x, y)), k=max(a[-1], 1))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gemm_agrees(transpose_a, transpose_b, rng, peer, agrees):
    a = random_operands((5, 3) if transpose_a else (3, 5), F32, rng)
    b = random_operands((7, 5) if transpose_b else (5, 7), F32, rng)
    c = random_operands((7,), F32, rng)
    op = MatMul(transpose_a, transpose_b, parse("add(mul($0, 0.5), $1)"))
    given = {"transA": int(transpose_a), "transB": int(transpose_b), "alpha": 0.5}
    agrees(op, (a, b, c), peer("Gemm", (a, b, c), **given), k=5)


def test_integer_products_are_exact(rng, peer, agrees_exactly):
    a, b = rng.integers(-9, 9, (3, 5)), rng.integers(-9, 9, (5, 2))
    agrees_exactly(MatMul(), (a, b), peer("MatMul", (a, b)))


def test_matmul_half_precision_sums_in_single():
    a = np.ones((1, 4096), np.float16)
    assert_exact(MatMul(transpose_b=True).reference(a, a)[0], np.array([[4096]], np.float16))


def test_matmul_rules():
    n, k = symbol("N"), symbol("K")
    a, b = TensorType(F32, (n, 1, 3, k)), TensorType(F32, (4, 5, 2))
    (y,) = MatMul().infer([a, b])
    assert y.shape == (n, 4, 3, 2)
    work = MatMul().work(
        [TensorType(F32, (3, 5)), TensorType(F32, (5, 7))], [TensorType(F32, (3, 7))]
    )
    assert (work.flops, work.bytes) == (2 * 3 * 5 * 7, 4 * (15 + 35 + 21))
    with pytest.raises(ModelError, match="summed dim is 5 on one side and 4"):
        MatMul().infer([TensorType(F32, (3, 5)), TensorType(F32, (4, 7))])
    with pytest.raises(ModelError, match="2 axes or more"):
        MatMul().infer([TensorType(F32, (5,)), TensorType(F32, (5, 7))])


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("biased", [False, True])
def test_layer_norm_agrees(axis, biased, rng, peer, agrees):
    x = random_operands((3, 5, 7), F32, rng) * 3 + 1
    parts = [random_operands(x.shape[axis:], F32, rng) for _ in range(1 + biased)]
    theirs = peer("LayerNormalization", (x, *parts), axis=axis, epsilon=1e-3)
    agrees(LayerNorm(axis, 1e-3), (x, *parts), theirs, k=16)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_agrees(groups, rng, peer, agrees):
    x = random_operands((2, 6, 3, 5), F32, rng) * 2 - 1
    scale, bias = random_operands((6,), F32, rng), random_operands((6,), F32, rng)
    op = GroupNorm(groups, 1e-2)
    theirs = peer("GroupNormalization", (x, scale, bias), num_groups=groups, epsilon=1e-2)
    agrees(op, (x, scale, bias), theirs, k=16)


def test_instance_norm_is_a_group_per_channel(rng, peer, agrees):
    x = random_operands((2, 3, 7), F32, rng)
    scale, bias = random_operands((3,), F32, rng), random_operands((3,), F32, rng)
    theirs = peer("InstanceNormalization", (x, scale, bias), epsilon=1e-5)
    agrees(GroupNorm(3), (x, scale, bias), theirs, k=16)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_agrees(size, rng, peer, agrees):
    x = random_operands((2, 7, 3, 2), F32, rng) * 3
    op = LocalResponseNorm(size, 0.3, 0.6, 1.5)
    agrees(op, (x,), peer("LRN", (x,), size=size, alpha=0.3, beta=0.6, bias=1.5), k=16)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_lp_normalization_agrees(p, axis, rng, peer, agrees):
    x = random_operands((3, 7, 5), F32, rng)
    agrees(LpNormalize(axis, p), (x,), peer("LpNormalization", (x,), axis=axis, p=p), k=16)


def test_a_row_of_zeros_stays_one():
    x = np.array([[0.0, 0.0], [3.0, -4.0]], np.float32)
    for p, want in ((1, [3 / 7, -4 / 7]), (2, [0.6, -0.8])):
        (got,) = LpNormalize(1, p).reference(x)
        np.testing.assert_allclose(got, [[0, 0], want], rtol=1e-6)


def test_lrn_of_even_size_reaches_further_up():
    """ONNX: from c - floor((size-1)/2) to c + ceil((size-1)/2)."""
    x = np.array([1.0, 2.0, 4.0]).reshape(1, 3, 1)
    (got,) = LocalResponseNorm(2, 2.0, 1.0, 0.0).reference(x)
    np.testing.assert_allclose(got.ravel(), [1 / 5, 2 / 20, 4 / 16])


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (LayerNorm(2), [(3, 5), (5,)], "axis 2"),
        (LayerNorm(1), [(3, 5), (4,)], "does not broadcast"),
        (LayerNorm(1), [(3, 5)], "takes 2 to 3 operands, got 1"),
        (GroupNorm(2), [(1, 3, 4), (3,), (3,)], "3 channels in 2 groups"),
        (GroupNorm(1), [(1, 3, 4), (4,), (3,)], "channels of x and scale"),
        (LocalResponseNorm(0), [(1, 3)], "size is 0"),
    ],
)
def test_misfits_are_refused(op, shapes, message):
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(F32, shape) for shape in shapes])


def test_exact_operands_are_exact(rng):
    a, b = exact_operands((8, 512), F32, rng), exact_operands((512, 8), F32, rng)
    (wide,) = MatMul().reference(a.astype(np.float64), b.astype(np.float64))
    assert_exact(MatMul().reference(a, b)[0], wide.astype(np.float32))
