"""The one place where a launch's operands become memory.

Who owns the memory says where operands, results, constants and workspaces lie (`Places`): the
arena of a plan, the caller's arrays of an operator, the guarded block of a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from saccade.kernels.base import (
    Config,
    In,
    Integers,
    Launch,
    Operand,
    Out,
    Packed,
    Packing,
    Scratch,
    Temp,
)
from saccade.waits import Lane, Use

__all__ = ["Argument", "Binder", "Phase", "Places", "Ref", "Role", "Workspace"]


class Ref(NamedTuple):
    """Bytes of memory: `offset` into entry `base` of the table of bases.

    The table holds the arena, then the inputs, then the outputs, then the plan's constants.
    """

    base: int
    offset: int
    nbytes: int


class Role(Enum):
    """What a phase's argument is: an operand or a result of the step, or memory that it needs."""

    INPUT = "input"
    OUTPUT = "output"
    PACKED = "packed"
    SCRATCH = "scratch"
    TEMP = "temp"


_ROLES: dict[type[Operand], Role] = {
    In: Role.INPUT,
    Out: Role.OUTPUT,
    Packed: Role.PACKED,
    Scratch: Role.SCRATCH,
    Temp: Role.TEMP,
}


class Argument(NamedTuple):
    """Memory that a phase gets.

    Attributes:
        name: Of the code's parameter.
        role: What it is to the step.
        ref: Where. For scratch, `nbytes` is per thread and the threads' parts lie side by side.
    """

    name: str
    role: Role
    ref: Ref


class Phase(NamedTuple):
    """One pass of the team over the chunks of a kernel.

    Attributes:
        config: What the kernel's code was specialised for.
        arguments: For its pointer parameters, in any order.
        integers: For its integer parameters, by name.
        chunks: How many chunks there are to claim.
    """

    config: Config
    arguments: tuple[Argument, ...]
    integers: Integers
    chunks: int

    def uses(
        self, threads: int = 1, lanes: Mapping[Ref, Lane | None] = MappingProxyType({})
    ) -> Iterator[Use]:
        """Memory that it reads or writes, an operand with all from its first to its last element.

        Args:
            threads: How many parts scratch has.
            lanes: Of operands and results that lie between others', by where they lie.
        """
        for _, role, ref in self.arguments:
            base, offset, nbytes = ref
            # What is packed is written before any run.
            if role is not Role.PACKED:
                parts = threads if role is Role.SCRATCH else 1
                # Work memory may lie where an operand of another time did, and uses all of it.
                lane = lanes.get(ref) if role in (Role.INPUT, Role.OUTPUT) else None
                yield Use(base, offset, offset + parts * nbytes, role is Role.INPUT, lane)


class Places(Protocol):
    """Where the memory of a call lies."""

    def input(self, index: int) -> Ref:
        """An operand."""

    def output(self, index: int) -> Ref:
        """A result."""

    def packed(self, packing: Packing) -> Ref:
        """A packed constant."""

    def temp(self, operand: Temp) -> Ref:
        """A temporary of the call."""

    def scratch(self, before: int, nbytes: int) -> Ref:
        """Scratch, `nbytes` of each thread; `before` are those of the phase's other scratch."""


class Workspace(NamedTuple):
    """Memory that a call needs while it runs.

    Attributes:
        temps: Bytes of each temporary.
        scratch: Bytes of all threads' scratch in the phase that needs the most; phases share it.
    """

    temps: dict[int, int]
    scratch: int


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds launches for a team.

    Attributes:
        threads: Its width.
        alignment: Bytes that scratch begins at a multiple of: the device's (`Backend.alignment`).
        align_each: Whether every thread's does, not only the first's.
        larger: The maximum of two sizes.
    """

    threads: int
    alignment: int = field(kw_only=True)
    align_each: bool = False
    larger: Callable[[int, int], int] = max

    def workspace(self, launches: Iterable[Launch]) -> Workspace:
        """What the phases of a call need."""
        temps: dict[int, int] = {}
        most = 0
        for launch in launches:
            scratch = 0
            for operand in launch.operands.values():
                if isinstance(operand, Scratch):
                    scratch += self._all_shares(self._share(operand))
                elif isinstance(operand, Temp):
                    known, nbytes = temps.get(operand.index), operand.nbytes
                    temps[operand.index] = nbytes if known is None else self.larger(known, nbytes)
            if scratch is not most:  # a number of a trace decides nothing here
                most = self.larger(most, scratch)
        return Workspace(temps, most)

    def phase(self, launch: Launch, places: Places) -> Phase:
        """The phase of a launch: each of its operands with its role and its place."""
        before = 0
        arguments = []
        for name, operand in launch.operands.items():
            if isinstance(operand, In):
                ref = places.input(operand.index)
            elif isinstance(operand, Out):
                ref = places.output(operand.index)
            elif isinstance(operand, Packed):
                ref = places.packed(operand.packing)
            elif isinstance(operand, Temp):
                ref = places.temp(operand)
            else:
                share = self._share(operand)
                ref = places.scratch(before, share)
                before += self._all_shares(share)
            arguments.append(Argument(name, _ROLES[type(operand)], ref))
        return Phase(launch.config, tuple(arguments), launch.integers, launch.chunks)

    def aligned(self, nbytes: int) -> int:
        """Bytes with what fills them up, so that what comes behind them is aligned."""
        return -(-nbytes // self.alignment) * self.alignment

    def _share(self, operand: Scratch) -> int:
        """Bytes of one thread's scratch."""
        return self.aligned(operand.nbytes) if self.align_each else operand.nbytes

    def _all_shares(self, share: int) -> int:
        return share * self.threads if self.align_each else self.aligned(share * self.threads)
