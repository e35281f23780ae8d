"""DeformConv 19 and 22."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._window import read_window
from saccade.frontend.onnx.refusal import Refusal
from saccade.opdefs import DeformConv

__all__ = ["import_deform_conv"]


def import_deform_conv(call: OnnxNode) -> Sequence[Operand]:
    """ONNX DeformConv 19 and 22 over images."""
    x, weight, offset = (call.value(i) for i in range(3))
    if x.rank != 4 or weight.rank != 4:
        raise Refusal(f"deformable convolution over {x.rank - 2} axes")
    taps = tuple(t for t in weight.shape[2:] if isinstance(t, int))
    if len(taps) != 2 or not isinstance(weight.shape[0], int):
        raise Refusal("the window depends on the size of the input")
    given = call.integers("kernel_shape")
    if given is not None and given != taps:
        raise call.broken(f"kernel_shape {list(given)} for weights {list(weight.shape)}")
    window = read_window(call, x.shape, taps)
    sides = window.sides()
    assert sides is not None  # the operator has no `auto_pad`
    if min(sides) < 0:
        raise Refusal("negative padding of a deformable convolution")
    # Both are optional, and without a bias the mask comes first: the operator is told which.
    bias = [call.value(3)] if call.has(3) else []
    mask = [call.value(4)] if call.has(4) else []
    op = DeformConv(
        stride=(window.stride[0], window.stride[1]),
        padding=sides,
        dilation=(window.dilation[0], window.dilation[1]),
        groups=call.integer("group", 1),
        offset_groups=call.integer("offset_group", 1),
        bias=bool(bias),
        mask=bool(mask),
    )
    return [call.emit(op, x, weight, offset, *bias, *mask)]
