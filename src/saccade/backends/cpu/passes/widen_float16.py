"""The CPU computes and keeps in float32 what is float16 in the file: its sums have no other type.

    %x: float16 (input)    ->  %x: float16, %x.float32 = $0 over (%x), which everyone reads
    %w: float16 (constant) ->  %w: float32
    %y: float16 = f(…)     ->  %y: float32 = f(…), not rounded
    cast between the two   ->  its operand
    BitCast(%x)            ->  BitCast($0 over (%x) as float16), and the same behind it
    float16 (output)       ->  %out.float16 = $0 over (%y)

First of all passes, so that those that follow see one type. Must not touch: the element types of
what the caller gives and gets, and so constants and inputs that are outputs; other types, and casts
from and to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from saccade.ir import Array, DType, Graph, Node, Op, Value, storage
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Pointwise, VectorNorm
from saccade.passes import Pass

__all__ = ["PASS"]

_HALF, _WIDE = DType.F16, DType.F32


def widen(graph: Graph) -> Graph:
    """The graph with float16 at its inputs and outputs alone."""
    if all(value.dtype is not _HALF for value in graph.values()):
        return graph
    return _Widening(graph).graph()


class _Widening:
    """A graph in the making, and what each float16 value of the old one became."""

    def __init__(self, graph: Graph) -> None:
        self._old = graph
        self._names = {value.name for value in graph.values()}
        self._wide: dict[Value, Value] = {}
        self._nodes: list[Node] = []
        self._constants: dict[Value, Array] = {}
        self._stored: set[Value] = set()  # float16 that is there as it was

    def graph(self) -> Graph:
        self._inputs()
        for value, array in self._old.constants.items():
            wide = storage.widened(array) if value.dtype is _HALF else array
            wide.setflags(write=False)
            self._constants[self._retyped(value)] = wide
        for node in self._old.nodes:
            self._node(node)
        outputs = tuple(self._outputs())
        known = MappingProxyType(self._constants)
        return self._old.with_nodes(tuple(self._nodes), known, outputs)

    def _inputs(self) -> None:
        for value in self._old.inputs:
            if value.dtype is _HALF:
                self._stored.add(value)
                self._wide[value] = self._cast(value, _WIDE, f"{value.name}.float32")

    def _node(self, node: Node) -> None:
        if _is_cast(node):
            self._wide[node.output] = self._now(node.inputs[0])
            return
        if node.op.bitwise:
            self._bits(node)
            return
        inputs = tuple(map(self._now, node.inputs))
        outputs = tuple(map(self._retyped, node.outputs))
        self._nodes.append(Node(_widened(node.op), inputs, outputs, node.name))

    def _bits(self, node: Node) -> None:
        """A node that sees how float16 is stored: operands are narrowed, results widened."""
        inputs = tuple(map(self._half, node.inputs))
        self._nodes.append(Node(node.op, inputs, node.outputs, node.name))
        for value in node.outputs:
            if value.dtype is _HALF:
                self._stored.add(value)
                self._wide[value] = self._cast(value, _WIDE, f"{value.name}.float32")

    def _half(self, value: Value) -> Value:
        """The value as its bits are read."""
        if value in self._stored:
            return value
        if value.dtype is not _HALF:
            return self._now(value)
        return self._cast(self._now(value), _HALF, f"{value.name}.float16")

    def _outputs(self) -> Iterator[Value]:
        names = self._old.output_names or [value.name for value in self._old.outputs]
        for value, name in zip(self._old.outputs, names, strict=True):
            if value.dtype is not _HALF:
                yield self._now(value)
            elif value in self._stored:
                yield value
            elif value in self._old.constants:
                same = value.name == f"{name}.float16"  # whose float32 twin nobody reads
                narrow = value if same else self._value(f"{name}.float16", _HALF, value)
                self._constants[narrow] = self._old.constants[value]
                yield narrow
            else:
                yield self._cast(self._now(value), _HALF, f"{name}.float16")

    def _now(self, value: Value) -> Value:
        return self._wide.get(value, value)

    def _retyped(self, value: Value) -> Value:
        if value.dtype is _HALF:
            self._wide[value] = Value(value.name, _WIDE, value.shape)
        return self._now(value)

    def _cast(self, value: Value, dtype: DType, name: str) -> Value:
        result = self._value(name, dtype, value)
        node = Node(Pointwise(expr=IDENTITY, dtype=dtype), (value,), (result,), result.name)
        self._nodes.append(node)
        return result

    def _value(self, name: str, dtype: DType, like: Value) -> Value:
        fresh, count = name, 0
        while fresh in self._names:
            count += 1
            fresh = f"{name}.{count}"
        self._names.add(fresh)
        return Value(fresh, dtype, like.shape)


def _is_cast(node: Node) -> bool:
    """Whether a node only casts between float16 and float32."""
    if not isinstance(node.op, Pointwise) or node.op.expr != IDENTITY or len(node.inputs) != 1:
        return False
    return {node.inputs[0].dtype, node.output.dtype} == {_HALF, _WIDE}


def _widened(op: Op) -> Op:
    """The operator, giving float32 where it says that it gives float16."""
    if isinstance(op, Pointwise | VectorNorm) and op.dtype is _HALF:
        return replace(op, dtype=_WIDE)
    return op


PASS = Pass("widen_float16", whole=widen)
