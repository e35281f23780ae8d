"""How a vector of output channels reads the channels of its groups, block by block.

A vector is cut into blocks of lanes, so small that no block has lanes of two groups and that
blocks divide a group's channels. A lane holds one element of the image, and meets the filters of
all lanes of its block: for each of them there is a sum, see `pack_grouped`. What the other blocks
of channels of a group hold is read in further steps.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from saccade.backends.cpu.target import Target

__all__ = ["GroupForm", "form_of", "most_pixels"]

_REPEATED = 4  # lanes of a block, where blocks may be as small as wanted: half as many folds as 8
_PIECES = 2  # of a vector that are loaded apart; more would take longer than their products
_MOST_PIXELS = 10  # of a group: more take none of the other loads away


class GroupForm(NamedTuple):
    """What a vector of elements is loaded from, and what it meets.

    Attributes:
        block: Lanes of a block, a power of two: sums of each pixel and vector.
        pieces: Loads of blocks that stand side by side in a vector; 0 where the channels of its
            groups stand so themselves, 1 where all lanes belong to one group.
        loaded: Lanes of a load.
        several: Whether a group has several blocks of channels.
    """

    block: int
    pieces: int
    loaded: int
    several: bool

    def cut(self, lanes: int, kept: int) -> GroupForm:
        """What is left of it where vectors are cut from so many lanes to the first of them."""
        if not self.pieces:
            return self._replace(loaded=self.loaded * kept // lanes)
        return self._replace(pieces=-(-self.pieces * kept // lanes))

    def places(self, lanes: int) -> tuple[int, ...]:
        """For each lane of a vector, which of the loaded elements it holds."""
        if self.pieces:
            return tuple(lane % self.block for lane in range(lanes))
        filters = lanes * self.block // self.loaded
        return tuple(lane // filters * self.block + lane % self.block for lane in range(lanes))


def form_of(channels: int, filters: int, target: Target) -> GroupForm | None:
    """For groups of so many channels and filters; None where lanes would have to be gathered."""
    lanes = target.lanes
    block = gcd(channels, filters, lanes)
    if filters % lanes == 0:
        block = min(block, _REPEATED)
        return GroupForm(block, 1, block, channels > block)
    if lanes % filters == 0 and channels == block:
        return GroupForm(block, 0, lanes // filters * channels, several=False)
    pieces = lanes // block
    return GroupForm(block, pieces, block, channels > block) if pieces <= _PIECES else None


def most_pixels(form: GroupForm, target: Target) -> int:
    """Sums, an element of each pixel and a vector of weights stay in registers."""
    return max(1, min(_MOST_PIXELS, (target.registers - 2) // (form.block + 1)))
