"""A depthwise and a 1x1 convolution as one operator: the composition of both."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cpu.fusions import SeparableConv2d
from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.ir.serialize import decode_op, encode_op
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

FIRST = Conv2d((2, 2), (1, 1, 1, 1), groups=6, epilogue=parse("relu(add($0, $1))"))
SECOND = Conv2d(epilogue=parse("mul($0, $1)"), store=InterleaveStore(2, 1))
BOTH = SeparableConv2d(FIRST, SECOND, 1)
SHAPES = [(2, 6, 9, 8), (6, 1, 3, 3), (4, 6, 1, 1), (1, 6, 1, 1), (1, 4, 1, 1), (2, 4, 5, 4)]


def test_is_one_after_the_other():
    rng = np.random.default_rng(0)
    x, u, w, bias, scale, part = (rng.standard_normal(s) for s in SHAPES)
    (between,) = FIRST.reference(x, u, bias)
    (expected,) = SECOND.reference(between, w, scale, part)
    (found,) = BOTH.reference(x, u, w, bias, scale, part)
    np.testing.assert_array_equal(found, expected)
    (kind,) = BOTH.infer([TensorType(DType.F64, s) for s in SHAPES])
    assert kind.shape == expected.shape == (2, 8, 5, 4)


@pytest.mark.parametrize("stored", [DType.F32, DType.BF16])
def test_work_leaves_out_what_lies_between(stored):
    plain = [TensorType(DType.F32, s) for s in SHAPES]
    (result,) = BOTH.infer(plain)
    (between,) = FIRST.infer([plain[0], plain[1], plain[3]])
    first = FIRST.work([plain[0], plain[1], plain[3]], [between])
    second = SECOND.work([between, plain[2], *plain[4:]], [result])
    kept = [TensorType(stored, SHAPES[0]), *plain[1:]]
    both = BOTH.work(kept, [TensorType(stored, result.shape)])
    assert both.flops == first.flops + second.flops
    written_and_read = 2 * 4 * int(np.prod(between.shape))
    saved = (4 - stored.itemsize) * (int(np.prod(SHAPES[0])) + int(np.prod(result.shape)))
    assert both.bytes == first.bytes + second.bytes - written_and_read - saved


@pytest.mark.parametrize(
    ("op", "change"),
    [
        (BOTH, {2: (4, 6, 3, 3)}),
        (BOTH, {1: (12, 1, 3, 3), 2: (4, 12, 1, 1), 3: (1, 12, 1, 1)}),
        (dataclasses.replace(BOTH, pointwise=dataclasses.replace(SECOND, stride=(2, 1))), {}),
        (dataclasses.replace(BOTH, n_depthwise=4), {}),
        (dataclasses.replace(BOTH, between=DType.I32), {}),
    ],
)
def test_refuses_what_is_no_such_pair(op, change):
    shapes = [change.get(i, s) for i, s in enumerate(SHAPES)]
    with pytest.raises(ModelError):
        op.infer([TensorType(DType.F32, s) for s in shapes])


@pytest.mark.parametrize("store", [None, InterleaveStore(2, 0), DepthToSpaceStore(2, "CRD")])
def test_plans_can_be_written_and_read(store):
    op = SeparableConv2d(FIRST, dataclasses.replace(SECOND, store=store), 1, DType.BF16)
    assert decode_op(encode_op(op)) == op
