"""Two convolutions as one operator: the composition of both."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.backends.cpu.fusions import ExpandDepthwise
from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.ir.serialize import decode_op, encode_op
from saccade.opdefs import Conv2d

FIRST = Conv2d(epilogue=parse("relu(add($0, $1))"))
SECOND = Conv2d((2, 2), (1, 1, 1, 1), groups=6, epilogue=parse("mul($0, $1)"))
BOTH = ExpandDepthwise(FIRST, SECOND, 1)
SHAPES = [(2, 3, 9, 8), (6, 3, 1, 1), (6, 1, 3, 3), (1, 6, 1, 1), (1, 6, 1, 1)]


def test_is_one_after_the_other():
    rng = np.random.default_rng(0)
    x, w, u, bias, scale = (rng.standard_normal(s) for s in SHAPES)
    (wide,) = FIRST.reference(x, w, bias)
    (expected,) = SECOND.reference(wide, u, scale)
    (found,) = BOTH.reference(x, w, u, bias, scale)
    np.testing.assert_array_equal(found, expected)
    types = [TensorType(DType.F64, s) for s in SHAPES]
    (kind,) = BOTH.infer(types)
    assert kind.shape == expected.shape == (2, 6, 5, 4)


def test_work_leaves_out_the_wide_image():
    types = [TensorType(DType.F32, s) for s in SHAPES]
    (result,) = BOTH.infer(types)
    wide = TensorType(DType.F32, (2, 6, 9, 8))
    first = FIRST.work([types[0], types[1], types[3]], [wide])
    second = SECOND.work([wide, types[2], types[4]], [result])
    both = BOTH.work(types, [result])
    assert both.flops == first.flops + second.flops
    written_and_read = 2 * 4 * int(np.prod(wide.shape))
    assert both.bytes == first.bytes + second.bytes - written_and_read


def test_work_over_what_is_stored_in_bfloat16():
    """Activations are, weights and the caller's values are not."""
    wide = [TensorType(DType.F32, s) for s in SHAPES]
    (result,) = BOTH.infer(wide)
    mixed = [TensorType(DType.BF16, SHAPES[0]), *wide[1:]]
    stored = BOTH.work(mixed, [TensorType(DType.BF16, result.shape)])
    plain = BOTH.work(wide, [result])
    assert stored.flops == plain.flops
    halves = int(np.prod(SHAPES[0])) + int(np.prod(result.shape))
    assert stored.bytes == plain.bytes - 2 * halves


@pytest.mark.parametrize(
    ("op", "change"),
    [
        (BOTH, {1: (6, 3, 3, 3)}),
        (BOTH, {1: (8, 3, 1, 1), 3: (1, 8, 1, 1)}),
        (ExpandDepthwise(Conv2d(padding=(1, 1, 1, 1), epilogue=FIRST.epilogue), SECOND, 1), {}),
        (ExpandDepthwise(FIRST, SECOND, 3), {}),
    ],
)
def test_refuses_what_is_no_such_pair(op, change):
    shapes = [change.get(i, s) for i, s in enumerate(SHAPES)]
    with pytest.raises(ModelError):
        op.infer([TensorType(DType.F32, s) for s in shapes])


def test_plans_can_be_written_and_read():
    assert decode_op(encode_op(BOTH)) == BOTH
