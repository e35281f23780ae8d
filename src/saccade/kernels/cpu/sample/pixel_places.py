"""Places from -1 to 1 as numbers of pixels, for scalars and for vectors alike."""

from __future__ import annotations

from saccade.backends.cpu.codegen.values import Vec

__all__ = ["pixel_place", "within_reach"]

_FAR = 4.0
"""Pixels outside, of which none is near the image."""


def pixel_place(place: Vec, size: Vec, *, aligned: bool) -> Vec:
    """A place on an axis of so many pixels, counted in pixels.

    Args:
        place: From -1 to 1 within the image.
        size: Of the axis, in as many lanes.
        aligned: Whether -1 and 1 are the middles of the first and the last pixel, not their ends.
    """
    if aligned:
        return (place + 1.0) * 0.5 * (size - 1.0)
    return ((place + 1.0) * size - 1.0) * 0.5


def within_reach(at: Vec, size: Vec) -> Vec:
    """The place, or one as far outside as matters: small enough for an integer, and no NaN."""
    # Comparisons that NaN fails: what is no number is far away, too.
    at = at.compare(">", -_FAR).select(at, at.like(-_FAR))
    high = size + (_FAR - 1.0)
    return at.compare("<", high).select(at, high)
