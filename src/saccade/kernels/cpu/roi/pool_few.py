"""RoiPool of few channels: straight from planes, with the bins of a row side by side.

A single phase, and nothing is copied (`pool_few_code`). Refuses images whose rows, and results
whose bins are not neighbours in memory, rows of more bins than a vector has lanes, and targets that
do not permute lanes.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.roi.box_operands import plan_boxes, refuse_boxes
from saccade.kernels.cpu.roi.channel_blocks import flat_planes
from saccade.kernels.cpu.roi.pool import guessed_pixels
from saccade.kernels.cpu.roi.pool_few_code import ROWS, RowMaximaCode, emit_row_maxima
from saccade.opdefs.roi_pool import RoiPool

__all__ = ["ROI_POOL_FEW"]

_PART = 8192  # bins of a chunk (by eye)
# Cycles to a pixel of a bin, of boxes that a vector spans and of others: with them and `pool`'s the
# kernel is chosen that takes at most 15% longer than the other in 153 of 170 cases (Zen 4).
_SLIM, _WIDE = 0.6, 1.0
_TOGETHER = 2  # channels, at least


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, *results = call.inputs[0], *call.outputs[: 1 + call.op.places]
    if x.dtype not in FLOATS or results[0].dtype is not x.dtype:
        return f"{results[0].dtype.value} from {x.dtype.value}"
    nbytes = max(4, x.dtype.itemsize)
    if not call.target.permutes(nbytes):
        return f"lanes of {nbytes} bytes cannot be permuted"
    if results[0].shape[3] > call.target.lanes * 4 // nbytes:
        return "a row has more bins than a vector has lanes"
    if x.strides[3] != 1 and x.shape[3] != 1:
        return "a row's pixels are not neighbours in memory"
    if not all(map(flat_planes, results)):
        return "bins of the results are not neighbours in memory"
    return refuse_boxes(call)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The only phase."""
    x, results = call.inputs[0], call.outputs[: 1 + call.op.places]
    n, channels, h, w = x.shape
    count, _, rows, columns = results[0].shape
    boxes = plan_boxes(call, x, n)
    bad: Operand = Out(1 + call.op.places) if call.op.report else Temp(0, 64)
    parts = count // max(1, _PART // max(1, rows * columns * channels)) + 1
    integers = {
        **boxes.integers,
        "scale": real_word(call.op.scale),
        **{"ph": rows, "pw": columns, "channels": channels, "h": h, "w": w},
        **image_strides("x", x.strides, "nch"),
        "parts": parts,
    }
    outs: dict[str, Operand] = {}
    for name, index, view in zip(("out", "places"), range(2), results, strict=False):
        outs[name] = Out(index)
        integers[f"{name}_box"], integers[f"{name}_channel"] = view.strides[:2]
    nbytes = max(4, x.dtype.itemsize)
    lanes = call.target.lanes * 4 // nbytes
    # Two channels share a vector where a row of bins leaves half of it.
    sides = 2 if 2 * columns <= lanes else 1
    vectors = 2 if channels > sides else 1
    size = ROWS * vectors * lanes
    code = RowMaximaCode(x.dtype.value, boxes.code, sides, vectors, call.op.places)
    operands = {
        "x": In(0),
        **outs,
        **boxes.operands,
        "bad": bad,
        "values": Scratch(size * nbytes),
        "numbers": Scratch(size * 4),
        "rows": Scratch(8 * max(1, rows)),
    }
    return (Launch(code, operands, integers, parts),)


def emit(k: KernelBuilder, code: RowMaximaCode) -> None:
    """The code of one configuration."""
    emit_row_maxima(k, code)


def cost(call: CpuCall) -> float:
    """Microseconds, see `pool.cost`."""
    x, out, speeds = call.inputs[0], call.outputs[0], machine(call.target)
    side, pixels = guessed_pixels(call)
    cycles = pixels * (_SLIM if side <= call.target.lanes else _WIDE)
    count = out.shape[0] * (max(_TOGETHER, x.shape[1]) * out.shape[2] * out.shape[3] * cycles)
    return speeds.step + count * (2 * call.target.lanes / speeds.flops / call.threads)


ROI_POOL_FEW = CpuKernel(
    "roi.pool_few", (RoiPool,), RowMaximaCode, supports, single_variant(launch, cost), emit
)
