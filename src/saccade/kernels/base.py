"""What a kernel is: the contract between selection, planning, code generation and the runtime.

Layout and selection ask a kernel whether it `supports` a `Call` (a bound operator over stored
operands). `launch` then turns the call into plain data: one `Launch` per phase, each with the
code's `Config`, the operands that the code's pointer parameters take, in order, and its integer
parameters. `emit` writes the code for a config. Code is shared by every call that asks for an equal
config, so configs hold only what the code depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from saccade.ir import DType, Op

if TYPE_CHECKING:
    from saccade.codegen.language import Kernel as Builder
    from saccade.codegen.target import Target

__all__ = [
    "Call",
    "CpuKernel",
    "Exists",
    "In",
    "Launch",
    "Operand",
    "Out",
    "Packed",
    "Packing",
    "Scratch",
    "Temp",
    "View",
]


@dataclass(frozen=True, slots=True)
class View:
    """How a value is stored.

    Attributes:
        dtype: Element type.
        shape: Logical dims in ONNX's order.
        strides: Elements between neighbours along each logical axis; 0 repeats. A channels-last
            picture has strides (H·W·pitch, 1, W·pitch, pitch); a view of some channels of a larger
            buffer keeps its pitch.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def channels_last(self) -> bool:
        """Whether neighbouring channels are neighbours in memory (axis 1 of rank 4)."""
        return len(self.shape) == 4 and (self.strides[1] == 1 or self.shape[1] == 1)

    @property
    def extent(self) -> int:
        """Elements from the first to one past the last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for n in self.shape:
            total *= n
        return total


@dataclass(frozen=True, slots=True)
class Call:
    """One operator at one place of one plan.

    Attributes:
        op: The operator, every dim an integer.
        inputs: Storage of the operands. A constant's view is its own array, row-major.
        outputs: Storage of the results.
        constant: For each input, whether its contents are known at compile time (and may be
            packed).
        target: The machine.
        threads: Width of the team.
        exact: Whether only algorithms without extra rounding are allowed.
        memo: What kernels derived from the call and will ask for again, by name.
    """

    op: Any  # the Op subclass that the kernel names in `ops`
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    constant: tuple[bool, ...]
    target: Target
    threads: int = 1
    exact: bool = False
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __hash__(self) -> int:
        # Hashing walks all views; selection asks for it several times.
        found: int | None = self.memo.get("hash")
        if found is None:
            parts = (self.op, self.inputs, self.outputs, self.constant, self.threads, self.exact)
            found = self.memo["hash"] = hash(parts)
        return found


@dataclass(frozen=True, slots=True)
class In:
    """The pointer parameter is input `index`, at its first element."""

    index: int


@dataclass(frozen=True, slots=True)
class Out:
    """The pointer parameter is output `index`, at its first element."""

    index: int


@dataclass(frozen=True, slots=True)
class Packing:
    """How to make a packed constant: a function, its parameters, its sources.

    Attributes:
        function: Name in the table; `function(*arrays, *parameters)` gives the array.
        parameters: Plain numbers, strings and tuples.
        inputs: Which inputs of the call (all constant) are the arrays.
        nbytes: Size of the result.
    """

    function: str
    parameters: tuple[Any, ...]
    inputs: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Packed:
    """The pointer parameter is a packed constant."""

    packing: Packing


@dataclass(frozen=True, slots=True)
class Scratch:
    """The pointer parameter is this thread's scratch (`k.scratch`), live during the phase."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class Temp:
    """The pointer parameter is a buffer shared by all threads and by the phases of this call."""

    index: int
    nbytes: int


Operand = In | Out | Packed | Scratch | Temp


@dataclass(frozen=True, slots=True)
class Launch:
    """One phase of a call.

    Attributes:
        config: What the code depends on: a frozen dataclass of ints, floats, bools, strings and
            tuples of these.
        operands: For each pointer parameter of the code, in order of declaration.
        integers: For each integer parameter of the code, in order of declaration.
        chunks: How many chunks the phase has (for the plan and the scheduler).
    """

    config: Any
    operands: tuple[Operand, ...]
    integers: tuple[int, ...]
    chunks: int


Exists = Callable[[Any], bool]
"""Whether there is code for a config."""


@dataclass(frozen=True)
class CpuKernel:
    """A kernel of the CPU backend, listed in `kernels.CPU_KERNELS`.

    Attributes:
        name: `family.algorithm`, e.g. `conv2d.direct`.
        ops: Operator classes that it may be asked about.
        config: Class of its configs (for reading plans back).
        supports: The reason why it cannot take a call, or None.
        launch: The phases of a call; only asked after `supports` gave None.
        emit: Writes the code: declares parameters on the builder and emits the body (not `finish`).
        cost: Estimated microseconds of a supported call; selection takes the cheapest.
        aliases: Pairs (input, output) that may share memory when their views are equal.
        alternatives: Other ways to run a call, best first, for when the code of `launch` does not
            exist and nothing is to be compiled; may leave out those whose config the second
            argument finds no code for.
    """

    name: str
    ops: tuple[type[Op], ...]
    config: type[Any]
    supports: Callable[[Call], str | None]
    launch: Callable[[Call], tuple[Launch, ...]]
    emit: Callable[[Builder, Any], None]
    cost: Callable[[Call], float]
    aliases: Callable[[Call], tuple[tuple[int, int], ...]] = field(default=lambda _call: ())
    alternatives: Callable[[Call, Exists], Iterable[tuple[Launch, ...]]] = field(
        default=lambda _call, _exists: ()
    )
