"""Third powers in memory's order.

    y = scale · x³

Takes float32 that leaves no gaps, stored alike in operand and result: what the axes are then does
not matter, and one object serves all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Out, Variant, View
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.refusals import refuse_types
from saccade.opdefs import Cube

__all__ = ["CUBE", "CubeConfig"]

_CHUNK = 1 << 14  # elements: 64 KiB, of which operand and result stay within a core's L2


@dataclass(frozen=True)
class CubeConfig:
    """What the code depends on.

    Attributes:
        unroll: Vectors for each round of the loop.
    """

    unroll: int


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    if x.strides != out.strides or not _dense(out):
        return "operand and result are not stored alike, without gaps"
    return refuse_types((x, out), {DType.F32})


def _dense(view: View) -> bool:
    """Whether each element has a place of its own, and there are no others."""
    expected = 1
    for stride, size in sorted(zip(view.strides, view.shape, strict=True)):
        if size != 1 and stride != expected:
            return view.size == 0
        expected *= size
    return True


def launch(call: CpuCall, unroll: int) -> tuple[Launch, ...]:
    """One phase."""
    size = call.outputs[0].size
    phase = Launch(
        CubeConfig(unroll),
        operands={"x": In(0), "out": Out(0)},
        integers={"size": size, "scale": real_word(call.op.scale)},
        chunks=-(-size // _CHUNK),
    )
    return (phase,)


def variants(call: CpuCall) -> Iterator[Variant]:
    """Long rounds first: they look at the end of the loop less often."""
    x, out = call.inputs[0], call.outputs[0]
    for unroll in (4, 1):
        flops = (3 + 2 / unroll) * out.size  # the loop's own two instructions count as well
        micros = machine(call.target).roofline(flops, x.nbytes + out.nbytes, call.threads, 0.5)
        yield Variant(micros, partial(launch, call, unroll))


def emit(k: KernelBuilder, config: CubeConfig) -> None:
    """The code of one configuration."""
    x, out = k.pointer("x"), k.pointer("out")
    size, scale = k.integer("size"), k.broadcast(k.convert(k.real("scale"), "float32"))
    with k.chunks((size + (_CHUNK - 1)) // _CHUNK) as chunk:
        end = k.minimum_int((chunk + 1) * _CHUNK, size)
        with k.range(chunk * _CHUNK, end, config.unroll * k.lanes) as first:
            for vector in range(config.unroll):
                at = first + vector * k.lanes
                mask = k.first(k.maximum_int(end - at, 0))
                value = x.vec(at, mask)
                out.store(scale * value * value * value, at, mask)


CUBE = CpuKernel(
    "cube.direct",
    (Cube,),
    CubeConfig,
    supports,
    variants,
    emit,
    aliases=lambda _call: ((0, 0),),
)
