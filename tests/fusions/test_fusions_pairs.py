"""A 1x1 and a depthwise convolution, in either order, as one step where that pays."""

import numpy as np
import pytest
from layout_graphs import Builder, backend, laid_out, plan_of

from saccade import layout
from saccade.backends.cpu.fusions import SeparableConv2d
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.layout import Tuned
from saccade.opdefs import Conv2d, InterleaveStore

RELU = parse("relu($0)")


def block(b, x, channels=64, *, epilogue=RELU, operands=(), second=RELU, others=(), **first):
    """The wide feature map and the result."""
    w, u = b.constant((channels, x.shape[1], 1, 1)), b.constant((channels, 1, 3, 3))
    wide = b.add(Conv2d(epilogue=epilogue, **first), x, w, *operands)
    same = Conv2d(padding=(1,) * 4, groups=channels, epilogue=second)
    return wide, b.add(same, wide, u, *others)


def families(graph):
    return [step.op.family for step in laid_out(graph).steps if not step.note]


LARGE, SMALL = (1, 16, 112, 112), (1, 16, 28, 28)


def test_a_large_wide_image_is_no_value():
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


# A depthwise convolution first


def separable(b, x, filters=16, *, others=(), stride=1, second=RELU, **words):
    """What lies between, and the result."""
    channels = x.shape[1]
    u, w = b.constant((channels, 1, 3, 3)), b.constant((filters, channels, 1, 1))
    first = Conv2d((stride,) * 2, (1,) * 4, groups=channels, epilogue=RELU)
    between = b.add(first, x, u)
    return between, b.add(Conv2d(epilogue=second, **words), between, w, *others)


def steps(graph, timings=None):
    laid = layout.assign(graph, {}, backend(), threads=1, timings=timings)
    return [step for step in laid.steps if not step.note]


def why_apart(graph):
    """What the depthwise step says about being one with the next."""
    (found,) = (s for s in steps(graph) if s.choice.kernel.name == "conv2d.depthwise")
    (passed,) = (p for p in found.choice.passed if p.kernel == "SeparableConv2d")
    return passed.reason


NARROW, DEEP, TINY = (1, 16, 112, 112), (1, 1024, 14, 14), (1, 16, 28, 28)


def test_what_lies_between_is_no_value():
    b = Builder(NARROW)
    x = b.conv(b.inputs[0], 16)
    between, y = separable(b, x, second=parse("add($0, $1)"), others=(x,))
    graph = b.graph(b.conv(y, 8))
    found = steps(graph)
    assert [s.op.family for s in found] == ["Conv2d", "SeparableConv2d", "Conv2d"]
    joint = found[1]
    assert joint.choice.kernel.name == "conv2d.separable"
    assert joint.op.n_depthwise == 0 and joint.op.between is DType.F32
    assert len(joint.inputs) == 4 and joint.inputs[3] == joint.inputs[0]
    plan = plan_of(graph)
    assert plan.live_bytes < 3 * 4 * np.prod(between.shape)


def test_a_store_map_stays_that_of_the_result():
    b = Builder(NARROW)
    x = b.conv(b.inputs[0], 16)
    part = b.conv(x, 16)
    _, y = separable(b, x, 16, store=InterleaveStore(2, 1), others=(part,))
    families = [s.op.family for s in steps(b.graph(b.conv(y, 8)))]
    assert families == ["Conv2d", "Conv2d", "SeparableConv2d", "Conv2d"]


def test_two_steps_where_they_are_estimated_to_be_as_fast():
    b = Builder(DEEP)
    graph = b.graph(b.conv(separable(b, b.conv(b.inputs[0], 1024), 1024)[1], 8))
    assert "as two steps" in why_apart(graph)


def test_two_steps_where_the_caches_hold_what_lies_between():
    b = Builder(TINY)
    graph = b.graph(b.conv(separable(b, b.conv(b.inputs[0], 16))[1], 8))
    assert "L2 caches" in why_apart(graph)


def _to_the_caller(b, x):
    return list(separable(b, x))


def _also_elsewhere(b, x):
    between, y = separable(b, x)
    return [y, b.conv(between, 4)]


def _its_own_residual(b, x):
    u, w = b.constant((16, 1, 3, 3)), b.constant((16, 16, 1, 1))
    between = b.add(Conv2d(padding=(1,) * 4, groups=16), x, u)
    return [b.add(Conv2d(epilogue=parse("add($0, $1)")), between, w, between)]


def _as_residual(b, x):
    u, w = b.constant((16, 1, 3, 3)), b.constant((16, 16, 1, 1))
    between = b.add(Conv2d(padding=(1,) * 4, groups=16), x, u)
    return [b.add(Conv2d(epilogue=parse("add($0, $1)")), x, w, between)]


def _to_a_strided_one(b, x):
    return [separable(b, x, stride=1, **{"padding": (1, 1, 1, 1)})[1]]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_to_the_caller, "the caller gets"), (_also_elsewhere, "read 2 times"),
        (_its_own_residual, "read 2 times"), (_as_residual, "a plain 1x1"),
        (_to_a_strided_one, "a plain 1x1"),
    ],
)  # fmt: skip
def test_stays_two_steps(make, reason):
    b = Builder(NARROW)
    assert reason in why_apart(b.graph(*make(b, b.conv(b.inputs[0], 16))))


class Chosen:
    """Timings that name the best way of every call of some kind."""

    def __init__(self, wanted):
        self.wanted = wanted

    def tuned(self, call, kernels):
        able = [k for k in kernels if k.supports(call) is None]
        if not able or not self.wanted(call.op):
            return None
        best = next(iter(able[0].variants(call)))
        return Tuned(able[0], best.launches, best.micros, 1.0)

    def refusals(self, _steps):
        return ()


def test_what_was_measured_decides():
    b = Builder(DEEP)
    graph = b.graph(b.conv(separable(b, b.conv(b.inputs[0], 1024), 1024)[1], 8))
    forced = steps(graph, Chosen(lambda op: isinstance(op, SeparableConv2d)))
    assert [s.op.family for s in forced] == ["Conv2d", "SeparableConv2d", "Conv2d"]
    b = Builder(NARROW)
    graph = b.graph(b.conv(separable(b, b.conv(b.inputs[0], 16))[1], 8))
    apart = steps(graph, Chosen(lambda op: isinstance(op, Conv2d) and op.groups > 1))
    assert [s.op.family for s in apart] == ["Conv2d"] * 4
