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
        rest: Whether products are left of the last whole tile.
        gathered: Whether products read a copy of the chunk's windows; else they read pixels where
            they lie, and copies of those of the last tile alone.
        odd: Whether a window's taps have an odd number of channels.
        ragged: Whether channels do not fill whole tiles, which a copy's last vector is masked for.
        flat: Whether pixels are evenly apart in the result and in every operand.
        prologue: Expression applied to every loaded element; `$0` for none.
        prologue_operands: Type of the elements of each of its operands.
        epilogue: `EpilogueSpec.code`.
    """

    rows: int
    vectors: int
    rest: bool
    gathered: bool
    odd: bool
    ragged: bool
    flat: bool
    prologue: str
    prologue_operands: tuple[str, ...]
    epilogue: tuple[str, ...]
