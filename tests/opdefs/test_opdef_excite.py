"""Sums of rows, and the gates of squeeze-and-excite blocks: compositions of other operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.backends.cpu.fusions import Excite, ExpandDepthwise, RowSums
from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.ir.serialize import decode_op, encode_op
from saccade.opdefs import Conv2d, DepthToSpaceStore, Reduce

SQUEEZE = Conv2d(epilogue=parse("relu(add($0, $1))"))
GATES = Excite(12, SQUEEZE, Conv2d(epilogue=parse("sigmoid(add($0, $1))")), 1)
SHAPES = [(2, 5, 3, 4), (3, 5, 1, 1), (6, 3, 1, 1), (1, 3, 1, 1), (1, 6, 1, 1)]
DEPTHWISE = Conv2d((2, 2), (1, 1, 1, 1), groups=6, epilogue=parse("relu(add($0, $1))"))
SUMS = RowSums(DEPTHWISE)
IMAGE = [(2, 6, 9, 8), (6, 1, 3, 3), (1, 6, 1, 1)]


def types(shapes, dtype=DType.F64):
    return [TensorType(dtype, s) for s in shapes]


def arrays(shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s) for s in shapes]


def test_gates_are_a_mean_and_two_convolutions():
    x, w, u, bias, shift = arrays(SHAPES)
    (mean,) = Reduce("mean", (2, 3)).reference(x)
    (hidden,) = GATES.squeeze.reference(mean, w, bias)
    (expected,) = GATES.excite.reference(hidden, u, shift)
    (found,) = GATES.reference(x, w, u, bias, shift)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    (kind,) = GATES.infer(types(SHAPES))
    assert kind.shape == found.shape == (2, 6, 1, 1)


def test_work_of_gates_leaves_out_what_lies_between():
    kinds = types(SHAPES, DType.F32)
    work = GATES.work(kinds, GATES.infer(kinds))
    products = 2 * 2 * (5 * 3 + 3 * 6)
    assert work.flops == 2 * 5 * 12 + products + 2 * 3 * 2 + 2 * 6 * 2
    assert work.bytes == 4 * sum(int(np.prod(s)) for s in (*SHAPES, (2, 6, 1, 1)))


def test_work_over_what_is_stored_in_bfloat16():
    kinds = types(SHAPES, DType.F32)
    stored = [TensorType(DType.BF16, SHAPES[0]), *kinds[1:]]
    (result,) = GATES.infer(kinds)
    assert GATES.work(stored, [result]).flops == GATES.work(kinds, [result]).flops


@pytest.mark.parametrize(
    ("op", "change"),
    [
        (GATES, {1: (3, 5, 3, 3)}),
        (GATES, {2: (6, 4, 1, 1)}),
        (GATES, {0: (2, 5, 3)}),
        (replace(GATES, count=0), {}),
        (replace(GATES, n_squeeze=3), {}),
        (replace(GATES, squeeze=replace(SQUEEZE, padding=(1, 1, 1, 1))), {}),
        (replace(GATES, excite=Conv2d((2, 2))), {}),
    ],
)
def test_refuses_what_is_no_such_block(op, change):
    with pytest.raises(ModelError):
        op.infer(types([change.get(i, s) for i, s in enumerate(SHAPES)]))


def test_sums_go_along_rows_of_the_result():
    operands = arrays(IMAGE)
    (expected,) = DEPTHWISE.reference(*operands)
    y, sums = SUMS.reference(*operands)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_allclose(sums, expected.sum(axis=3, keepdims=True), rtol=1e-14)
    kinds = SUMS.infer(types(IMAGE))
    assert [kind.shape for kind in kinds] == [y.shape, sums.shape] == [(2, 6, 5, 4), (2, 6, 5, 1)]


def test_work_of_sums_is_an_addition_for_each_element():
    kinds = types(IMAGE, DType.F32)
    y, sums = SUMS.infer(kinds)
    alone, both = DEPTHWISE.work(kinds, [y]), SUMS.work(kinds, [y, sums])
    assert both.flops - alone.flops == 2 * 6 * 5 * 4
    assert both.bytes - alone.bytes == 4 * 2 * 6 * 5


def test_a_store_map_has_no_rows():
    with pytest.raises(ModelError, match="store map"):
        RowSums(Conv2d(store=DepthToSpaceStore(2))).infer(types([(1, 4, 3, 3), (4, 4, 1, 1)]))


def test_plans_can_be_written_and_read():
    both = RowSums(ExpandDepthwise(SQUEEZE, DEPTHWISE, 1))
    for op in (GATES, SUMS, both):
        assert decode_op(encode_op(op)) == op
