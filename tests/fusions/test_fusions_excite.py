"""Squeeze-and-excite blocks become gates, from sums where a grouped convolution gives them."""

import pytest
from layout_graphs import Builder, laid_out

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.opdefs import Conv2d, Pointwise, Reduce

RELU, SIGMOID = parse("relu(add($0, $1))"), parse("sigmoid(add($0, $1))")
MEAN = Reduce("mean", (2, 3))
SCALED = Pointwise(parse("mul($0, $1)"), DType.F32)


def product(b, x, channels, epilogue, **attributes):
    w = b.constant((channels, x.shape[1], 1, 1))
    bias = b.constant((1, channels, 1, 1))
    return b.add(Conv2d(epilogue=epilogue, **attributes), x, w, bias)


def depthwise(b, x, **attributes):
    w = b.constant((x.shape[1], 1, 3, 3))
    return b.add(Conv2d(padding=(1,) * 4, groups=x.shape[1], **attributes), x, w)


def gated(b, y):
    """The mean, the hidden value, the gates, and what follows."""
    mean = b.add(MEAN, y)
    hidden = product(b, mean, 6, RELU)
    gates = product(b, hidden, y.shape[1], SIGMOID)
    return mean, hidden, gates, b.conv(b.add(SCALED, y, gates), 8, taps=1)


def families(graph):
    return [step.op.family for step in laid_out(graph).steps if not step.note]


SHAPE = (1, 16, 14, 10)


def test_gates_follow_sums_of_rows():
    b = Builder(SHAPE)
    y = depthwise(b, b.conv(b.inputs[0], 32))
    *_, result = gated(b, y)
    graph = b.graph(result)
    assert families(graph) == ["Conv2d", "RowSums", "Excite", "Pointwise", "Conv2d"]
    steps = {step.op.family: step for step in laid_out(graph).steps}
    assert steps["RowSums"].choice.kernel.name == "conv2d.depthwise"
    assert steps["Excite"].choice.kernel.name == "excite.direct"
    assert steps["Excite"].op.count == 14 * 10
    assert steps["Excite"].inputs[0] == steps["RowSums"].outputs[1]


def grouped(b, x, groups):
    w = b.constant((x.shape[1], x.shape[1] // groups, 3, 3))
    return b.add(Conv2d(padding=(1,) * 4, groups=groups), x, w)


def test_narrow_groups_are_summed_too():
    b = Builder(SHAPE)
    *_, result = gated(b, grouped(b, b.conv(b.inputs[0], 32), 4))
    graph = b.graph(result)
    assert families(graph) == ["Conv2d", "RowSums", "Excite", "Pointwise", "Conv2d"]
    step = next(s for s in laid_out(graph).steps if s.op.family == "RowSums")
    assert step.choice.kernel.name == "conv2d.grouped"


def test_groups_that_no_kernel_sums_leave_the_mean():
    b = Builder(SHAPE)
    *_, result = gated(b, grouped(b, b.conv(b.inputs[0], 42), 3))
    assert families(b.graph(result)) == [
        "Conv2d",
        "Conv2d",
        "Reduce",
        "Excite",
        "Pointwise",
        "Conv2d",
    ]


def test_the_image_of_an_expanding_pair_is_summed_too():
    b = Builder((1, 16, 112, 112))
    x = b.conv(b.inputs[0], 16)
    wide = b.conv(x, 64, taps=1)
    *_, result = gated(b, depthwise(b, wide))
    graph = b.graph(result)
    assert families(graph) == ["Conv2d", "RowSums", "Excite", "Pointwise", "Conv2d"]
    step = next(s for s in laid_out(graph).steps if s.op.family == "RowSums")
    assert step.choice.kernel.name == "conv2d.expand_depthwise"


def test_another_convolution_leaves_the_mean():
    b = Builder(SHAPE)
    *_, result = gated(b, b.conv(b.inputs[0], 32))
    assert families(b.graph(result)) == ["Conv2d", "Reduce", "Excite", "Pointwise", "Conv2d"]


def test_a_image_that_the_caller_gets_leaves_the_mean():
    b = Builder(SHAPE)
    y = depthwise(b, b.conv(b.inputs[0], 32))
    *_, result = gated(b, y)
    found = families(b.graph(result, y))
    assert "RowSums" not in found and "Excite" in found


def _plain(b, y):
    return gated(b, y)[3]


def _the_mean_is_read(b, y):
    mean, *_, result = gated(b, y)
    return b.add(SCALED, result, product(b, mean, 8, RELU))


def _the_hidden_value_is_read(b, y):
    _, hidden, _, result = gated(b, y)
    return b.add(SCALED, result, product(b, hidden, 8, RELU))


def _along_rows(b, y):
    hidden = product(b, b.add(Reduce("mean", (3,)), y), 6, RELU)
    return b.conv(b.add(SCALED, y, product(b, hidden, 32, SIGMOID)), 8, taps=1)


def _largest(b, y):
    hidden = product(b, b.add(Reduce("max", (2, 3)), y), 6, RELU)
    return b.conv(b.add(SCALED, y, product(b, hidden, 32, SIGMOID)), 8, taps=1)


def _grouped(b, y):
    mean, w, bias = b.add(MEAN, y), b.constant((6, 16, 1, 1)), b.constant((1, 6, 1, 1))
    hidden = b.add(Conv2d(groups=2, epilogue=RELU), mean, w, bias)
    return b.conv(b.add(SCALED, y, product(b, hidden, 32, SIGMOID)), 8, taps=1)


@pytest.mark.parametrize(
    ("images", "make"),
    [
        (3, _plain), (1, _the_mean_is_read), (1, _the_hidden_value_is_read),
        (1, _along_rows), (1, _largest), (1, _grouped),
    ],
)  # fmt: skip
def test_left_alone(images, make):
    b = Builder((images, *SHAPE[1:]))
    result = make(b, depthwise(b, b.conv(b.inputs[0], 32)))
    found = families(b.graph(result))
    assert "Excite" not in found and "RowSums" not in found


def test_a_batch_of_two_is_gated():
    b = Builder((2, *SHAPE[1:]))
    result = _plain(b, depthwise(b, b.conv(b.inputs[0], 32)))
    assert "Excite" in families(b.graph(result))
