"""Products of a tile of rows with a panel, on the micro-kernel of convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Int, IntLike
from saccade.kernels.cpu.conv2d.microkernel import Reduction, accumulate, anchored
from saccade.kernels.cpu.deform.config import DeformConfig

__all__ = ["Operands", "product"]


@dataclass(frozen=True, slots=True)
class Operands:
    """`result[i, j] (+)= Σ_c left[i, c] · right[c, j]` for a tile of columns j.

    Attributes:
        left: First row.
        left_pitch: From row to row.
        rows: How many; others of the last tile repeat the last one.
        right: The panel.
        right_pitch: From step to step: elements, and of pairs two for each column.
        count: Elements to sum, a multiple of `COLUMNS`.
        result: First sum.
        result_pitch: From row to row.
        add: Whether to add to what is there.
        exact: Whether there is no space for rows beyond the last one.
    """

    left: Ptr
    left_pitch: IntLike
    rows: Int
    right: Ptr
    right_pitch: IntLike
    count: Int
    result: Ptr
    result_pitch: IntLike
    add: bool
    exact: bool = False


def product(k: KernelBuilder, config: DeformConfig, o: Operands) -> None:
    """All rows with one panel."""
    panel = anchored(k, o.right)
    # A trip of four steps is four elements, or eight in pairs: `COLUMNS` has whole ones of both.
    reduction = Reduction(4, "whole", config.pairs)
    with k.range(0, o.rows, config.rows) as first:
        numbers = [k.minimum_int(first + i, o.rows - 1) for i in range(config.rows)]
        rows = [anchored(k, o.left + number * o.left_pitch) for number in numbers]
        # Rows past the last repeat it: stored into space that nobody reads, or not at all where
        # exact.
        target = o.result + first * o.result_pitch
        places = [o.result + n * o.result_pitch for n in numbers] if o.exact else [
            target + i * o.result_pitch for i in range(config.rows)
        ]  # fmt: skip
        sums = [_start(k, config, place, o.add) for place in places]
        accumulate(
            k, sums, rows, panel, step=1, pitch=o.right_pitch, count=o.count, reduction=reduction
        )
        for i, tile in enumerate(sums):
            if o.exact:
                with k.when(first + i < o.rows):
                    _store(k, tile, target + i * o.result_pitch)
            else:
                _store(k, tile, target + i * o.result_pitch)


def _start(k: KernelBuilder, config: DeformConfig, place: Ptr, add: bool) -> list[Var]:
    """What is there, or zeros."""
    vectors = range(config.vectors)
    if add:
        return [k.var(place.vec(j * k.lanes, None, k.lanes)) for j in vectors]
    return [k.var(k.zero(k.lanes, config.wide)) for _ in vectors]


def _store(k: KernelBuilder, tile: list[Var], target: Ptr) -> None:
    for j, total in enumerate(tile):
        target.store(total.get(), j * k.lanes)
