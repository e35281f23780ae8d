"""Convolutions over three axes as convolutions of images: depths are channels of one product.

    y[n,k,d,:,:] = Σ_t Conv2d(x[n,:, d·stride + t·dilation - pad,:,:], w[:,:,t,:,:])

Every depth of the result is an image of the batch, and what its taps of depth read lies side by
side as channels, so that one convolution sums all of it, in registers and in any of the algorithms
that there are. Copying costs T elements for each of x, beside 2·K·R·S operations for each copy.
With one channel in a group nothing would be shared by the sum: there the taps of depth are
convolutions of their own, each added to the one before.

Transposed, the depths of the result fall into classes by their remainder by the stride, as rows and
columns do in `kernels.cpu.conv_transpose2d.direct`: each class reads taps of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.importers._window import SpatialWindow
from saccade.frontend.onnx.moves import crop, move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Value
from saccade.ir.dim import add, ceildiv, floordiv, maximum, mul, sub
from saccade.ir.expr import apply, arg
from saccade.opdefs import Concat, Conv2d, ConvTranspose2d, Pad

__all__ = ["convolve_volume", "convolve_volume_transposed"]

_ADD = apply("add", arg(0), arg(1))


class _DepthTap(NamedTuple):
    """A tap of depth: which one, and the depths of x that it reads, one for each of the result."""

    number: int
    start: Dim
    step: int


def convolve_volume(
    call: OnnxNode,
    op: Conv2d,
    operands: tuple[Value, Value],
    bias: Value | None,
    window: SpatialWindow,
) -> Value:
    """A convolution over depth, rows and columns.

    Args:
        call: The node.
        op: What is done over rows and columns, without padding.
        operands: x [N, C, D, H, W], w [K, C/groups, T, R, S].
        bias: [K].
        window: Over all three axes.

    Returns:
        [N, K, D', P, Q].
    """
    x, w = operands
    x, padding = _padded(call, x, window)
    op = dataclasses.replace(op, padding=padding)
    taps, stride, dilation = window.kernel[0], window.stride[0], window.dilation[0]
    span = sub(x.shape[2], (taps - 1) * dilation + 1)
    if isinstance(span, int) and span < 0:
        reach = (taps - 1) * dilation + 1
        raise call.broken(f"{x.shape[2]} depths and padding are less than the window of {reach}")
    count = add(floordiv(span, stride), 1)
    reads = [_DepthTap(t, t * dilation, stride) for t in range(taps)]
    if w.shape[1] == 1 and taps > 1:
        y = _sum_of_taps(call, op, (x, w), bias, reads, count)
    else:
        stacked = _stacked(call, x, op.groups, reads, count)
        # [K, T, C/groups, R, S]: channels of a tap together, as they are stacked.
        order = move(call, w, transpose_map(w.shape, (0, 2, 1, 3, 4)))
        flat = reshaped(call, order, (w.shape[0], mul(taps, w.shape[1]), *w.shape[3:]))
        y = _biased(call, op, (stacked, flat), bias)
    return _as_volume(call, y, x.shape[0], count)


def _padded(
    call: OnnxNode, x: Value, window: SpatialWindow
) -> tuple[Value, tuple[int, int, int, int]]:
    """Depths are padded in memory, rows and columns by the convolution; negative is cropped."""
    before, after = window.padding[:3], window.padding[3:]
    sides = [side for side in (*before[1:], *after[1:]) if isinstance(side, int)]
    own = len(sides) == 4
    cut: dict[int, tuple[int, int]] = {}
    pads: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    for axis, pair in enumerate(zip(before, after, strict=True)):
        lost = tuple(max(0, -p) if isinstance(p, int) else 0 for p in pair)
        cut[2 + axis] = (lost[0], lost[1])
        kept = [max(0, p) if isinstance(p, int) else p for p in pair]
        pads.append((0, 0) if own and axis else (kept[0], kept[1]))
    x = move(call, x, crop(x.shape, cut))
    if any(pair != (0, 0) for pair in pads):
        x = call.emit(Pad(pads=tuple(pads)), x)
    top, left, bottom, right = (max(0, side) for side in sides) if own else (0, 0, 0, 0)
    return x, (top, left, bottom, right)


def _sum_of_taps(
    call: OnnxNode,
    op: Conv2d,
    operands: tuple[Value, Value],
    bias: Value | None,
    reads: Sequence[_DepthTap],
    count: Dim,
) -> Value:
    """The first tap with the bias, each of the others added to what is there."""
    x, w = operands
    total: Value | None = None
    for tap in reads:
        image = _images(call, x, tap, count)
        part = _tap_of(call, w, tap.number, 2)
        if total is None:
            total = _biased(call, op, (image, part), bias)
        else:
            total = call.emit(dataclasses.replace(op, epilogue=_ADD), image, part, total)
    assert total is not None
    return total


def _tap_of(call: OnnxNode, w: Value, tap: int, axis: int) -> Value:
    """Weights of one tap of depth, without that axis."""
    return move(call, w, slice_map(w.shape, {axis: (tap, 1, 1)}, drop=(axis,)))


def _depths(call: OnnxNode, x: Value, tap: _DepthTap, count: Dim) -> Value:
    """The depths of x [N, C, D, H, W] that a tap reads: [N, count, C, H, W]."""
    part = move(call, x, slice_map(x.shape, {2: (tap.start, count, tap.step)}))
    return move(call, part, transpose_map(part.shape, (0, 2, 1, 3, 4)))


def _images(call: OnnxNode, x: Value, tap: _DepthTap, count: Dim) -> Value:
    """The same as images: [N · count, C, H, W]."""
    part = _depths(call, x, tap, count)
    return reshaped(call, part, (mul(x.shape[0], count), *part.shape[2:]))


def _stacked(
    call: OnnxNode, x: Value, groups: int, reads: Sequence[_DepthTap], count: Dim
) -> Value:
    """What taps read, side by side as channels: [N · count, groups · T · C/groups, H, W]."""
    if len(reads) == 1:
        return _images(call, x, reads[0], count)
    n, channels = x.shape[0], floordiv(x.shape[1], groups)
    rows = x.shape[3:]
    parts = [
        reshaped(call, _depths(call, x, tap, count), (n, count, groups, channels, *rows))
        for tap in reads
    ]
    both = call.emit(Concat(3), *parts)
    depth = mul(len(reads), x.shape[1])
    return reshaped(call, both, (mul(n, count), depth, *rows))


def _biased(
    call: OnnxNode,
    op: Conv2d | ConvTranspose2d,
    operands: tuple[Value, Value],
    bias: Value | None,
) -> Value:
    if bias is None:
        return call.emit(op, *operands)
    column = reshaped(call, bias, (1, bias.shape[0], 1, 1))
    return call.emit(dataclasses.replace(op, epilogue=_ADD), *operands, column)


def _as_volume(call: OnnxNode, y: Value, images: Dim, count: Dim) -> Value:
    """[N · count, K, P, Q] as [N, K, count, P, Q]."""
    apart = reshaped(call, y, (images, count, *y.shape[1:]))
    return move(call, apart, transpose_map(apart.shape, (0, 2, 1, 3, 4)))


def convolve_volume_transposed(
    call: OnnxNode,
    op: ConvTranspose2d,
    operands: tuple[Value, Value],
    bias: Value | None,
    window: SpatialWindow,
    extra: int,
) -> Value:
    """A transposed convolution over depth, rows and columns.

    Args:
        call: The node.
        op: What is done over rows and columns.
        operands: x [N, C, D, H, W], w [C, K/groups, T, R, S].
        bias: [K].
        window: Over all three axes; no padding is negative.
        extra: Depths added at the end.

    Returns:
        [N, K, D', P, Q].
    """
    (x, w), stride, dilation = operands, window.stride[0], window.dilation[0]
    before, after = window.padding[0], window.padding[3]
    assert isinstance(before, int) and isinstance(after, int)  # explicit, or of a known size
    reach = (window.kernel[0] - 1) * dilation + 1
    size = sub(add(mul(sub(x.shape[2], 1), stride), reach + extra), before + after)
    if isinstance(size, int) and size < 1:
        raise call.broken(f"padding cuts off all of {size + before + after} depths")
    count = ceildiv(size, stride)
    classes = []
    for start in range(stride):
        turn, residue = divmod(start + before, stride)
        taps = [t for t in range(window.kernel[0]) if (t * dilation - residue) % stride == 0]
        # Result number j of the class reads depth j + place.
        places = [turn - (t * dilation - residue) // stride for t in taps]
        y = _class(call, op, (x, w), bias, (taps, places), count)
        classes.append(_as_volume(call, y, x.shape[0], count))
    if stride == 1:
        return classes[0]
    n, k, _, *rows = classes[0].shape
    parts = [reshaped(call, one, (n, k, count, 1, *rows)) for one in classes]
    whole = reshaped(call, call.emit(Concat(3), *parts), (n, k, mul(count, stride), *rows))
    return move(call, whole, slice_map(whole.shape, {2: (0, size, 1)}))


def _class(
    call: OnnxNode,
    op: ConvTranspose2d,
    operands: tuple[Value, Value],
    bias: Value | None,
    reads: tuple[list[int], list[int]],
    count: Dim,
) -> Value:
    """Depths of the result that read the same taps: [N · count, K, P, Q]."""
    (x, w), (taps, places) = operands, reads
    if not taps:  # windows shorter than the stride leave depths out: these are the bias alone
        one = (*w.shape[:2], 1, *w.shape[3:])
        known = [size for size in one if isinstance(size, int)]
        if len(known) < len(one):
            raise Refusal("weights whose sizes vary, of windows shorter than their stride")
        zeros = np.zeros(known, w.dtype.numpy)
        w, taps, places = call.build.constant(zeros, call.name), [0], [0]
    before = max(0, -min(places))
    after = maximum(sub(add(count, max(places)), x.shape[2]), 0)
    if before or after != 0:
        x = call.emit(Pad(pads=((0, 0), (0, 0), (before, after), (0, 0), (0, 0))), x)
    tapped = [_DepthTap(t, place + before, 1) for t, place in zip(taps, places, strict=True)]
    stacked = _stacked(call, x, op.groups, tapped, count)
    channels, filters = floordiv(w.shape[0], op.groups), w.shape[1]
    # [groups, T, C/groups, K/groups, R, S]: as the images are stacked.
    apart = (op.groups, 1, channels, filters, *w.shape[3:])
    parts = [reshaped(call, _tap_of(call, w, t, 2), apart) for t in taps]
    both = parts[0] if len(parts) == 1 else call.emit(Concat(1), *parts)
    flat = (mul(len(taps), w.shape[0]), filters, *w.shape[3:])
    return _biased(call, op, (stacked, reshaped(call, both, flat)), bias)
