"""A widening 1x1 convolution and the depthwise one behind it, as one step where that pays."""

import pytest
from layout_graphs import Builder, laid_out

from saccade.ir.expr import parse
from saccade.opdefs import Conv2d

RELU = parse("relu($0)")


def block(b, x, channels=64, *, epilogue=RELU, operands=(), second=RELU, others=(), **first):
    """The wide picture and the result."""
    w, u = b.constant((channels, x.shape[1], 1, 1)), b.constant((channels, 1, 3, 3))
    wide = b.add(Conv2d(epilogue=epilogue, **first), x, w, *operands)
    same = Conv2d(padding=(1,) * 4, groups=channels, epilogue=second)
    return wide, b.add(same, wide, u, *others)


def families(graph):
    return [step.op.family for step in laid_out(graph).steps if not step.note]


LARGE, SMALL = (1, 16, 112, 112), (1, 16, 28, 28)


def test_a_large_wide_picture_is_no_value():
    b = Builder(LARGE)
    bias = b.constant((1, 64, 1, 1))
    x = b.conv(b.inputs[0], 16)
    _, y = block(b, x, epilogue=parse("relu(add($0, $1))"), operands=(bias,))
    graph = b.graph(b.conv(y, 8))
    assert families(graph) == ["Conv2d", "ExpandDepthwise", "Conv2d"]
    step = next(s for s in laid_out(graph).steps if s.op.family == "ExpandDepthwise")
    assert step.choice.kernel.name == "conv2d.expand_depthwise"
    assert step.op.n_expand == 1 and len(step.inputs) == 4


def test_a_residual_of_the_depthwise_convolution_stays_its_operand():
    b = Builder(LARGE)
    x = b.conv(b.inputs[0], 64)
    _, y = block(b, x, second=parse("add($0, $1)"), others=(x,))
    graph = b.graph(b.conv(y, 8))
    assert families(graph) == ["Conv2d", "ExpandDepthwise", "Conv2d"]


def _small(b, x):
    return [block(b, x)[1]]


def _given_to_the_caller(b, x):
    return list(block(b, x))


def _read_elsewhere(b, x):
    wide, y = block(b, x)
    return [y, b.add(Conv2d(), wide, b.constant((4, 64, 1, 1)))]


def _varying(b, x):
    return [block(b, x, 64, epilogue=parse("add($0, $1)"), operands=(b.conv(x, 64),))[1]]


def _strided(b, x):
    return [block(b, x, 256, stride=(2, 2))[1]]


def _grouped(b, x):
    w, u = b.constant((64, 8, 1, 1)), b.constant((64, 1, 3, 3))
    wide = b.add(Conv2d(groups=2), x, w)
    return [b.add(Conv2d(padding=(1,) * 4, groups=64), wide, u)]


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        (SMALL, _small), (LARGE, _given_to_the_caller), (LARGE, _read_elsewhere), (LARGE, _varying),
        (LARGE, _strided), (LARGE, _grouped),
    ],
)  # fmt: skip
def test_left_alone(shape, make):
    b = Builder(shape)
    results = make(b, b.conv(b.inputs[0], 16))
    assert "ExpandDepthwise" not in families(b.graph(*results))
