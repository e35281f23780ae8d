"""Fourier transforms as products with matrices of cosines and sines; the matrix of mel filters.

    y[…, f, :] = Σ_t x[…, t, :] · M[t, :, f, :]

Real and imaginary parts are neighbours, so that one product does both: M has for each t and f the
two by two numbers by which parts become parts. It is made in float64 and rounded once, and a sum
has an error of a few units of its last place times the root of its length, as products have.
Lengths that networks transform are those of feature maps; longer ones are refused, whose matrices
would take more memory than `_MOST`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import ONNX_DTYPES, pointwise
from saccade.frontend.onnx.moves import move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Array, Value
from saccade.ir.expr import Expr, apply
from saccade.opdefs import Gather, MatMul, Pad

__all__ = ["import_dft", "import_mel_weight_matrix", "import_stft"]

_MOST = 1 << 22  # numbers of a matrix: 1024 complex elements to as many


def import_dft(call: OnnxNode) -> Sequence[Operand]:
    """ONNX DFT 17 and 20, of lengths that are known, up to 1024."""
    x = call.value(0)
    if call.opset < 20:
        axis = call.integer("axis", 1)
    else:
        given = call.integers_of(2, "the axis of a transform") if call.has(2) else (-2,)
        if len(given) != 1:
            raise call.broken(f"{len(given)} axes")
        (axis,) = given
    axis = call.axis(axis, x.rank)
    if axis == x.rank - 1 or x.shape[-1] not in (1, 2):
        raise call.broken(f"axis {axis} of {list(x.shape)}, whose last holds parts of numbers")
    length = None
    if call.has(1):
        (length,) = call.integers_of(1, "the length of a transform") or (None,)
    inverse, onesided = call.flag("inverse"), call.flag("onesided")
    return [_transformed(call, x, axis, length, inverse=inverse, onesided=onesided)]


def _transformed(
    call: OnnxNode, x: Value, axis: int, length: int | None, *, inverse: bool, onesided: bool
) -> Value:
    """The transform along an axis; onesided and inverse, the operand is the half of a spectrum."""
    if not x.dtype.is_float:
        raise call.broken(f"elements of type {x.dtype.value}")
    have, half = x.shape[axis], inverse and onesided
    if length is None:
        if not isinstance(have, int):
            raise Refusal("transforms an axis whose length varies")
        length = 2 * (have - 1) if half else have
    if length < 1:
        raise call.broken(f"a transform of length {length}")
    if onesided and not inverse and x.shape[-1] != 1:
        raise call.broken("one side of the transform of complex numbers")
    read = length // 2 + 1 if half else length
    matrix = _matrix(length, read, x.shape[-1] == 2, inverse=inverse, onesided=onesided)
    x = _of_length(call, x, axis, read)
    *_, written, parts = matrix.shape
    # [outer…, t, part]: the axis last but for the parts, which it is made one with.
    order = [*(a for a in range(x.rank) if a not in (axis, x.rank - 1)), axis, x.rank - 1]
    last = move(call, x, transpose_map(x.shape, order))
    rows = reshaped(call, last, (*last.shape[:-2], read * matrix.shape[1]))
    plain = matrix.reshape(read * matrix.shape[1], written * parts)
    weights = call.build.constant(plain.astype(x.dtype.numpy), f"{call.name}.transform")
    y = call.emit(MatMul(), _at_least_matrix(call, rows), weights)
    y = reshaped(call, y, (*last.shape[:-2], written, parts))
    back = sorted(range(y.rank), key=lambda place: order[place])
    return move(call, y, transpose_map(y.shape, back))


def _at_least_matrix(call: OnnxNode, rows: Value) -> Value:
    return reshaped(call, rows, (1, *rows.shape)) if rows.rank == 1 else rows


def _of_length(call: OnnxNode, x: Value, axis: int, length: int) -> Value:
    """The axis cut, or filled up with zeros."""
    have = x.shape[axis]
    if have == length:
        return x
    if not isinstance(have, int):
        raise Refusal("transforms an axis whose length varies")
    if have > length:
        return move(call, x, slice_map(x.shape, {axis: (0, length, 1)}))
    pads = [(0, 0)] * x.rank
    pads[axis] = (0, length - have)
    return call.emit(Pad(pads=tuple(pads)), x)


def _matrix(length: int, read: int, complex_: bool, *, inverse: bool, onesided: bool) -> Array:
    """Float64 [read, parts read, written, parts written]."""
    half = inverse and onesided
    written = length // 2 + 1 if onesided and not inverse else length
    parts = (2 if complex_ else 1, 1 if half else 2)
    if read * written * parts[0] * parts[1] > _MOST:
        raise Refusal(f"a transform of {length} elements is longer than products are made for")
    # Multiples of the whole turn leave cosines and sines exact.
    turns = np.outer(np.arange(read), np.arange(written)) % length
    angle = 2 * np.pi / length * turns * (1 if inverse else -1)
    cosine, sine = np.cos(angle), np.sin(angle)
    if inverse:
        cosine, sine = cosine / length, sine / length
    if half:
        # Each of the others stands for its mirror image, too.
        twice = np.full((read, 1), 2.0)
        twice[0] = 1
        if length % 2 == 0:
            twice[-1] = 1
        cosine, sine = cosine * twice, sine * twice
    # (a + ib)(c + is) = ac - bs + i(as + bc)
    whole = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    found: Array = whole[:, : parts[0], :, : parts[1]]
    return found


def import_stft(call: OnnxNode) -> Sequence[Operand]:
    """ONNX STFT 17: frames of a signal of known length, each transformed."""
    signal = call.value(0)
    if signal.rank == 2:
        signal = reshaped(call, signal, (*signal.shape, 1))
    if signal.rank != 3 or signal.shape[2] not in (1, 2):
        raise call.broken(f"a signal {list(signal.shape)}")
    (step,) = call.integers_of(1, "the step of frames") or (0,)
    window = call.value(2) if call.has(2) else None
    frame = _frame(call, window)
    samples = signal.shape[1]
    if not isinstance(samples, int):
        raise Refusal("cuts frames of a signal whose length varies")
    if step < 1 or not 1 <= frame <= samples:
        raise call.broken(f"frames of {frame}, {step} apart, of {samples} samples")
    starts = np.arange(1 + (samples - frame) // step) * step
    places = (starts[:, None] + np.arange(frame)).astype(np.int64)
    frames = call.emit(Gather(axis=1), signal, call.build.constant(places, f"{call.name}.frames"))
    if window is not None:
        column = reshaped(call, window, (1, 1, frame, 1))

        def weighed(x: Expr, w: Expr) -> Expr:
            return apply("mul", x, w)

        frames = pointwise(call, weighed, [frames, column])
    onesided = call.flag("onesided", default=True) and signal.shape[2] == 1
    return [_transformed(call, frames, 2, None, inverse=False, onesided=onesided)]


def _frame(call: OnnxNode, window: Value | None) -> int:
    """Samples of a frame: given, or as long as the window."""
    length = None if window is None else window.shape[0] if window.rank == 1 else -1
    if call.has(3):
        (given,) = call.integers_of(3, "the length of frames") or (-1,)
        if length is not None and length != given:
            raise call.broken(f"a window of {length} for frames of {given}")
        return given
    if length is None:
        raise call.broken("neither a window nor a length of frames")
    if not isinstance(length, int):
        raise Refusal("cuts frames whose length varies")
    return length


def import_mel_weight_matrix(call: OnnxNode) -> Sequence[Operand]:
    """ONNX MelWeightMatrix 17, of numbers that are known."""
    bins, length, rate = (
        int(call.constant(i, "a number of mel filters").reshape(-1)[0]) for i in range(3)
    )
    low, high = (float(call.constant(i, "an edge of mel filters").reshape(-1)[0]) for i in (3, 4))
    if min(bins, length, rate) < 1 or not 0 <= low < high <= rate / 2:
        raise call.broken(f"{bins} filters from {low} to {high} Hz at {rate} Hz")
    if bins * (length // 2 + 1) > _MOST:
        raise Refusal(f"{bins} mel filters over {length} samples")
    ends = [2595 * np.log10(1 + edge / 700) for edge in (low, high)]
    # As the standard has it: by the number of edges, so that the last one is below the end.
    mels = ends[0] + np.arange(bins + 2) * ((ends[1] - ends[0]) / (bins + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bins))
    for i, (first, center, last) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = np.arange(first, center + 1)
        matrix[rising, i] = (rising - first) / (center - first) if center > first else 1
        falling = np.arange(center, last)
        matrix[falling, i] = (last - falling) / (last - center) if last > center else 0
    dtype = ONNX_DTYPES.get(call.integer("output_datatype", 1))
    if dtype is None or not dtype.is_float:
        raise Refusal("mel filters of such a type")
    return [call.build.constant(matrix.astype(dtype.numpy), f"{call.name}.filters")]
