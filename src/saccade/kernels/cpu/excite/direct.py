"""The gates of a squeeze-and-excite block, in one step.

`h[n,k] = f(Σ_c mean[n,c] · v[k,c])`, `y[n,m] = g(Σ_k h[n,k] · u[m,k])`, mean being the sum of
x[n,c] over its pixels, divided

Vectors go over filters; weights stream once. The first product is summed in parts of the channels,
each by whoever has the means of these channels, and every chunk of the second one adds the parts in
their order: one barrier, where means, products and activation would each have one. Where parts end
depends on sizes alone. Where weights are few one thread does it all, which rounds the same way.
Weights are bfloat16 where the gates are. Refused: weights that are not constant, feature maps that
are not channels-last, operands between the products that vary from image to image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from saccade.backends.cpu.fusions import Excite
from saccade.backends.cpu.target import NOMINAL_THREADS
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import (
    In,
    Integers,
    Launch,
    Operand,
    Packed,
    Packing,
    Scratch,
    Temp,
    Variant,
    View,
    image_strides,
    per_call,
)
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec
from saccade.kernels.cpu.excite.direct_code import ExciteConfig, emit_excite
from saccade.kernels.cpu.machine import machine

__all__ = ["EXCITE"]

_MOST_PARTS = 8  # of the channels that the first product sums over
_LEAST = 4096  # weights of a part
_BLOCK = 8  # vectors of filters of the second product
_ALONE = 0.6  # of two cores' memory speed that one thread reaches on short streams (an estimate)


def _supports(call: CpuCall) -> str | None:
    op: Excite = call.op
    x = call.inputs[0]
    if not all(call.constant[1:3]):
        return "the weights are not constant"
    if any(view.dtype not in FLOATS for view in call.inputs[:3]):
        return "elements are neither float32 nor bfloat16"
    if not x.channels_last:
        return "x is not channels-last"
    if op.squeeze.prologue != IDENTITY or op.excite.prologue != IDENTITY:
        return "takes no prologue"
    first, second = _inner(call), _outer(call)
    if second.kind != "plain" or second.store is not None or op.squeeze.store is not None:
        return "the result is not stored plainly"
    if any("full" in word or "image" in word for word in first.code()[3:]):
        return "an operand between the products varies from image to image"
    return first.refuse() or second.refuse()


def _spec(call: CpuCall, hidden: bool) -> EpilogueSpec:
    op: Excite = call.op
    n, lanes = call.inputs[0].shape[0], call.target.lanes
    shape = (n, call.inputs[1 if hidden else 2].shape[0], 1, 1)
    end = 3 + op.n_squeeze
    indices = range(3, end) if hidden else range(end, len(call.inputs))
    operands = tuple((i, call.inputs[i].broadcast_to(shape), call.constant[i]) for i in indices)
    # The scratch between the products holds one image: stride 0 from image to image.
    out = View(DType.F32, shape, (0, 1, 0, 0)) if hidden else call.outputs[0]
    conv = op.squeeze if hidden else op.excite
    return EpilogueSpec(conv.epilogue, conv.store, shape, operands, None, out, 1, lanes)


@per_call
def _inner(call: CpuCall) -> EpilogueSpec:
    """The epilogue of the first product, whose result is scratch."""
    return _spec(call, hidden=True)


@per_call
def _outer(call: CpuCall) -> EpilogueSpec:
    return _spec(call, hidden=False)


def _longest(count: int, size: int) -> int:
    """Elements of the largest share of a nominal team, in pieces of `size`."""
    pieces = -(-count // size)
    return -(-pieces // NOMINAL_THREADS) * size


@dataclass(frozen=True, slots=True)
class _ProductCut:
    """How both products are cut: nothing that depends on the team.

    Attributes:
        squeezing, exciting: Vectors of filters of a block.
        parts: Of the channels.
        per_part: Channels of one.
    """

    squeezing: int
    exciting: int
    parts: int
    per_part: int


@per_call
def _shape(call: CpuCall) -> _ProductCut:
    lanes, most = call.target.lanes, call.target.registers // 2
    channels, hidden = max(1, call.inputs[1].shape[1]), _inner(call).vectors
    # The widest first: `min` takes the first of equals.
    sizes = range(min(_BLOCK, most), 0, -1)
    exciting = min(sizes, key=lambda size: _longest(_outer(call).vectors, size))
    most_parts = min(_MOST_PARTS, call.inputs[1].size // _LEAST)
    wanted = range(1, max(1, most_parts) + 1)
    vectors = -(-channels // lanes)
    per_part = min((-(-vectors // n) for n in wanted), key=lambda n: (_longest(vectors, n), n))
    # Blocks of equal width, none of them wider than the registers for sums.
    blocks = max(1, -(-hidden // most))
    return _ProductCut(-(-hidden // blocks), exciting, -(-vectors // per_part), per_part * lanes)


def _element(call: CpuCall) -> DType:
    """Of the weights as they are packed."""
    return call.outputs[0].dtype


def _variants(call: CpuCall) -> list[Variant]:
    """One phase and two; both round the same way, so any team may take either."""
    speed, outer = machine(call.target), call.outputs[0]
    weights = sum(w.size for w in call.inputs[1:3])
    moved = float(call.inputs[0].nbytes + outer.nbytes + weights * _element(call).itemsize)
    flops = 2.0 * weights * outer.shape[0] + call.inputs[0].size

    def micros(threads: int, phases: int) -> float:
        stream = moved / (speed.bandwidth * (_ALONE if threads == 1 else 1.0))
        return phases * speed.step + stream + flops / (speed.flops * threads)

    # Two phases read the weights with the whole team, but meet at one more barrier.
    alone, apart = micros(1, 1), micros(call.threads, 2)
    found = [Variant(alone, partial(_whole, call)), Variant(apart, partial(_apart, call))]
    return sorted(found, key=lambda variant: variant.micros)


@dataclass(frozen=True, slots=True)
class _Stage:
    """What a phase needs."""

    operands: Mapping[str, Operand]
    integers: Integers


def _packed(call: CpuCall, index: int, vectors: int) -> Packed:
    width, element = vectors * call.target.lanes, _element(call)
    size = call.inputs[index].size * element.itemsize
    return Packed(Packing("pack_gates", (width, element.value), (index,), size))


def _squeezing(call: CpuCall, shape: _ProductCut) -> _Stage:
    weights = _packed(call, 1, shape.squeezing)
    return _Stage({"x": In(0), "squeeze": weights, "means": Scratch(4 * shape.per_part)}, {})


def _exciting(call: CpuCall, shape: _ProductCut) -> _Stage:
    inner, outer = _inner(call), _outer(call)
    scratch = Scratch(4 * inner.vectors * call.target.lanes)
    operands = {
        "excite": _packed(call, 2, shape.exciting),
        "hidden": scratch,
        **inner.reads("inner_"),
        **outer.pointers(),
    }
    return _Stage(operands, {**inner.integers(prefix="inner_"), **outer.integers()})


def _phase(call: CpuCall, name: str, stages: tuple[_Stage, ...], chunks: int) -> Launch:
    x, shape, inner, outer = call.inputs[0], _shape(call), _inner(call), _outer(call)
    n = x.shape[0]
    lanes, squeezes, excites = call.target.lanes, name != "excite", name != "squeeze"
    # A matrix that the phase does not read counts as full, so that its width makes no other code.
    full = (
        not squeezes or inner.shape[1] % (shape.squeezing * lanes) == 0,
        not excites or outer.shape[1] % (shape.exciting * lanes) == 0,
    )
    coded = (inner.code(), outer.code(shape.exciting)) if excites else ((), ())
    config = ExciteConfig(
        name, x.dtype.value if squeezes else "", _element(call).value, shape.squeezing,
        shape.exciting if excites else 0, full, *coded,
    )  # fmt: skip
    # As `_Excite._pitch`: blocks are stored whole.
    pitch = -(-inner.vectors // shape.squeezing) * shape.squeezing * lanes
    operands: dict[str, Operand] = {"parts": Temp(0, 4 * max(1, n) * shape.parts * pitch)}
    integers = _sizes(call, shape)
    for stage in stages:
        operands |= stage.operands
        integers |= stage.integers
    return Launch(config, operands, integers, chunks)


def _sizes(call: CpuCall, shape: _ProductCut) -> dict[str, int | tuple[int, ...]]:
    """The values of `direct_code.ExciteSizes`."""
    x = call.inputs[0]
    n, channels, rows, columns = x.shape
    return {
        "images": n,
        "channels": channels,
        "rows": rows,
        "columns": columns,
        **image_strides("x", x.strides),
        "count": call.op.count,
        "per_part": shape.per_part,
        "parts": shape.parts,
        "hidden": _inner(call).shape[1],
        "gates": _outer(call).shape[1],
    }


def _whole(call: CpuCall) -> tuple[Launch, ...]:
    shape = _shape(call)
    stages = (_squeezing(call, shape), _exciting(call, shape))
    return (_phase(call, "whole", stages, 1),)


def _apart(call: CpuCall) -> tuple[Launch, ...]:
    shape = _shape(call)
    blocks = -(-_outer(call).vectors // shape.exciting)
    return (
        _phase(call, "squeeze", (_squeezing(call, shape),), shape.parts),
        _phase(call, "excite", (_exciting(call, shape),), blocks),
    )


EXCITE = CpuKernel("excite.direct", (Excite,), ExciteConfig, _supports, _variants, emit_excite)
