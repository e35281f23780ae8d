"""Strides, dilations and padding, which convolutions and pools spell alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.errors import ModelError
from saccade.frontend.onnx.call import OnnxNode
from saccade.ir import Dim
from saccade.ir.dim import add, ceildiv, floordiv, maximum, mul, sub

__all__ = ["SpatialWindow", "read_window"]

_LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class SpatialWindow:
    """A window over the spatial axes.

    Attributes:
        kernel: Taps.
        stride: Distance of windows.
        dilation: Distance of taps.
        padding: Before all axes, then after all axes; symbolic for SAME padding of a symbolic size.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[Dim, ...]

    def sides(self) -> tuple[int, int, int, int] | None:
        """Padding above, left, below and right of images; None where it is symbolic."""
        match self.padding:
            case (int(top), int(left), int(bottom), int(right)):
                return top, left, bottom, right
        return None

    def as_row(self) -> SpatialWindow:
        """A window over one axis as one over the columns of images of one row."""
        before, after = self.padding
        return SpatialWindow(
            (1, *self.kernel), (1, *self.stride), (1, *self.dilation), (0, before, 0, after)
        )

    def along(self, axis: int) -> SpatialWindow:
        """A window over the one axis, as one over the rows of images."""
        before, after = self.padding[axis], self.padding[axis + len(self.kernel)]
        return SpatialWindow(
            (self.kernel[axis], 1), (self.stride[axis], 1), (self.dilation[axis], 1),
            (before, 0, after, 0),
        )  # fmt: skip


def read_window(
    call: OnnxNode, shape: Sequence[Dim], kernel: Sequence[int], *, transposed: bool = False
) -> SpatialWindow:
    """The window that a node's attributes describe.

    Args:
        call: The node.
        shape: Of its first operand.
        kernel: Taps.
        transposed: Leave `auto_pad` to the caller.

    Raises:
        ModelError: If attributes are not positive, or are too few or too many.
    """
    spatial = len(shape) - 2
    if spatial < 1 or len(kernel) != spatial:
        raise call.broken(f"a window over {len(kernel)} axes for an operand of {len(shape)}")
    stride = call.integers("strides") or (1,) * spatial
    dilation = call.integers("dilations") or (1,) * spatial
    pads = call.integers("pads") or (0,) * (2 * spatial)
    for what, values, count in (
        ("kernel_shape", kernel, spatial),
        ("strides", stride, spatial),
        ("dilations", dilation, spatial),
    ):
        if len(values) != count or not all(1 <= v <= _LARGEST for v in values):
            raise call.broken(f"{what} {list(values)} for {spatial} axes")
    # Negative pads crop; importers that cannot crop refuse them.
    if len(pads) != 2 * spatial or not all(abs(p) <= _LARGEST for p in pads):
        raise call.broken(f"pads {list(pads)} for {spatial} axes")
    auto = call.text("auto_pad", "NOTSET")
    padding: tuple[Dim, ...] = pads
    if auto == "VALID":
        padding = (0,) * (2 * spatial)
    # With `auto_pad`, `pads` does not count.
    elif auto in ("SAME_UPPER", "SAME_LOWER") and not transposed:
        padding = _same(shape[2:], kernel, stride, dilation, auto == "SAME_LOWER")
    elif auto not in ("NOTSET", "SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"auto_pad {auto!r} of {call.node.op_type} {call.name!r} is unknown")
    return SpatialWindow(tuple(kernel), stride, dilation, padding)


def _same(
    shape: Sequence[Dim],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    lower: bool,
) -> tuple[Dim, ...]:
    """Padding that keeps `ceil(size / stride)` windows; symbolic only where the stride is not 1."""
    before: list[Dim] = []
    after: list[Dim] = []
    for axis, size in enumerate(shape):
        # Elements from a window's first tap to its last.
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        last = mul(sub(ceildiv(size, stride[axis]), 1), stride[axis])
        # A stride longer than the window may leave elements at the end: nothing to pad then.
        total = maximum(sub(add(last, reach), size), 0)
        small = floordiv(total, 2)
        large = sub(total, small)
        # The odd one lies before for SAME_LOWER, behind for SAME_UPPER.
        before.append(large if lower else small)
        after.append(small if lower else large)
    return (*before, *after)
