from __future__ import annotations

import numpy as np
import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.opdefs import MatMul, Pool2d
from saccade.passes import apply
from saccade.passes.compose_moves import PASS as COMPOSE
from saccade.passes.delay_transposes import PASS as DELAY
from saccade.passes.fold_scale_shift import PASS as SCALE
from saccade.passes.fuse_epilogue import PASS as EPILOGUE


def block(b, x, *, residual_first=False):
    """As ConvNeXt has them: channels last for the products, first for all else."""
    rows = b.transpose(b.conv(x, x.shape[1], groups=x.shape[1]), 0, 2, 3, 1)
    product = b.matmul(b.matmul(rows, 12), x.shape[1])
    biased = b.map("add($0, $1)", b.weights(x.shape[1]), product)
    scaled = b.map("mul($0, $1)", b.weights(x.shape[1], 1, 1), b.transpose(biased, 0, 3, 1, 2))
    return b.map("add($0, $1)", *((x, scaled) if residual_first else (scaled, x)))


@pytest.mark.parametrize("residual_first", [False, True])
def test_a_block_ends_with_its_product(residual_first):
    b = Build()
    x = b.conv(b.input(2, 3, 4, 5), 6)
    first = block(b, x, residual_first=residual_first)
    graph = b.graph(block(b, first, residual_first=residual_first))
    after = fused(graph, COMPOSE, DELAY, SCALE, EPILOGUE)
    assert ops(after) == (
        "Conv2d Conv2d Move MatMul Move MatMul Move Conv2d Move MatMul MatMul Move"
    )
    first, second = (node for node in after.nodes if len(node.inputs) == 4)
    assert isinstance(first.op, MatMul)
    # The second block's residual is the first one's sum, as its product stored it.
    assert first.output in second.inputs


def test_what_a_transposition_made_is_read_in_front_of_it():
    b = Build()
    rows = b.input(2, 4, 5, 3)
    moved = b.transpose(b.matmul(rows, 6), 0, 3, 1, 2)
    shortcut = b.transpose(b.input(2, 4, 5, 6), 0, 3, 1, 2)
    after = fused(b.graph(b.map("sub($0, $1)", shortcut, moved)), DELAY, EPILOGUE)
    assert ops(after) == "MatMul Move"
    assert after.nodes[0].inputs[2] is after.inputs[1]


def test_images_behind_convolutions_are_moved_back():
    b = Build()
    moved = b.transpose(b.matmul(b.input(2, 4, 5, 3), 6), 0, 3, 1, 2)
    image = b.conv(b.input(2, 3, 4, 5), 6)
    after = fused(b.graph(b.map("add($0, $1)", moved, image)), DELAY, EPILOGUE)
    assert sorted(ops(after).split()) == ["Conv2d", "MatMul", "Move", "Move"]


def test_a_convolution_takes_what_stands_behind_its_transposition():
    b = Build()
    moved = b.transpose(b.conv(b.input(2, 3, 4, 5), 6), 0, 2, 3, 1)
    graph = b.graph(b.map("relu(add($0, $1))", moved, b.weights(6)))
    assert ops(fused(graph, DELAY, EPILOGUE)) == "Conv2d Move"


def test_a_number_and_the_value_twice():
    b = Build()
    moved = b.transpose(b.matmul(b.input(2, 4, 3), 6), 0, 2, 1)
    graph = b.graph(b.map("mul(add($0, $1), $0)", moved, b.const(np.array(2.0))))
    assert ops(fused(graph, DELAY, EPILOGUE)) == "MatMul Move"


def _others_read(b, product):
    moved = b.transpose(product, 0, 3, 1, 2)
    return b.map("relu($0)", moved), b.map("exp($0)", moved)


def _by_pixel(b, product):
    moved = b.transpose(product, 0, 3, 1, 2)
    return (b.map("add($0, $1)", moved, b.weights(1, 1, 4, 5)),)


def _one_value(b, product):
    moved = b.transpose(product, 0, 3, 1, 2)
    return (b.map("add($0, $1)", moved, b.input(2, 6, 1, 1)),)


def _given(b, product):
    moved = b.transpose(product, 0, 3, 1, 2)
    return (b.map("add($0, $1)", moved, b.input(2, 6, 4, 5)),)


def _other_order(b, product):
    moved = b.transpose(product, 0, 3, 1, 2)
    return (b.map("add($0, $1)", moved, b.transpose(b.input(2, 6, 5, 4), 0, 1, 3, 2)),)


def _other_type(b, product):
    moved = b.transpose(product, 0, 3, 1, 2)
    return (b.map("relu($0)", moved, dtype=DType.F32),)


@pytest.mark.parametrize(
    ("make", "reason", "count"),
    [
        (_others_read, "is also read elsewhere", 2),
        (_by_pixel, "is not a number per channel", 1),
        (_one_value, "is broadcast", 1),
        (_given, "would have to be moved", 1),
        (_other_order, "would have to be moved", 1),
        (_other_type, "the element type changes", 1),
    ],
)
def test_left_alone(make, reason, count):
    b = Build()
    outputs = make(b, b.matmul(b.input(2, 4, 5, 3), 6))
    assert_refused(b.graph(*outputs), DELAY, reason, count)


def _no_product(b):
    pooled = b.op(Pool2d(kind="max", kernel=(2, 2)), b.input(2, 3, 4, 5))
    return b.map("relu($0)", b.transpose(pooled, 0, 2, 3, 1))


def _product_read_twice(b):
    y = b.matmul(b.input(2, 4, 5, 3), 6)
    positive = b.map("relu($0)", b.transpose(y, 0, 3, 1, 2))
    return b.map("add($0, $1)", positive, b.map("exp($0)", b.transpose(y, 0, 3, 1, 2)))


def _reshaped(b):
    return b.map("relu($0)", b.reshape(b.matmul(b.input(2, 20, 3), 6), 2, 4, 5, 6))


def _larger(b):
    y = b.transpose(b.matmul(b.input(1, 5, 3), 6), 0, 2, 1)
    return b.map("add($0, $1)", y, b.input(4, 6, 5))


@pytest.mark.parametrize("make", [_no_product, _product_read_twice, _reshaped, _larger])
def test_other_graphs_do_not_match(make):
    b = Build()
    graph = b.graph(make(b))
    assert fused(graph, DELAY).nodes == graph.nodes


def test_a_long_chain_in_front_is_not_followed_to_its_end():
    b = Build()
    value = b.matmul(b.input(2, 4, 3), 6)
    for _ in range(3000):
        value = b.map("neg($0)", value)
    graph = b.graph(b.map("relu($0)", b.transpose(value, 0, 2, 1)))
    assert apply(DELAY, graph)[0].nodes == graph.nodes
