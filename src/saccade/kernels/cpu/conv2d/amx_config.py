"""What the code of `conv2d.amx` depends on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AmxConfig"]


@dataclass(frozen=True, slots=True)
class AmxConfig:
    """Attributes of the code.

    Attributes:
        rows: Tiles along the pixels of a block of sums.
        vectors: Tiles along the channels.
        source: Where windows are read: `there`, pixels where they lie, of 1x1 convolutions;
            `gathered`, side by side in a copy; `sparse`, the same without taps that lie outside
            the image for a whole tile; `shifted`, in a copy of the image's rows between
            zeros, a tile's rows further for each tap; `planes`, side by side in a copy, of an
            image that lies plane by plane.
        element: Type of the image's elements, which only `planes` rounds.
        window: Rows and columns of taps, for `planes`.
        rest: Whether products are left of the last whole tile.
        odd: Whether a window's taps have an odd number of channels.
        ragged: Whether channels do not fill whole tiles, which a copy's last vector is masked for.
        flat: Whether pixels are evenly apart in the result and in every operand.
        prologue: Expression applied to every loaded element; `$0` for none.
        prologue_operands: Type of the elements of each of its operands.
        epilogue: `EpilogueSpec.code`.
    """

    rows: int
    vectors: int
    source: str
    element: str
    window: tuple[int, int]
    rest: bool
    odd: bool
    ragged: bool
    flat: bool
    prologue: str
    prologue_operands: tuple[str, ...]
    epilogue: tuple[str, ...]
