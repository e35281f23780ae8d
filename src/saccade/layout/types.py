"""What layout hands over to the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from saccade.ir import Dim, Graph, Node, Op, Value
from saccade.kernels.base import Call, Kernel, Launch, Packing, View
from saccade.kernels.machine import Machine
from saccade.kernels.select import Passed
from saccade.waits import Use

__all__ = [
    "Buffer",
    "BufferKind",
    "Choice",
    "Fusions",
    "GraphLayout",
    "NoFusions",
    "Pair",
    "Pairs",
    "Passed",
    "Searched",
    "Shapes",
    "StepLayout",
    "Stored",
    "Taken",
    "Timings",
    "Tuned",
]

Shapes: TypeAlias = Mapping[Value, tuple[int, ...]]
"""Of values, every dim an integer."""
Taken: TypeAlias = Callable[[Node, Shapes], bool]
"""Whether a kernel of the device takes a node whose operands and results have these shapes."""


class Fusions(Protocol):
    """Fusions that pay on one device, by its own operators; `NoFusions` for none."""

    def fuse(self, graph: Graph, shapes: Shapes, taken: Taken) -> Graph:
        """The graph with those fusions that sizes decide, before storage is chosen.

        Values keep their shapes, and new nodes fit wherever those do whose place they take. Equal
        choices give the same graph and nodes, so that what is derived from them is kept.

        Args:
            graph: The model; never changed. The result itself where there is nothing to fuse.
            shapes: Of every value of it.
            taken: To be asked about new nodes, with the shapes of new values added.
        """

    def pairs(self, graph: Graph, shapes: Shapes, *, tuned: bool) -> Pairs:
        """Fusions that the times of kernels decide, storage being chosen.

        Args:
            graph: What `fuse` gave.
            shapes: Of every value of it.
            tuned: Whether there are measured times. They may name any pair, so none is left out
                because estimates are known to be idle at its size.
        """


class NoFusions:
    """The fusions of a device that has none."""

    def fuse(self, graph: Graph, shapes: Shapes, taken: Taken) -> Graph:
        """The graph itself."""
        del shapes, taken
        return graph

    def pairs(self, graph: Graph, shapes: Shapes, *, tuned: bool) -> Pairs:
        """None."""
        del graph, shapes, tuned
        return Pairs()


class BufferKind(Enum):
    """Who owns a buffer."""

    ARENA = "arena"
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A block of memory.

    Attributes:
        kind: Who owns it.
        name: The value that it is named after.
        nbytes: Its size.
        index: For inputs and outputs, their position; for constants, the position in the plan's
            list.
        made: How a constant is made that is none of the model's, and of which of these.
    """

    kind: BufferKind
    name: str
    nbytes: int
    index: int = 0
    made: tuple[Packing, tuple[str, ...]] | None = None


# A tuple, as planning makes them by the thousand: a frozen dataclass takes a call for each field.
class Stored(NamedTuple):
    """A value's place: a view that starts `offset` bytes into buffer number `buffer`."""

    buffer: int
    offset: int
    view: View

    def is_at(self, other: Stored) -> bool:
        """Whether the same elements lie there, whatever room there is behind them."""
        a, b = self.view, other.view
        same = (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        return same and (self.buffer, self.offset) == (other.buffer, other.offset)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two nodes that one may take the place of.

    Attributes:
        first: What makes the intermediate.
        second: The only node that reads it.
        both: Does the work of both; its results are those of `second`.
        alike: Kernels of the two that give its bits, where neither variant rounds in a way of its
            own (`Variant.rounding`).
    """

    first: Node
    second: Node
    both: Node
    alike: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """What may become one step, and what may not.

    Attributes:
        joint: Pairs by their first node.
        apart: For nodes that could have been first in a pair: the operator that they are no part
            of, and why, for people.
    """

    joint: Mapping[Node, Pair] = field(default_factory=dict)
    apart: Mapping[Node, Passed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel taken for a call.

    Attributes:
        kernel: None for a host step (NumPy reference).
        cost: Estimated microseconds, to weigh against other calls; of a tuned choice those of the
            untuned one, less what measurement found to be saved: estimates and measured times are
            not to be compared.
        passed: Other candidates.
        aliases: See `CpuKernel.aliases`.
        measured: Microseconds that were measured inside a program, if any were.
    """

    kernel: Kernel | None
    cost: float
    passed: tuple[Passed, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """The variant for a call that was measured to be the fastest.

    Attributes:
        kernel: Whose variant.
        launches: The phases.
        micros: Measured.
        ratio: Over those of the untuned choice, measured in turns with it.
    """

    kernel: Kernel
    launches: tuple[Launch, ...]
    micros: float
    ratio: float


class Timings(Protocol):
    """What was measured, as selection asks for it."""

    def tuned(self, call: Call, kernels: Sequence[Kernel]) -> Tuned | None:
        """The measured choice for a call among these kernels, or None."""

    def refusals(self, steps: Sequence[str]) -> tuple[str, ...]:
        """Why choices for these steps could not be taken, once all calls were asked about."""


class StepLayout(NamedTuple):
    """One operator with its storage and its kernel; for `least_flops` see `plan.Step`.

    `bodies` are the graphs inside of the operator, laid out for themselves. `dims` are the shapes
    of operands, then of results, before sizes were put in; none where steps of the graph find out
    no sizes, or where the operator itself depends on one that they do.
    """

    name: str
    op: Op
    call: Call
    inputs: tuple[Stored, ...]
    outputs: tuple[Stored, ...]
    choice: Choice
    launches: tuple[Launch, ...]
    note: str = ""
    least_flops: float | None = None
    bodies: tuple[tuple[Graph, GraphLayout], ...] = ()
    dims: tuple[tuple[Dim, ...], ...] = ()

    def uses(self) -> Iterator[Use]:
        """What it reads and writes of buffers, an operand from its first to its last element."""
        for operands, reads in ((self.inputs, True), (self.outputs, False)):
            for buffer, offset, view in operands:
                yield Use(buffer, offset, offset + view.extent * view.dtype.itemsize, reads)


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search for the cheapest storage came to, in estimated microseconds of the plan.

    Attributes:
        values: How many values it was free to store one way or the other.
        saved: How much cheaper the plan became than by rule.
        gap: How much cheaper another storage could be at most; 0 where the search was exact.
    """

    values: int
    saved: float
    gap: float


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """A graph laid out.

    Attributes:
        steps: In order.
        buffers: By number.
        inputs, outputs: The caller's arrays.
        notes: Remarks.
        speeds: Of the machine that it was made for.
        exact: Whether only algorithms without extra rounding were allowed.
        searched: What the search for storage came to; None where there was nothing to choose.
        refused: Tuned choices that could not be taken, and why.
        device: The device that it was made for.
        alignment: Bytes that whatever lies in the arena begins at a multiple of.
        side_by_side: Whether steps that do not wait for each other run at the same time.
        beside: For each step the last one that may run beside it (`order`).
    """

    steps: tuple[StepLayout, ...]
    buffers: tuple[Buffer, ...]
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    notes: tuple[str, ...]
    speeds: Machine
    exact: bool = False
    searched: Searched | None = None
    refused: tuple[str, ...] = ()
    device: str = field(kw_only=True)
    alignment: int = field(kw_only=True)
    side_by_side: bool = field(default=False, kw_only=True)
    beside: tuple[int, ...] = field(kw_only=True)

    def all_steps(self) -> Iterator[StepLayout]:
        """The steps, those of bodies behind the step that they belong to."""
        for step in self.steps:
            yield step
            for _, laid in step.bodies:
                yield from laid.all_steps()
