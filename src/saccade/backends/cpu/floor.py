"""What the CPU's algorithms need at least."""

from __future__ import annotations

from math import prod

from saccade.ir import DType
from saccade.kernels.base import View
from saccade.kernels.cpu.conv2d.epilogue_spec import static_sums
from saccade.kernels.cpu.conv2d.lattice_forms import lengths
from saccade.kernels.cpu.conv2d.lattice_points import LONGEST, POINTS
from saccade.kernels.cpu.conv2d.winograd_points import bases, count_of, whole_tile
from saccade.opdefs import Conv2d

__all__ = ["products_of_transforms"]


def products_of_transforms(op: Conv2d, x: View, w: View) -> float | None:
    """Operations of the products of Winograd's transforms or of short lattices, the fewer.

    Without the transforms themselves. With taps apart, the results of every lattice are an image of
    their own.

    Args:
        op: Bound.
        x: Its input.
        w: Its weights.

    Returns:
        None where neither can be used.
    """
    plain = w.shape[2:] == (3, 3) and op.groups == 1
    forms = (((1, 1), op.dilation), ((2, 2), (1, 1)))  # strides with the distances that they allow
    if not plain or (op.stride, op.dilation) not in forms or x.dtype not in (DType.F32, DType.BF16):
        return None
    n, k, *size = static_sums(op, x.shape, w.shape)
    axes = [lengths(extent, apart) for extent, apart in zip(size, op.dilation, strict=True)]
    stride = op.stride[0]
    tiles = prod(_products(axis, stride) for axis in axes)
    if (
        stride == 1
        and op.padding == op.dilation * 2
        and all(axis[0][0] <= LONGEST for axis in axes)
    ):
        between_zeros = (sum(POINTS[pixels] * many for pixels, many in axis) for axis in axes)
        tiles = min(tiles, prod(between_zeros))
    return 2.0 * n * k * x.shape[1] * tiles


def _products(axis: tuple[tuple[int, int], ...], stride: int) -> int:
    """Of an axis of lattices: the longest tiles, what is left over by a shorter one."""
    base = max(bases(stride))
    found = 0
    for pixels, many in axis:
        tiles, rest = divmod(pixels, base)
        found += many * (tiles * whole_tile(base, stride).count)
        found += many * count_of(base, rest, stride)
    return found
