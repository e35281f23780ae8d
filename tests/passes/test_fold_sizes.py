"""What follows from sizes alone is computed once for each, and gives what it gave."""

from __future__ import annotations

import numpy as np
import pytest
from pass_graphs import Build, ops

from saccade.ir import DType, Factor, IndexMap
from saccade.ir import expr as e
from saccade.ir.dim import add, ceildiv, floordiv, maximum, minimum, mod, mul, sub, symbol
from saccade.ir.dim_terms import growth
from saccade.ir.serialize import load, save
from saccade.ir.verify import verify
from saccade.opdefs import Concat, Conv2d, CumSum, Gather, Move, Pointwise, SizeConstant, Softmax
from saccade.passes import BFLOAT16, STANDARD, apply
from saccade.passes.fold_sizes import GRIDS, PASS
from saccade.passes.lower_precision import FLOAT16

H, W = symbol("H"), symbol("W")
SIZES = {"H": 3, "W": 5}


def repeated(b, size, value=1):
    return b.op(Move(IndexMap((), (Factor(size, None),), (1,))), b.const(value, np.int64))


def indices(b, size):
    """0, 1 and so on, as files say it."""
    return b.op(CumSum(0, exclusive=True), repeated(b, size))


def stored(b, size):
    """A size as a number."""
    last = Move(IndexMap(((add(size, 1),),), (Factor(1, 0, size),), (1,)))
    return b.op(last, indices(b, add(size, 1)))


def grid(b):
    """Centres of all pixels: [H, W]."""
    down = Move(IndexMap(((H,),), (Factor(H, 0),), (1, 0)))
    across = Move(IndexMap(((W,),), (Factor(W, 0),), (0, 1)))
    rows = b.op(down, b.map("mul($0, 8.0)", indices(b, H)))
    return b.map("add($0, $1)", rows, b.op(across, indices(b, W)))


def values(graph, feeds, sizes=SIZES):
    """The outputs for some sizes, node by node."""
    known = dict(graph.constants)
    known.update(zip(graph.inputs, feeds, strict=True))
    for node in graph.nodes:
        results = node.op.bind(sizes).reference(*(known[value] for value in node.inputs))
        for value, result in zip(node.outputs, results, strict=True):
            known[value] = result.astype(value.dtype.numpy)
    return [known[value] for value in graph.outputs]


def folded(graph, step=GRIDS, sizes=SIZES):
    after, _ = apply(step, graph)
    verify(after)
    feeds = [
        np.arange(np.prod(shape)).reshape(shape).astype(v.dtype.numpy)
        for v in graph.inputs
        for shape in [tuple(d if isinstance(d, int) else sizes[str(d)] for d in v.shape)]
    ]
    for one, other in zip(values(graph, feeds, sizes), values(after, feeds, sizes), strict=True):
        np.testing.assert_array_equal(one, other)
    return after


def test_a_grid_is_a_constant_once_sizes_are_known():
    b = Build()
    x = b.input(H, W, dtype=DType.I64)
    after = folded(b.graph(b.map("add($0, $1)", x, grid(b))))
    assert ops(after) == "SizeConstant Pointwise"
    (constant,) = (node.op for node in after.nodes[:1])
    assert constant.symbols == {"H", "W"}
    # Counting from 0 takes no ones to add up, and so no constants.
    assert not after.nodes[0].inputs
    assert [node.op.family for node in constant.bodies[0].nodes].count("Indices") == 2
    assert not after.constants


def test_plans_that_wait_for_it_hold_numbers_and_ranges():
    b = Build()
    x = b.input(H, W, dtype=DType.I64)
    after = folded(b.graph(b.map("add($0, $1)", x, grid(b))), PASS)
    assert ops(after) == "SizeConstant Pointwise Pointwise"
    assert [v.shape for v in after.nodes[0].outputs] == [(H, 1), (1, W)]


@pytest.mark.parametrize(
    ("dim", "found"),
    [
        (7, (0, 7.0)),
        (add(mul(H, mul(W, 3)), H), (2, 3.0)),
        (mul(floordiv(add(H, 31), 32), floordiv(W, 16)), (2, 1 / 512)),
        (sub(mul(H, 2), mul(W, 5)), (1, 7.0)),
        (mod(mul(H, H), W), (1, 1.0)),
        (minimum(mul(H, W), 1000), (0, 1000.0)),
        (maximum(H, mul(W, 4)), (1, 4.0)),
        (floordiv(mul(H, H), W), (2, 1.0)),
    ],
)
def test_how_dims_grow(dim, found):
    assert growth(dim) == found


@pytest.mark.parametrize(("each", "held"), [(2, True), (3, False)])
def test_what_is_larger_than_an_image_is_the_sum_of_ranges(each, held):
    b = Build()
    n = mul(mul(H, W), each)
    list_of_all = b.map("mul($0, 2.0)", indices(b, n))
    places = b.input(7, dtype=DType.I64)
    graph = b.graph(b.op(Gather(0), list_of_all, places))
    after = folded(graph, sizes={"H": 30, "W": 50})
    if held:
        assert ops(after) == "SizeConstant Gather"
    else:  # of rows of 1024, whose first elements alone are held
        assert ops(after) == "SizeConstant Pointwise Move Move Pointwise Gather"
        assert [v.shape for v in after.nodes[0].outputs] == [(ceildiv(n, 1024), 1)]


def test_ranges_of_an_image_are_sums_where_plans_wait():
    b = Build()
    graph = b.graph(b.op(Gather(0), indices(b, mul(H, W)), b.input(7, dtype=DType.I64)))
    for sizes in ({"H": 30, "W": 50}, {"H": 64, "W": 32}, {"H": 2, "W": 4}):
        after = folded(graph, PASS, sizes)
        assert ops(after) == "Move CumSum Move Pointwise Move Move Gather"


@pytest.mark.parametrize(
    ("size", "held"), [(mul(H, W), False), (add(H, W), True), (mul(H, 9), True)]
)
def test_products_of_sizes_are_no_ranges(size, held):
    b = Build()
    x = b.input(7, dtype=DType.I64)
    shared = b.map("mul($0, 2.0)", indices(b, size))
    after = folded(b.graph(b.op(Gather(0), shared, x)), PASS, {"H": 5, "W": 3})
    assert (ops(after) == "SizeConstant Gather") is held


def test_all_are_held_together_in_the_order_of_their_makers():
    b = Build()
    x = b.input(H, dtype=DType.I64)
    height, width = stored(b, H), stored(b, W)
    y = b.map("add(mul($0, $1), $2)", x, height, width)
    after = folded(b.graph(y, width))
    assert ops(after) == "SizeConstant Pointwise"
    assert after.nodes[0].outputs == (height, width)
    assert after.outputs == (y, width)


def test_a_constant_of_the_model_has_a_part():
    b = Build()
    x = b.input(H, 4, dtype=DType.I64)
    table = b.const(np.arange(40).reshape(10, 4), np.int64)
    rows = b.op(Gather(0), table, indices(b, H))
    after = folded(b.graph(b.map("add($0, $1)", x, rows)))
    assert ops(after) == "SizeConstant Pointwise"
    assert after.nodes[0].inputs == (table,)


def test_what_is_repeated_or_seen_stays_a_movement():
    """It costs less to read one element again than to hold so many of them."""
    b = Build()
    x = b.input(H, W, dtype=DType.I64)
    spread = Move(IndexMap(((1,),), (Factor(H, None), Factor(W, None)), (1, 1)))
    table = b.const(np.arange(40).reshape(10, 4), np.int64)
    part = Move(IndexMap(((10,), (4,)), (Factor(H, 0), Factor(4, 1)), (1, 1)))
    sums = b.map("add($0, $1)", x, b.op(spread, b.map("mul($0, 3.0)", stored(b, H))))
    after = folded(b.graph(sums, b.map("neg($0)", b.op(part, table)), repeated(b, H)))
    # A number is held, and what is computed of a part of a table.
    assert ops(after) == "SizeConstant Move Pointwise Move"
    assert [v.shape for v in after.nodes[0].outputs] == [(1,), (H, 4)]


@pytest.mark.parametrize("case", ["data", "slow", "static"])
def test_other_values_stay(case):
    b = Build()
    x = b.input(H, W, dtype=DType.F32)
    if case == "data":
        y = b.map("add($0, 1.0)", x)
    elif case == "slow":
        one = b.const(np.ones((1, 1, 8, 8)), np.float32)
        y = b.op(Conv2d(padding=(1, 1, 1, 1)), one, b.const(np.ones((1, 1, 3, 3)), np.float32))
    else:
        y = b.map("exp($0)", b.const([1.0], np.float32))
    graph = b.graph(y, x)
    after, _ = apply(GRIDS, graph)
    assert after.nodes == graph.nodes


def test_nothing_is_left_of_what_nobody_reads():
    b = Build()
    x = b.input(H, dtype=DType.I64)
    indices(b, W)
    after = folded(b.graph(b.map("add($0, $1)", x, indices(b, H))))
    assert ops(after) == "SizeConstant Pointwise"
    assert after.nodes[0].op.symbols == {"H"}


def test_sizes_are_asked_for_once_they_are_known():
    b = Build()
    after = folded(b.graph(b.map("add($0, $1)", b.input(H, dtype=DType.I64), stored(b, W))))
    op = after.nodes[0].op
    bound = op.bind({"H": 7, "W": 4})
    assert bound.sizes == (("W", 4),)
    assert bound.bind({"W": 9}) == bound  # inside of a loop, whose own body is bound first
    assert bound.reference()[0].tolist() == [4]
    assert [t.shape for t in bound.infer(())] == [(1,)]


def test_it_outlives_its_process(tmp_path):
    b = Build()
    after = folded(b.graph(b.map("add($0, $1)", b.input(H, W, dtype=DType.I64), grid(b))))
    path = tmp_path / "graph"
    with path.open("w+b") as file:
        save(after, file.fileno())
    with path.open("rb") as file:
        loaded = load(file.fileno(), str(path))
    assert loaded.nodes[0].op == after.nodes[0].op
    assert loaded.nodes[0].op.text == after.nodes[0].op.text


def test_only_what_is_moved_is_rounded_like_other_values():
    b = Build()
    x = b.input(1, 4, H, W, dtype=DType.F32)
    floats = Pointwise(e.parse("$0"), DType.F32)
    scale = b.map("mul($0, 0.25)", b.op(floats, grid(b)))
    places = b.map("exp($0)", b.op(floats, stored(b, W)))
    weights = b.const(np.ones((4, 4, 1, 1)), np.float32)
    wide = b.op(Conv2d(), x, weights)
    y = b.map("add($0, $1)", wide, scale)
    z = b.map("exp(mul($0, $1))", b.map("neg($0)", wide), places)
    rows = b.map("mul($0, $1)", b.const(np.ones((1, 4, 1, 1)), np.float32), b.op(floats, grid(b)))
    joint = b.op(Concat(1), y, rows)
    graph = b.graph(b.op(Conv2d(groups=2), joint, weights), b.op(Softmax(1), z))
    after, _ = apply(GRIDS, graph)
    rounded, _ = apply(FLOAT16, after)
    verify(rounded)
    constant = next(node for node in rounded.nodes if isinstance(node.op, SizeConstant))
    kinds = {v.shape: v.dtype for v in constant.outputs}
    assert kinds == {(H, W): DType.F32, (1,): DType.F32, (1, 4, H, W): DType.F16}


def test_the_standard_passes_fold_them_before_they_fuse():
    names = [step.name for step in STANDARD]
    assert names.index("fold_sizes") < names.index("fuse_pointwise")
    assert "fold_sizes" in [step.name for step in BFLOAT16]
