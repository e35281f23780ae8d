"""Reductions and scans against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.opdefs import ArgReduce, CumSum, Reduce, Softmax
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

F32 = DType.F32
KINDS = {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin",
    "prod": "ReduceProd", "l1": "ReduceL1", "l2": "ReduceL2", "sum_square": "ReduceSumSquare",
    "log_sum": "ReduceLogSum", "log_sum_exp": "ReduceLogSumExp",
}  # fmt: skip
AXES = [(0,), (2,), (1, 2), (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduce_agrees(kind, axes, keepdims, *, rng, peer, agrees):
    x = random_operands((3, 7, 5), F32, rng)
    x = np.abs(x) if kind == "log_sum" else x
    op = Reduce(kind, axes, keepdims)
    theirs = peer(KINDS[kind], (x, np.array(axes, np.int64)), keepdims=int(keepdims))
    agrees(op, (x,), theirs, k=x.size)


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod", "l1", "sum_square"])
def test_integers_agree(kind, *, rng, peer, agrees_exactly):
    x = rng.integers(-5, 6, (3, 7, 4)).astype(np.int32)
    theirs = peer(KINDS[kind], (x, np.array([1], np.int64)), keepdims=0)
    agrees_exactly(Reduce(kind, (1,), keepdims=False), (x,), theirs)


def test_log_sum_exp_does_not_overflow():
    x = np.array([[1000.0, 1000.0], [-np.inf, -np.inf], [np.inf, 0.0]])
    (got,) = Reduce("log_sum_exp", (1,), keepdims=False).reference(x)
    assert_exact(got, np.array([1000 + np.log(2.0), -np.inf, np.inf]))


def test_nothing_reduced_gives_neutral_elements():
    x = np.zeros((2, 0), np.float32)
    for kind, value in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)):
        (got,) = Reduce(kind, (1,), keepdims=False).reference(x)
        assert_exact(got, np.full(2, value, np.float32))
    integers = np.zeros((2, 0), np.int64)
    (lowest,) = Reduce("max", (1,), keepdims=False).reference(integers)
    assert_exact(lowest, np.full(2, np.iinfo(np.int64).min))


def test_no_axes_reduce_nothing():
    x = np.array([-1.0, 2.0])
    assert_exact(Reduce("l1", ()).reference(x)[0], np.abs(x))


def test_half_precision_sums_in_single():
    x = np.full((4096,), 1.0, np.float16)
    (got,) = Reduce("sum", (0,)).reference(x)
    assert_exact(got, np.array([4096], np.float16))  # in float16 it stops at 2048


def test_epilogue(rng):
    x = exact_operands((2, 3, 4), F32, rng)
    scale = exact_operands((3, 1), F32, rng)
    op = Reduce("sum", (2,), epilogue=parse("relu(mul($0, $1))"))
    assert_exact(op.reference(x, scale)[0], np.maximum(x.sum(2, keepdims=True) * scale, 0))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_arg_reduce_agrees(kind, axis, keepdims, last, *, rng, peer, agrees_exactly):
    x = rng.integers(0, 3, (7, 11)).astype(np.float32)  # many ties
    given = {"axis": axis, "keepdims": int(keepdims), "select_last_index": int(last)}
    theirs = peer("ArgMax" if kind == "argmax" else "ArgMin", (x,), **given)
    agrees_exactly(ArgReduce(kind, axis, keepdims, last), (x,), theirs)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_agrees(axis, log, rng, peer, agrees):
    x = 10 * random_operands((3, 5, 7), F32, rng) + np.float32(200)
    theirs = peer("LogSoftmax" if log else "Softmax", (x,), axis=axis)
    agrees(Softmax(axis, log), (x,), theirs, k=16)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum_agrees(axis, exclusive, reverse, *, rng, peer, agrees_exactly):
    x = exact_operands((5, 3), F32, rng)
    given = {"exclusive": int(exclusive), "reverse": int(reverse)}
    theirs = peer("CumSum", (x, np.array(axis, np.int64)), **given)
    agrees_exactly(CumSum(axis, exclusive, reverse), (x,), theirs)


def test_cumsum_of_nothing():
    assert CumSum(0, exclusive=True).reference(np.zeros((0, 2)))[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Reduce("median", (0,)), "kind 'median'"),
        (Reduce("sum", (1, 0)), "not sorted"),
        (Reduce("sum", (2,)), "axis 2 is not one of 2"),
        (Reduce("sum", (-1,)), "axis -1"),
        (ArgReduce("argmax", 2), "axis 2"),
        (Softmax(-1), "axis -1"),
        (CumSum(2), "axis 2"),
    ],
)
def test_misfits_are_refused(op, message):
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(F32, (2, 3))])


def test_types_are_refused():
    with pytest.raises(ModelError, match="x is bool"):
        Reduce("sum", (0,)).infer([TensorType(DType.BOOL, (2,))])
    with pytest.raises(ModelError, match="floating point"):
        Softmax(0).infer([TensorType(DType.I64, (2,))])
    with pytest.raises(ModelError, match="axis 0 is empty"):
        ArgReduce("argmax", 0).infer([TensorType(F32, (0,))])
