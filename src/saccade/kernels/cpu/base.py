"""What a kernel of the CPU is: plain functions over a call for a `Target`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from saccade.ir import Op
from saccade.kernels import base
from saccade.kernels.base import Key, Launch, Variant

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder
    from saccade.backends.cpu.target import Target
    from saccade.kernels.base import Kernel

    class CpuCall(base.Call):
        """A call for the CPU, whose hardware is a `Target`: `CpuBackend.target`."""

        target: Target
else:
    CpuCall = base.Call

__all__ = [
    "CpuCall",
    "CpuKernel",
    "Variants",
    "all_generic_configs",
    "selectable",
    "single_variant",
]


Variants = Callable[[CpuCall], Iterable[Variant]]


def all_generic_configs(calls: Iterable[tuple[Kernel, base.Call]]) -> tuple[Key, ...]:
    """What other sizes of a plan's steps will want, each once.

    Args:
        calls: The kernel and the call of each step.
    """
    found = (
        (kernel.name, config) for kernel, call in calls for config in kernel.generic_configs(call)
    )
    return tuple(dict.fromkeys(found))


def single_variant(
    launch: Callable[[CpuCall], tuple[Launch, ...]], cost: Callable[[CpuCall], float]
) -> Variants:
    """Variants of a kernel that has a single variant for a call."""

    def variants(call: CpuCall) -> tuple[Variant]:
        return (Variant(cost(call), partial(launch, call)),)

    return variants


@dataclass(frozen=True)
class CpuKernel:
    """A kernel of the CPU backend, listed in `kernels.CPU_KERNELS`.

    Attributes:
        name: `family.algorithm`, e.g. `conv2d.direct`.
        ops: Operator classes that it may be asked about.
        config: Class of its configs (for reading plans back).
        supports: The reason why it cannot take a call, or None.
        variants: The variants for a call that `supports` gave None for, the one with the least
            estimated time first; at least one. All of them are legal and worth measuring. Selection
            asks for the first only, so make the others when they are asked for.
        emit: Writes the code: declares parameters on the builder and emits the body (not `finish`).
        aliases: Pairs (input, output) that may share memory when their views are equal.
        effort: How long the code for a config takes to compile, in tenths of a second or so: what
            takes longest is begun first.
        generic_configs: Configs that other sizes of a call will want, so that their code is worth
            compiling
            ahead where sizes are free: selection prefers variants with code among those that give
            the same bits. Empty where the best variant's own code serves every size.
    """

    name: str
    ops: tuple[type[Op], ...]
    config: type[Any]
    supports: Callable[[CpuCall], str | None]
    variants: Variants
    emit: Callable[[KernelBuilder, Any], None]
    aliases: Callable[[CpuCall], tuple[tuple[int, int], ...]] = field(default=lambda _call: ())
    effort: Callable[[Any], float] = field(default=lambda _config: 1.0)
    generic_configs: Callable[[CpuCall], tuple[Any, ...]] = field(default=lambda _call: ())

    def best(self, call: CpuCall) -> Variant:
        """The variant that should be fastest."""
        return next(iter(self.variants(call)))

    def launch(self, call: CpuCall) -> tuple[Launch, ...]:
        """The phases of the best variant."""
        return self.best(call).launches

    def cost(self, call: CpuCall) -> float:
        """Estimated microseconds of the best variant."""
        return self.best(call).micros


def selectable(kernels: tuple[CpuKernel, ...]) -> tuple[Kernel, ...]:
    """The kernels as selection knows them: every call that it makes is for the backend's target."""
    return cast("tuple[Kernel, ...]", kernels)
