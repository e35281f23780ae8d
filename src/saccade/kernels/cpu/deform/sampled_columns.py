"""Columns: samples of a block of channels for a tile of pixels, side by side for a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike, Vec
from saccade.kernels.cpu.deform.config import COLUMNS, SampleSizes
from saccade.kernels.cpu.deform.sample_points import SamplePlan

__all__ = [
    "ColumnRows",
    "Corners",
    "corners_of",
    "over_vectors",
    "sample_pairs",
    "sample_rows",
    "sampled",
]

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Corners:
    """Four pixels' first channels, and their shares in every lane."""

    pixels: tuple[Ptr, ...]
    shares: tuple[Vec, ...]


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """Where columns go: a row for each pixel, (tap, channel).

    Attributes:
        target: The first row.
        pitch: From row to row.
        channels: Of the block.
        count: Pixels.
        first: The first tap.
        end: The tap that is none any more.
    """

    target: Ptr
    pitch: IntLike
    channels: Int
    count: Int
    first: IntLike
    end: Int


def corners_of(
    k: KernelBuilder, plan: SamplePlan, feature_map: Ptr, tap: Int, pixel: IntLike
) -> Corners:
    """The corners of a sample; `feature_map` is the block's."""
    pixels, shares = [], []
    first = tap * 4 * plan.capacity + pixel
    for corner in range(4):
        at = first + plan.capacity * corner
        pixels.append(feature_map + plan.index.load_int(at) * plan.sizes.pitch)
        shares.append(plan.share.splat(at))
    return Corners(tuple(pixels), tuple(shares))


def sampled(k: KernelBuilder, c: Corners, at: IntLike) -> Vec:
    """A vector of channels."""
    total = c.shares[0] * c.pixels[0].vec(at, None, k.lanes)
    for share, pixel in zip(c.shares[1:], c.pixels[1:], strict=True):
        total = k.fma(share, pixel.vec(at, None, k.lanes), total)
    return total


def over_vectors(k: KernelBuilder, g: SampleSizes, emit: Callable[[Int], None]) -> None:
    """Call `emit` for the first channel of each vector of a block."""
    step = _UNROLL * k.lanes
    # Pitches are whole vectors: nothing is masked.
    whole = g.pitch // step * step
    with k.range(0, whole, step) as at:
        for u in range(_UNROLL):
            emit(at + u * k.lanes)
    with k.range(whole, g.pitch, k.lanes) as at:
        emit(at)


def sample_rows(k: KernelBuilder, plan: SamplePlan, feature_map: Ptr, rows: ColumnRows) -> Int:
    """Columns of a tile, with zeros up to whole trips.

    A tap's vectors run past its channels into the next one's place, which is written after.

    Returns:
        How many elements a row has.
    """
    used = (rows.end - rows.first) * rows.channels
    padded = (used + (COLUMNS - 1)) // COLUMNS * COLUMNS
    zero = k.zero(1, plan.config.wide)
    with k.range(0, rows.count) as pixel:
        row = rows.target + pixel * rows.pitch
        # What the last tap's vectors write here are zeros, too: the block's channels are filled up.
        with k.range(used, padded) as at:
            row.store(zero, at)
        with k.range(rows.first, rows.end) as tap:
            corners = corners_of(k, plan, feature_map, tap, pixel)
            start = row + (tap - rows.first) * rows.channels
            over_vectors(k, plan.sizes, partial(_store, k, start, corners))
    return padded


def _store(k: KernelBuilder, target: Ptr, corners: Corners, at: Int) -> None:
    target.store(sampled(k, corners, at), at)


def sample_pairs(k: KernelBuilder, plan: SamplePlan, feature_map: Ptr, rows: ColumnRows) -> None:
    """The same in bfloat16 for sums over pixels: a row for two pixels, in pairs of them.

    An odd count is filled up with a pixel of zeros.
    """
    with k.range(0, rows.count, 2) as pixel:
        row = rows.target + pixel * rows.pitch
        there = pixel + 1 < rows.count
        # Where there is no second one, the first is read again: its places are allowed.
        last = there.select(pixel + 1, pixel)
        with k.range(rows.first, rows.end) as tap:
            even = corners_of(k, plan, feature_map, tap, pixel)
            odd = corners_of(k, plan, feature_map, tap, last)
            start = row + (tap - rows.first) * rows.channels * 2
            over_vectors(k, plan.sizes, partial(_store_pair, k, start, even, odd, there))


def _store_pair(
    k: KernelBuilder, target: Ptr, even: Corners, odd: Corners, there: Bool, at: Int
) -> None:
    # Shares of 0 instead would make NaN of an infinite pixel.
    second = there.choose(sampled(k, odd, at), k.zero())
    target.store_halves(sampled(k, even, at), second, at * 2)
