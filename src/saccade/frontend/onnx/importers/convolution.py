"""Conv and ConvTranspose, of images, of sequences (as images of one row), and of volumes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._volumes import convolve_volume, convolve_volume_transposed
from saccade.frontend.onnx.importers._window import SpatialWindow, read_window
from saccade.frontend.onnx.moves import crop, move, reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Value
from saccade.ir.expr import apply, arg
from saccade.opdefs import Conv2d, ConvTranspose2d, Pad

__all__ = ["convolved", "import_conv", "import_conv_transpose"]

_BIAS = apply("add", arg(0), arg(1))


def import_conv(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Conv 1 to 22."""
    bias = call.value(2) if call.has(2) else None
    return [convolved(call, call.value(0), call.value(1), bias)]


def convolved(
    call: OnnxNode, x: Value, w: Value, bias: Value | None = None, *, integral: bool = False
) -> Value:
    """The convolution that a node's attributes describe.

    Args:
        call: The node.
        x: [N, C, spatial…].
        w: [K, C/groups, taps…].
        bias: [K].
        integral: As of `Conv2d`.
    """
    window = read_window(call, x.shape, _taps(call, w))
    if x.rank != w.rank:
        raise call.broken(f"{x.rank} axes of x and {w.rank} of the weights")
    groups = call.integer("group", 1)
    sequence = x.rank == 3
    if sequence:
        x, w, window = _as_row(call, x), _as_row(call, w), window.as_row()
    elif x.rank not in (4, 5):
        raise Refusal(f"convolution over {x.rank - 2} axes")
    # Of images and volumes alike the last two axes are rows and columns.
    conv = Conv2d(
        stride=(window.stride[-2], window.stride[-1]),
        dilation=(window.dilation[-2], window.dilation[-1]),
        groups=groups,
        integral=integral,
    )
    if x.rank == 5:
        return convolve_volume(call, conv, (x, w), _vector(call, bias), window)
    x, padding = _padded(call, x, window)
    conv = dataclasses.replace(conv, padding=padding)
    return _finish(call, conv, (x, w), bias, sequence=sequence)


def _taps(call: OnnxNode, w: Value) -> tuple[int, ...]:
    """Window of the kernel, which has to be known and what `kernel_shape` says."""
    taps = tuple(t for t in w.shape[2:] if isinstance(t, int))
    if len(taps) != w.rank - 2:
        raise Refusal("the window depends on the size of the input")
    given = call.integers("kernel_shape")
    if given is not None and given != taps:
        raise call.broken(f"kernel_shape {list(given)} for weights {list(w.shape)}")
    return taps


def _finish(
    call: OnnxNode,
    op: Conv2d | ConvTranspose2d,
    operands: tuple[Value, Value],
    bias: Value | None,
    *,
    sequence: bool,
) -> Value:
    """Emit, with the bias in the epilogue; back to a sequence if it was one."""
    bias = _vector(call, bias)
    if bias is None:
        y = call.emit(op, *operands)
    else:
        column = reshaped(call, bias, (1, bias.shape[0], 1, 1))
        y = call.emit(dataclasses.replace(op, epilogue=_BIAS), *operands, column)
    return reshaped(call, y, (y.shape[0], y.shape[1], y.shape[3])) if sequence else y


def _vector(call: OnnxNode, bias: Value | None) -> Value | None:
    """The bias, if it is one number per channel."""
    if bias is not None and bias.rank != 1:
        raise call.broken(f"bias {list(bias.shape)} is not one number per channel")
    return bias


def _as_row(call: OnnxNode, x: Value) -> Value:
    return reshaped(call, x, (x.shape[0], x.shape[1], 1, x.shape[2]))


def _padded(
    call: OnnxNode, x: Value, window: SpatialWindow
) -> tuple[Value, tuple[int, int, int, int]]:
    """Padding that the convolution does itself; negative is cropped, symbolic becomes a Pad."""
    sides = window.sides()
    if sides is not None:
        top, left, bottom, right = sides
        if min(top, left, bottom, right) < 0:
            cut = {2: (max(0, -top), max(0, -bottom)), 3: (max(0, -left), max(0, -right))}
            x = move(call, x, crop(x.shape, cut))
        return x, (max(0, top), max(0, left), max(0, bottom), max(0, right))
    pads: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    half = len(window.padding) // 2
    pads += list(zip(window.padding[:half], window.padding[half:], strict=True))
    return call.emit(Pad(pads=tuple(pads)), x), (0, 0, 0, 0)


def import_conv_transpose(call: OnnxNode) -> Sequence[Operand]:
    """ONNX ConvTranspose 1 to 22; `output_shape` and SAME padding for sizes that are known."""
    x, w = call.value(0), call.value(1)
    if x.rank != w.rank:
        raise call.broken(f"{x.rank} axes of x and {w.rank} of the weights")
    taps = _taps(call, w)
    spatial = x.rank - 2
    extra = call.integers("output_padding") or (0,) * spatial
    if len(extra) != spatial:
        raise call.broken(f"output_padding {list(extra)} for {spatial} axes")
    window = read_window(call, x.shape, taps, transposed=True)
    padding, extra = _transposed_padding(call, x, window, extra)
    window = dataclasses.replace(window, padding=padding)
    sequence = x.rank == 3
    if sequence:
        x, w, window, extra = _as_row(call, x), _as_row(call, w), window.as_row(), (0, *extra)
    elif x.rank not in (4, 5):
        raise Refusal(f"convolution over {x.rank - 2} axes")
    # SAME padding depends on no size here.
    sides = tuple(side for side in window.padding if isinstance(side, int))
    if min(sides) < 0:
        raise Refusal("negative padding of a transposed convolution")
    half = len(window.kernel)
    op = ConvTranspose2d(
        stride=(window.stride[-2], window.stride[-1]),
        padding=(sides[half - 2], sides[half - 1], sides[-2], sides[-1]),
        output_padding=(extra[-2], extra[-1]),
        dilation=(window.dilation[-2], window.dilation[-1]),
        groups=call.integer("group", 1),
    )
    bias = call.value(2) if call.has(2) else None
    if x.rank == 5:
        bias = _vector(call, bias)
        return [convolve_volume_transposed(call, op, (x, w), bias, window, extra[0])]
    return [_finish(call, op, (x, w), bias, sequence=sequence)]


def _transposed_padding(
    call: OnnxNode, x: Value, window: SpatialWindow, extra: tuple[int, ...]
) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """Padding and output padding: explicit, or what `output_shape` or SAME padding comes to."""
    wanted = call.integers("output_shape")
    auto = call.text("auto_pad", "NOTSET")
    spatial = x.rank - 2
    if wanted is None and auto in ("NOTSET", "VALID"):
        return window.padding, extra
    if wanted is not None and len(wanted) < spatial:
        raise call.broken(f"output_shape {list(wanted)} for {spatial} axes")
    before: list[int] = []
    after: list[int] = []
    added = list(extra)
    for axis in range(spatial):
        size = x.shape[2 + axis]
        reach = (window.kernel[axis] - 1) * window.dilation[axis] + 1
        if wanted is None:  # SAME: the result is stride times as large
            total = reach + extra[axis] - window.stride[axis]
        elif isinstance(size, int):
            full = window.stride[axis] * (size - 1) + extra[axis] + reach
            total = full - wanted[-spatial:][axis]
        else:
            raise Refusal("output_shape for a symbolic size")
        added[axis] += max(-total, 0)  # larger than what all taps reach: zeros at the end
        total = max(total, 0)
        # The odd one lies before unless SAME_UPPER is given, as the standard has it.
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return (*before, *after), tuple(added)
