"""Small graphs built by hand, run by the NumPy references in float64, and compared."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from saccade.ir import DType, Factor, Graph, IndexMap, Node, Value
from saccade.ir import expr as e
from saccade.ir.printer import format_graph
from saccade.ir.reshape_maps import reshape
from saccade.ir.verify import verify
from saccade.opdefs import Conv2d, MatMul, Move, Pointwise
from saccade.passes import apply


class Build:
    """Collects values and nodes; float64 unless told otherwise."""

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.inputs, self.nodes, self.constants = [], [], {}

    def input(self, *shape, dtype=DType.F64):
        self.inputs.append(Value(f"x{len(self.inputs)}", dtype, shape))
        return self.inputs[-1]

    def const(self, array, dtype=np.float64):
        array = np.array(array, dtype)
        array.flags.writeable = False
        value = Value(f"c{len(self.constants)}", DType.of(array.dtype), array.shape)
        self.constants[value] = array
        return value

    def weights(self, *shape):
        return self.const(self.random.standard_normal(shape))

    def op(self, op, *inputs):
        (kind,) = op.infer([value.type for value in inputs])
        number = len(self.nodes)
        value = Value(f"v{number}", kind.dtype, kind.shape)
        self.nodes.append(Node(op, inputs, (value,), f"n{number}"))
        return value

    def map(self, text, *inputs, dtype=None):
        return self.op(Pointwise(e.parse(text), dtype or inputs[0].dtype), *inputs)

    def conv(self, x, k, r=1, *, bias=False, **attributes):
        w = self.weights(k, x.shape[1] // attributes.get("groups", 1), r, r)
        if not bias:
            return self.op(Conv2d(**attributes), x, w)
        epilogue = e.parse("add($0, $1)")
        return self.op(Conv2d(**attributes, epilogue=epilogue), x, w, self.weights(1, k, 1, 1))

    def matmul(self, x, n):
        return self.op(MatMul(), x, self.weights(x.shape[-1], n))

    def reshape(self, x, *shape):
        return self.op(Move(reshape(x.shape, shape)), x)

    def transpose(self, x, *order):
        sizes = tuple((size,) for size in x.shape)
        factors = tuple(Factor(x.shape[p], p) for p in order)
        return self.op(Move(IndexMap(sizes, factors, (1,) * x.rank)), x)

    def slice(self, x, axis, start, size):
        factors = [Factor(s, i) for i, s in enumerate(x.shape)]
        factors[axis] = Factor(size, axis, start)
        sizes = tuple((s,) for s in x.shape)
        return self.op(Move(IndexMap(sizes, tuple(factors), (1,) * x.rank)), x)

    def graph(self, *outputs):
        graph = Graph(
            tuple(self.inputs),
            outputs,
            tuple(self.nodes),
            MappingProxyType(self.constants),
            tuple(f"y{i}" for i in range(len(outputs))),
        )
        verify(graph)
        return graph


def run(graph, feeds):
    """The graph's outputs, node by node through the references."""
    known = dict(graph.constants)
    known.update(zip(graph.inputs, feeds, strict=True))
    for node in graph.nodes:
        results = node.op.reference(*(known[value] for value in node.inputs))
        known.update(zip(node.outputs, results, strict=True))
    return [known[value] for value in graph.outputs]


def feeds_of(graph, seed=1):
    random = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        array = random.standard_normal(value.shape) * 3
        arrays.append(array.astype(value.dtype.numpy))
    return arrays


def assert_same(before, after):
    """Both compute the same: to float64's accuracy if all is float64, else bit by bit."""
    feeds = feeds_of(before)
    for left, right in zip(run(before, feeds), run(after, feeds), strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        if left.dtype == np.float64:
            scale = np.abs(left).max(initial=1.0)
            np.testing.assert_allclose(right, left, rtol=0, atol=1e-12 * scale)
        else:
            np.testing.assert_array_equal(right, left)


def ops(graph):
    """Families in order, such as `Conv2d Move`."""
    return " ".join(node.op.family for node in graph.nodes)


def fused(graph, *passes):
    """The graph after the passes, which must not change what it computes."""
    after = graph
    for step in passes:
        after, _ = apply(step, after)
        verify(after)
    assert_same(graph, after)
    return after


def assert_refused(graph, step, reason, count=1):
    """The pass leaves the graph alone, for this reason."""
    after, notes = apply(step, graph)
    assert format_graph(after) == format_graph(graph), "the graph was changed"
    assert [n for n in notes if reason in n.reason], notes
    assert all(n.pass_name == step.name and n.node for n in notes)
    assert len(notes) == count
