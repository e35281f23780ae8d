"""Convolutions against onnxruntime, their fusions against the unfused operators, exact costs."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import IDENTITY, parse
from saccade.opdefs import Conv2d, ConvTranspose2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.tolerance import assert_close, random_operands

F32 = DType.F32
CASES = {  # x, w, attributes
    "plain": ((1, 3, 7, 5), (4, 3, 3, 3), {}),
    "asymmetric pad": ((2, 5, 11, 13), (7, 5, 3, 5), {"padding": (2, 0, 1, 3)}),
    "stride": ((1, 2, 17, 19), (3, 2, 3, 3), {"stride": (2, 3), "padding": (1, 1, 1, 1)}),
    "dilation": ((1, 3, 13, 11), (2, 3, 3, 2), {"dilation": (3, 2), "padding": (0, 2, 4, 1)}),
    "groups": ((2, 6, 5, 7), (9, 2, 3, 1), {"groups": 3, "padding": (1, 0, 1, 0)}),
    "depthwise": ((1, 7, 9, 6), (7, 1, 5, 3), {"groups": 7, "stride": (2, 1)}),
    "multiplier": ((1, 3, 6, 5), (6, 1, 3, 3), {"groups": 3}),
    "one channel": ((1, 1, 4, 4), (1, 1, 1, 1), {"stride": (3, 3)}),
    "batch 0": ((0, 3, 5, 5), (2, 3, 3, 3), {}),
    "taps all in padding": ((1, 2, 1, 2), (3, 2, 3, 3), {"padding": (3, 3, 3, 3)}),
}


def attributes(op):
    return {
        "strides": op.stride,
        "pads": op.padding,
        "dilations": op.dilation,
        "group": op.groups,
    }


@pytest.mark.parametrize("case", CASES)
def test_conv_agrees(case, rng, peer, agrees):
    x_shape, w_shape, given = CASES[case]
    x, w = random_operands(x_shape, F32, rng), random_operands(w_shape, F32, rng)
    op = Conv2d(**given)
    agrees(op, (x, w), peer("Conv", (x, w), **attributes(op)), k=w[0].size)


TRANSPOSED = {  # x, w, attributes
    "plain": ((1, 3, 4, 5), (3, 2, 3, 2), {}),
    "stride": ((2, 4, 5, 3), (4, 3, 3, 3), {"stride": (2, 3), "padding": (1, 0, 0, 2)}),
    "grown": ((1, 2, 3, 5), (2, 5, 4, 4), {"stride": (3, 2), "output_padding": (2, 1)}),
    "dilation": ((1, 3, 5, 4), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (2, 1, 1, 1)}),
    "groups": ((1, 6, 3, 5), (6, 2, 2, 3), {"groups": 3, "stride": (2, 2)}),
    "depthwise": ((1, 5, 4, 4), (5, 1, 4, 4), {"groups": 5, "stride": (2, 2)}),
    "batch 0": ((0, 3, 4, 5), (3, 2, 3, 2), {}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose_agrees(case, rng, peer, agrees):
    x_shape, w_shape, given = TRANSPOSED[case]
    x, w = random_operands(x_shape, F32, rng), random_operands(w_shape, F32, rng)
    op = ConvTranspose2d(**given)
    theirs = peer("ConvTranspose", (x, w), **attributes(op), output_padding=op.output_padding)
    agrees(op, (x, w), theirs, k=x.shape[1] * w.shape[2] * w.shape[3])


def test_fused_parts_are_the_separate_operators(rng):
    """BN-ReLU before (padding stays 0), bias, residual and clip behind."""
    x = rng.standard_normal((2, 4, 6, 5))
    w = rng.standard_normal((6, 4, 3, 3))
    scale, shift = rng.standard_normal((1, 4, 1, 1)), rng.standard_normal((2, 4, 1, 1))
    bias, residual = rng.standard_normal((6, 1, 1)), rng.standard_normal((2, 6, 6, 5))
    fused = Conv2d(
        padding=(1, 1, 1, 1),
        prologue=parse("relu(add(mul($0, $1), $2))"),
        n_prologue=2,
        epilogue=parse("clip(add(add($0, $1), $2), -1.0, 2.0)"),
    )
    before = np.maximum(x * scale + shift, 0)
    (plain,) = Conv2d(padding=(1, 1, 1, 1)).reference(before, w)
    (got,) = fused.reference(x, w, scale, shift, bias, residual)
    np.testing.assert_array_equal(got, np.clip(plain + bias + residual, -1, 2))
    padded_late = np.maximum(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))) * scale + shift, 0)
    (wrong,) = Conv2d().reference(padded_late, w)
    assert not np.allclose(wrong, plain)  # the case tells the two orders apart


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_store(mode, rng, peer):
    x = random_operands((2, 3, 5, 7), F32, rng)
    w = random_operands((18, 3, 1, 1), F32, rng)
    (plain,) = Conv2d().reference(x, w)
    op = Conv2d(store=DepthToSpaceStore(3, mode))
    (stored,) = op.reference(x, w)
    np.testing.assert_array_equal(stored, peer("DepthToSpace", [plain], blocksize=3, mode=mode))
    types = [TensorType(F32, x.shape), TensorType(F32, w.shape)]
    assert op.infer(types)[0].shape == stored.shape == (2, 2, 15, 21)


def test_interleave_store_is_concat_and_shuffle(rng):
    x, w = rng.standard_normal((1, 2, 3, 3)), rng.standard_normal((4, 2, 1, 1))
    first, last = rng.standard_normal((2, 1, 4, 3, 3))
    bias = rng.standard_normal((1, 4, 1, 1))
    op = Conv2d(epilogue=parse("add($0, $1)"), store=InterleaveStore(3, 1))
    (plain,) = Conv2d().reference(x, w)
    whole = np.concatenate([first, plain + bias, last], axis=1)
    shuffled = whole.reshape(1, 3, 4, 3, 3).swapaxes(1, 2).reshape(1, 12, 3, 3)
    (got,) = op.reference(x, w, bias, first, last)
    np.testing.assert_array_equal(got, shuffled)
    types = [TensorType(DType.F64, a.shape) for a in (x, w, bias, first, last)]
    assert op.infer(types)[0].shape == (1, 12, 3, 3)


def test_half_precision_sums_in_single(rng):
    x, w = (
        random_operands((1, 64, 4, 4), DType.F16, rng),
        random_operands((3, 64, 3, 3), DType.F16, rng),
    )
    (got,) = Conv2d().reference(x, w)
    (truth,) = Conv2d().reference(x.astype(np.float64), w.astype(np.float64))
    assert_close(got, truth, dtype=DType.F16, k=1)


def brute_macs(op, x, w, y):
    count = 0
    for p in range(y[2]):
        for q in range(y[3]):
            for r in range(w[2]):
                for s in range(w[3]):
                    h = p * op.stride[0] - op.padding[0] + r * op.dilation[0]
                    v = q * op.stride[1] - op.padding[1] + s * op.dilation[1]
                    count += 0 <= h < x[2] and 0 <= v < x[3]
    return count * y[0] * w[0] * w[1]


@pytest.mark.parametrize("case", CASES)
def test_work_counts_valid_taps(case):
    x, w, given = CASES[case]
    op = Conv2d(**given)
    types = [TensorType(F32, x), TensorType(F32, w)]
    outputs = op.infer(types)
    work = op.work(types, outputs)
    assert work.flops == 2 * brute_macs(op, x, w, outputs[0].shape)
    assert work.bytes == 4 * sum(int(np.prod(t.shape)) for t in (*types, *outputs))


def test_transposed_work_is_that_of_the_gradient():
    """A transposed convolution does the multiplications of the convolution that it inverts."""
    given = {"stride": (2, 3), "padding": (1, 2, 0, 1), "dilation": (2, 1)}
    y, w = TensorType(F32, (2, 4, 13, 14)), TensorType(F32, (6, 4, 3, 4))
    (x,) = Conv2d(**given).infer([y, w])
    back = ConvTranspose2d(**given)
    forward_flops = Conv2d(**given).work([y, w], [x]).flops
    assert back.work([x, w], [TensorType(F32, y.shape)]).flops == forward_flops


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (Conv2d(), [(1, 3, 5, 5), (4, 2, 3, 3)], "input channels is 3 on one side and 2"),
        (Conv2d(), [(1, 3, 2, 5), (4, 3, 3, 3)], "less than the window of 3"),
        (Conv2d(groups=3), [(1, 3, 5, 5), (4, 1, 3, 3)], "4 channels in 3 groups"),
        (Conv2d(), [(3, 5, 5), (4, 3, 3, 3)], "x must have 4 axes"),
        (Conv2d(padding=(-1, 0, 0, 0)), [(1, 3, 5, 5), (4, 3, 3, 3)], "negative"),
        (Conv2d(stride=(0, 1)), [(1, 3, 5, 5), (4, 3, 3, 3)], "positive"),
        (
            Conv2d(epilogue=parse("add($0, $1)")),
            [(1, 3, 5, 5), (4, 3, 3, 3), (1, 3, 1, 1)],
            r"fused behind it \[1, 3, 1, 1\] does not broadcast to \[1, 4, 3, 3\]",
        ),
        (Conv2d(epilogue=parse("add($0, $1)")), [(1, 3, 5, 5), (4, 3, 3, 3)], "lacks operands"),
        (
            Conv2d(n_prologue=1, prologue=parse("mul($0, $1)")),
            [(1, 3, 5, 5), (4, 3, 3, 3), (1, 1, 1, 1)],
            "does not name every channel",
        ),
        (
            Conv2d(store=DepthToSpaceStore(2)),
            [(1, 3, 5, 5), (6, 3, 3, 3)],
            "6 channels do not make blocks of 4",
        ),
        (
            Conv2d(store=InterleaveStore(2, 0)),
            [(1, 3, 5, 5), (4, 3, 3, 3), (1, 4, 5, 5)],
            "a dim of the parts is 3 on one side and 5",
        ),
        (ConvTranspose2d(), [(1, 3, 5, 5), (4, 2, 3, 3)], "input channels is 3 on one side and 4"),
    ],
)
def test_misfits_are_refused(op, shapes, message):
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(F32, shape) for shape in shapes])


def test_mixed_types_are_refused():
    types = [TensorType(F32, (1, 3, 5, 5)), TensorType(DType.F64, (4, 3, 3, 3))]
    with pytest.raises(ModelError, match="float32, float64"):
        Conv2d().infer(types)
    assert Conv2d().epilogue == IDENTITY
