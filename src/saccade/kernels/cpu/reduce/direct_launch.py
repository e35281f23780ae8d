"""How a reduction walks its operand: which axis vectors go along, and where long sums are cut.

Kept axes are collapsed over operand, result and epilogue operands, reduced axes over the
operand alone. Vectors go

    across   along the last kept axis (each lane is a result): the mean of channels-last
             images
    stream   the same, over operands that exceed the L2 cache: these are read in order, and
             the results wait in scratch
    along    along a reduced axis (lanes are partial results): sums of rows

A reduction of few results over many elements is cut into parts of a fixed size, so that a team can
share it: a first phase leaves partial results in a temporary, a second reduces these. The cut
depends on the sizes alone, and so results do not depend on the width of the team.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from saccade.kernels.base import View
from saccade.kernels.cpu.movement.loop_nest import Loops, collapse

__all__ = ["Cache", "ReductionLoops", "cut_parts", "plan_walk"]

_PART = 1 << 15  # elements that one part of a cut reduction reads at least
_ENOUGH = 16  # results (vectors of results) that keep a team busy without a cut
_NARROW = 4  # vectors of results that fit the registers, so that one sweep reads all of a pixel
_LEAST = 64  # pixels of a part that is streamed: its results are handed over in memory


@dataclass(frozen=True, slots=True)
class ReductionLoops:
    """Loops of a reduction.

    Attributes:
        way: `across`, `stream` or `along`.
        kept: Kept axes: strides in the operand, the result, the epilogue operands.
        gone: Sizes and strides in the operand of the reduced axes, outermost first, at least one.
        parts: Into how many parts the outermost of these is cut.
        per_part: Its elements in one part.
    """

    way: str
    kept: Loops
    gone: tuple[tuple[int, int], ...]
    parts: int = 1
    per_part: int = 0

    @property
    def count(self) -> int:
        """Elements behind one result."""
        total = 1
        for n, _ in self.gone:
            total *= n
        return total


@dataclass(frozen=True, slots=True)
class Cache:
    """A core's L2 cache.

    Attributes:
        nbytes: What it holds of an operand.
        lanes: Elements of the vectors that are loaded from it.
    """

    nbytes: int
    lanes: int


def plan_walk(
    x: View,
    axes: Sequence[int],
    keepdims: bool,
    out: View,
    operands: Sequence[View] = (),
    cache: Cache | None = None,
) -> ReductionLoops:
    """The loops, without a cut; may stream what exceeds an L2 cache, if one is given."""
    gone = set(axes)
    stay = [axis for axis in range(len(x.shape)) if axis not in gone]
    # Where the results' axes are in the result.
    places = stay if keepdims else range(len(stay))
    strides = [
        [x.strides[axis] for axis in stay],
        [out.strides[place] for place in places],
        *([v.broadcast_to(out.shape).strides[place] for place in places] for v in operands),
    ]
    kept = collapse([x.shape[axis] for axis in stay], strides)
    loops = collapse([x.shape[axis] for axis in axes], [[x.strides[axis] for axis in axes]])
    pairs = tuple(zip(loops.sizes, loops.strides[0], strict=True))
    along = pairs[-1][1] == 1 and pairs[-1][0] > 1 and kept.strides[0][-1] != 1
    # A single result has no neighbour for vectors to go across.
    if kept.sizes == (1,):
        along = pairs[-1][1] == 1
    if kept.rank == 1:
        # The same code serves one image and several: a batch of one collapses to nothing.
        kept = Loops((1, *kept.sizes), tuple((0, *steps) for steps in kept.strides))
    if along:
        return ReductionLoops("along", kept, pairs)
    large = cache is not None and x.nbytes > cache.nbytes
    wide = cache is not None and kept.sizes[-1] > _NARROW * cache.lanes
    near = all(strides[-1] in (0, 1) for strides in kept.strides) and kept.strides[0][-1] == 1
    return ReductionLoops("stream" if large and wide and near else "across", kept, pairs)


def cut_parts(walk: ReductionLoops, lanes: int) -> ReductionLoops:
    """The same walk, cut where it has few results over many elements; for sums of one pass."""
    outer = walk.gone[0][0]
    inner_results = walk.kept.sizes[-1]
    if walk.way == "stream":
        return _cut_stream(walk)
    results = walk.kept.rows * (
        -(-inner_results // lanes) if walk.way == "across" else inner_results
    )
    width = min(lanes, inner_results) if walk.way == "across" else 1
    work = walk.count * width
    if results >= _ENOUGH or work < 2 * _PART or outer < 2:
        return walk
    per_element = max(1, work // outer)
    per_part = max(1, -(-_PART // per_element))
    if walk.way == "along":
        per_part = -(-per_part // 64) * 64 if len(walk.gone) == 1 else per_part
    parts = -(-outer // per_part)
    return walk if parts < 2 else replace(walk, parts=parts, per_part=per_part)


def _cut_stream(walk: ReductionLoops) -> ReductionLoops:
    """Parts of whole pixels, where there are fewer images than keep a team busy."""
    outer = walk.gone[0][0]
    pixels = max(_LEAST, _PART // max(1, walk.kept.sizes[-1]))
    per_part = -(-pixels // max(1, walk.count // max(1, outer)))
    parts = -(-outer // per_part)
    if walk.kept.rows >= _ENOUGH or parts < 2:
        return walk
    return replace(walk, parts=parts, per_part=per_part)
