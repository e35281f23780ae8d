"""The inner loop of convolutions and matrix products: a tile of sums that stays in registers.

`sums[i][j] += rows[i][c] · weights[c][j]` for pixels i and vectors of channels j: for every c
the vectors are loaded once and every pixel's element is broadcast.

bfloat16 is summed in pairs: `weights[c/2][j]` holds the products' right sides of c and c + 1 side
by side, one broadcast takes both elements of a pixel, and one instruction does both products. What
is missing from the last pair is zero on both sides, so that nothing is read past a pixel and no
NaN of a neighbour is multiplied by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec
from saccade.backends.cpu.target import Target
from saccade.ir import DType
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.machine import pairs_pay, streams_late

__all__ = [
    "FEW",
    "Reduction",
    "Sums",
    "accumulate",
    "add",
    "add_pairs",
    "anchored",
    "asks_early",
    "copy_wide",
    "fence",
    "in_pairs",
    "share_after",
    "steps_of",
    "vector_lanes",
    "widens",
    "zero_sums",
]

Sums = list[list[Var]]

FEW = 4
"""Elements that are summed without a loop."""
_CHECKED = 2  # steps of a trip of checked code: checks of more would take seconds to compile
_LINE = 16  # float32 of a cache line
_ASKING = 8  # tiles that ask for the panel behind theirs (by eye: 7x7 pixels have 9 to 13)
# Bytes of a panel that is asked for early, and how many lines ahead: layers of 64 KB lost 2 to 8%,
# of 128 they gained 0 to 10%, of 256 and more 6 to 14% (Emerald Rapids).
_STREAMS, _LINES_AHEAD = 96 << 10, 128
_ROWS_OF_STREAMS = 4  # an estimate; one of 25088 to 4096 takes 0.45 of its time (two Zen 3 cores)
_WIDENED = 48  # columns from which on copying rows as float32 pays (two Zen 3 cores)


def in_pairs(call: CpuCall, rows: int | None = None) -> bool:
    """Whether products of the first two operands are summed in pairs of bfloat16.

    The second is rounded where it is packed if it is a float32 constant. Targets whose
    instructions for pairs are slow, or that have none, only take them where `rows` of the first
    operand are so few that the bytes of constants are what takes time.
    """
    (a, b), constant = call.inputs[:2], call.constant[1]
    if a.dtype is not DType.BF16 or not (b.dtype is DType.BF16 or constant):
        return False
    stream = constant and rows is not None and rows <= _ROWS_OF_STREAMS
    return pairs_pay(call.target) or stream


def widens(call: CpuCall, pairs: bool, columns: int) -> bool:
    """Whether rows of bfloat16 are copied as float32 before they are summed.

    Every block of columns would widen them anew: beside multiply-adds of 256 bits that takes a
    tenth to a quarter of their time, once for all a few hundredths.
    """
    return call.inputs[0].dtype is DType.BF16 and not pairs and columns >= _WIDENED


def steps_of(count: int, pairs: bool) -> int:
    """Multiply-adds, and vectors of weights, for `count` elements: 32 bits of each side a lane."""
    return -(-count // 2) if pairs else count


def asks_early(target: Target, panel: int) -> bool:
    """Whether a tile asks for a panel of so many bytes before it reads it.

    On processors that by themselves are late with what streams from the L2 cache. What the L1 cache
    may still hold is better left alone: a load that asks takes the place of one that reads.
    """
    return panel >= _STREAMS and streams_late(target)


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the loop over c is written, in steps of one element or of one pair.

    Attributes:
        unroll: Steps of one trip.
        shape: `once` (exactly `unroll` steps), `whole` (a multiple of them) or `tail` (any).
        pairs: Whether a step is a pair of bfloat16.
        odd: Whether one element is left after the pairs.
    """

    unroll: int
    shape: str
    pairs: bool = False
    odd: bool = False

    @classmethod
    def of(cls, count: int, pairs: bool = False) -> Reduction:
        """For `count` elements; one shape serves many counts."""
        return _reduction(count, pairs)


@lru_cache(maxsize=1024)
def _reduction(count: int, pairs: bool) -> Reduction:
    steps, odd = (count // 2, count % 2 == 1) if pairs else (count, False)
    if steps <= FEW:
        return Reduction(steps, "once", pairs, odd)
    return Reduction(4, "tail" if steps % 4 else "whole", pairs, odd)


def vector_lanes(k: KernelBuilder, vectors: int, half: bool = False) -> list[int]:
    """Lanes of each vector of a tile's row, the last of which may have half of them."""
    return [k.lanes] * (vectors - half) + [k.lanes // 2] * half


def zero_sums(k: KernelBuilder, rows: int, vectors: int, half: bool = False) -> Sums:
    """Fresh sums: `rows` times `vectors` vectors, the last one half as wide if `half`."""
    lanes = vector_lanes(k, vectors, half)
    return [[k.var(k.zero(count)) for count in lanes] for _ in range(rows)]


def anchored(k: KernelBuilder, p: Ptr) -> Ptr:
    """The same position with its offset folded into the base, so that loops carry one pointer."""
    if k.checked:
        return p
    return Ptr(k, p.name, p.element, k._address(p, 0, 1), k.int(0), None)


def accumulate(
    k: KernelBuilder,
    sums: Sums,
    rows: Sequence[Ptr],
    weights: Ptr,
    *,
    step: IntLike | Sequence[Int],
    pitch: IntLike,
    count: Int,
    reduction: Reduction,
    masks: Sequence[Mask | None] | None = None,
    half: bool = False,
    following: Int | None = None,
    after: Ptr | None = None,
    early: bool = False,
) -> None:
    """Add `count` products to every sum.

    Args:
        k: Builder.
        sums: The tile.
        rows: Each pixel's first element.
        weights: The first vectors.
        step: Distance of a pixel's elements, for all pixels or for each.
        pitch: Distance of the vectors of neighbouring steps.
        count: Elements to sum.
        reduction: How to step and to unroll.
        masks: For each vector, which lanes may be read; all when None.
        half: Whether the last vector is half as wide.
        following: From each pixel's first element to one that is asked for early, and as many more.
        after: A tile's share of the weights behind these, which it asks for (`share_after`).
        early: Whether weights are asked for before they are read, see `asks_early`.
    """
    masks = masks or [None] * len(sums[0])
    lanes = vector_lanes(k, len(masks), half)
    steps = [step] * len(rows) if isinstance(step, (int, Int)) else step
    # What registers are left beside the sums and one broadcast; other vectors are read at each use.
    held = k.target.registers - len(rows) * len(masks) - 1
    per_step = 2 if reduction.pairs else 1
    step_lanes = k.lanes * per_step
    asked = -(-_LINES_AHEAD // len(masks)) if early else 0
    once = len(masks) == 1 and not reduction.pairs  # elements are read where they are multiplied

    def trip(c: IntLike, unroll: int) -> None:
        if following is not None:
            with k.when(following.differs(0)):
                _ask_pixels(k, rows, [c * per_step * distance + following for distance in steps])
        if after is not None and unroll == reduction.unroll:
            _ask(k, after, c // unroll, _share(reduction, sum(lanes)).lines)
        panels = k.registered(weights + c * pitch)
        here, begin = _begun(k, rows, c, step) if once else (rows, c)
        for u in range(unroll):
            panel = panels + u * pitch
            vectors = _vectors(k, panel, masks[:held], lanes[:held], reduction.pairs)
            far = panel + held * step_lanes
            for j in range(len(lanes) if asked else 0):
                k.prefetch(panel, asked * pitch + j * step_lanes)
            for row, distance, tile in zip(here, steps, sums, strict=True):
                more = _vectors(k, far, masks[held:], lanes[held:], reduction.pairs)
                if reduction.pairs:
                    pair = _pair(k, row, (c + u) * 2, distance)
                    add_pairs(k, tile, pair, [*vectors, *more])
                else:
                    add(k, tile, _element(row, begin, u, unroll, distance), [*vectors, *more])

    total = count // per_step
    _step_through(k, reduction, total, trip)
    if reduction.odd:
        last = _vectors(k, weights + total * pitch, masks, lanes, pairs=True)
        _add_last(k, sums, rows, [(count - 1) * distance for distance in steps], last)


def _step_through(
    k: KernelBuilder, reduction: Reduction, total: Int, trip: Callable[[IntLike, int], None]
) -> None:
    """All trips: of the first step and of how many."""
    if reduction.shape == "once":
        trip(0, reduction.unroll)
        return
    unroll = min(_CHECKED, reduction.unroll) if k.checked else reduction.unroll
    main = total if reduction.shape == "whole" else total // unroll * unroll
    with k.range(0, main, unroll) as c:
        trip(c, unroll)
    if reduction.shape == "tail" and unroll > 1:
        with k.range(main, total) as c:
            trip(c, 1)


def _begun(
    k: KernelBuilder, rows: Sequence[Ptr], c: IntLike, step: IntLike | Sequence[Int]
) -> tuple[Sequence[Ptr], IntLike]:
    """Pixels from element c on, as addresses in registers if elements are evenly apart there.

    Returns:
        Where they begin, and the number of their first element.
    """
    if not isinstance(step, int):
        return rows, c
    return [k.registered(row + c * step) for row in rows], 0


def _add_last(
    k: KernelBuilder, sums: Sums, rows: Sequence[Ptr], places: Sequence[IntLike], vectors: list[Vec]
) -> None:
    """The element that is left after the pairs."""
    for row, place, tile in zip(rows, places, sums, strict=True):
        add_pairs(k, tile, k.broadcast(row.half_pair(place)), vectors)


def _ask_pixels(k: KernelBuilder, rows: Sequence[Ptr], places: Sequence[IntLike]) -> None:
    """Ask for the cache line of an element of each pixel."""
    for row, place in zip(rows, places, strict=True):
        k.prefetch(row, place, 2)


def _ask(k: KernelBuilder, share: Ptr, trip: IntLike, lines: int) -> None:
    """Ask for the cache lines of a share that are a trip's."""
    for line in range(lines):
        k.prefetch(share, trip * (lines * _LINE) + line * _LINE, 2)


class _Share(NamedTuple):
    """What a tile asks for: so many cache lines with each trip, all of a panel by so many tiles."""

    lines: int
    tiles: int


def _share(reduction: Reduction, width: int) -> _Share:
    total = -(-reduction.unroll * width // _LINE)
    lines = -(-total // _ASKING)
    return _Share(lines, -(-total // lines))


def share_after(
    k: KernelBuilder, panel: Ptr, steps: Int, width: int, reduction: Reduction, tile: Int,
    tap: IntLike = 0, taps: IntLike = 1,
) -> Ptr:  # fmt: skip
    """Where a tile's share of a panel of weights begins, of that behind the one that it reads.

    A panel that comes from memory or from the last-level cache is waited for by its first tile
    alone, as long as all others take where tiles are few. So each of the first tiles of the panel
    before asks for a part of it.

    Args:
        k: Builder.
        panel: The panel to ask for, of float32.
        steps: Steps of the reduction over the channels of a tap.
        width: Elements of a step.
        reduction: How it is stepped through.
        tile: The tile's number within its panel.
        tap: The tap whose channels it sums.
        taps: Of a panel.
    """
    share = _share(reduction, width)
    part = steps // reduction.unroll * (share.lines * _LINE)
    number = k.minimum_int(tile, share.tiles - 1) * taps + tap
    return anchored(k, panel + number * part)


def copy_wide(k: KernelBuilder, source: Ptr, to: Ptr, count: Int) -> None:
    """So many neighbours as float32, in vectors and what is left of them."""
    main = count // k.lanes * k.lanes
    with k.range(0, main, k.lanes) as at:
        to.store(source.vec(at), at)
    with k.range(main, count) as at:
        to.store(source.load(at), at)


def _vectors(
    k: KernelBuilder, panel: Ptr, masks: Sequence[Mask | None], lanes: Sequence[int], pairs: bool
) -> list[Vec]:
    each = list(enumerate(zip(masks, lanes, strict=True)))
    if pairs:
        return [panel.pairs(2 * j * k.lanes, mask, count) for j, (mask, count) in each]
    return [panel.vec(j * k.lanes, mask, count) for j, (mask, count) in each]


def _element(row: Ptr, c: IntLike, u: int, unroll: int, distance: IntLike) -> Vec:
    """Element c + u of a pixel in every lane; one of bfloat16 from the pair that it is half of."""
    neighbours = isinstance(distance, int) and distance == 1
    if row.element == BFLOAT16 and neighbours and u // 2 * 2 + 1 < unroll:
        return row.splat_of_pair(c + u // 2 * 2, u % 2 == 1)
    return row.splat((c + u) * distance)


def _pair(k: KernelBuilder, row: Ptr, c: IntLike, distance: IntLike) -> Vec:
    """Elements c and c + 1 of a pixel in every lane."""
    if isinstance(distance, int) and distance == 1:
        return k.broadcast(row.pair(c))
    low, high = (row.half_pair((c + i) * distance) for i in range(2))
    return k.broadcast(k.join_pair(low, high))


def add(k: KernelBuilder, sums: list[Var], element: Vec, vectors: list[Vec]) -> None:
    """A row of the tile plus an element, in every lane, times vectors of weights."""
    for total, vector in zip(sums, vectors, strict=True):
        total.set(k.fma(_lower(k, element, vector.lanes), vector, total.get()))
    fence(k)


def add_pairs(k: KernelBuilder, sums: list[Var], pair: Vec, vectors: list[Vec]) -> None:
    """A row of the tile plus a pair, in every lane, times vectors of pairs of weights."""
    # The last operand can be read from memory: weights, or a pair that nobody else asks for.
    for total, vector in zip(sums, vectors, strict=True):
        one = _lower(k, pair, vector.lanes)
        operands = (one, vector) if len(vectors) > 1 else (vector, one)
        total.set(k.dot_bf16(total.get(), *operands))
    fence(k)


def _lower(k: KernelBuilder, value: Vec, lanes: int) -> Vec:
    """The first lanes of a register, which are one by themselves."""
    return value if value.lanes == lanes else k.shuffle(value, value, range(lanes))


def fence(k: KernelBuilder) -> None:
    """Keep loads on their side: elements hoisted from later rows would push sums out."""
    nothing = llvm.ir.FunctionType(llvm.ir.VoidType(), [])
    k.b.asm(nothing, "", "~{memory}", [], side_effect=True)
