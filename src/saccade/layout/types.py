"""What layout hands over to the planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from saccade.ir import Op
from saccade.kernels.base import Call, Launch, View
from saccade.kernels.machine import Machine
from saccade.kernels.select import Passed

__all__ = [
    "Backend",
    "Buffer",
    "BufferKind",
    "Choice",
    "KernelLike",
    "Laid",
    "LaidStep",
    "Passed",
    "Searched",
    "Stored",
    "Timings",
    "Tuned",
]


class KernelLike(Protocol):
    """What selection needs to know of a kernel, whatever the device."""

    @property
    def name(self) -> str:
        """`family.algorithm`."""

    @property
    def supports(self) -> Any:  # noqa: ANN401
        """Call -> reason | None."""

    @property
    def variants(self) -> Any:  # noqa: ANN401
        """Call -> ways to do it, the one that should be fastest first."""

    @property
    def spares(self) -> Any:  # noqa: ANN401
        """Call -> configs that other sizes of it will want."""

    @property
    def aliases(self) -> Any:  # noqa: ANN401
        """Call -> pairs of an input and an output that may share memory."""


class Backend(Protocol):
    """A device, as layout and the planner see it."""

    @property
    def target(self) -> Any:  # noqa: ANN401
        """The machine; opaque here, handed on to kernels."""

    def candidates(self, op: Op) -> Sequence[KernelLike]:
        """Kernels that may be asked about an operator, in order of preference among equals."""


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
    """

    kind: BufferKind
    name: str
    nbytes: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """A value's place: a view that starts `offset` bytes into buffer number `buffer`."""

    buffer: int
    offset: int
    view: View


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

    kernel: KernelLike | None
    cost: float
    passed: tuple[Passed, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """The way to do a call that was measured to be the fastest.

    Attributes:
        kernel: Whose way.
        launches: The phases.
        micros: Measured.
        ratio: Over those of the untuned choice, measured in turns with it.
    """

    kernel: KernelLike
    launches: tuple[Launch, ...]
    micros: float
    ratio: float


class Timings(Protocol):
    """What was measured, as selection asks for it."""

    def tuned(self, call: Call, kernels: Sequence[KernelLike]) -> Tuned | None:
        """The measured choice for a call among these kernels, or None."""

    def refusals(self, steps: Sequence[str]) -> tuple[str, ...]:
        """Why choices for these steps could not be taken, once all calls were asked about."""


@dataclass(frozen=True, slots=True)
class LaidStep:
    """One operator with its storage and its kernel."""

    name: str
    op: Op
    call: Call
    inputs: tuple[Stored, ...]
    outputs: tuple[Stored, ...]
    choice: Choice
    launches: tuple[Launch, ...]
    note: str = ""


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
class Laid:
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
    """

    steps: tuple[LaidStep, ...]
    buffers: tuple[Buffer, ...]
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    notes: tuple[str, ...]
    speeds: Machine
    exact: bool = False
    searched: Searched | None = None
    refused: tuple[str, ...] = ()
