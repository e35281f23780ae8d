"""Collects the nodes and constants of the graph that is being imported, and folds what is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import ModelError
from saccade.frontend.onnx.extents import ONE, UP_TO, last_of, more, repeated, times
from saccade.frontend.onnx.held_types import spelled
from saccade.frontend.onnx.result_types import is_cast, refuse_narrow, result_types
from saccade.frontend.onnx.rows import counts_of, refuse_mixing
from saccade.frontend.onnx.symbolic import Element, Quotient, Symbolic, check_size, most_of
from saccade.ir import Array, BodyOp, Count, Dim, DType, Graph, Node, Op, TensorType, Value, storage
from saccade.ir.dim import Affine, symbol, symbols_of
from saccade.ir.dim_expr import size_expr
from saccade.ir.expr import IDENTITY
from saccade.ir.reshape_maps import reshape
from saccade.limits import Limits
from saccade.opdefs import Concat, Move, Pointwise
from saccade.opdefs.bounds import too_long, too_many
from saccade.shapes import as_symbol

if TYPE_CHECKING:
    import onnx

    from saccade.ir.computed import ComputedSize

__all__ = ["Builder"]

FOLD_ELEMENTS = 1 << 20
"""Largest result, in elements, that is computed while importing; the passes fold larger ones."""
FOLD_FLOPS = 1 << 26
CONTENT_ELEMENTS = 4096
_FEW = 1 << 16
"""Rows that there is room for whatever the sizes of the inputs, if they never are more."""
_MOST_FOUND = 64
"""Sizes that one tensor of them may have."""


class Builder:
    """The graph under construction.

    Args:
        limits: What values and folded constants may come to; the default ones if None.

    Attributes:
        limits: The bounds.
        nodes: In topological order.
        constants: Known values, arrays read-only.
        symbols: Names of all symbols, so that new ones get others.
        counts: Symbols whose sizes steps find out, and where these leave them.
        packed: By the sizes of lists, where their elements are (`open_axes`).
        places: By a value, where it is not zero: lists picked by one mask are of one size.
        chosen: By a condition and two sizes, the one that it chooses (`branches`).
        spread: What was repeated along axes, and what it was before.
        whole: Integers of 8 and 16 bits, and the float32 that they were before they were stored.
        untold: Why it could not be told, first of all, what becomes of sizes; empty if it could.
        held: What stands for objects that no memory holds, and their types.
        remarks: Of the graph.
        makers: Of each value the node that gives it.
        inputs: Of the model.
        measured: By a value and a place in it, the size that stands there.
        sizes: What holds those that were computed, int64 [1].
        computed: Symbols whose sizes follow from those of the inputs.
        own: By symbol, the size that the file fixes and others may come for (`specialise`).
        inside: By the size of an axis, how far it reaches whatever the sizes: plans refuse less.
        carried: Of integers that a loop carries, between which ones they stay.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._folded = 0
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.symbols: set[str] = set()
        self.spread: dict[Value, Value] = {}
        self.whole: dict[Value, Value] = {}
        self.held: dict[Value, onnx.TypeProto] = {}
        self.remarks, self.untold = list[str](), ""
        self.counts: dict[str, tuple[Count, Value]] = {}
        self.packed: dict[tuple[Dim, ...], Value] = {}
        self.places: dict[Value, Value] = {}
        self.chosen: dict[tuple[Value, Dim, Dim], Dim] = {}
        self.makers, self.inputs = dict[Value, Node](), set[Value]()
        self.measured: dict[tuple[Value, int], Dim] = {}
        self.sizes: dict[Dim, Value] = {}
        self.computed: list[ComputedSize] = []
        self.own, self.inside = dict[str, int](), dict[Dim, int]()
        self.carried: dict[Value, tuple[float, float]] = {}
        self._names: set[str] = set()
        self._views: dict[tuple[Value, tuple[int, ...]], Value] = {}
        self._casts: dict[Value, Value] = {}
        self._widened: dict[Value, Array] = {}

    def unique(self, name: str) -> str:
        """`name`, with a number if it is taken."""
        fresh, count = name, 0
        while fresh in self._names:
            count += 1
            fresh = f"{name}.{count}"
        self._names.add(fresh)
        return fresh

    def symbol(self, label: str) -> Dim:
        """A new symbol, named after what the file calls it."""
        first = name = as_symbol(label)
        number = 1
        while name in self.symbols:
            number += 1
            name = f"{first}_{number}"
        # Names end up in expressions as text, where nothing else may be called alike.
        self.symbols.add(name)
        return symbol(name)

    def counted(self, size: Dim, bound: Dim, value: Value) -> None:
        """From now on, the size of a symbol is what a step finds out.

        Args:
            size: The symbol.
            bound: What it never exceeds.
            value: Where the step leaves it, int64 [1].
        """
        (name,) = symbols_of(size)
        # A small number where there is one, as some of what mixes such an axis wants one.
        most = most_of(bound)
        whole = bound if most is None or most > _FEW else most
        self.counts[name] = Count(name, whole), value

    def value(self, name: str, dtype: DType, shape: Sequence[Dim]) -> Value:
        """A new value under a free name.

        Raises:
            ModelError: If an extent is negative, or there are more elements than a value may have.
        """
        for extent in shape:
            check_size(extent)
            if isinstance(extent, int) and extent < 0:
                raise ModelError(f"value {name!r} would have the shape {list(shape)}")
        problem = too_many(shape, self.limits)
        if problem is not None:
            raise ModelError(f"value {name!r}: {problem}")
        return Value(self.unique(name or "value"), dtype, tuple(shape))

    def constant(self, array: Array, name: str = "constant") -> Value:
        """A known value; the array is made read-only, not copied."""
        # Importers hand over NumPy scalars, too.
        array = np.asarray(array)
        value = self.value(name, DType.of(array.dtype), array.shape)
        array.setflags(write=False)
        self.constants[value] = array
        return value

    def known(self, array: Array, dtype: DType, name: str) -> Value:
        """A number that was computed, as `dtype`; what float16 would round stays float32."""
        half = dtype is DType.F16 and array.dtype == np.float32
        return self.constant(storage.narrowed(array, dtype) if half else array, name)

    def is_known(self, value: Value) -> bool:
        """Whether the value is a constant, or one that is cast."""
        return value in self.constants or value in self._casts

    def array(self, value: Value) -> Array | None:
        """What is known of a value, in the type that operators compute in.

        Casts of constants between float16 and float32 stay in the graph, and round nothing here.
        """
        source = self._casts.get(value, value)
        if source in self.constants and source not in self._widened:
            self._widened[source] = storage.widened(self.constants[source])
        return self._widened.get(source)

    def stored(self, value: Value) -> Array | None:
        """What is known of a value, as it is stored: in its own type, or in a wider one."""
        found = self.constants.get(self._casts.get(value, value))
        return found if found is None else found.astype(value.dtype.numpy, copy=False)

    def viewed(self, value: Value, shape: tuple[int, ...]) -> Value:
        """A constant under another shape, the same value each time it is asked for."""
        if value.shape == shape:
            return value
        if (value, shape) not in self._views:
            # As it is stored, if it is a constant: `array` would widen it.
            array = self.constants[value] if value in self.constants else self.array(value)
            assert array is not None, "asked for constants only"
            name = self._casts.get(value, value).name
            self._views[value, shape] = self.constant(array.reshape(shape), name)
        return self._views[value, shape]

    def content(self, operand: Value | Symbolic) -> Symbolic | None:
        """The elements of an operand as far as they are known: symbolic, or a small constant."""
        if isinstance(operand, Symbolic):
            return operand
        # Before the array is looked at: an array of Python objects is many times as large.
        if math.prod(d if isinstance(d, int) else 1 for d in operand.shape) > CONTENT_ELEMENTS:
            return None
        array = self.array(operand)
        if array is None:
            return None
        elements = np.empty(array.shape, dtype=object)
        elements[...] = array.astype(object)
        return Symbolic(operand.dtype, elements)

    def finds(self, content: Symbolic) -> bool:
        """Whether a tensor of sizes holds none that the inputs have."""
        named = [symbols_of(e) for e in content.elements() if isinstance(e, Affine)]
        return all(symbols <= self.counts.keys() for symbols in named)

    def found(self, content: Symbolic, name: str) -> Value | None:
        """Sizes, and what is computed from them, as a tensor; None if they are too many."""
        elements = content.elements()
        if not 0 < len(elements) <= _MOST_FOUND:
            return None
        parts = [self._number(e, content.dtype, name) for e in elements]
        (row,) = self.emit(Concat(axis=0), parts, name) if len(parts) > 1 else parts
        index_map = reshape(row.shape, content.shape)
        assert index_map is not None, "as many elements in any shape"
        return self.emit(Move(index_map), [row], name)[0]

    def _number(self, element: Element, dtype: DType, name: str) -> Value:
        """One element of a tensor of sizes, [1]."""
        if isinstance(element, float):
            return self.known(np.asarray([element], dtype.arithmetic.numpy), dtype, "number")
        whole = element.numerator if isinstance(element, Quotient) else element
        (cast,) = self.emit(Pointwise(IDENTITY, dtype), [self.sized(whole, name)], name)
        if isinstance(element, Quotient):
            (cast,) = self.emit(Pointwise(times(element.factor), dtype), [cast], name)
        return cast

    def sized(self, size: Dim, name: str) -> Value:
        """A size, int64 [1]: a number, what a step finds out, or what the inputs' sizes make it."""
        if isinstance(size, int):
            return self.constant(np.asarray([size], np.int64), "size")
        if size not in self.sizes:
            symbols = sorted(symbols_of(size))
            operands = [
                self.counts[one][1] if one in self.counts else self._counted_up(symbol(one), name)
                for one in symbols
            ]
            (self.sizes[size],) = self.emit(
                Pointwise(size_expr(size, symbols), DType.I64), operands, name
            )
        return self.sizes[size]

    def _counted_up(self, extent: Dim, name: str) -> Value:
        """How long an axis of the inputs is."""
        (ones,) = self.emit(repeated(more(extent)), [self.constant(ONE, "one")], name)
        return self.emit(last_of(extent), self.emit(UP_TO, [ones], name), name)[0]

    def emit(
        self, op: Op, inputs: Sequence[Value], name: str, *, closing: bool = False
    ) -> tuple[Value, ...]:
        """Apply an operator; computed at once where all operands are known and the result is small.

        Args:
            op: The operator.
            inputs: Its operands.
            name: Of the node, for its results and for messages.
            closing: Whether the caller knows what of the results is true (`open_axes`).

        Raises:
            ModelError: If the operands do not fit.
            Refusal: If it would mix what is true and what is not of an axis whose size depends on
                data.
        """
        operands = [value.type for value in inputs]
        refuse_narrow(op, operands)
        types = result_types(op, operands, name)
        # Before anything is folded: the reference would allocate whatever the file claims.
        self._check(op, operands, types, name)
        # Without such sizes all axes are true to their ends.
        if self.counts and not closing:
            refuse_mixing(op, operands, types, self.counts)
        # `all` of no operands is true.
        known = bool(inputs) and all(map(self.is_known, inputs))
        cast = known and is_cast(op, operands)
        # Nobody knows for how long a loop runs.
        runs = isinstance(op, BodyOp)
        folded = self._fold(op, inputs, types, name) if known and not cast and not runs else None
        if folded is not None:
            return folded
        outputs = tuple(self.value(name, t.dtype, t.shape) for t in types)
        node = Node(op, tuple(inputs), outputs, name)
        self.nodes.append(node)
        self.makers.update(dict.fromkeys(outputs, node))
        # The cast stays, so that what is stored is float16; what it casts is remembered as it was.
        if cast:
            self._casts[outputs[0]] = self._casts.get(inputs[0], inputs[0])
        return outputs

    def _check(
        self, op: Op, operands: Sequence[TensorType], types: Sequence[TensorType], name: str
    ) -> None:
        problem = too_long(op, [t.shape for t in (*operands[:1], *types)], self.limits)
        for kind in types:
            problem = problem or too_many(kind.shape, self.limits)
        if problem is not None:
            raise ModelError(f"node {name!r}: {problem}")

    def _fold(
        self, op: Op, inputs: Sequence[Value], types: Sequence[TensorType], name: str
    ) -> tuple[Value, ...] | None:
        # A negative extent is left to `value`, which names it.
        if any(not isinstance(d, int) or d < 0 for t in types for d in t.shape):
            return None
        counts = [math.prod(d for d in t.shape if isinstance(d, int)) for t in types]
        # Elements of few bits are rounded by what gives them, and bits are what they are.
        exact = [op.bitwise or t.dtype.is_narrow for t in types]
        computed = [
            t.dtype if as_is else t.dtype.arithmetic for t, as_is in zip(types, exact, strict=True)
        ]
        nbytes = sum(n * kind.itemsize for n, kind in zip(counts, computed, strict=True))
        if sum(counts) > FOLD_ELEMENTS or self._folded + nbytes > self.limits.folded_bytes:
            return None
        # A small result may be the sum of very many products.
        if op.work([value.type for value in inputs], types).flops > FOLD_FLOPS:
            return None
        # Counted also where no output needs it: many small nodes must not grow without end.
        self._folded += nbytes
        if isinstance(op, Pointwise):
            # Else it would round to float16 by itself; `known` decides whether anything is rounded.
            op = replace(op, dtype=computed[0])
        seen = self.stored if storage.as_stored(op, [v.dtype for v in inputs]) else self.array
        with np.errstate(all="ignore"):
            arrays = op.reference(*(a for a in map(seen, inputs) if a is not None))
        return tuple(
            self.known(np.asarray(array).astype(kind.numpy, copy=False), t.dtype, name)
            for array, kind, t in zip(arrays, computed, types, strict=True)
        )

    def graph(
        self, inputs: Sequence[Value], outputs: Sequence[Value], names: Sequence[str], title: str
    ) -> Graph:
        """What was collected, without what no output needs."""
        whole = self.part(self.nodes, self.counts, outputs)
        return replace(
            whole,
            inputs=tuple(inputs),
            output_names=(*names, *(count.symbol for count in whole.counts)),
            name=title,
            remarks=tuple(self.remarks),
            computed=tuple(self.computed),
            held=MappingProxyType(self._held_by_name(inputs, outputs, names)),
        )

    def part(self, nodes: Sequence[Node], counts: Counts, outputs: Sequence[Value]) -> Graph:
        """Those of some nodes that outputs need, with the constants and sizes that they need.

        Args:
            nodes: In topological order.
            counts: Sizes that these find out.
            outputs: What is wanted of them.
        """
        # Backwards: a node is needed if what it gives is, and readers stand behind it.
        needed = set(outputs)
        kept: list[Node] = []
        for node in reversed(nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                # A shape that names a size needs the step that finds it, read or not.
                needed.update(counts_of(node, counts))
                kept.append(node)
        found = [(count, value) for count, value in counts.values() if value in needed]
        # `with_nodes` leaves out the constants that nothing reads.
        empty = Graph(
            (),
            (*outputs, *(value for _, value in found)),
            (),
            counts=tuple(count for count, _ in found),
        )
        return empty.with_nodes(tuple(reversed(kept)), self.constants)

    def _held_by_name(
        self, inputs: Sequence[Value], outputs: Sequence[Value], names: Sequence[str]
    ) -> dict[str, str]:
        ends = [*((v.name, v) for v in inputs), *zip(names, outputs, strict=True)]
        return {name: spelled(self.held[v]) for name, v in ends if v in self.held}

    def memory(self) -> Memory:
        """What was found and would be found again."""
        return tuple(dict(getattr(self, name)) for name in _FOUND)

    def recall(self, memory: Memory) -> Memory:
        """Forget what was found since then; it is given back."""
        found = tuple(getattr(self, name) for name in _FOUND)
        for name, known in zip(_FOUND, memory, strict=True):
            setattr(self, name, known)
        return found


Counts = Mapping[str, tuple[Count, Value]]
"""Sizes that steps find out, and where these leave them."""
_FOUND = ("sizes", "packed", "chosen", "measured", "places")
Memory = tuple[dict[object, Value | Dim], ...]
"""The attributes of these names, as they were."""
