"""`PackedPlaces`: lists one after the other, then zeros; one chunk, as fast as it can store."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.refusals import refuse_gaps
from saccade.opdefs.packed import PackedPlaces

__all__ = ["PACKED", "PackedConfig"]


@dataclass(frozen=True)
class PackedConfig:
    """The code depends on nothing."""


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    if not call.op.room:
        return "no lists"
    return refuse_gaps((*call.inputs, *call.outputs))


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    lists = len(call.op.room)
    room = Packed(Packing("list_rooms", call.op.room, (), 8 * lists))
    operands: dict[str, Operand] = {
        "sizes": In(0), "room": room, "places": Out(0), "total": Out(1)
    }  # fmt: skip
    integers = {"rows": call.outputs[0].shape[0], "lists": lists}
    return (Launch(PackedConfig(), operands, integers, 1),)


def emit(k: KernelBuilder, config: PackedConfig) -> None:
    """The code, for any lists."""
    del config
    sizes, room, places, total = (
        k.pointer(n, "int64") for n in ("sizes", "room", "places", "total")
    )
    rows, lists = k.integer("rows"), k.integer("lists")
    with k.chunks(k.int(1)):
        at, start = k.var(0), k.var(0)
        with k.range(0, lists) as number:
            space = room.load_int(number)
            size = k.maximum_int(k.minimum_int(sizes.load_int(number), space), 0)
            with k.range(0, size) as i:
                places.store_int(start.get() + i, at.get() + i)
            at.set(at.get() + size)
            start.set(start.get() + space)
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
