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
from saccade.backends.cpu.codegen.language import Kernel
from saccade.ir import DType
from saccade.kernels.base import Call, CpuKernel, In, Launch, Out, Variant, View
from saccade.kernels.machine import machine
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


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    for view in (x, out):
        if view.dtype is not DType.F32:
            return f"elements of type {view.dtype.value}"
    if x.strides != out.strides or not _dense(out):
        return "operand and result are not stored alike, without gaps"
    return None


def _dense(view: View) -> bool:
    """Whether each element has a place of its own, and there are no others."""
    expected = 1
    for stride, size in sorted(zip(view.strides, view.shape, strict=True)):
        if size != 1 and stride != expected:
            return view.size == 0
        expected *= size
    return True


def launch(call: Call, unroll: int) -> tuple[Launch, ...]:
    """One phase."""
    size = call.outputs[0].size
    config = CubeConfig(unroll)
    operands = (In(0), Out(0))
    integers = (size, real_word(call.op.scale))
    return (Launch(config, operands, integers, -(-size // _CHUNK)),)


def variants(call: Call) -> Iterator[Variant]:
    """Long rounds first: they look at the end of the loop less often."""
    x, out = call.inputs[0], call.outputs[0]
    for unroll in (4, 1):
        flops = (3 + 2 / unroll) * out.size  # the loop's own two instructions count as well
        micros = machine(call.target).roofline(flops, x.nbytes + out.nbytes, call.threads, 0.5)
        yield Variant(micros, partial(launch, call, unroll))


def emit(k: Kernel, config: CubeConfig) -> None:
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
