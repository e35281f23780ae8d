"""The plan: plain, frozen data that says exactly what runs, on which memory, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, groupby
from math import prod
from typing import NamedTuple

from saccade.ir import BodyOp, DType, Op, TensorType, Work
from saccade.kernels.base import Packing, View
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.kernels.machine import Machine
from saccade.kernels.size_constant import SIZE_CONSTANT
from saccade.layout.types import Searched
from saccade.locks import cached_property, forkless
from saccade.waits import Lane, waits_of

__all__ = [
    "Argument",
    "Constant",
    "CountedSteps",
    "Cut",
    "Needs",
    "Phase",
    "Plan",
    "Port",
    "Ref",
    "Role",
    "RowCount",
    "Slot",
    "Step",
]


class Slot(NamedTuple):
    """A stored operand or result of a step."""

    ref: Ref
    view: View


class RowCount(NamedTuple):
    """What a step has rows of that it need not compute: those beyond a number that a step found.

    Of an operand or a result with a factor, the first `factor · number` rows of the outermost axis
    are true, or all of them where there are not as many; the step treats each row for itself.

    Attributes:
        source: Which output of the plan holds the number.
        known: The step that finds it, an earlier one.
        inputs, outputs: Factors of operands and results; 0 for one that is read as a whole.
        readers: Later steps that read from the results' memory rows by the same number, in order.
        whole: Those that read all that lies there.
    """

    source: int
    known: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    readers: tuple[int, ...]
    whole: tuple[int, ...]


class CountedSteps(NamedTuple):
    """Steps that take as long as there are rows by one number.

    Attributes:
        source: Which output of the plan holds the number.
        known: The step that finds it.
        bound: From which number on all rows are computed.
        micros: Estimated, for all rows.
        steps: In order.
    """

    source: int
    known: int
    bound: int
    micros: float
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One operator: what it computes on which memory, and the kernel that does it.

    Attributes:
        name: The node that it came from.
        op: The operator, bound.
        inputs: Stored operands.
        outputs: Stored results.
        kernel: Name of the kernel, or None for a host step (the operator's NumPy reference).
        phases: What the kernel runs, in order; empty for a host step.
        estimate: Microseconds that selection expected.
        measured: Whether they were measured inside a program, not estimated.
        least_flops: Operations of the device's cheapest algorithm that rounds more than the
            operator says; None if it has none such.
        reasons: Why other kernels were passed over.
        note: Anything else worth knowing, such as why a reorder is there.
        bodies: Plans of the graphs inside of the operator: of a loop's body, of branches. Their
            constants are called as in the plan around them; their arenas are of their own.
        rows: Which rows have to be computed, where an earlier step finds that out.
    """

    name: str
    op: Op
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    kernel: str | None
    phases: tuple[Phase, ...]
    estimate: float
    reasons: tuple[str, ...]
    note: str = ""
    measured: bool = False
    least_flops: float | None = None
    bodies: tuple[Plan, ...] = ()
    rows: RowCount | None = None

    @cached_property
    def work(self) -> Work:
        """Flops and bytes that the operator needs at least."""
        return self.op.work(
            [TensorType(s.view.dtype, s.view.shape) for s in self.inputs],
            [TensorType(s.view.dtype, s.view.shape) for s in self.outputs],
        )

    @property
    def lanes(self) -> dict[Ref, Lane | None]:
        """Bytes of operands and results, by where they lie, that are no others' between them.

        Steps that write channels of the same pixels need not wait for each other.
        """
        found: dict[Ref, Lane | None] = {}
        for ref, view in (*self.inputs, *self.outputs):
            made = None
            if view.lane is not None:
                pitch, width = (elements * view.dtype.itemsize for elements in view.lane)
                made = Lane(pitch, ref.offset % pitch, width)
            # What the step sees in another way, too, is one.
            found[ref] = made if found.get(ref, made) == made else None
        return found

    @property
    def read(self) -> tuple[Slot, ...]:
        """The operands that a host step reads: what its bodies know is with their plans."""
        known = self.op.constants if self.bodies and isinstance(self.op, BodyOp) else 0
        return self.inputs[: len(self.inputs) - known]

    @property
    def by(self) -> str:
        """What computes it: a kernel, or on the host its bodies, or a reference, ours or ONNX's."""
        return self.kernel or ("bodies" if self.bodies else self.op.host)

    @property
    def is_reorder(self) -> bool:
        """Whether the step only moves a value into another storage."""
        # `layout.assign` begins the notes of its copies like this.
        return self.note.startswith("copy")


class Constant(NamedTuple):
    """A constant as kernels read it: as in the model (`packing` None), or packed from sources."""

    sources: tuple[str, ...]
    packing: Packing | None
    nbytes: int

    @property
    def of_sizes(self) -> bool:
        """Whether it is made for a plan's sizes, and is no part of the model."""
        return self.packing is not None and self.packing.function == SIZE_CONSTANT

    @property
    def key(self) -> str:
        """Its name within its model: equal for equal sources and packing."""
        return _key(self.sources, self.packing)


# Many sizes ask for the keys of the same constants.
@lru_cache(maxsize=4096)
def _key(sources: tuple[str, ...], packing: Packing | None) -> str:
    return sha256(repr((sources, packing)).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the program."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size; for the most that there could be where a step finds the length."""
        return prod(self.shape) * DType(self.dtype).itemsize


class Needs(NamedTuple):
    """What runs of a plan need beside code, for whoever has it ready before they come.

    Attributes:
        constants: Those that steps read.
        arena_bytes: Size of the arena.
        output_bytes: Of each output.
    """

    constants: tuple[Constant, ...]
    arena_bytes: int
    output_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """An axis of an output whose size a step finds out.

    Attributes:
        output: Which output.
        axis: Which of its axes; the port's shape has the size that is planned for.
        count: Which output holds the number that was found.
        factor: How many elements of the axis there are for each of that number.
    """

    output: int
    axis: int
    count: int
    factor: int


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs, apart from code and weights.

    Attributes:
        sizes: The sizes of the model's symbols that it was made for; bounds of those that steps
            find out.
        threads: Width of the team.
        isa: Instruction set of the kernels.
        inputs, outputs: The caller's arrays, row-major.
        constants: What to pack and hold.
        steps: In order.
        arena_bytes: Size of the arena.
        live_bytes: The largest set of values and workspaces live at the same time, in bytes.
        notes: Remarks of the layout.
        speeds: Of the machine that it was made for; the floor goes by them.
        exact: Whether only algorithms without extra rounding were allowed.
        searched: What the search for the cheapest storage came to; None where there was nothing to
            choose.
        refused: Tuned choices that could not be taken, and why.
        counts: How many of the outputs, the last ones, are numbers that steps find out: they are
            not the caller's.
        cuts: What these numbers say of the other outputs.
        device: The device that it was made for (`Options.device`).
    """

    sizes: Mapping[str, int]
    threads: int
    isa: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    arena_bytes: int
    live_bytes: int
    notes: tuple[str, ...]
    speeds: Machine
    exact: bool = False
    searched: Searched | None = None
    refused: tuple[str, ...] = ()
    counts: int = 0
    cuts: tuple[Cut, ...] = ()
    device: str = field(kw_only=True)

    @property
    def estimate(self) -> float:
        """Microseconds that selection expected of all steps."""
        return sum(step.estimate for step in self.steps)

    @property
    def output_base(self) -> int:
        """Index of the first output in the table of bases; inputs start at 1."""
        return 1 + len(self.inputs)

    @property
    def constant_base(self) -> int:
        """Index of the first constant in the table of bases."""
        return self.output_base + len(self.outputs)

    def is_weight(self, slot: Slot) -> bool:
        """Whether an operand is a constant of the model, from which kernels may pack theirs."""
        number = slot.ref.base - self.constant_base
        return number >= 0 and not self.constants[number].of_sizes

    @cached_property
    def constants_read(self) -> tuple[bool, ...]:
        """For each constant, whether a phase or a host step reads it; the rest was packed."""
        bases = set[int]()
        for step in self.steps:
            # Its operands include what constants were packed from, which no run reads.
            bases |= {a.ref.base for phase in step.phases for a in phase.arguments}
            if step.kernel is None:
                bases |= {slot.ref.base for slot in step.read}
        first = self.constant_base
        return tuple(i in bases for i in range(first, first + len(self.constants)))

    @cached_property
    def launch_waits(self) -> list[tuple[int, ...]]:
        """For each phase that has chunks the earlier ones that it waits for; see `waits_of`."""
        lanes = ((step, step.lanes) for step in self.steps)
        return waits_of(
            phase.uses(lanes=of_step)
            for step, of_step in lanes
            for phase in step.phases
            if phase.chunks
        )

    @property
    def reorders(self) -> tuple[Step, ...]:
        """Steps that only move values, each with its reason in `note`."""
        return tuple(step for step in self.steps if step.is_reorder)

    @property
    def output_bytes(self) -> int:
        """Size of the outputs, of those whose length steps find out for the most there could be."""
        return sum(port.nbytes for port in self.outputs)

    @property
    def needs(self) -> Needs:
        """What its runs need beside code."""
        read = tuple(
            constant
            for plan in self.whole()
            for constant, used in zip(plan.constants, plan.constants_read, strict=True)
            if used
        )
        return Needs(read, self.arena_bytes, tuple(port.nbytes for port in self.outputs))

    def whole(self) -> Iterator[Plan]:
        """The plan, and those of the bodies in it."""
        yield self
        for step in self.steps:
            for body in step.bodies:
                yield from body.whole()

    @cached_property
    def whole_constants(self) -> tuple[Constant, ...]:
        """Its constants, then those of the bodies in it, in the order of `whole`."""
        return tuple(constant for plan in self.whole() for constant in plan.constants)

    @cached_property
    def whole_constants_read(self) -> tuple[bool, ...]:
        """Of the same, whether they are read."""
        return tuple(read for plan in self.whole() for read in plan.constants_read)

    @cached_property
    def launch_parts(self) -> list[int]:
        """For each phase that has chunks how many steps with bodies come before it."""
        before = accumulate((bool(step.bodies) for step in self.steps), initial=0)
        return [
            part
            for part, step in zip(before, self.steps, strict=False)
            for phase in step.phases
            if phase.chunks
        ]

    def segments(self) -> Iterator[tuple[bool, tuple[Step, ...]]]:
        """Runs of native steps and of host steps, in order: (is host, steps)."""
        for host, steps in groupby(self.steps, lambda step: step.kernel is None):
            yield host, tuple(steps)

    def __str__(self) -> str:
        with forkless:
            from saccade.plan.text import table  # noqa: PLC0415 - only people read it

        return table(self)

    def to_json(self) -> str:
        """The plan as JSON; `Plan.from_json` reads it back."""
        with forkless:
            from saccade.plan.json import dump  # noqa: PLC0415 - only tools need it

        return dump(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote."""
        with forkless:
            from saccade.plan.json import load  # noqa: PLC0415

        return load(text)
