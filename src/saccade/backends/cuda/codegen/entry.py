"""What is compiled: a handwritten Triton function with its constants and generated functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """The function that is compiled for a config: a call of a handwritten one, its constants set.

    The handwritten function is called with the pointers, then the tuple `extra` (the further
    pointers and integers that the generated functions get), then the integers, then by name the
    constants and the generated functions.

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
