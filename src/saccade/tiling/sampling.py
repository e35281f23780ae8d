"""Positions in an image that is sampled anew, where they are the same for each part of it."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType

from saccade.errors import OptionError
from saccade.tiling.reads import Chain, Reading

__all__ = ["AROUND", "exact_scale", "sampled"]

_LARGEST_PART = 64  # of what a scale may be a fraction of
AROUND = MappingProxyType({"nearest": (0, 1), "linear": (0, 1), "cubic": (-1, 2)})
"""The first and the last neighbour that an interpolation reads, from the one at or before it."""


def exact_scale(given: float | None, before: int, after: int) -> Fraction:
    """Result over operand, which has to be the same for each part of the image.

    Args:
        given: As the model gives it; None if it is the ratio of the sizes.
        before: Size of the operand.
        after: Size of the result.

    Raises:
        OptionError: If it is no simple fraction.
    """
    exact = Fraction(after, before) if given is None else Fraction(given)
    scale = exact.limit_denominator(_LARGEST_PART)
    if scale != exact or scale.numerator > _LARGEST_PART:
        what = f"{before} to {after}" if given is None else f"by {given:g}"
        raise OptionError(f"resizes {what}, which parts of the image are not")
    return scale


def sampled(
    mode: str, coordinate: str, scale: Fraction, sizes: tuple[int, int], around: tuple[int, int]
) -> Chain:
    """What interpolation reads.

    Args:
        mode: "nearest", "linear" or "cubic".
        coordinate: As of `opdefs.Resize`.
        scale: Result over operand.
        sizes: Of the operand and the result.
        around: The first and the last neighbour, from the one at or before a position.

    Raises:
        OptionError: If positions in a part of the image are not those of the whole.
    """
    up, down = scale.denominator, scale.numerator
    if mode == "nearest" and down & (down - 1):
        raise OptionError("takes the nearest pixel at positions that rounding decides")
    halves = ["half_pixel"]
    # One pixel would be taken from the corner.
    halves += ["pytorch_half_pixel"] if sizes[1] > 1 else []
    # The middle that it keeps is moved where sizes were rounded.
    halves += ["half_pixel_symmetric"] if sizes[1] == scale * sizes[0] else []
    if coordinate not in ("asymmetric", *halves):
        raise OptionError(
            f"resizes with the coordinates {coordinate}, which depend on the whole image"
        )
    times, shift = (2, up - down) if coordinate in halves else (1, 0)
    first, last = (shift + near * times * down for near in around)
    return (Reading(times * up, times * down, first, last),)
