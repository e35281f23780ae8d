"""`PackedPlaces`: lists one after the other, then zeros; one chunk, as fast as it can store."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.kernels.base import In, Launch, Operand, Out
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.refusals import refuse_gaps
from saccade.opdefs.packed import PackedPlaces

__all__ = ["PACKED", "PackedConfig"]

_MOST = 256  # lists, whose room is a word of the launch each


@dataclass(frozen=True)
class PackedConfig:
    """What the code depends on.

    Attributes:
        lists: How many there are.
    """

    lists: int


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    if not 1 <= len(call.op.room) <= _MOST:
        return f"not 1 to {_MOST} lists"
    return refuse_gaps((*call.inputs, *call.outputs))


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    config = PackedConfig(len(call.op.room))
    operands: dict[str, Operand] = {"sizes": In(0), "places": Out(0), "total": Out(1)}
    integers = {"rows": call.outputs[0].shape[0], "room": call.op.room}
    return (Launch(config, operands, integers, 1),)


def emit(k: KernelBuilder, config: PackedConfig) -> None:
    """The code of one configuration."""
    sizes, places, total = (k.pointer(n, "int64") for n in ("sizes", "places", "total"))
    rows, room = k.integer("rows"), k.array("room", config.lists)
    with k.chunks(k.int(1)):
        at, start = k.var(0), k.int(0)
        for number, space in enumerate(room):
            size = k.maximum_int(k.minimum_int(sizes.load_int(number), space), 0)
            with k.range(0, size) as i:
                places.store_int(start + i, at.get() + i)
            at.set(at.get() + size)
            start = start + space
        with k.range(at.get(), rows) as i:
            places.store_int(0, i)
        total.store_int(at.get())


def cost(call: CpuCall) -> float:
    """Microseconds: one place at a time."""
    places = call.outputs[0]
    return machine(call.target).roofline(8.0 * places.size, places.nbytes, 1, 0.5)


PACKED = CpuKernel(
    "select.packed", (PackedPlaces,), PackedConfig, supports, single_variant(launch, cost), emit
)
