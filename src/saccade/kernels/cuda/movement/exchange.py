"""`Move` where neighbours go far apart: blocks that are read in runs and written in other runs.

Shuffles of channels that are neighbours give every other element to another pixel, so that a walk
along the result reads single elements. A block here has parts of several axes, a power of two of
each: those that are neighbours in the operand and those that are in the result. Elements change
places in registers and shared memory, once. Floor: the bytes read and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import prod

from saccade.kernels.base import In, Launch, Out, Variant, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.machine import PROGRAM, stream_micros
from saccade.kernels.cuda.movement.copy import moved, raw_element, refuse_move
from saccade.kernels.cuda.movement.loop_axes import LoopAxes, collapsed, power_dividing
from saccade.opdefs import Move

__all__ = ["MOVEMENT_EXCHANGE", "CudaExchangeConfig"]

_RUN, _SHORTEST = 64, 32  # bytes of neighbours: what is wanted, and what a sector has
_LINE = 16  # bytes that a thread moves at once
_LEAST = 512  # elements of a block
_AXES = 3  # of a block: `movement.copy` walks rectangles over two
# Elements, warps (one H200, shuffles of 118 MB of halves by two, µs: 60.8 and 60.5, 62.4 and 60.4,
# 74.7 and 74.8; a copy 60.4).
_BLOCKS = ((2048, 4), (4096, 8), (1024, 4))
_SLOWER = (1.0, 1.02, 1.22)


@dataclass(frozen=True)
class CudaExchangeConfig:
    """What the code depends on.

    Attributes:
        itemsize: Bytes of an element.
        rank: Axes that blocks are counted along.
        sizes: Of the block's axes, outermost first, as the result has them.
        order: The same axes as the operand has them.
        runs: Elements that are neighbours in the result, and in the operand.
        steps: What places in the result, and in the operand, are multiples of.
        warps: Of a program.
    """

    itemsize: int
    rank: int
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    runs: tuple[int, int]
    steps: tuple[int, int]
    warps: int

    def apart(self, side: int) -> list[tuple[int, int, int]]:
        """Axes that are no neighbours: which, size, and how many elements one step of it is."""
        order = self.order if side else range(len(self.sizes))
        sizes = [self.sizes[axis] for axis in order]
        inner = [*accumulate(reversed(sizes), int.__mul__, initial=1)][-2::-1]
        every = zip(order, sizes, inner, strict=True)
        return [(axis, n, step) for axis, n, step in every if step >= self.runs[side]]

    @property
    def integers(self) -> tuple[str, ...]:
        """What the launch gives for the generated function.

        Sizes `n` of the axes that blocks are counted along; strides `s` along these, and `t` along
        the block's, of the result (0) and the operand (1); where the operand begins.
        """
        found = [f"n{axis}" for axis in range(1, self.rank)]
        for side in range(2):
            found += [f"s{side}_{axis}" for axis in range(self.rank)]
            found += [f"t{side}_{axis}" for axis, _, _ in self.apart(side)]
        return (*found, "start")


class _Taken:
    """How much of each axis a block has."""

    def __init__(self, axes: LoopAxes) -> None:
        self.axes = axes
        self.each = [1] * len(axes.sizes)
        self._ordered = [
            sorted(range(len(axes.sizes)), key=strides.__getitem__) for strides in axes.strides
        ]

    @property
    def count(self) -> int:
        """Elements."""
        return prod(self.each)

    def run(self, side: int) -> int:
        """Neighbours in the result (0) or the operand (1)."""
        return self._walked(side)[0]

    def _walked(self, side: int) -> tuple[int, int | None]:
        """Their number, and the axis that they could go on along."""
        strides, run = self.axes.strides[side], 1
        for axis in self._ordered[side]:
            if strides[axis] != run:
                break
            size, taken = self.axes.sizes[axis], self.each[axis]
            run *= taken
            if taken < size:
                return run, None if size // taken % 2 else axis
        return run, None

    def grow(self, side: int) -> bool:
        """Twice as many neighbours; False where there are no more."""
        _, axis = self._walked(side)
        if axis is not None:
            self.each[axis] *= 2
        return axis is not None


def _taken(axes: LoopAxes, itemsize: int, elements: int) -> _Taken | None:
    """What a block has: runs on both sides, then as much more of either as it holds."""
    if min(map(min, axes.strides)) <= 0:
        return None
    found = _Taken(axes)
    for side in range(2):
        while found.run(side) * itemsize < _RUN and found.count < elements and found.grow(side):
            pass
    while found.count < elements and (found.grow(0) or found.grow(1)):
        pass
    shortest = min(found.run(side) for side in range(2))
    fine = shortest * itemsize >= _SHORTEST and found.count >= _LEAST
    return found if fine else None


@per_call
def _axes(call: CudaCall) -> tuple[LoopAxes, int]:
    """The move's axes over the result and the operand, and where the operand begins."""
    sizes, to, steps, start = moved(call.op.map, call.inputs[0], call.outputs[0])
    return collapsed(sizes, (to, steps))[0], start


def _supports(call: CudaCall) -> str | None:
    if (reason := refuse_move(call)) is not None:
        return reason
    axes, _ = _axes(call)
    if any(ours == theirs == 1 for ours, theirs in zip(*axes.strides, strict=True)):
        return "neighbours stay neighbours"
    block = _taken(axes, call.outputs[0].dtype.itemsize, _LEAST)
    if call.outputs[0].size == 0 or block is None:
        return "no blocks with runs of 32 bytes on both sides"
    if sum(n > 1 for n in block.each) < _AXES:
        return "rectangles do"
    return None


def _variants(call: CudaCall) -> Iterator[Variant]:
    axes, _ = _axes(call)
    out = call.outputs[0]
    streamed, seen = stream_micros(call, 2 * out.nbytes), set[tuple[int, ...]]()
    for i, (elements, warps) in enumerate(_BLOCKS):
        block = _taken(axes, out.dtype.itemsize, elements)
        if block is None or tuple(block.each) in seen:
            continue
        seen.add(tuple(block.each))
        micros = max(streamed * _SLOWER[i], PROGRAM * (out.size // block.count))
        yield Variant(micros, partial(_launches, call, block, warps))


def _launches(call: CudaCall, block: _Taken, warps: int) -> tuple[Launch, ...]:
    (axes, start), itemsize = _axes(call), call.outputs[0].dtype.itemsize
    to, steps = axes.strides
    within = [axis for axis, n in enumerate(block.each) if n > 1]  # the result's order
    outer = [axis for axis, n in enumerate(block.each) if n < axes.sizes[axis]]
    by_operand = sorted(within, key=lambda axis: -steps[axis])
    config = CudaExchangeConfig(
        itemsize, max(1, len(outer)), tuple(block.each[axis] for axis in within),
        tuple(within.index(axis) for axis in by_operand), (block.run(0), block.run(1)), (1, 1),
        min(warps, max(1, block.count // 128)),
    )  # fmt: skip
    strides = [
        {
            **{f"s{side}_{i}": of[axis] * block.each[axis] for i, axis in enumerate(outer or [0])},
            **{f"t{side}_{i}": of[within[i]] for i, _, _ in config.apart(side)},
        }
        for side, of in enumerate((to, steps))
    ]  # fmt: skip
    most = max(1, _LINE // itemsize)
    known = (*strides[0].values(),), (*strides[1].values(), start)
    config = replace(config, steps=(power_dividing(known[0], most), power_dividing(known[1], most)))
    integers = {f"n{i}": axes.sizes[a] // block.each[a] for i, a in enumerate(outer) if i}
    for given, step in zip(strides, config.steps, strict=True):
        integers |= {name: stride // step for name, stride in given.items()}
    integers["start"] = start // config.steps[1]
    programs = call.outputs[0].size // block.count
    return (Launch(config, {"p0": Out(0), "p1": In(0)}, integers, programs),)


def _text(config: CudaExchangeConfig) -> str:
    """The function that moves a block."""
    at = {name: f"extra[{i}]" for i, name in enumerate(("p1", *config.integers))}
    lines, rest = [], "pid"
    for axis in reversed(range(1, config.rank)):
        lines += [f"q{axis} = {rest} // {at[f'n{axis}']}"]
        lines += [f"i{axis} = {rest} - q{axis} * {at[f'n{axis}']}"]
        rest = f"q{axis}"
    lines.append(f"i0 = {rest}")
    lines.append(f"e = tl.arange(0, {prod(config.sizes)})")
    for side, step in enumerate(config.steps):
        base = [f"i{axis} * {at[f's{side}_{axis}']}" for axis in range(config.rank)]
        base += [at["start"]] * side
        lines.append(f"b{side} = ({' + '.join(base)}) * {step}")
        terms = [f"b{side}", f"e % {config.runs[side]}"]
        for axis, n, inner in config.apart(side):
            terms.append(f"(e // {inner}) % {n} * ({at[f't{side}_{axis}']} * {step})")
        lines.append(f"a{side} = {' + '.join(terms)}")
    theirs = [config.sizes[axis] for axis in config.order]
    lines += [
        f"v = tl.reshape(tl.load({at['p1']} + a1), {theirs})",
        f"v = tl.permute(v, {[config.order.index(axis) for axis in range(len(theirs))]})",
        f"tl.store(p0 + a0, tl.reshape(v, [{prod(theirs)}]))",
    ]
    body = "".join(f"    {line}\n" for line in lines)
    return f"@triton.jit\ndef body(p0, extra, pid):\n{body}"


def _entry(config: CudaExchangeConfig) -> Entry:
    element = raw_element(config.itemsize)
    return Entry(
        "movement.walk_code:walk_several",
        (("p0", element),),
        (),
        {},
        {"BODY": _text(config)},
        (("p1", element),),
        config.integers,
        warps=config.warps,
    )


MOVEMENT_EXCHANGE = CudaKernel(
    "movement.exchange", (Move,), CudaExchangeConfig, _supports, _variants, _entry
)
