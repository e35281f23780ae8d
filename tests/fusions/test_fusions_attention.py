"""Attention: the operator, the rewrite of graphs and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from saccade.backends.cpu import fusions as cpu
from saccade.backends.cpu.fusions.decide import CpuFusions
from saccade.backends.cuda import fusions as cuda
from saccade.backends.cuda.fusions.decide import CudaFusions
from saccade.backends.fusions import Attention
from saccade.backends.fusions.fuse_attention import fuse_attention, refuse
from saccade.errors import ModelError
from saccade.ir import DType, Factor, Graph, IndexMap, Node, TensorType, Value
from saccade.ir.compose_maps import is_view
from saccade.ir.expr import parse
from saccade.ir.index_map import transpose_map
from saccade.ir.serialize import decode_op, encode_op
from saccade.layout.views import moved, row_major
from saccade.opdefs import MatMul, Move, Pointwise, Softmax
from saccade.testing.targets import ZEN4

SCALED = parse("mul($0, 0.125)")


# The operator


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_the_reference_is_what_the_formula_says():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s) for s in ((2, 5, 4), (2, 7, 4), (2, 7, 3)))
    mask = rng.standard_normal((5, 7))
    expected = softmax(0.5 * q @ k.swapaxes(1, 2) + mask) @ v
    (found,) = Attention(0.5).reference(q, k, v, mask)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    ordered = Attention(0.5, transpose_k=True, order=(1, 0, 2))
    (found,) = ordered.reference(q, np.ascontiguousarray(k.swapaxes(1, 2)), v, mask)
    np.testing.assert_allclose(found, expected.transpose(1, 0, 2), rtol=1e-12)


def types(*shapes, dtype=DType.F32):
    return [TensorType(dtype, shape) for shape in shapes]


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Attention(), [(5, 4), (7, 4)]),
        (Attention(), [(5, 4), (7, 3), (7, 3)]),
        (Attention(), [(5, 4), (7, 4), (6, 3)]),
        (Attention(transpose_k=True), [(5, 4), (7, 4), (7, 3)]),
        (Attention(), [(5, 4), (7, 4), (7, 3), (7, 5)]),
        (Attention(order=(0, 0)), [(5, 4), (7, 4), (7, 3)]),
        (Attention(order=(0, 2, 1)), [(5, 4), (7, 4), (7, 3)]),
    ],
)
def test_refuses_what_is_no_attention(op, shapes):
    with pytest.raises(ModelError):
        op.infer(types(*shapes))


def test_refuses_integers():
    with pytest.raises(ModelError):
        Attention().infer(types((5, 4), (7, 4), (7, 3), dtype=DType.I32))


def test_work_leaves_the_scores_out():
    shapes = [(2, 5, 4), (2, 7, 4), (2, 7, 3), (5, 7)]
    kinds = types(*shapes)
    work = Attention().work(kinds, Attention().infer(kinds))
    assert work.flops == 2 * 5 * 7 * (2 * 4 + 2 + 5 + 2 * 3)
    assert work.bytes == 4 * (sum(int(np.prod(s)) for s in shapes) + 2 * 5 * 3)
    narrow = [TensorType(DType.BF16, t.shape) for t in kinds]
    assert Attention().work(narrow, Attention().infer(kinds)).flops == work.flops


@pytest.mark.parametrize("operators", [cpu.OPERATORS, cuda.OPERATORS])
def test_it_is_read_back_by_name(operators):
    op = Attention(0.125, True, (2, 0, 1, 3))
    assert decode_op(encode_op(op), operators) == op


# The rewrite


class Heads:
    """The graph of one attention of [2, 3, 9, 8], and how it is built."""

    def __init__(self):
        self.nodes, self.inputs, self.constants = [], [], {}

    def value(self, *shape, dtype=DType.F32):
        found = Value(f"x{len(self.inputs)}", dtype, shape)
        self.inputs.append(found)
        return found

    def add(self, op, *operands):
        (kind,) = op.infer([v.type for v in operands])
        result = Value(f"v{len(self.nodes)}", kind.dtype, kind.shape)
        self.nodes.append(Node(op, operands, (result,), f"n{len(self.nodes)}"))
        return result

    def graph(self, *outputs):
        known = MappingProxyType(self.constants)
        return Graph(tuple(self.inputs), outputs, tuple(self.nodes), known)


MERGE = IndexMap(
    ((2,), (3,), (9,), (8,)),
    (Factor(9, 2), Factor(2, 0), Factor(3, 1), Factor(8, 3)),
    (2, 2),
)


def attention(
    b, epilogue=SCALED, masks=(), scores=None, axis=3, log=False, values=None, transposed=True
):
    """The value after the second product."""
    q = b.value(2, 3, 9, 8)
    k = b.value(2, 3, 10, 8) if transposed else b.value(2, 3, 8, 10)
    scores = scores or MatMul(transpose_b=transposed, epilogue=epilogue)
    weights = b.add(Softmax(axis, log), b.add(scores, q, k, *masks))
    return b.add(values or MatMul(), weights, b.value(2, 3, 10, 8))


def fused(graph, taken=lambda _node, _shapes: True):
    shapes = {value: value.shape for value in graph.values()}
    return fuse_attention(graph, shapes, taken)


def evaluated(graph, arrays):
    known = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Pointwise):
            op = replace(op, dtype=DType.F64)
        results = op.reference(*(known[v] for v in node.inputs))
        known |= zip(node.outputs, results, strict=True)
    return [known[v] for v in graph.outputs]


def same(before, after):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(v.shape) for v in before.inputs]
    for one, other in zip(evaluated(before, arrays), evaluated(after, arrays), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12)


def families(graph):
    return [node.op.family for node in graph.nodes]


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(
    ("epilogue", "scale"),
    [("$0", 1.0), ("mul($0, 0.125)", 0.125), ("mul(3.0, $0)", 3.0), ("div($0, 8.0)", 0.125)],
)
def test_products_around_a_softmax_become_one_step(epilogue, scale, transposed):
    b = Heads()
    graph = b.graph(attention(b, parse(epilogue), transposed=transposed))
    after = fused(graph)
    assert families(after) == ["Attention"]
    node = after.nodes[0]
    assert node.op == Attention(scale, transpose_k=not transposed)
    assert node.inputs == graph.inputs and node.outputs == graph.outputs
    same(graph, after)


@pytest.mark.parametrize("epilogue", ["add(mul($0, 0.5), $1)", "add($1, $0)"])
@pytest.mark.parametrize("shape", [(9, 10), (2, 1, 1, 10), (3, 9, 1), ()])
def test_a_mask_is_added(epilogue, shape):
    b = Heads()
    mask = b.value(*shape)
    graph = b.graph(attention(b, parse(epilogue), (mask,)))
    after = fused(graph)
    assert families(after) == ["Attention"] and after.nodes[0].inputs[3] is mask
    same(graph, after)


def behind(b, text, *operands, epilogue="$0", first=True):
    """Attention whose scores go through a Pointwise first."""
    q, k = b.value(2, 3, 9, 8), b.value(2, 3, 8, 10)
    scores = b.add(MatMul(epilogue=parse(epilogue)), q, k)
    inputs = (scores, *operands) if first else (*operands, scores)
    masked = b.add(Pointwise(parse(text), DType.F32), *inputs)
    batch = masked.shape[:-2]
    return b.add(MatMul(), b.add(Softmax(masked.rank - 1), masked), b.value(*batch, 10, 8))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("epilogue", ["$0", "mul($0, 0.5)"])
def test_scale_and_mask_may_stand_behind_the_product(epilogue, first):
    b = Heads()
    mask = b.value(9, 10)
    text = "add(mul($0, 0.25), $1)" if first else "add($0, mul($1, 0.25))"
    graph = b.graph(behind(b, text, mask, epilogue=epilogue, first=first))
    after = fused(graph)
    assert families(after) == ["Attention"] and after.nodes[0].inputs[3] is mask
    assert after.nodes[0].op.scale == (0.25 if epilogue == "$0" else 0.125)
    same(graph, after)


def test_heads_are_merged_where_they_are_stored():
    b = Heads()
    y = attention(b)
    graph = b.graph(b.add(Move(MERGE), y))
    after = fused(graph)
    assert families(after) == ["Attention", "Move"]
    step, move = after.nodes
    assert step.op.order == (2, 0, 1, 3)
    assert [f.source for f in move.op.map.factors] == [0, 1, 2, 3]
    assert after.outputs == graph.outputs
    same(graph, after)


WINDOWS = ((2, 3), (4,), (9,), (10,))


def _apart(sizes):
    flat = [size for group in sizes for size in group]
    factors = tuple(Factor(size, i) for i, size in enumerate(flat))
    return IndexMap(tuple(sizes), factors, (1,) * len(flat))


def _together(sizes):
    flat = [size for group in sizes for size in group]
    factors = tuple(Factor(size, i) for i, size in enumerate(flat))
    return IndexMap(tuple((size,) for size in flat), factors, tuple(map(len, sizes)))


def windowed(
    b, *, mask=(1, 3, 4, 9, 10), split=WINDOWS, merge=WINDOWS, text="add($0, $1)",
    keys=(6, 4, 8, 10), values=(6, 4, 10, 8),
):  # fmt: skip
    """Attention of six windows of two images, whose mask differs by window."""
    q, k = b.value(6, 4, 9, 8), b.value(*keys)
    apart = b.add(Move(_apart(split)), b.add(MatMul(epilogue=parse("mul($0, 0.5)")), q, k))
    masked = b.add(Pointwise(parse(text), DType.F32), apart, b.value(*mask))
    weights = b.add(Softmax(3), b.add(Move(_together(merge)), masked))
    return b.add(MatMul(), weights, b.value(*values))


@pytest.mark.parametrize("text", ["add($0, $1)", "add($1, mul($0, 0.25))"])
def test_a_mask_of_windows_is_added_where_batches_are_split(text):
    b = Heads()
    graph = b.graph(windowed(b, text=text))
    seen = []
    after = fused(graph, lambda node, shapes: seen.append([shapes[v] for v in node.inputs]) or True)
    assert families(after) == ["Move", "Move", "Move", "Attention", "Move"]
    step = after.nodes[3]
    assert step.inputs[3] is graph.inputs[2] and step.output.shape == (2, 3, 4, 9, 8)
    assert seen == [[v.shape for v in step.inputs]]
    same(graph, after)


def test_heads_of_windows_are_merged_where_they_are_stored():
    b = Heads()
    rows = IndexMap(
        ((6,), (4,), (9,), (8,)),
        (Factor(6, 0), Factor(9, 2), Factor(4, 1), Factor(8, 3)), (1, 1, 2),
    )  # fmt: skip
    graph = b.graph(b.add(Move(rows), windowed(b)))
    after = fused(graph)
    assert families(after) == ["Move", "Move", "Move", "Attention", "Move"]
    assert after.nodes[3].op.order == (0, 1, 3, 2, 4)
    assert after.nodes[3].output.shape == (2, 3, 9, 4, 8) and is_view(after.nodes[4].op.map)
    same(graph, after)


def test_a_result_of_windows_that_is_moved_otherwise_is_merged_first():
    b = Heads()
    some = IndexMap(
        ((6,), (4,), (9,), (8,)),
        (Factor(6, 0), Factor(4, 1), Factor(5, 2, 1), Factor(8, 3)), (1, 1, 1, 1),
    )  # fmt: skip
    graph = b.graph(b.add(Move(some), windowed(b)))
    after = fused(graph)
    assert families(after) == ["Move", "Move", "Move", "Attention", "Move", "Move"]
    same(graph, after)


def test_one_value_may_be_all_three_operands():
    b = Heads()
    x = b.value(6, 4, 9, 9)
    apart = b.add(Move(_apart(((2, 3), (4,), (9,), (9,)))), b.add(MatMul(), x, x))
    masked = b.add(Pointwise(parse("add($0, $1)"), DType.F32), apart, b.value(3, 1, 9, 9))
    weights = b.add(Softmax(3), b.add(Move(_together(((2, 3), (4,), (9,), (9,)))), masked))
    graph = b.graph(b.add(MatMul(), weights, x))
    after = fused(graph)
    names = [value.name for node in after.nodes for value in node.outputs]
    assert families(after)[3] == "Attention" and len(set(names)) == len(names)
    same(graph, after)


def _flipped():
    return replace(MERGE, factors=(Factor(9, 2, 8, -1), *MERGE.factors[1:]))


def _as_it_is():
    plain = (Factor(2, 0), Factor(3, 1), Factor(9, 2), Factor(8, 3))
    return replace(MERGE, factors=plain)


def _divided():
    halves = ((2,), (3,), (9,), (2, 4))
    order = (Factor(2, 3), Factor(2, 0), Factor(3, 1), Factor(9, 2), Factor(4, 4))
    return IndexMap(halves, order, (1, 1, 1, 2))


@pytest.mark.parametrize("make", [_flipped, _as_it_is, _divided])
def test_other_moves_stay(make):
    b = Heads()
    y = attention(b)
    graph = b.graph(b.add(Move(make()), y))
    after = fused(graph)
    assert families(after) == ["Attention", "Move"]
    assert after.nodes[0].op.order == () and after.nodes[1] is graph.nodes[-1]
    same(graph, after)


def test_a_result_that_is_read_twice_keeps_its_order():
    b = Heads()
    y = attention(b)
    graph = b.graph(b.add(Move(MERGE), y), y)
    after = fused(graph)
    assert families(after) == ["Attention", "Move"] and after.nodes[0].op.order == ()
    same(graph, after)


def test_kernels_decide():
    b = Heads()
    graph = b.graph(attention(b))
    assert fused(graph, lambda _node, _shapes: False) is graph
    shapes = {value: value.shape for value in graph.values()}
    taken = lambda _node, _shapes: True  # noqa: E731
    for fusions in (CudaFusions(), CpuFusions(ZEN4)):
        assert families(fusions.fuse(graph, shapes, taken)) == ["Attention"]
        assert not fusions.pairs(graph, shapes, tuned=True).joint


def test_shapes_of_new_values_are_told():
    b = Heads()
    seen = []
    graph = b.graph(b.add(Move(MERGE), attention(b)))
    fused(graph, lambda node, shapes: seen.append(shapes[node.output]))
    assert seen == [(9, 2, 3, 8)]


def swapped(b, x):
    order = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
    return b.add(Move(transpose_map(x.shape, order)), x)


def weights(b):
    q, k = b.value(2, 3, 9, 8), b.value(2, 3, 8, 10)
    return b.add(Softmax(3), b.add(MatMul(), q, k))


def test_values_may_be_transposed():
    b = Heads()
    graph = b.graph(b.add(MatMul(transpose_b=True), weights(b), b.value(2, 3, 5, 10)))
    after = fused(graph)
    assert families(after) == ["Move", "Attention"]
    same(graph, after)


@pytest.mark.parametrize("by_move", [True, False])
def test_weights_may_stand_on_the_right(by_move):
    """What YOLO writes: columns of values by rows of weights."""
    b = Heads()
    p, v = weights(b), b.value(2, 3, 5, 10)
    y = b.add(MatMul(), v, swapped(b, p)) if by_move else b.add(MatMul(transpose_b=True), v, p)
    graph = b.graph(y)
    after = fused(graph)
    assert families(after) == ["Move", "Attention"]
    assert after.nodes[1].op.order == (0, 1, 3, 2)
    same(graph, after)


IMAGE = IndexMap(
    ((2,), (3,), (5,), (3, 3)), tuple(Factor(n, i) for i, n in enumerate((2, 3, 5, 3, 3))),
    (1, 2, 1, 1),
)  # fmt: skip


ONE_HEAD = IndexMap(
    ((2,), (5,), (3, 3)), tuple(Factor(n, i) for i, n in enumerate((2, 5, 3, 3))), (1, 1, 1, 1)
)


def test_heads_of_an_image_are_its_channels():
    b = Heads()
    y = b.add(MatMul(transpose_b=True), b.value(2, 3, 5, 10), weights(b))
    graph = b.graph(b.add(Move(IMAGE), y))
    after = fused(graph)
    assert families(after) == ["Move", "Attention", "Move"]
    attention, last = after.nodes[1:]
    assert attention.output.shape == (2, 9, 3, 5)  # pixels, heads, channels of a head
    found = moved(row_major(DType.F16, attention.output.shape), last.op.map)
    assert found is not None and found[1].channels_last  # a view, channels-last
    same(graph, after)


def test_an_image_of_one_head_is_stored_as_images_are():
    b = Heads()
    q, k, v = b.value(2, 9, 8), b.value(2, 8, 10), b.value(2, 5, 10)
    y = b.add(MatMul(transpose_b=True), v, b.add(Softmax(2), b.add(MatMul(), q, k)))
    graph = b.graph(b.add(Move(ONE_HEAD), y))
    after = fused(graph)
    assert families(after) == ["Move", "Attention", "Move"]
    attention, last = after.nodes[1:]
    found = moved(row_major(DType.F16, attention.output.shape), last.op.map)
    assert found is not None
    assert found[1].strides == (45, 1, 15, 5)  # images, channels, rows, columns
    same(graph, after)


def test_rows_without_weights_are_zeros():
    b = Heads()
    p = b.add(Pointwise(parse("where(isnan($0), 0.0, $0)"), DType.F32), weights(b))
    graph = b.graph(b.add(MatMul(), p, b.value(2, 3, 10, 8)))
    after = fused(graph)
    assert families(after) == ["Attention"]
    assert after.nodes[0].op.hidden
    same(graph, after)


def test_an_epilogue_without_operands_stays_the_result_s():
    b = Heads()
    values = MatMul(epilogue=parse("hardswish($0)"))
    graph = b.graph(b.add(values, weights(b), b.value(2, 3, 10, 8)))
    after = fused(graph)
    assert families(after) == ["Attention"]
    same(graph, after)


def test_what_each_matrix_is_multiplied_by_multiplies_q():
    b = Heads()
    factor, mask = b.value(3, 1, 1), b.value(9, 10)
    graph = b.graph(attention(b, parse("add(mul($0, $1), $2)"), (factor, mask)))
    after = fused(graph)
    assert families(after) == ["Pointwise", "Attention"]
    assert after.nodes[1].inputs[3] is mask
    same(graph, after)


@pytest.mark.parametrize("moved", [True, False])
def test_a_constant_that_q_was_multiplied_by_is_scale(moved):
    b = Heads()
    q, k = b.value(2, 3, 8, 9) if moved else b.value(2, 3, 9, 8), b.value(2, 3, 8, 10)
    q = b.add(Pointwise(parse("mul($0, 0.5)"), DType.F32), q)
    q = swapped(b, q) if moved else q
    p = b.add(Softmax(3), b.add(MatMul(epilogue=SCALED), q, k))
    graph = b.graph(b.add(MatMul(), p, b.value(2, 3, 10, 8)))
    after = fused(graph)
    assert families(after) == ["Move"] * moved + ["Attention"]
    assert after.nodes[-1].op.scale == 0.0625
    same(graph, after)


def test_a_scaled_q_that_others_read_stays():
    b = Heads()
    q = b.add(Pointwise(parse("mul($0, 0.5)"), DType.F32), b.value(2, 3, 9, 8))
    p = b.add(Softmax(3), b.add(MatMul(), q, b.value(2, 3, 8, 10)))
    graph = b.graph(b.add(MatMul(), p, b.value(2, 3, 10, 8)), q)
    after = fused(graph)
    assert families(after) == ["Pointwise", "Attention"]
    same(graph, after)


def _scores_read(b):
    y = attention(b)
    return y, b.add(Pointwise(parse("exp($0)"), DType.F32), b.nodes[0].output)


def _split_elsewhere(b):
    """Heads are split, not images."""
    return (windowed(b, split=((6,), (2, 2), (9,), (10,)), merge=((6,), (2, 2), (9,), (10,)),
                     mask=(2, 2, 9, 10)),)  # fmt: skip


def _keys_repeated(b):
    return (windowed(b, keys=(4, 8, 10)),)


def _values_repeated(b):
    return (windowed(b, values=(1, 4, 10, 8)),)


def _split_alone(b):
    q, k = b.value(6, 4, 9, 8), b.value(6, 4, 8, 10)
    apart = b.add(Move(_apart(WINDOWS)), b.add(MatMul(), q, k))
    masked = b.add(Pointwise(parse("add($0, $1)"), DType.F32), apart, b.value(3, 4, 9, 10))
    weights = b.add(Softmax(4), masked)
    return (b.add(MatMul(), weights, b.value(2, 3, 4, 10, 8)),)


def _split_and_nothing_added(b):
    q, k = b.value(6, 4, 9, 8), b.value(6, 4, 8, 10)
    apart = b.add(Move(_apart(WINDOWS)), b.add(MatMul(), q, k))
    weights = b.add(Softmax(3), b.add(Move(_together(WINDOWS)), apart))
    return (b.add(MatMul(), weights, b.value(6, 4, 10, 8)),)


def _scores_given(b):
    return attention(b), b.nodes[0].output


def _weights_given(b):
    return attention(b), b.nodes[1].output


def _weights_on_the_right(b):
    q, k = b.value(2, 3, 9, 8), b.value(2, 3, 9, 8)
    weights = b.add(Softmax(3), b.add(MatMul(transpose_b=True), q, k))
    return (b.add(MatMul(), b.value(2, 3, 4, 9), weights),)


def _weights_turned(b):
    q, k = b.value(2, 3, 9, 8), b.value(2, 3, 9, 8)
    weights = b.add(Softmax(3), b.add(MatMul(transpose_b=True), q, k))
    return (b.add(MatMul(transpose_a=True), weights, b.value(2, 3, 9, 8)),)


def _multiplied(*shapes):
    def make(b):
        text = f"mul({'mul(' * (len(shapes) - 1)}$0, $1){', $2)' * (len(shapes) - 1)}"
        return (attention(b, parse(text), [b.value(*shape) for shape in shapes]),)

    return make


def _multiplied_for_repeated_queries(b):
    """Of one matrix of q, which the factors would be too many for."""
    q, k, factor = b.value(1, 1, 9, 8), b.value(2, 3, 8, 10), b.value(3, 1, 1)
    scores = b.add(MatMul(epilogue=parse("mul($0, $1)")), q, k, factor)
    return (b.add(MatMul(), b.add(Softmax(3), scores), b.value(2, 3, 10, 8)),)


def _multiplied_where_split(b):
    return (windowed(b, text="mul($0, $1)", mask=(4, 1, 1)),)


def _no_product(b):
    weights = b.add(Softmax(3), b.value(2, 3, 9, 10))
    return (b.add(MatMul(), weights, b.value(2, 3, 10, 8)),)


def _truth(b):
    mask = b.value(9, 10, dtype=DType.BOOL)
    return (attention(b, parse("add($0, $1)"), (mask,)),)


def _transposed_q(b):
    q, k = b.value(2, 3, 8, 9), b.value(2, 3, 8, 10)
    weights = b.add(Softmax(3), b.add(MatMul(transpose_a=True), q, k))
    return (b.add(MatMul(), weights, b.value(2, 3, 10, 8)),)


def _one(**options):
    return lambda b: (attention(b, **options),)


def _added_after(b):
    weights = b.add(Softmax(3), b.add(MatMul(), b.value(2, 3, 9, 8), b.value(2, 3, 8, 10)))
    add = MatMul(epilogue=parse("add($0, $1)"))
    return (b.add(add, weights, b.value(2, 3, 10, 8), b.value(8)),)


def _repeated(b):
    return (behind(b, "add($0, $1)", b.value(5, 2, 3, 9, 10)),)


def _masked_twice(b):
    q, k, mask = b.value(2, 3, 9, 8), b.value(2, 3, 8, 10), b.value(9, 10)
    scores = b.add(MatMul(epilogue=parse("add($0, $1)")), q, k, mask)
    masked = b.add(Pointwise(parse("add($0, $1)"), DType.F32), scores, mask)
    return (b.add(MatMul(), b.add(Softmax(3), masked), b.value(2, 3, 10, 8)),)


def _curved(b):
    return (behind(b, "tanh($0)"),)


def _twice(b):
    q, k = b.value(2, 3, 9, 8), b.value(2, 3, 8, 10)
    scores = b.add(MatMul(), q, k)
    masked = b.add(Pointwise(parse("add($0, $1)"), DType.F32), scores, scores)
    return (b.add(MatMul(), b.add(Softmax(3), masked), b.value(2, 3, 10, 8)),)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_scores_read, "scores are read elsewhere"),
        (_scores_given, "scores are read elsewhere"),
        (_weights_given, "weights are read elsewhere"),
        (_weights_on_the_right, "weights are transposed"),
        (_multiplied_for_repeated_queries, "the scores' epilogue mul($0, $1)"),
        (_multiplied_where_split, "the scores' epilogue mul($0, $1)"),
        (_weights_turned, "weights are transposed"),
        (_multiplied((3, 9, 1)), "the scores' epilogue mul($0, $1)"),
        (_multiplied((3, 1, 10)), "the scores' epilogue mul($0, $1)"),
        (_multiplied((3, 1, 1), (3, 1, 1)), "the scores' epilogue mul(mul($0, $1), $2)"),
        (_no_product, "scores are not a product"),
        (_truth, "the mask holds truth values"),
        (_transposed_q, "q is transposed"),
        (_repeated, "scores are repeated"),
        (_split_elsewhere, "scores are reshaped"),
        (_split_alone, "scores are not a product"),
        (_split_and_nothing_added, "scores are reshaped"),
        (_keys_repeated, "batches that are repeated"),
        (_values_repeated, "batches that are repeated"),
        (_masked_twice, "the scores' epilogue add($0, $1)"),
        (_curved, "the scores' epilogue tanh($0)"),
        (_twice, "scores are read elsewhere"),
        (_added_after, "the result's epilogue add($0, $1)"),
        (_one(log=True), "the logarithm is wanted"),
        (_one(axis=2), "softmax along axis 2"),
        (_one(epilogue=parse("tanh($0)")), "the scores' epilogue tanh($0)"),
        (_one(epilogue=parse("div(2.0, $0)")), "the scores' epilogue div(2.0, $0)"),
        (_one(epilogue=parse("div($0, 0.0)")), "the scores' epilogue div($0, 0.0)"),
        (_one(epilogue=parse("add($0, 1.0)")), "the scores' epilogue add($0, 1.0)"),
    ],
)
def test_left_alone(make, reason):
    b = Heads()
    graph = b.graph(*make(b))
    (node,) = (node for node in graph.nodes if isinstance(node.op, Softmax))
    assert refuse(graph, node) == reason
    assert fused(graph) is graph
