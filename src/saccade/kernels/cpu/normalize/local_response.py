"""LocalResponseNorm over vectors of channels.

    y[c] = x[c] / (bias + alpha / size · Σ x[c']²)^beta        c' from c - before to c + after

The squares of a pixel go to scratch between zeros, from where the neighbours of every channel are
read as shifted vectors. The power is exp(-beta · log(…)): its operand is at least `bias`.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen import math
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.base import In, Launch, Operand, Out, Scratch
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.loop_nest import Loops, Nest, collapse, inner_kind, partition
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS, from_float, load, store, to_float
from saccade.kernels.cpu.refusals import refuse_repeats, refuse_types
from saccade.opdefs.normalize import LocalResponseNorm

__all__ = ["LOCAL_RESPONSE", "LocalResponseConfig"]


@dataclass(frozen=True)
class LocalResponseConfig:
    """What the code depends on: operator, element types, strides along channels, rank."""

    size: int
    alpha: float
    beta: float
    bias: float
    elements: tuple[str, str]
    kinds: tuple[str, ...]
    rank: int


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    refused = refuse_types((x, out), FLOATS) or refuse_repeats(out)
    if refused is None and call.op.size > 64:
        return f"sums of {call.op.size} channels"
    return refused


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    pixels = [a for a in range(len(x.shape)) if a != 1]
    outer = collapse(
        [x.shape[a] for a in pixels], [[v.strides[a] for a in pixels] for v in (out, x)]
    )
    channels = x.shape[1]
    loops = Loops(
        (*outer.sizes, channels),
        tuple((*s, v.strides[1]) for s, v in zip(outer.strides, (out, x), strict=True)),
    )
    config = LocalResponseConfig(
        op.size, op.alpha, op.beta, op.bias, (out.dtype.value, x.dtype.value),
        tuple("unit" if inner_kind(s[-1]) == "unit" else "strided" for s in loops.strides),
        loops.rank,
    )  # fmt: skip
    cut = partition(loops, max(8192, channels))
    # A row is done as a whole: its ends lie in the same scratch.
    assert cut.inner_chunks == 1
    lanes = call.target.lanes
    nbytes = 4 * (channels + op.size + 2 * lanes)
    operands: dict[str, Operand] = {"y": Out(0), "x": In(0), "squares": Scratch(nbytes)}
    return (Launch(config, operands, Nest.integers(loops, cut), cut.chunks),)


def emit(k: KernelBuilder, config: LocalResponseConfig) -> None:
    """The code of one configuration."""
    pointers = [k.pointer(n, e) for n, e in zip("yx", config.elements, strict=True)]
    squares = k.scratch("squares")
    nest = Nest(k, config.rank, 2)
    # Of an even size ONNX has the larger half behind.
    before, lanes = (config.size - 1) // 2, k.lanes
    strided = "strided" in config.kinds

    with nest.walk() as row:
        channels = row.high

        def read(c: Int, mask: Mask | None, count: int) -> Vec:
            stride = nest.strides[1][-1]
            raw = load(k, pointers[1], config.kinds[1], row.offsets[1], c, stride, mask, count)
            return to_float(k, raw, config.elements[1])

        def square(c: Int, mask: Mask | None, count: int) -> None:
            v = read(c, mask, count)
            squares.store(v * v, c + before)

        def finish(c: Int, mask: Mask | None, count: int) -> None:
            total = squares.vec(c, lanes=count)
            for shift in range(1, config.size):
                total = total + squares.vec(c + shift, lanes=count)
            base = k.fma(total, total.like(config.alpha / config.size), total.like(config.bias))
            value = read(c, mask, count) * math.exp(k, math.log(k, base) * -config.beta)
            value = from_float(k, value, config.elements[0])
            stride = nest.strides[0][-1]
            store(k, pointers[0], config.kinds[0], row.offsets[0], c, stride, mask, value)

        # Zeros in front of the first channel, and below behind the last: borders need no branch.
        for at in range(before):
            squares.store(k.zero(1), k.int(at))
        for step in (square, finish):
            whole = channels // lanes * lanes
            with k.range(0, whole, lanes) as c:
                step(c, None, lanes)
            if strided:
                with k.range(whole, channels) as c:
                    step(c, None, 1)
            else:
                with k.when(whole < channels):
                    step(whole, k.first(channels - whole), lanes)
            # After the vectors of squares, the last of which may run past the channels.
            if step is square:
                for at in range(config.size):
                    squares.store(k.zero(1), channels + (before + at))


def cost(call: CpuCall) -> float:
    """Microseconds: a sum of neighbours, a logarithm and an exponential."""
    x = call.inputs[0]
    flops = (60.0 + 2 * call.op.size) * x.size
    nbytes = x.nbytes + call.outputs[0].nbytes
    return machine(call.target).roofline(flops, nbytes, call.threads, 0.5)


LOCAL_RESPONSE = CpuKernel(
    "normalize.local_response",
    (LocalResponseNorm,),
    LocalResponseConfig,
    supports,
    single_variant(launch, cost),
    emit,
)
