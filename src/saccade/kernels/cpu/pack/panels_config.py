"""What a native packer does to a constant, as plain data.

A packed constant is panels: `width` rows of the source side by side (filters, columns), lane by
lane, for each channel and tap that lies behind a row. In float32 `panel[tap][channel][lane]`, in
pairs `panel[tap][channel / 2][lane][channel % 2]` in bfloat16, as spectra
`panel[frequency][channel][lane]`. One set of code does them all: sizes, strides and matrices are
operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = [
    "PITCH",
    "PackConfig",
    "Panels",
    "Spectra",
    "column_panels",
    "element_panels",
    "row_panels",
    "stored_panels",
]

PITCH = 16
"""Lanes are listed in multiples of the widest vector."""
# Bytes of what is gathered before it is written: it stays in the L1 cache.
_TILE = 24 << 10
# A warm start asks for the order here: it does not read the objects that have it too.
_SIZES = (
    "panels", "width", "pitch", "channels", "taps", "block", "by_channel", "to_panel", "to_square",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackConfig:
    """What the code depends on.

    Attributes:
        gather: `rows` where what lies behind a lane is contiguous in the source, channel by
            channel, so that squares of vectors are transposed in registers; `columns` where the
            lanes of a panel are; `elements` where neither is: one by one.
        result: `float32`, `pairs` of bfloat16, or `spectra`.
        source: Type of the source's elements; bfloat16 is gathered as `elements`.
    """

    gather: str
    result: str
    source: str = "float32"

    @property
    def pointers(self) -> tuple[str, ...]:
        """Names of the code's buffers, as they lie in its argument block."""
        matrices = ("matrices",) if self.result == "spectra" else ()
        return ("source", "lanes", "beside", *matrices, "target", "tile")

    @property
    def integers(self) -> tuple[str, ...]:
        """The same of its integers."""
        return (*_SIZES, "down", "along") if self.result == "spectra" else _SIZES


@dataclass(frozen=True, eq=False, slots=True)
class Spectra:
    """`u = (D g Aᵀ) / divisor` of the 3x3 taps g of every row and channel, in float32.

    Attributes:
        down: D, [rows, 3].
        along: A, [columns, 3].
        divisor: Of all sums; 1 leaves them as they are.
        frequency_major: Whether all panels of a frequency lie together, or all frequencies of a
            panel.
    """

    down: Array
    along: Array
    divisor: float = 1.0
    frequency_major: bool = False

    @property
    def frequencies(self) -> int:
        """Values for each filter and channel."""
        return len(self.down) * len(self.along)

    @property
    def numbers(self) -> Array:
        """D, A and the divisor, flat, as the code reads them."""
        entries = (self.down.reshape(-1), self.along.reshape(-1), [self.divisor])
        return np.concatenate(entries).astype(np.float32)


@dataclass(frozen=True, eq=False, slots=True)
class Panels:
    """Panels of one width that follow each other in a packed constant.

    Attributes:
        config: Of the code.
        lanes: int64 [panels, width rounded up to `PITCH`]: the source's element where each lane
            begins; -1 for zeros.
        width: Lanes of a panel.
        channels: Channels behind each lane.
        places: int64 [taps]: elements from a channel's begin to each of its taps.
        by_channel: Elements from channel to channel.
        spectra: The transform, for `spectra`.
        start: First byte of the panels in the constant.
    """

    config: PackConfig
    lanes: Array
    width: int
    channels: int
    places: Array
    by_channel: int
    spectra: Spectra | None = field(default=None)
    start: int = 0

    @property
    def count(self) -> int:
        """Number of panels."""
        return len(self.lanes)

    @property
    def pitch(self) -> int:
        """Lanes from panel to panel in `lanes`, and from row to row of a tile."""
        return -(-self.width // PITCH) * PITCH

    @property
    def taps(self) -> int:
        """Taps of a channel."""
        return len(self.places)

    @property
    def squares(self) -> int:
        """Runs of channels in a panel: taps, or frequencies."""
        return self.taps if self.spectra is None else self.spectra.frequencies

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the result."""
        return 2 if self.config.result == "pairs" else 4

    @property
    def square_bytes(self) -> int:
        """Bytes of all channels of one square of a panel."""
        pairs = self.config.result == "pairs"
        return self.itemsize * self.width * (self.channels + (self.channels % 2 if pairs else 0))

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel."""
        return self.squares * self.square_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of all panels."""
        return self.count * self.panel_bytes

    @property
    def scattered(self) -> bool:
        """Whether a panel does not lie together in the constant."""
        return self.spectra is not None and self.spectra.frequency_major

    @property
    def block(self) -> int:
        """Channels that are gathered together, an even number."""
        # Even, so that no pair of channels is cut.
        most = _TILE // (4 * self.taps * self.pitch) // 2 * 2
        return max(2, min(most, self.channels + self.channels % 2))

    @property
    def tile_rows(self) -> int:
        """Rows of lanes that gathering together takes space for; whole vectors are transposed."""
        return self.block * self.taps + PITCH

    @property
    def tile_bytes(self) -> int:
        """Bytes of these rows."""
        return 4 * self.tile_rows * self.pitch

    def beside(self, part: range) -> Array:
        """The operand that goes with the way of gathering, for some of the panels.

        What lanes without a source read; how many lanes each panel has; or the places of taps.
        """
        if self.config.gather == "rows":
            # As many as are read of the longest row.
            return np.zeros(self.tile_rows, np.float32)
        if self.config.gather == "columns":
            counts: Array = np.count_nonzero(self.lanes[part.start : part.stop] >= 0, axis=1)
            return counts
        return self.places

    def strides(self, count: int) -> tuple[int, int]:
        """Bytes from panel to panel and from square to square where `count` panels lie together."""
        if self.scattered:
            return self.square_bytes, count * self.square_bytes
        return self.panel_bytes, self.square_bytes

    def integers(self, count: int, strides: tuple[int, int]) -> dict[str, int]:
        """The integer parameters of the code that packs so many panels, by name."""
        to_panel, to_square = (step // self.itemsize for step in strides)
        found = {
            "panels": count, "width": self.width, "pitch": self.pitch, "channels": self.channels,
            "taps": self.taps, "block": self.block, "by_channel": self.by_channel,
            "to_panel": to_panel, "to_square": to_square,
        }  # fmt: skip
        if self.spectra is not None:
            found |= {"down": len(self.spectra.down), "along": len(self.spectra.along)}
        return found


def _in_panels(starts: Array, width: int) -> Array:
    """Lanes of panels from where each row begins, int64 [..., rows], -1 for zeros.

    Returns:
        int64 [..., panels, width rounded up to `PITCH`].
    """
    *batch, rows = starts.shape
    panels = -(-rows // width)
    # The last panel of each batch is filled up first, then every panel to whole vectors.
    filled = np.full((*batch, panels * width), -1, np.int64)
    filled[..., :rows] = starts
    lanes = np.full((prod(batch) * panels, -(-width // PITCH) * PITCH), -1, np.int64)
    lanes[:, :width] = filled.reshape(-1, width)
    return lanes


def row_panels(
    starts: Array,
    width: int,
    channels: int,
    taps: int,
    *,
    pairs: bool = False,
    spectra: Spectra | None = None,
    start: int = 0,
) -> tuple[Panels, ...]:
    """Panels of rows [channels, taps] that are contiguous in the source.

    Args:
        starts: int64 [..., rows]: where each begins, -1 for zeros; panels do not go on from one
            batch to the next.
        width: Rows of a panel.
        channels: Of a row.
        taps: Of a channel.
        pairs: Whether the result is pairs of bfloat16.
        spectra: The transform of the taps, if any.
        start: First byte of the panels in the constant.
    """
    result = "spectra" if spectra is not None else "pairs" if pairs else "float32"
    places = np.arange(taps, dtype=np.int64)
    lanes = _in_panels(starts, width)
    config = PackConfig("rows", result)
    return _packable(Panels(config, lanes, width, channels, places, taps, spectra, start))


def column_panels(
    starts: Array, width: int, channels: int, by_channel: int, *, pairs: bool
) -> tuple[Panels, ...]:
    """Panels of rows that begin side by side, and whose channels are `by_channel` apart."""
    config = PackConfig("columns", "pairs" if pairs else "float32")
    lanes, places = _in_panels(starts, width), np.zeros(1, np.int64)
    return _packable(Panels(config, lanes, width, channels, places, by_channel))


def element_panels(
    starts: Array, width: int, channels: int, by_channel: int, places: Sequence[int], *, pairs: bool
) -> tuple[Panels, ...]:
    """Panels of rows whose channels are `by_channel` apart, and whose taps are at `places`."""
    config = PackConfig("elements", "pairs" if pairs else "float32")
    lanes = _in_panels(starts, width)
    return _packable(
        Panels(config, lanes, width, channels, np.asarray(places, np.int64), by_channel)
    )


def stored_panels(
    panels: Panels, shape: Sequence[int], strides: Sequence[int], source: str
) -> Panels:
    """The same panels of a source that is stored in another way.

    Args:
        panels: Of weights [K, C, taps…] or [C, K, taps…], float32 and row-major.
        shape: Of these weights.
        strides: Elements between neighbours along each axis.
        source: Type of the elements.
    """
    dense = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    if tuple(strides) == dense and source == "float32":
        return panels

    def moved(places: Array) -> Array:
        along = np.unravel_index(np.maximum(places, 0), tuple(shape))
        elements = sum(at * step for at, step in zip(along, strides, strict=True))
        found: Array = np.where(places < 0, -1, elements).astype(np.int64)
        return found

    # One channel may be as far from the next as there are elements; nothing reads the next.
    step = np.asarray(panels.by_channel if panels.channels > 1 else 0)
    config = PackConfig("elements", panels.config.result, source)
    return replace(
        panels, config=config, lanes=moved(panels.lanes), places=moved(panels.places),
        by_channel=int(moved(step)),
    )  # fmt: skip


def _packable(panels: Panels) -> tuple[Panels, ...]:
    """Nothing where there is nothing to pack, or where pairs do not fill vectors."""
    uneven = panels.config.result == "pairs" and panels.width % PITCH
    return () if uneven or not panels.nbytes else (panels,)
