"""What is compiled: a handwritten Triton function with its constants and generated functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["ELEMENT_BYTES", "Descriptor", "Entry", "Size"]

_GLUON_SINCE = (3, 8)
"""The first Triton whose Gluon loads by TMA as convolutions want it."""
Size = str | int
"""A number that a descriptor needs: literal, or the name of an integer of the launch."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A parameter that is a tensor map of an operand (TMA), not its address.

    In im2col mode (`lower` not empty) the operand is [N, H, W, C] and a block is so many pixels by
    so many channels: pixels at `lower` … `upper` (offsets from the first and from the last pixel)
    of each image, every so manieth of a row and of a column. Tiled otherwise, of [N, H, W, C] with
    `steps`.

    Attributes:
        name: Of the operand and of the parameter.
        element: What Triton calls its elements.
        block: What one load brings to shared memory: pixels and channels in im2col mode, else its
            size along each axis.
        sizes: Of the operand, outermost first.
        strides: Elements between neighbours, outermost first; the last is 1.
        lower: Corner (h, w) of the pixels' box.
        upper: The same.
        steps: Pixels from one to the next (h, w); empty: one.
        box: What one load brings where that is more than a block, whose sizes Triton wants to be
            powers of two: the code expects as many bytes, and has room for them behind the block.
    """

    name: str
    element: str
    block: tuple[int, ...]
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    lower: tuple[Size, ...] = ()
    upper: tuple[Size, ...] = ()
    steps: tuple[int, ...] = ()
    box: tuple[int, ...] = ()

    @property
    def im2col(self) -> bool:
        """Whether a load brings pixels that windows begin at."""
        return bool(self.lower)

    @property
    def integers(self) -> tuple[str, ...]:
        """The launch's integers that it takes."""
        named = (*self.sizes, *self.strides, *self.lower, *self.upper)
        return tuple(name for name in named if isinstance(name, str))

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.element]

    @property
    def swizzle(self) -> int:
        """Bytes by which rows are swizzled in shared memory: a row's, 128 at most."""
        return min(128, self.block[-1] * self.item)


ELEMENT_BYTES: Mapping[str, int] = MappingProxyType({"fp32": 4, "fp16": 2, "bf16": 2})
"""Of the elements that descriptors may have."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The function that is compiled for a config: a call of a handwritten one, its constants set.

    The handwritten function is called with the descriptors, the pointers, then the tuple `extra`
    (the further pointers and integers that the generated functions get), then the integers, then by
    name the constants and the generated functions.

    Attributes:
        core: The Triton function: module in `saccade.kernels.cuda`, colon, name.
        pointers: Name and element type of each of its pointers, in order.
        integers: Its integers (32 bits), in order.
        constants: Its `tl.constexpr` parameters by name.
        functions: Generated functions by the name of the parameter that takes them: their text,
            which defines one Triton function of that name in lower case.
        extra_pointers: Name and element type of those that the generated functions read.
        extra_integers: Integers that these take.
        multiples: Integers for which code of its own is worth it where they are multiples of 16.
        warps: Warps of a program.
        stages: Stages of software pipelining.
        contract: Whether a product may be fused with the sum that takes it, rounding once; not
            where comparisons hang on each bit.
        descriptors: Parameters that are tensor maps. They may take integers of the launch that
            are none of `integers`.
        gluon: Whether the functions are Gluon's (`triton.experimental.gluon`), not Triton's.
        registers: The most that a thread may have at the start; 0 as many as there are.
        since: The first Triton that compiles them, if that is no matter of course.
    """

    core: str
    pointers: tuple[tuple[str, str], ...]
    integers: tuple[str, ...]
    constants: Mapping[str, int | float | bool | str]
    functions: Mapping[str, str] = field(default_factory=dict)
    extra_pointers: tuple[tuple[str, str], ...] = ()
    extra_integers: tuple[str, ...] = ()
    multiples: tuple[str, ...] = ()
    warps: int = 4
    stages: int = 3
    contract: bool = True
    descriptors: tuple[Descriptor, ...] = ()
    gluon: bool = False
    registers: int = 0
    since: tuple[int, int] = (0, 0)

    @property
    def triton(self) -> tuple[int, int]:
        """The first Triton that compiles it."""
        return max(self.since, _GLUON_SINCE) if self.gluon else self.since

    @property
    def launch_integers(self) -> frozenset[str]:
        """Names of the integers that a launch has: the function's, and its descriptors'."""
        described = (name for one in self.descriptors for name in one.integers)
        return frozenset((*self.integers, *self.extra_integers, *described))
