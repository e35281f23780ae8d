from __future__ import annotations

import numpy as np
import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.opdefs import Conv2d, ConvTranspose2d, DepthToSpaceStore, MatMul
from saccade.passes import apply
from saccade.passes.fold_scale_shift import PASS as FOLD

NORM = "add(mul($0, $1), $2)"


def norm(b, x, *shape, text=NORM):
    return b.map(text, x, b.weights(*shape), b.weights(*shape))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("text", [NORM, "div(sub($0, $1), $2)", "sub($2, neg(mul($1, $0)))"])
def test_batch_norms_go_into_a_convolution(bias, groups, text):
    b = Build()
    x = b.conv(b.input(2, 6, 7, 5), 12, 3, bias=bias, groups=groups, padding=(1, 0, 1, 2))
    y = norm(b, norm(b, x, 1, 12, 1, 1, text=text), 12, 1, 1)
    after = fused(b.graph(b.map("mul($0, 0.5)", y)), FOLD)
    assert ops(after) == "Conv2d"
    assert str(after.nodes[0].op.epilogue) == "add($0, $1)"
    assert after.nodes[0].inputs[2].shape == (1, 12, 1, 1)
    assert len(after.constants) == 2


def test_a_scale_without_shift_leaves_no_bias():
    b = Build()
    y = b.map("mul($0, $1)", b.conv(b.input(1, 3, 4, 4), 5), b.weights(5, 1, 1))
    after = fused(b.graph(y), FOLD)
    assert str(after.nodes[0].op.epilogue) == "$0"
    assert len(after.nodes[0].inputs) == 2


def test_a_shift_alone_keeps_the_weights():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 5)
    weights = b.nodes[0].inputs[1]
    after = fused(b.graph(b.map("add($0, $1)", x, b.weights(5, 1, 1))), FOLD)
    assert after.nodes[0].inputs[1] is weights


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_goes_into_a_transposed_convolution(groups):
    b = Build()
    w = b.weights(4, 6 // groups, 3, 3)
    x = b.op(ConvTranspose2d(stride=(2, 2), groups=groups), b.input(1, 4, 3, 5), w)
    after = fused(b.graph(norm(b, x, 1, 6, 1, 1)), FOLD)
    assert ops(after) == "ConvTranspose2d"


@pytest.mark.parametrize("transposed", [False, True])
def test_scale_and_shift_go_into_a_matrix_product(transposed):
    b = Build()
    w = b.weights(7, 4) if transposed else b.weights(4, 7)
    x = b.op(MatMul(transpose_b=transposed), b.input(2, 3, 4), w)
    after = fused(b.graph(norm(b, norm(b, x, 7), 1, 1, 7)), FOLD)
    assert ops(after) == "MatMul"
    assert after.nodes[0].inputs[2].shape == (7,)


def test_weights_in_float32_are_rounded_once():
    b = Build()
    x = b.input(1, 2, 3, 3, dtype=DType.F32)
    w = b.const(b.random.standard_normal((4, 2, 1, 1)), np.float32)
    scale = b.const(b.random.standard_normal((4, 1, 1)), np.float32)
    graph = b.graph(b.map("mul($0, $1)", b.op(Conv2d(), x, w), scale))
    after, _ = apply(FOLD, graph)
    (folded,) = after.constants.values()
    exact = graph.constants[w].astype(np.float64) * graph.constants[scale][..., None]
    np.testing.assert_array_equal(folded, exact.astype(np.float32))


def test_a_result_that_others_read_stays():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 3)
    assert_refused(b.graph(norm(b, x, 3, 1, 1), x), FOLD, "also read elsewhere")


def test_an_infinite_scale_stays():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 2)
    graph = b.graph(b.map("mul($0, $1)", x, b.const([[[1.0]], [[np.inf]]])))
    assert_refused(graph, FOLD, "not finite")


def test_an_activation_in_between_stays():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 2, epilogue=parse("relu($0)"))
    assert_refused(b.graph(norm(b, x, 2, 1, 1)), FOLD, "not a scale and a shift")


def test_a_store_map_in_between_stays():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 8, store=DepthToSpaceStore(2))
    assert_refused(b.graph(norm(b, x, 2, 1, 1)), FOLD, "stores its channels elsewhere")


def test_computed_weights_stay():
    b = Build()
    x = b.op(Conv2d(), b.input(1, 3, 4, 4), b.input(2, 3, 1, 1))
    assert_refused(b.graph(norm(b, x, 2, 1, 1)), FOLD, "weights are not constant")


def test_weights_per_batch_stay():
    b = Build()
    x = b.op(MatMul(), b.input(2, 3, 4), b.weights(2, 4, 5))
    assert_refused(b.graph(norm(b, x, 5)), FOLD, "weights per batch")


@pytest.mark.parametrize("shape", [(1, 1, 4, 1), (4,), (2, 1, 1, 1)])
def test_what_is_not_per_channel_is_no_match(shape):
    b = Build()
    graph = b.graph(norm(b, b.conv(b.input(2, 3, 4, 4), 5), *shape))
    assert fused(graph, FOLD).nodes == graph.nodes


def test_what_widens_the_result_is_no_match():
    b = Build()
    graph = b.graph(norm(b, b.conv(b.input(2, 3, 4, 4), 1), 1, 5, 1, 1))
    assert fused(graph, FOLD).nodes == graph.nodes


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("epilogue", ["$0", "add($0, $1)", "relu($0)", "relu(mul($0, $1))"])
def test_scale_and_shift_in_front_go_in_without_padding(groups, epilogue):
    b = Build()
    x = norm(b, b.input(2, 6, 5, 5), 1, 6, 1, 1)
    operands = [b.weights(1, 9, 1, 1)] if "$1" in epilogue else []
    w = b.weights(9, 6 // groups, 3, 3)
    y = b.op(Conv2d(groups=groups, epilogue=parse(epilogue)), x, w, *operands)
    assert ops(fused(b.graph(y), FOLD)) == "Conv2d"


def test_a_scale_in_front_goes_in_with_padding_for_all_readers():
    b = Build()
    x = b.map("mul($0, $1)", b.input(2, 6, 5, 5), b.weights(6, 1, 1))
    graph = b.graph(b.conv(x, 4, 3, padding=(1, 1, 1, 1)), b.conv(x, 2, bias=True))
    assert ops(fused(graph, FOLD)) == "Conv2d Conv2d"


def test_a_shift_in_front_of_padding_stays():
    b = Build()
    x = norm(b, b.input(2, 6, 5, 5), 6, 1, 1)
    graph = b.graph(b.conv(x, 4, 3, padding=(0, 0, 0, 1)))
    assert_refused(graph, FOLD, "does not hold in the padding")


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (lambda b, x: b.map("exp($0)", x), "others than convolutions"),
        (lambda b, x: b.op(Conv2d(), x, b.input(2, 6, 1, 1)), "weights are not constant"),
        (lambda b, x: b.conv(x, 2, prologue=parse("relu($0)")), "has a prologue"),
        (lambda b, x: x, "output of the graph"),
    ],
)
def test_a_scale_in_front_stays_if_one_reader_cannot_take_it(reader, reason):
    b = Build()
    x = norm(b, b.input(2, 6, 5, 5), 6, 1, 1)
    graph = b.graph(b.conv(x, 4), reader(b, x))
    assert_refused(graph, FOLD, reason, sum(node.op.family == "Conv2d" for node in graph.nodes))
