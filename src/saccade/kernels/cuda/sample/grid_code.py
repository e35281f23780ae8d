"""Pixels around the places of a grid, and their shares; missing axes have one pixel."""

import triton
import triton.language as tl

from saccade.backends.cuda.codegen.elementary import round_even
from saccade.kernels.cuda.reduce.axis_loops_code import coordinates

_CUBIC = tl.constexpr(-0.75)


@triton.jit
def _reflected(at, size, ALIGNED: tl.constexpr):
    """A place behind the mirrors at both ends."""
    if ALIGNED:
        low = 0.0
        length = size - 1.0
    else:
        low = -0.5
        length = size
    twice = tl.where(length == 0, 1.0, 2 * length)
    shift = (at - low) - tl.floor(tl.div_rn(at - low, twice)) * twice
    inside = tl.where(shift > length, twice - shift, shift) + low
    return tl.where(length == 0, 0.0, inside)


@triton.jit
def place_of(g, n, MODE: tl.constexpr, PADDING: tl.constexpr, ALIGNED: tl.constexpr):
    """Where along an axis of n pixels a number of the grid points to, in pixels."""
    size = n.to(tl.float32) + g * 0
    at = (g + 1.0) * 0.5 * (size - 1.0) if ALIGNED else ((g + 1.0) * size - 1.0) * 0.5
    if PADDING == "reflection":
        at = _reflected(at, size, ALIGNED=ALIGNED)
    # Of cubic places each pixel is moved inside.
    if (PADDING != "zeros") & (MODE != "cubic"):
        at = tl.minimum(tl.maximum(at, 0.0), size - 1.0)
    # What is no number, or far away, has no pixel near it.
    return tl.where(at > -4.0, tl.minimum(at, size + 3.0), -4.0)


@triton.jit
def _base(at, MODE: tl.constexpr):
    """The pixel before a place, or the nearest one."""
    return round_even(at) if MODE == "nearest" else tl.floor(at)


@triton.jit
def _outer(d):
    return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC


@triton.jit
def _inner(d):
    return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1.0


@triton.jit
def _tap(
    at, base, n, i: tl.constexpr, MODE: tl.constexpr, PADDING: tl.constexpr, ALIGNED: tl.constexpr
):  # fmt: skip
    """Pixel i of those around a place along an axis: its index, its share, whether it counts."""
    t = at - base
    if MODE == "nearest":
        index = base
        share = t * 0 + 1.0
    elif MODE == "linear":
        index = base + i
        share = t if i == 1 else 1.0 - t
    else:
        index = base + (i - 1)
        if i == 0:
            share = _outer(t + 1.0)
        elif i == 1:
            share = _inner(t)
        elif i == 2:
            share = _inner(1.0 - t)
        else:
            share = _outer(2.0 - t)
    size = n.to(tl.float32)
    inside = (index >= 0) & (index < size)
    if PADDING == "zeros":
        counts = inside
    else:
        counts = index == index  # noqa: PLR0124 - all of them
        if (PADDING == "reflection") & (MODE == "cubic"):
            index = round_even(_reflected(index, size + index * 0, ALIGNED=ALIGNED))
    index = tl.minimum(tl.maximum(index.to(tl.int32), 0), n - 1)
    return index, share, counts


@triton.jit
def sample(
    x, points, y, extra,
    c, d, h, w, p0, p1, p2, x_n, x_c, x_d, x_h, x_w, g_n, g_0, g_1, g_2, g_a, y_n, y_c, y_0, y_1,
    y_2,
    MODE: tl.constexpr, PADDING: tl.constexpr, ALIGNED: tl.constexpr, AXES: tl.constexpr,
    TAPS: tl.constexpr, X_UNIT: tl.constexpr, Y_UNIT: tl.constexpr, BP: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """BP places times BC channels of one image; AXES: how many of d, h and w there are."""
    places = p0 * p1 * p2
    wide = tl.cdiv(c, BC)
    high = tl.cdiv(places, BP)
    image = tl.program_id(0) // (wide * high)
    place = tl.program_id(0) // wide % high * BP + tl.arange(0, BP)
    channel = tl.program_id(0) % wide * BC + tl.arange(0, BC)
    there = place < places
    i0, i1, i2 = coordinates(place, p1, p2, AXES=3)
    from_ = points + image * g_n + i0 * g_0 + i1 * g_1 + i2 * g_2
    # The grid names the last axis first.
    column = tl.load(from_, mask=there, other=0).to(tl.float32)
    at_w = place_of(column, w, MODE=MODE, PADDING=PADDING, ALIGNED=ALIGNED)
    at_h = at_w
    at_d = at_w
    if AXES > 1:
        line = tl.load(from_ + g_a, mask=there, other=0).to(tl.float32)
        at_h = place_of(line, h, MODE=MODE, PADDING=PADDING, ALIGNED=ALIGNED)
    if AXES > 2:
        layer = tl.load(from_ + 2 * g_a, mask=there, other=0).to(tl.float32)
        at_d = place_of(layer, d, MODE=MODE, PADDING=PADDING, ALIGNED=ALIGNED)
    base_d = _base(at_d, MODE=MODE)
    base_h = _base(at_h, MODE=MODE)
    base_w = _base(at_w, MODE=MODE)
    D_TAPS: tl.constexpr = TAPS if AXES > 2 else 1
    H_TAPS: tl.constexpr = TAPS if AXES > 1 else 1
    origin = x + image * x_n + (channel if X_UNIT else channel * x_c)[None, :]
    mask = there[:, None] & (channel < c)[None, :]
    sums = tl.zeros((BP, BC), tl.float32)
    for a in tl.static_range(D_TAPS):
        for b in tl.static_range(H_TAPS):
            lines = place * 0
            by = at_w * 0 + 1.0
            counted = there
            if AXES > 2:
                index, by, inside = _tap(at_d, base_d, d, a, MODE, PADDING, ALIGNED)
                lines += index * x_d
                counted = counted & inside
            if AXES > 1:
                index, share, inside = _tap(at_h, base_h, h, b, MODE, PADDING, ALIGNED)
                lines += index * x_h
                counted = counted & inside
                by = by * share if AXES > 2 else share
            for s in tl.static_range(TAPS):
                index, share, inside = _tap(at_w, base_w, w, s, MODE, PADDING, ALIGNED)
                taken = mask & (counted & inside)[:, None]
                pixel = tl.load(origin + (lines + index * x_w)[:, None], mask=taken, other=0)
                weight = by * share if AXES > 1 else share
                # What is outside is no pixel's number, not one times zero.
                sums += tl.where(taken, pixel.to(tl.float32) * weight[:, None], 0.0)
    to = y + image * y_n + (i0 * y_0 + i1 * y_1 + i2 * y_2)[:, None]
    to += (channel if Y_UNIT else channel * y_c)[None, :]
    tl.store(to, sums.to(y.dtype.element_ty), mask=mask)
