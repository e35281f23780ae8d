"""`Pad` in one pass: each element of the result finds its own in the operand, or the constant.

A walk over the result (`movement.walk_plan`); axes with pads stay axes of their own, the others
merge. It goes in vectors where the innermost axis has no pads, element by element where it has.

Floor: the bytes read and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.kernels.base import In, Launch, Operand, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.movement.copy import raw_element, refuse_move
from saccade.kernels.cuda.movement.loop_axes import LoopAxes, collapsed
from saccade.kernels.cuda.movement.walk_plan import (
    Walk,
    WalkCode,
    vector_of,
    vector_walks,
    walk_variants,
)
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.opdefs import Pad

__all__ = ["MOVEMENT_PAD", "CudaPadConfig"]


@dataclass(frozen=True)
class CudaPadConfig:
    """What the code depends on.

    Attributes:
        itemsize: Bytes of an element.
        mode: Of the operator; "fill" where the operand has no elements.
        value: Bits of the constant, 0 in other modes.
        padded: Axes of the walk that have pads.
        walk: How elements are found.
    """

    itemsize: int
    mode: str
    value: int
    padded: tuple[int, ...]
    walk: WalkCode


_SOURCES = {
    "constant": ("{i} - {before}",),
    "edge": ("tl.minimum(tl.maximum({i} - {before}, 0), {size} - 1)",),
    "reflect": ("tl.abs({i} - {before})", "{size} - 1 - tl.abs({size} - 1 - {j})"),
    "wrap": (
        "{i} - {before}",
        "tl.where({j} < 0, {j} + {size}, tl.where({j} < {size}, {j}, {j} - {size}))",
    ),
}
"""An index into the operand from one into the result, in steps."""


def _supports(call: CudaCall) -> str | None:
    op: Pad = call.op
    spare = {"reflect": 1, "wrap": 0}.get(op.mode)
    if spare is not None:
        for n, pair in zip(call.inputs[0].shape, op.pads, strict=True):
            if any(isinstance(pad, int) and pad > n - spare for pad in pair):
                return f"{op.mode} of more elements than there are"
    return refuse_move(call)


def _axes(call: CudaCall) -> tuple[LoopAxes, tuple[int, ...]]:
    """Axes of the walk, and which of the operand's each is."""
    x, out = call.inputs[0], call.outputs[0]
    if x.size == 0:
        return collapsed(out.shape, (out.strides, (0,) * len(out.shape)))
    alone = [any(pair) for pair in call.op.pads]
    return collapsed(out.shape, (out.strides, x.strides), alone)


def _padded(call: CudaCall) -> dict[int, int]:
    """The axes of the walk that have pads, and which of the operand's they are."""
    if call.inputs[0].size == 0:
        return {}
    pads = call.op.pads
    return {i: axis for i, axis in enumerate(_axes(call)[1]) if axis >= 0 and any(pads[axis])}


def _variants(call: CudaCall) -> Iterator[Variant]:
    out = call.outputs[0]
    axes, _ = _axes(call)
    whole = len(axes.sizes) - 1 not in _padded(call)
    vector = vector_of(axes, (out.dtype.itemsize,), (0, 0)) if whole else 1
    nbytes = call.inputs[0].nbytes + out.nbytes
    return walk_variants(call, vector_walks(axes, vector, (0, 0)), nbytes, _launch)


def _launch(call: CudaCall, way: Walk) -> Launch:
    op: Pad = call.op
    x, padded = call.inputs[0], _padded(call)
    mode = op.mode if x.size else "fill"
    bits = 0
    if mode in ("constant", "fill"):
        value = np.array(op.value, x.dtype.numpy)
        bits = int(value.view(f"u{x.dtype.itemsize}"))
    config = CudaPadConfig(x.dtype.itemsize, mode, bits, tuple(padded), way.code)
    integers: dict[str, int] = {}
    for axis, original in padded.items():
        before, _ = op.pads[original]
        assert isinstance(before, int)
        integers |= {f"x{axis}": x.shape[original], f"z{axis}": before}
    operands: dict[str, Operand] = {"p0": Out(0), "p1": In(0)}
    return Launch(config, operands, {**way.integers, **way.ends, **integers}, way.programs)


def _entry(config: CudaPadConfig) -> Entry:
    raw, lines = raw_element(config.itemsize), TritonLines({})
    names = [f"{word}{axis}" for axis in config.padded for word in "xz"]
    text = WalkText(config.walk, (raw, raw), lines, names)
    constant = f"tl.full((1, 1), {config.value}, tl.uint{8 * config.itemsize})"
    if config.mode == "fill":
        text.store(constant)
        return text.entry()
    inside, sources = "mask", {}
    for axis in config.padded:
        size, before = text.extra(f"x{axis}"), text.extra(f"z{axis}")
        j = sources[axis] = f"j{axis}"
        for step in _SOURCES[config.mode]:
            lines.add(f"{j} = {step.format(i=f'i{axis}', j=j, size=size, before=before)}")
        if config.mode == "constant":
            inside += f" & ({j} >= 0) & ({j} < {size})"
    lines.add(f"inside = {inside}")
    lines.add(f"v1 = {text.load(1, text.base(1, sources), 'inside')}")
    if config.mode == "constant":
        lines.add(f"v1 = tl.where(inside[:, None], v1, {constant})")
    text.store("v1")
    return text.entry()


MOVEMENT_PAD = CudaKernel("movement.pad", (Pad,), CudaPadConfig, _supports, _variants, _entry)
