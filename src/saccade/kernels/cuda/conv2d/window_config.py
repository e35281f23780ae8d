"""Windows over images: what the code of every convolution depends on, and the sums' shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.ir import Op
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import interned, per_call
from saccade.kernels.cuda.base import FLOATS, CudaCall
from saccade.opdefs import Conv2d, ConvTranspose2d, DepthToSpaceStore

__all__ = [
    "POINT", "WindowConfig", "channels_of", "excess_of", "fills_pixels", "sums_of", "unfit",
    "weights_unit", "window_of",
]  # fmt: skip

_MOST = 1 << 31  # offsets are int32


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """A window, rows then columns.

    Attributes:
        taps, stride, dilation: Its size, its distance to the next, the distance of its taps.
        padding: Zeros at the top and the left; for a transposed convolution what is cut off.
        padded: Whether some window reaches over an edge of the image.
    """

    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    padded: bool

    def constants(self) -> dict[str, int]:
        """For `Entry.constants`."""
        return {
            "R": self.taps[0], "S": self.taps[1],
            "STRIDE_H": self.stride[0], "STRIDE_W": self.stride[1],
            "DILATION_H": self.dilation[0], "DILATION_W": self.dilation[1],
            "PAD_T": self.padding[0], "PAD_L": self.padding[1], "PADDED": self.padded,
        }  # fmt: skip


_window = interned(WindowConfig)
POINT = _window((1, 1), (1, 1), (1, 1), (0, 0), padded=False)
"""The window of a plain product."""


def window_of(call: CudaCall) -> WindowConfig:
    """The window of a convolution."""
    op: Conv2d | ConvTranspose2d = call.op
    r, s = call.inputs[1].shape[2:]
    return _window((r, s), op.stride, op.dilation, op.padding[:2], any(op.padding))


@per_call
def sums_of(call: CudaCall) -> tuple[int, int, int, int]:
    """[N, K, P, Q], the shape of the sums."""
    if isinstance(call.op, ConvTranspose2d):
        n, k, p, q = call.outputs[0].shape
        return n, k, p, q
    op: Conv2d = call.op
    sums = op.sum_shape(call.inputs[0].shape, call.inputs[1].shape)
    # All are: a call has no unknown sizes.
    n, k, p, q = (dim for dim in sums if isinstance(dim, int))
    return n, k, p, q


def fills_pixels(op: Op, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether the kernels of the family write zeros behind the channels of a result's pixels.

    Those of groups on the matrix units would write them behind each group.
    """
    if not isinstance(op, Conv2d) or isinstance(op.store, DepthToSpaceStore):
        return False
    return op.groups == 1 or shapes[1][1] == 1


@per_call
def channels_of(call: CudaCall) -> int:
    """Channels of a group that are summed over: zeros behind them, where weights have rows for it.

    Such rows are zeros of packed weights. A prologue would make other numbers of those in x.
    """
    x, op = call.inputs[0], call.op
    plain = isinstance(op, Conv2d) and op.groups == 1 and op.prologue == IDENTITY
    own: int = x.shape[1] // op.groups
    return own + x.room if plain and x.zeros and call.constant[1] else own


@per_call
def excess_of(call: CudaCall) -> int:
    """How many more columns than there are fill the last 16 bytes of a pixel of the sums.

    0 where pixels of the result end otherwise. Where it has several parts, its pixels may be whole
    although those of the sums are not.
    """
    y, op = call.outputs[0], call.op
    step = 16 // y.dtype.itemsize
    if not fills_pixels(op, [view.shape for view in call.inputs]):
        return 0
    channels = y.shape[1] + (y.room if y.zeros else 0)
    return -sums_of(call)[1] % step if channels % step == 0 else 0


def unfit(call: CudaCall) -> str | None:
    """Why no kernel of the family takes a call."""
    return _refused(call) or None


@per_call
def _refused(call: CudaCall) -> str:
    """The reason, or nothing: every kernel of the family asks."""
    views = (*call.inputs, *call.outputs)
    if any(view.dtype not in FLOATS for view in views):
        return "element types"
    if any(view.extent >= _MOST for view in views):
        return "2^31 elements or more"
    return ""


def weights_unit(call: CudaCall) -> str:
    """Along which axis of weights that are not packed neighbours lie side by side: k, c or none."""
    k, c, _, _ = call.inputs[1].strides
    return "c" if c == 1 else "k" if k == 1 else ""
