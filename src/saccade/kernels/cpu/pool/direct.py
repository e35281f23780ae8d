"""Pooling of channels-last images: vectors over channels, windows clipped at the borders.

    y[n, c, p, q] = epilogue(max or mean over the taps (r, s) that lie on the image)

Small windows that lie side by side are done in blocks, which share what is found of their rows and
columns (`direct_blocks`). The others walk their valid rows and columns one by one (`direct_code`).
No padding is ever read. A mean divides by the exact number of taps. NaN wins a maximum. Refuses
planar images (the layout converts), float64 and integers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.kernels.base import In, Launch, Out, Scratch, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import beyond_caches, machine
from saccade.kernels.cpu.pointwise.channel_epilogue import FinishCode, FinishPlan, plan_finish
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS
from saccade.kernels.cpu.pool.direct_code import PoolCode
from saccade.kernels.cpu.pool.direct_lanes import vector_lanes
from saccade.opdefs.pool import Pool2d

__all__ = ["POOL", "PoolConfig"]

_MOST_COLUMNS = 8  # columns of a window that are unrolled
_MOST_TAPS = 25  # of windows that are done in blocks
_SPAN = 6  # columns of the image under a block
_HEIGHT = 4  # rows of windows in a block, where they have rows in common
_FAR_HEIGHT = 2  # the same beyond the caches: memory follows fewer rows at a time
_BANDS = 2  # of rows of windows, for each thread
_ROWS = 8  # of a band at least


@dataclass(frozen=True)
class PoolConfig:
    """What the code depends on.

    Attributes:
        kind: `max` or `average`.
        element: Element type of the image.
        include_pad: Whether means count taps in the padding.
        finish: The epilogue.
        unrolled: Taps per row of a window that is done alone where they are unrolled, else 0.
        rows, columns: Taps of a window where there are blocks, else 0.
        stride: From window to window, down and along, where there are blocks.
        height, width: Windows of a block, down and along.
        masked: Whether there are fewer channels than lanes.
        zeros: Whether what is outside the image is taken for zeros.
        fetch: Whether what the next blocks need is asked for.
        streamed: Whether results go past the caches.
    """

    kind: str
    element: str
    include_pad: bool
    finish: FinishCode
    unrolled: int = 0
    rows: int = 0
    columns: int = 0
    stride: tuple[int, int] = (0, 0)
    height: int = 1
    width: int = 1
    masked: bool = False
    zeros: bool = False
    fetch: bool = False
    streamed: bool = False


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype not in FLOATS:
        return f"elements of type {x.dtype.value}"
    if not (x.channels_last and out.channels_last):
        return "planar images"
    plan = plan_finish(call)
    return plan if isinstance(plan, str) else None


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase; a chunk is a band of rows of windows, or a block of its channels."""
    x, out = call.inputs[0], call.outputs[0]
    finish = plan_finish(call)
    assert not isinstance(finish, str)
    n, channels, p, q = out.shape
    config = _config(call, finish)
    band, block = _parts(call, config.height)
    # Without columns there is no window, and nothing to claim.
    bands, blocks = -(-p // band), -(-channels // block) if q else 0
    cut = {"images": n, "bands": bands, "band": band, "blocks": blocks, "block": block}
    integers: dict[str, int | tuple[int, ...]] = {**cut, **_windows(call), **finish.integers}
    lanes = _lanes(call)
    row = (-(-block // lanes) + 1) * lanes * x.dtype.itemsize
    zeros = {"zeros": Scratch(row)} if config.zeros else {}
    operands = {"x": In(0), "y": Out(0), **zeros, **finish.operands}
    return (Launch(config, operands, integers, n * bands * blocks),)


def _windows(call: CpuCall) -> dict[str, int]:
    """Where windows, images and results lie."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    _, channels, p, q = out.shape
    return {
        "channels": channels,
        "p": p,
        "q": q,
        "h": x.shape[2],
        "w": x.shape[3],
        "r": op.kernel[0],
        "s": op.kernel[1],
        "stride_h": op.stride[0],
        "stride_w": op.stride[1],
        "dilation_h": op.dilation[0],
        "dilation_w": op.dilation[1],
        **dict(zip(("top", "left", "bottom", "right"), op.padding, strict=True)),
        **image_strides("x", x.strides),
        **image_strides("y", out.strides),
    }


def _config(call: CpuCall, finish: FinishPlan) -> PoolConfig:
    op, (x, out) = call.op, (call.inputs[0], call.outputs[0])
    (rows, columns), (down, along) = op.kernel, op.stride
    unrolled = columns if columns <= _MOST_COLUMNS else 0
    alone = PoolConfig(op.kind, x.dtype.value, op.count_include_pad, finish.code, unrolled)
    if op.dilation != (1, 1) or rows * columns > _MOST_TAPS or 0 in out.shape:
        return alone
    (top, left, _, _), (_, channels, height, width) = op.padding, x.shape
    # How far the last windows reach past the image: more than padding where their number is rounded
    # up.
    below = (out.shape[2] - 1) * down - top + rows - height
    beyond = (out.shape[3] - 1) * along - left + columns - width
    padded = max(top, left, below, beyond) > 0
    far = x.nbytes + out.nbytes > call.target.l3 // 2
    tall = min(_FAR_HEIGHT if far else _HEIGHT, out.shape[2])
    lanes = _lanes(call)
    lines = all(n % lanes == 0 for n in (channels, *out.strides[2:], out.strides[0]))
    return replace(
        alone, rows=rows, columns=columns, stride=op.stride,
        height=tall if rows > down else 1,
        width=max(1, min((_SPAN - columns) // along + 1, out.shape[3])),
        masked=channels < lanes, zeros=op.kind == "average" and padded, fetch=far,
        streamed=lines and beyond_caches(call.target, out.nbytes),
    )  # fmt: skip


def _parts(call: CpuCall, height: int) -> tuple[int, int]:
    """Rows of windows in a band, a multiple of `height`, and channels of a chunk.

    Neighbouring bands read some rows twice, and few channels make short runs: there are no more of
    either than it takes to keep the team busy.
    """
    n, channels, rows, _ = call.outputs[0].shape
    # Threads for each image.
    team = -(-call.threads // max(1, n)) if call.threads > 1 else 1
    tall = max(1, min(_BANDS, rows // (_ROWS * team)))
    bands = team * tall if rows >= 2 * team else 1
    band = -(-max(1, rows) // bands)
    band = -(-band // height) * height
    vectors = max(1, -(-channels // _lanes(call)))
    pieces = min(vectors, -(-call.threads // max(1, n * -(-rows // band))))
    return band, -(-vectors // pieces) * _lanes(call)


def _lanes(call: CpuCall) -> int:
    """Elements of a vector in a block."""
    return vector_lanes(call.inputs[0].dtype.value, call.target.lanes)


def emit(k: KernelBuilder, config: PoolConfig) -> None:
    """The code of one configuration."""
    PoolCode(k, config).emit()


def cost(call: CpuCall) -> float:
    """Microseconds: a load and an operation per valid tap."""
    out, x = call.outputs[0], call.inputs[0]
    taps = call.op.kernel[0] * call.op.kernel[1]
    nbytes = x.nbytes + out.nbytes
    return machine(call.target).roofline(4.0 * taps * out.size, nbytes, call.threads, 0.5)


POOL = CpuKernel("pool.direct", (Pool2d,), PoolConfig, supports, single_variant(launch, cost), emit)
