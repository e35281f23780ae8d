"""The small IR: values, nodes, graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from saccade.errors import printable
from saccade.ir.counts import Count
from saccade.ir.dim import Dim, evaluate
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType

if TYPE_CHECKING:
    from saccade.ir.computed import ComputedSize

__all__ = ["Graph", "Node", "Value"]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor that flows through the graph; compared by identity.

    Attributes:
        name: Unique within its graph.
        dtype: Element type.
        shape: Logical dims in ONNX's order (N, C, H, W for images), whatever the storage.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]

    def __repr__(self) -> str:
        shape = ", ".join(map(printable, self.shape))
        return f"%{printable(self.name)}: {self.dtype.value}[{shape}]"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def type(self) -> TensorType:
        """Element type and shape alone."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator applied to values; compared by identity.

    Attributes:
        op: What it computes: a frozen dataclass of `opdefs`.
        inputs: Operands, none of them absent.
        outputs: Results, usually one.
        name: For people; the ONNX node it came from.
    """

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str = ""

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A computation: frozen; passes hand over a new one.

    Attributes:
        inputs: What the caller gives, in the file's order.
        outputs: What the caller gets, in the file's order; may repeat a value or name an input or a
            constant.
        nodes: In an order in which every value is produced before it is used.
        constants: Values known at compile time (weights). Arrays are read-only.
        name: For people.
        remarks: What passes have to say to whoever reads a plan.
        counts: Symbols whose sizes steps find out. The last outputs, as many, are these sizes
            (int64, one element each): not the file's and not the caller's.
        computed: Symbols whose sizes follow from those of the inputs, each from those before it.
        held: Types of the inputs and outputs, by name, that no memory holds: what stands for them
            are handles (`saccade.held`).
        derived: Of `ir.derived`: what functions found out about it, by function and arguments.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=lambda: MappingProxyType({}))
    output_names: tuple[str, ...] = ()
    name: str = ""
    remarks: tuple[str, ...] = ()
    counts: tuple[Count, ...] = ()
    computed: tuple[ComputedSize, ...] = ()
    held: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    derived: dict[object, dict[Any, Any]] = field(default_factory=dict, init=False, repr=False)

    @property
    def results(self) -> tuple[Value, ...]:
        """The outputs that the caller gets."""
        # Not `[:-n]`, which would be empty without counts.
        return self.outputs[: len(self.outputs) - len(self.counts)]

    def with_bounds(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes of the inputs' symbols, of what is computed from them, and bounds of the rest."""
        known = dict(sizes)
        for one in self.computed:
            known[one.symbol] = one.value(known)
        return {**known, **{c.symbol: evaluate(c.bound, known) for c in self.counts}}

    def values(self) -> Iterator[Value]:
        """Inputs, constants and results, each once."""
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def producers(self) -> dict[Value, Node]:
        """The node behind each result."""
        return {value: node for node in self.nodes for value in node.outputs}

    def uses(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, a node twice if it reads it twice.

        Graph outputs do not count.
        """
        found: dict[Value, list[Node]] = {value: [] for value in self.values()}
        for node in self.nodes:
            for value in node.inputs:
                found[value].append(node)
        return found

    def with_nodes(
        self,
        nodes: tuple[Node, ...],
        constants: Mapping[Value, Array] | None = None,
        outputs: tuple[Value, ...] | None = None,
    ) -> Graph:
        """The same interface over other nodes; constants that nothing reads any more go."""
        # `is None`: no constants at all is an answer, too.
        known = self.constants if constants is None else constants
        outs = self.outputs if outputs is None else outputs
        # An output may be a constant that no node reads.
        read = {value for node in nodes for value in node.inputs} | set(outs)
        kept = {value: array for value, array in known.items() if value in read}
        return replace(self, nodes=nodes, constants=MappingProxyType(kept), outputs=outs)
