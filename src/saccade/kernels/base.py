"""What a kernel is: the contract between selection, planning, code generation and the runtime.

Layout and selection ask a kernel whether it `supports` a `Call` (a bound operator over stored
operands). `variants` then gives the variants for it, the one that should be fastest first, as plain
data: one `Launch` per phase, each with the code's `Config`, and by name the operands that the
code's pointer parameters take and its integer parameters. `emit` writes the code for a config. Code
is shared by every call that asks for an equal config, so configs hold only what it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from functools import lru_cache, wraps
from math import gcd
from operator import mul
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from saccade.ir import DType

__all__ = [
    "Call",
    "Config",
    "Hardware",
    "In",
    "Integers",
    "Kernel",
    "Key",
    "Launch",
    "Operand",
    "Out",
    "Packed",
    "Packing",
    "Scratch",
    "Temp",
    "Variant",
    "View",
    "image_strides",
    "interned",
    "numbered",
    "per_call",
]

P = ParamSpec("P")
T = TypeVar("T")

_AXES = {"n": 0, "k": 0, "c": 1, "h": 2, "w": 3}

Key = tuple[str, Hashable]
"""What code goes by: the name of its kernel, and its config."""


class Hardware(Protocol):
    """The machine that kernels are for: opaque to all but a device's own."""

    @property
    def isa(self) -> str:
        """Its instruction set, as plans print it."""


class Config(Protocol):
    """What code depends on: a frozen dataclass of ints, floats, bools, strings, tuples of these."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __hash__(self) -> int:
        """Equal ones share their code."""


class View(NamedTuple):
    """How a value is stored.

    Attributes:
        dtype: Element type.
        shape: Logical dims in ONNX's order.
        strides: Elements between neighbours along each logical axis; 0 repeats. A channels-last
            image has strides (H·W·pitch, 1, W·pitch, pitch); a view of some channels of a larger
            buffer keeps its pitch.
        room: Elements behind the last channel of a pixel that may be read, up to 16 bytes: those
            that fill its last 16 bytes, or none. Only of channels-last images that a device pads.
        zeros: Whether these are zeros, which whoever writes the view writes, too.
        aligned: Whether pixels of a part of wider ones begin at multiples of 16 bytes.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    room: int = 0
    zeros: bool = False
    aligned: bool = False

    @property
    def channels_last(self) -> bool:
        """Whether neighbouring channels are neighbours in memory (axis 1 of rank 4)."""
        return len(self.shape) == 4 and (self.strides[1] == 1 or self.shape[1] == 1)

    @property
    def row_major(self) -> bool:
        """Whether elements follow each other in the order of their indices, without gaps."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != step and self.size:
                return False
            step *= size
        return True

    @property
    def extent(self) -> int:
        """Elements from the first to one past the last, and the room behind it."""
        if 0 in self.shape:
            return 0
        apart = [*map(abs, self.strides)]
        ends: int = sum(map(mul, self.shape, apart))
        return 1 + self.room + ends - sum(apart)

    @property
    def lane(self) -> tuple[int, int] | None:
        """Of how many elements those of the view are how many, one after the other, if not all.

        All else of them belongs to others: channels of a part of wider pixels have such gaps.
        """
        pitch, width = 0, 1
        for step, n in sorted(zip(self.strides, self.shape, strict=True)):
            if step < 0:
                return None
            if n == 1 or step == 0:
                continue
            if not pitch and step == width:
                width *= n
            else:
                pitch = gcd(pitch, step)
        width += self.room
        return (pitch, width) if pitch > width else None

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for n in self.shape:
            total *= n
        return total

    def broadcast_to(self, shape: Sequence[int]) -> View:
        """The view as one of `shape`: stride 0 wherever it repeats or there is only one."""
        missing = len(shape) - len(self.shape)
        dims, strides = (1,) * missing + self.shape, (0,) * missing + self.strides
        steps = tuple(0 if have == 1 else s for have, s in zip(dims, strides, strict=True))
        return View(self.dtype, tuple(shape), steps)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without what lies between them."""
        return self.size * self.dtype.itemsize


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
        memo: What was derived from the call and will be asked for again, see `per_call`. A copy
            with other fields (`dataclasses.replace`) starts with an empty one.
    """

    op: Any  # the Op subclass that the kernel names in `ops`
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    constant: tuple[bool, ...]
    target: Hardware
    threads: int = 1
    exact: bool = False
    memo: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        # Hashing walks all views; selection asks for it several times.
        found: int | None = self.memo.get("hash")
        if found is None:
            parts = (self.op, self.inputs, self.outputs, self.constant, self.threads, self.exact)
            found = self.memo["hash"] = hash(parts)
        return found


CallT = TypeVar("CallT", bound=Call)


def per_call(function: Callable[[CallT], T]) -> Callable[[CallT], T]:
    """Find out once for each call what a function of it says, which must not be None."""

    @wraps(function)
    def remembered(call: CallT) -> T:
        found: T | None = call.memo.get(function)
        if found is None:
            found = call.memo[function] = function(call)
        return found

    return remembered


@dataclass(frozen=True, slots=True)
class In:
    """The pointer parameter is input `index`, at its first element."""

    index: int


@dataclass(frozen=True, slots=True)
class Out:
    """The pointer parameter is output `index`, at its first element."""

    index: int


class Packing(NamedTuple):
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

Integers = Mapping[str, int | tuple[int, ...]]
"""Values by the names that the code declares; those of an array are a tuple."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One phase of a call.

    Attributes:
        config: What the code depends on.
        operands: For each pointer parameter of the code, by its name.
        integers: For each integer parameter of the code, by its name.
        chunks: How many chunks the phase has (for the plan and the scheduler).
    """

    config: Config
    operands: Mapping[str, Operand]
    integers: Integers
    chunks: int


def numbered(operands: Iterable[Operand]) -> dict[str, Operand]:
    """Operands of code that calls its buffers `p0`, `p1` and so on."""
    return {f"p{i}": operand for i, operand in enumerate(operands)}


def image_strides(name: str, strides: Sequence[int], axes: str = "nhw") -> dict[str, int]:
    """Integer parameters `name_n`, `name_h` and so on: strides of [N, C, H, W] along some axes.

    Args:
        name: Of the operand.
        strides: Along all four axes.
        axes: Letters of NCHW; `k` is the first axis of what has boxes instead of images.
    """
    return {f"{name}_{axis}": strides[_AXES[axis]] for axis in axes}


def interned(config: Callable[P, T]) -> Callable[P, T]:
    """A class that planning makes many objects of, as it made for other sizes: equal ones are one.

    Args:
        config: Takes hashable fields; what it makes never changes.
    """
    return cast("Callable[P, T]", lru_cache(maxsize=4096, typed=True)(config))


class Variant(NamedTuple):
    """One variant for a call.

    Attributes:
        micros: Estimated microseconds.
        build: Gives the phases. Most variants are only asked for their time.
        rounding: Equal for those variants of a kernel that give the same bits: what says in which
            order sums are made and over which transforms. Tiles, panels and chunks are no part of
            it. A call's comes from its nominal team, so that it depends on no team.
        code: Equal only for those variants of a call that have the same configs, if it is not None:
            what there is no code for is then found out once.
        configs: Gives the configs of the phases; without it, the phases themselves do.
    """

    micros: float
    build: Callable[[], tuple[Launch, ...]]
    rounding: Hashable = None
    code: Hashable = None
    configs: Callable[[], tuple[Hashable, ...]] | None = None

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The phases."""
        return self.build()

    @property
    def needs(self) -> tuple[Hashable, ...]:
        """The configs of the phases, in order: what there has to be code for."""
        if self.configs is not None:
            return self.configs()
        return tuple(launch.config for launch in self.build())


class Kernel(Protocol):
    """One algorithm for some operators, as selection knows it."""

    @property
    def name(self) -> str:
        """`family.algorithm`."""

    @property
    def config(self) -> type:
        """Class of what its code depends on, for reading plans back."""

    @property
    def supports(self) -> Callable[[Call], str | None]:
        """The reason why it cannot take a call, or None."""

    @property
    def variants(self) -> Callable[[Call], Iterable[Variant]]:
        """The variants for a call that it supports, the one that should be fastest first."""

    @property
    def generic_configs(self) -> Callable[[Call], tuple[Hashable, ...]]:
        """Configs that other sizes of a call will want."""

    @property
    def aliases(self) -> Callable[[Call], tuple[tuple[int, int], ...]]:
        """Pairs of an input and an output that may share memory."""
