"""RoiAlign of maps of few channels: rows of a box first, then columns; one phase, nothing copied.

Bins are separable: a row of bins is a weighted sum of rows of the map, in whole vectors of its
columns, and the bins of that row are weighted sums of its columns. So vectors are full however few
channels there are, and of a planar map no channels have to be brought together. Tables of samples
are a thread's own. Each box costs the same whatever lies between its samples, without a branch.

Refuses grids that adapt to the box, the mode "max", maps and results whose rows are not dense or of
unlike layouts, and wide maps or more channels than make this worthwhile.
"""

from __future__ import annotations

from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp, View, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS, wide
from saccade.kernels.cpu.roi.align import estimate, per_box
from saccade.kernels.cpu.roi.align_separable_code import ProductsCode, emit_products
from saccade.kernels.cpu.roi.align_separable_tables import GridCode, table
from saccade.kernels.cpu.roi.bilinear_tables import sampling_reals
from saccade.kernels.cpu.roi.box_operands import plan_boxes, refuse_boxes
from saccade.opdefs.roi_align import RoiAlign

__all__ = ["ROI_ALIGN_SEPARABLE"]

_MOST_SAMPLES = 4  # of a bin along an axis: twice as many entries stay in registers
_MOST_BINS = 64  # along an axis
_MOST_ELEMENTS = 1600  # of a row, all channels: what lies between samples is read and summed too
_PARTS = 256  # chunks at most (by eye)
_PART = 4.0  # microseconds of a chunk at least (by eye)
# Microseconds of a box, of a row of bins and of a column of the map: one Zen 4 core.
_BOX, _ROW, _COLUMN = 0.06, 0.002, 0.0004
_ROWS, _PLANES = 8, 8  # that are summed side by side


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    if op.mode != "average" or not 0 < op.ratio <= _MOST_SAMPLES:
        return f"mode {op.mode} with {op.ratio} samples"
    if x.dtype not in FLOATS or out.dtype not in FLOATS:
        return f"{out.dtype.value} from {x.dtype.value}"
    if wide(out.dtype.value) != wide(x.dtype.value):
        return f"{out.dtype.value} from {x.dtype.value}"
    _, channels, height, width = x.shape
    if not 0 < channels * width <= _MOST_ELEMENTS or not height:
        return f"maps of {channels} channels, {height} x {width}"
    if not 0 < min(op.bins) <= max(op.bins) <= _MOST_BINS:
        return f"{op.bins} bins"
    if not x.shape[0]:
        return "no images"
    if _per_box(call) > per_box(call):  # for any number of boxes, so that it changes no result
        return "boxes that take less with channels side by side"
    if not any(_dense(x, out, last=last) for last in (False, True)):
        return "rows of the maps or the result that are not dense, or unlike"
    return refuse_boxes(call)


def _dense(x: View, out: View, *, last: bool) -> bool:
    """Whether rows of the maps, and of the result all or those of a box, are dense."""
    _, channels, ph, pw = out.shape
    if last:
        dense = (x, out)
        return all(v.strides[1] == 1 and v.strides[3] == channels for v in dense)
    steps = (ph * pw, pw, 1)
    found = zip(out.shape[1:], out.strides[1:], steps, strict=True)
    return x.strides[3] == 1 and all(n == 1 or have == want for n, have, want in found)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The one phase."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    (images, channels, height, width), (ph, pw) = x.shape, op.bins
    boxes = plan_boxes(call, x, images)
    code, last = _code(call), not _dense(x, out, last=False)
    planes, step = (1, channels) if last else (channels, 1)
    rows, length = (ph, pw * channels) if last else (1, channels * ph * pw)
    # Vectors over channels may reach past the end of a row.
    pitch = length + code.channels
    parts = min(_PARTS, out.shape[0] // max(1, int(_PART / _per_box(call))) + 1)
    bad: Operand = Out(1) if op.report else Temp(0, 64)
    integers = {
        **boxes.integers,
        **sampling_reals(op.scale, aligned=op.aligned),
        **{"parts": parts, "ph": ph, "pw": pw, "h": height, "w": width},
        **{"planes": planes, "step": step},
        **image_strides("x", x.strides, "nch"),
        "out_k": out.strides[0],
        "out_row": out.strides[2],
        "out_rows": rows,
        "length": length,
        "pitch": pitch,
    }
    scratch = _scratch(call, code, rows * pitch)
    operands = {"x": In(0), "out": Out(0), **boxes.operands, "bad": bad, **scratch}
    return (Launch(code, operands, integers, parts),)


def _code(call: CpuCall) -> ProductsCode:
    """What the code depends on."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    channels, width = x.shape[1], x.shape[3]
    last = not _dense(x, out, last=False)
    sums = wide(x.dtype.value)
    lanes = call.target.lanes * 4 // _size(sums)
    # A box begins anywhere, and whole vectors of AVX-512 would all lie across two lines.
    along = lanes // 2 if call.target.splits_vectors else lanes
    grid = GridCode(op.ratio, _vector(max(op.bins), lanes), sums)
    return ProductsCode(
        plan_boxes(call, x, x.shape[0]).code,
        grid,
        x.dtype.value,
        out.dtype.value,
        _longest(width * channels, lanes) if last else _longest(width, along),
        _vector(channels, lanes) if last else 0,
        _group(op.bins[0] if last else op.bins[0] * channels, _ROWS),
        1 if last else _group(channels, _PLANES),
    )


def _scratch(call: CpuCall, code: ProductsCode, bins: int) -> dict[str, Operand]:
    """Tables, rows of bins, bins; of planar maps also columns and their weights."""
    (ph, pw), size = call.op.bins, _size(code.grid.weight)
    _, channels, _, width = call.inputs[0].shape
    entries = table(code.grid, ph) + table(code.grid, pw)
    lanes, beyond, most = code.grid.lanes, code.channels, call.target.lanes
    elements = width * (channels if beyond else 1)
    rows = ph * (1 if beyond else channels) * -(-elements // code.row) * code.row
    found: dict[str, Operand] = {
        "index": Scratch(4 * entries),
        "weight": Scratch(size * entries),
        "rows": Scratch(size * (rows + beyond)),
        "bins": Scratch(size * (bins + most)),
    }
    if not beyond:
        # Two integers for each column: where it is, and which bins it belongs to.
        found |= {"columns": Scratch(8 * width), "shares": Scratch(size * width * lanes)}
    return found


def _size(sums: str) -> int:
    return 8 if sums == "float64" else 4


def _vector(count: int, most: int) -> int:
    """Lanes that hold so many elements, or as many as there are."""
    lanes = min(4, most)
    while lanes < min(count, most):
        lanes *= 2
    return lanes


def _longest(count: int, most: int) -> int:
    """Lanes of the longest vector that fits so many elements."""
    while most > count:
        most //= 2
    return most


def _group(count: int, most: int) -> int:
    """How many of so many are summed side by side; each group takes as long as another one."""
    able = [1 << n for n in range(most.bit_length()) if 1 << n <= count]
    return min(able, key=lambda group: (-(-count // group) * (group + 1), -group))


def _per_box(call: CpuCall) -> float:
    """Microseconds of a box on one thread, if it takes a quarter of the map's columns."""
    (ph, _), (_, channels, _, width) = call.op.bins, call.inputs[0].shape
    return _BOX + float(ph * channels) * (_ROW + _COLUMN * width / 4)


def cost(call: CpuCall) -> float:
    """Microseconds."""
    return estimate(call, 1, _per_box(call))


ROI_ALIGN_SEPARABLE = CpuKernel(
    "roi.align_separable",
    (RoiAlign,),
    ProductsCode,
    supports,
    single_variant(launch, cost),
    emit_products,
)
