from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType, Factor, IndexMap
from saccade.ir.dim import symbol
from saccade.ir.expr import parse
from saccade.opdefs import Concat, Conv2d, DepthToSpaceStore, InterleaveStore, MatMul, Move, Pool2d
from saccade.passes.compose_moves import PASS as COMPOSE
from saccade.passes.flatten_to_convolution import PASS as FLATTEN
from saccade.passes.fuse_store import PASS as STORE


def shuffle(b, x, groups):
    n, c, h, w = x.shape
    split = b.reshape(x, n, groups, c // groups, h, w)
    return b.reshape(b.transpose(split, 0, 2, 1, 3, 4), n, c, h, w)


def depth_to_space(b, x, block, mode):
    n, c, h, w = x.shape
    c //= block * block
    if mode == "DCR":
        split = b.transpose(b.reshape(x, n, block, block, c, h, w), 0, 3, 4, 1, 5, 2)
    else:
        split = b.transpose(b.reshape(x, n, c, block, block, h, w), 0, 1, 4, 2, 5, 3)
    return b.reshape(split, n, c, h * block, w * block)


def test_a_shuffle_is_one_movement_and_two_cancel():
    b = Build()
    x = b.input(2, 6, 3, 4)
    once = shuffle(b, x, 2)
    assert ops(fused(b.graph(once), COMPOSE)) == "Move"
    after = fused(b.graph(b.map("exp($0)", shuffle(b, once, 3))), COMPOSE)
    assert ops(after) == "Pointwise"
    assert after.nodes[0].inputs == (x,)


def test_movements_meet_through_a_pointwise():
    b = Build()
    x = b.transpose(b.input(2, 3, 4), 1, 2, 0)
    y = b.transpose(b.map("exp($0)", x), 2, 0, 1)
    assert ops(fused(b.graph(y), COMPOSE)) == "Pointwise"


def test_a_pointwise_goes_back_to_the_operator_that_can_take_it():
    b = Build()
    x = b.reshape(b.matmul(b.input(2, 3, 4), 6), 2, 3, 2, 3)
    graph = b.graph(b.map("relu($0)", x))
    assert ops(fused(graph, COMPOSE)) == "MatMul Pointwise Move"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda b, x: b.slice(x, 2, 1, 2), "drops elements"),
        (lambda b, x: b.op(_repeat(x.shape), x), "repeats elements"),
    ],
)
def test_a_pointwise_stays_behind_movements_that_change_the_count(step, reason):
    b = Build()
    x = step(b, b.conv(b.input(2, 3, 4, 4), 5))
    assert_refused(b.graph(b.map("relu($0)", x)), COMPOSE, reason)


def _repeat(shape):
    factors = (*(Factor(s, i) for i, s in enumerate(shape)), Factor(2, None))
    return Move(IndexMap(tuple((s,) for s in shape), factors, (1, 1, 1, 2)))


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1)])
def test_a_norm_behind_a_flattening_goes_back_to_the_product(shape):
    """LeViT's: rows of all images are one list while they are normalised."""
    b = Build()
    y = b.reshape(b.matmul(b.input(2, 3, 4), 5), 6, 5)
    normed = b.map("add(mul($0, $1), $2)", y, b.weights(*shape), b.weights(*shape))
    graph = b.graph(b.map("relu($0)", b.reshape(normed, 2, 3, 5)))
    after = fused(graph, COMPOSE)
    assert ops(after) == "MatMul Pointwise Pointwise"


@pytest.mark.parametrize("case", ["rows", "merged", "transposed", "wider"])
def test_other_vectors_stay_behind_a_movement(case):
    b = Build()
    y = b.matmul(b.input(2, 3, 4), 6)
    moved, vector = {
        "rows": lambda: (b.reshape(y, 6, 6), b.weights(6, 1)),
        "merged": lambda: (b.reshape(y, 2, 18), b.weights(18)),
        "transposed": lambda: (b.transpose(y, 1, 0, 2), b.weights(6)),
        "wider": lambda: (b.reshape(y, 6, 6), b.weights(2, 6, 6)),
    }[case]()
    graph = b.graph(b.map("relu($0)", b.map("mul($0, $1)", moved, vector)))
    assert ops(fused(graph, COMPOSE)).startswith("MatMul Move Pointwise")


def test_movements_that_others_read_stay_unless_they_are_free():
    b = Build()
    x = b.transpose(b.input(2, 3, 4), 1, 2, 0)
    graph = b.graph(b.slice(x, 0, 0, 2), b.slice(x, 0, 1, 2))
    assert_refused(graph, COMPOSE, "also read elsewhere", 2)
    b = Build()
    view = b.reshape(b.input(2, 12), 2, 3, 4)
    after = fused(b.graph(b.transpose(view, 1, 2, 0), b.transpose(view, 2, 1, 0)), COMPOSE)
    assert ops(after) == "Move Move"


def test_movements_that_share_the_elements_out_do_without_the_first():
    b = Build()
    packed = b.transpose(b.reshape(b.input(5, 2, 12), 5, 2, 3, 4), 2, 0, 1, 3)
    parts = [b.transpose(b.slice(packed, 0, i, 1), 0, 2, 1, 3) for i in range(3)]
    assert ops(fused(b.graph(*parts), COMPOSE)) == "Move Move Move"
    b = Build()
    packed = b.transpose(b.input(3, 5, 4), 0, 2, 1)
    parts = [b.slice(packed, 0, i, 1) for i in range(3)]
    assert_refused(b.graph(*parts, packed), COMPOSE, "also read elsewhere", 3)


def test_a_pointwise_does_not_pass_a_movement_that_others_read():
    b = Build()
    x = b.reshape(b.conv(b.input(2, 3, 4, 4), 5), 2, 5, 16)
    graph = b.graph(b.map("relu($0)", x), x)
    assert_refused(graph, COMPOSE, "also read elsewhere")


def halves(b, x, *cuts, axis=1):
    bounds = (0, *cuts, x.shape[axis])
    return [b.slice(x, axis, i, j - i) for i, j in pairwise(bounds)]


def test_parts_side_by_side_are_the_whole():
    b = Build()
    x = b.map("exp($0)", b.input(2, 6, 3, 4))
    first, second, third = halves(b, x, 1, 4)
    y = b.map("neg($0)", third)  # a bottleneck's: others read parts as well
    graph = b.graph(b.op(Concat(1), first, second, third, y))
    after = fused(graph, COMPOSE)
    (joint,) = (node for node in after.nodes if isinstance(node.op, Concat))
    assert [v.name for v in joint.inputs] == [x.name, y.name]


def test_parts_that_are_not_all_of_it_are_one_part():
    b = Build()
    x = b.map("exp($0)", b.input(2, 6, 3, 4))
    _, second, third = halves(b, x, 1, 4)
    graph = b.graph(b.op(Concat(1), second, third))
    after = fused(graph, COMPOSE)
    assert ops(after) == "Pointwise Move"
    assert after.nodes[1].output.shape == (2, 5, 3, 4)


def _in_disorder(b, x):
    first, second, _ = halves(b, x, 2, 4)
    return second, first


def _apart(b, x):
    first, _, third = halves(b, x, 2, 4)
    return first, third


def _along_another_axis(b, x):
    return halves(b, x, 2, axis=2)


def _of_two_values(b, x):
    return b.slice(x, 1, 0, 2), b.slice(b.map("exp($0)", b.input(2, 6, 4, 4)), 1, 2, 2)


def _of_other_rows(b, x):
    first, second, _ = halves(b, x, 2, 4)
    return b.slice(first, 2, 0, 2), b.slice(second, 2, 2, 2)


def _backwards(b, x):
    factors = (Factor(2, 0), Factor(2, 1, 3, -1), Factor(4, 2), Factor(4, 3))
    flipped = IndexMap(((2,), (6,), (4,), (4,)), factors, (1, 1, 1, 1))
    return b.slice(x, 1, 0, 2), b.op(Move(flipped), x)


@pytest.mark.parametrize(
    "make",
    [_in_disorder, _apart, _along_another_axis, _of_two_values, _of_other_rows, _backwards],
)
def test_parts_that_are_not_side_by_side_stay(make):
    b = Build()
    graph = b.graph(b.op(Concat(1), *make(b, b.map("exp($0)", b.input(2, 6, 4, 4)))))
    after = fused(graph, COMPOSE)
    (joint,) = (node for node in after.nodes if isinstance(node.op, Concat))
    assert len(joint.inputs) == 2


def test_parts_that_only_small_sizes_reach_out_of_stay():
    b = Build()
    x = b.map("exp($0)", b.input(2, symbol("C"), 3, 4))
    whole = b.slice(x, 1, 0, 4), b.slice(x, 1, 4, 4)
    assert_refused(
        b.graph(b.op(Concat(1), *whole)),
        COMPOSE,
        "part of a slice that may reach out of its operand",
    )


def test_maps_without_common_factors_stay_apart():
    b = Build()
    x = b.reshape(b.transpose(b.input(4, 9), 1, 0), 36)
    after = fused(b.graph(b.reshape(x, 6, 6)), COMPOSE)
    assert ops(after) == "Move Move"
    assert_refused(after, COMPOSE, "do not refine each other")


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(("channels", "block"), [(12, 2), (18, 3), (8, 2)])
def test_depth_to_space_is_the_store_of_its_convolution(mode, channels, block):
    b = Build()
    x = b.conv(b.input(2, 3, 4, 5), channels, bias=True)
    y = depth_to_space(b, x, block, mode)
    y = b.map("leaky_relu($0, $1)", y, b.weights(channels // block**2, 1, 1))
    after = fused(b.graph(b.map("clip($0, 0.0, 1.0)", y)), COMPOSE, STORE)
    assert ops(after) == "Conv2d"
    assert after.nodes[0].op.store == DepthToSpaceStore(block, mode)
    assert [v.shape for v in after.nodes[0].inputs[2:]] == [(1, channels, 1, 1)] * 2


def test_a_movement_behind_the_store_stays_behind_it():
    b = Build()
    y = depth_to_space(b, b.conv(b.input(1, 3, 4, 5), 8), 2, "CRD")
    after = fused(b.graph(b.transpose(y, 0, 2, 3, 1)), COMPOSE, STORE)
    assert ops(after) == "Conv2d Move"
    assert after.nodes[0].op.store == DepthToSpaceStore(2, "CRD")
    assert [factor.source for factor in after.nodes[1].op.map.factors] == [0, 2, 3, 1]


def _other_movement(b):
    x = b.conv(b.input(1, 3, 4, 4), 4)
    return b.transpose(x, 0, 1, 3, 2)


def test_other_movements_are_no_store():
    b = Build()
    graph = b.graph(_other_movement(b))
    assert fused(graph, STORE).nodes == graph.nodes


def test_convolutions_that_others_read_keep_their_place():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 4)
    y = depth_to_space(b, x, 2, "CRD")
    graph = fused(b.graph(y, x), COMPOSE)
    assert_refused(graph, STORE, "also read elsewhere")


def test_convolutions_store_once():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 16, store=DepthToSpaceStore(2))
    graph = fused(b.graph(depth_to_space(b, x, 2, "CRD")), COMPOSE)
    assert_refused(graph, STORE, "has a store map already")


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "reason"),
    [
        ("add($0, $1)", (1, 2, 8, 8), DType.F64, "not a constant per channel"),
        ("where($1, $0, 0.0)", (2, 1, 1), bool, "another element type"),
        ("add($0, $1)", (1, 2, 1, 1), DType.F64, "not a constant per channel"),
    ],
)
def test_operands_that_cannot_go_before_the_store(text, shape, dtype, reason):
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 8, store=DepthToSpaceStore(2))
    operand = b.const(np.ones(shape), bool) if dtype is bool else b.input(*shape)
    assert_refused(b.graph(b.map(text, x, operand)), STORE, reason)


def test_results_that_widen_or_are_shared_stay_behind_the_store():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 4, store=DepthToSpaceStore(2))
    wide = b.graph(b.map("add($0, $1)", x, b.weights(5, 1, 1)))
    assert_refused(wide, STORE, "changes shape")
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 4, store=DepthToSpaceStore(2))
    assert_refused(b.graph(b.map("relu($0)", x), x), STORE, "also read elsewhere")


@pytest.mark.parametrize("position", [0, 1])
def test_a_shuffle_of_two_parts_is_the_store_of_the_later(position):
    b = Build()
    x = b.input(2, 3, 4, 5)
    parts = [b.map("exp($0)", x), b.conv(x, 3, bias=True)]
    y = shuffle(b, b.op(Concat(1), *parts[:: 1 if position else -1]), 2)
    after = fused(b.graph(b.slice(y, 1, 0, 3), b.slice(y, 1, 3, 3)), COMPOSE, STORE)
    assert ops(after) == "Pointwise Conv2d Move Move"
    assert after.nodes[1].op.store == InterleaveStore(2, position)
    assert after.nodes[1].inputs[-1] is parts[0]


def test_of_two_convolutions_the_later_interleaves():
    b = Build()
    x = b.input(2, 3, 4, 5)
    late, early = b.conv(x, 3), b.conv(x, 3)
    b.nodes.reverse()
    after = fused(b.graph(shuffle(b, b.op(Concat(1), early, late), 2)), COMPOSE, STORE)
    assert ops(after) == "Conv2d Conv2d"
    assert after.nodes[0].output is early


def _shuffled(b, *parts, groups=2):
    return shuffle(b, b.op(Concat(1), *parts), groups)


def test_shuffles_that_stay():
    b = Build()
    x = b.input(1, 3, 4, 4)
    c = b.conv(x, 3)
    graph = fused(b.graph(_shuffled(b, x, c, x, groups=3)), COMPOSE)
    assert_refused(graph, STORE, "3 parts interleave")
    graph = fused(b.graph(_shuffled(b, x, c), c), COMPOSE)
    assert_refused(graph, STORE, "convolution is also read elsewhere")
    graph = fused(b.graph(_shuffled(b, c, c)), COMPOSE)
    assert_refused(graph, STORE, "there twice")
    graph = fused(b.graph(_shuffled(b, c, b.input(1, 1, 4, 4))), COMPOSE)
    assert_refused(graph, STORE, "not of equal size")
    b = Build()
    x = b.input(1, 3, 4, 4)
    both = b.op(Concat(1), x, b.conv(x, 3))
    graph = fused(b.graph(shuffle(b, both, 2), both), COMPOSE)
    assert_refused(graph, STORE, "Concat is also read elsewhere")


@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_over_a_flattened_image_is_a_convolution(transposed):
    b = Build()
    x = b.reshape(b.input(3, 2, 4, 5), 3, 40)
    w = b.weights(7, 40) if transposed else b.weights(40, 7)
    op = MatMul(transpose_b=transposed, epilogue=parse("relu(add($0, $1))"))
    after = fused(b.graph(b.op(op, x, w, b.weights(7))), FLATTEN)
    assert ops(after) == "Conv2d Move"
    assert after.nodes[0].inputs[1].shape == (7, 2, 4, 5)


def test_the_flattening_of_one_pixel_is_free_and_stays():
    b = Build()
    graph = b.graph(b.matmul(b.reshape(b.input(3, 8, 1, 1), 3, 8), 4))
    assert fused(graph, FLATTEN).nodes == graph.nodes


def fused_flat(b, x):
    """Channels last, then flattened, as one movement."""
    sizes = tuple((size,) for size in x.shape)
    factors = tuple(Factor(x.shape[p], p) for p in (0, 2, 3, 1))
    return b.op(Move(IndexMap(sizes, factors, (1, 3))), x)


@pytest.mark.parametrize(
    "flat",
    [
        lambda b: b.reshape(b.input(4, 2, 3, 1), 2, 12),
        lambda b: fused_flat(b, b.input(4, 2, 3, 3)),
        lambda b: b.reshape(b.input(4, 2, 9), 4, 18),
    ],
)
def test_other_reshapes_are_no_match(flat):
    b = Build()
    graph = b.graph(b.matmul(flat(b), 4))
    assert fused(graph, FLATTEN).nodes == graph.nodes


def test_products_that_stay():
    def graph(w, *operands, epilogue="$0"):
        b = Build()
        x = b.reshape(b.input(3, 2, 2, 2), 3, 8)
        return b.graph(b.op(MatMul(epilogue=parse(epilogue)), x, w(b), *(o(b) for o in operands)))

    assert_refused(graph(lambda b: b.input(8, 4)), FLATTEN, "weights are not constant")
    assert_refused(graph(lambda b: b.weights(3, 8, 4)), FLATTEN, "weights per batch")
    add = "add($0, $1)"
    full = graph(lambda b: b.weights(8, 4), lambda b: b.input(3, 4), epilogue=add)
    assert_refused(full, FLATTEN, "not constant per channel")
    b = Build()
    x = b.reshape(b.input(3, 2, 2, 2, dtype=DType.I32), 3, 8)
    integers = b.graph(b.op(MatMul(), x, b.const(np.ones((8, 4)), "int32")))
    assert_refused(integers, FLATTEN, "not floating point")


def test_pooling_between_is_left_alone():
    b = Build()
    x = b.op(Pool2d("max", (2, 2), (2, 2)), b.conv(b.input(1, 3, 4, 4), 4, bias=True))
    graph = b.graph(b.reshape(x, 1, 16))
    assert fused(graph, COMPOSE, STORE, FLATTEN).nodes == graph.nodes
    assert isinstance(graph.nodes[0].op, Conv2d)
