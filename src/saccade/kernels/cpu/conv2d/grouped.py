"""Convolution with narrow groups on the CPU: a vector holds the filters of several groups.

`y[n,p,q,k] = Σ_r,s,c x[n, p·stride + r·dilation - pad, …, group(k)·C + c] · w[k,c,r,s]`

Vectors over channels of channels-last images with any pitch, as in `conv2d.depthwise`. A lane's
element meets the filters of its block of lanes (`grouped_forms`), in a sum for each; when all taps
are added the lanes of these sums change places and are added up. So no lane is idle, an element is
loaded once for all filters of its block, and lanes are moved once for a pixel, not for each tap.
Rows of taps outside the image are skipped, columns outside are left out when the code is written
(`row_groups`). Chunks are those of `conv2d.depthwise`; sums of rows are taken along.
Refused: one group or one channel for each; widths that would have to be gathered lane by lane;
prologues; row-major images; DepthToSpace; windows that leave the image for more than a few dozen
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask
from saccade.backends.cpu.fusions import RowSums
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Packed, Packing, Variant, per_call
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.depthwise_code import FinishRow, testing_micros
from saccade.kernels.cpu.conv2d.direct_regions import ConvAxis, spans
from saccade.kernels.cpu.conv2d.epilogue import Epilogue, VectorPlace
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec, conv_epilogue
from saccade.kernels.cpu.conv2d.grouped_code import GroupedCode, GroupedRows
from saccade.kernels.cpu.conv2d.grouped_forms import GroupForm, form_of, most_pixels
from saccade.kernels.cpu.conv2d.row_bands import Band, RowBands, band_integers, split_bands
from saccade.kernels.cpu.conv2d.row_groups import RowGroups, Side, any_cut, cut_row
from saccade.kernels.cpu.conv2d.row_sums import RowTotals, SumsSpec, conv_call
from saccade.kernels.cpu.machine import clock, machine, ports
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = ["CONV2D_GROUPED", "GroupedConfig"]

# Fitted to layers of 2 to 128 channels a group, whose products reach the peak (Zen 4): cycles of a
# row of taps and a block of channels of a group of pixels beyond these, and of each sum that is
# folded.
_TRIP, _FOLD = 2.0, 0.4
_MOST_VECTORS = 64  # of weights for a row of taps and a block, which are written out


@dataclass(frozen=True, slots=True)
class GroupedConfig:
    """What the code depends on.

    Attributes:
        element: Element type of the image.
        block, pieces, loaded, several: See `GroupForm`.
        half: Whether the last vector is half as wide.
        taps, stride, dilation: Of the convolution, along the row.
        first, body, last, any_width: How rows are cut, see `RowGroups.code`.
        epilogue: `EpilogueSpec.code`.
        sums: `SumsSpec.code`.
    """

    element: str
    block: int
    pieces: int
    loaded: int
    several: bool
    half: bool
    taps: int
    stride: int
    dilation: int
    first: Side
    body: int
    last: Side
    any_width: bool
    epilogue: tuple[str, ...]
    sums: str


@dataclass(frozen=True, slots=True)
class _GroupedSizes(RowBands):
    """Integer parameters.

    Attributes:
        channels, filters: Of a group.
        groups: How many.
        steps: Blocks of channels of a group.
        repeats: Groups of pixels between the borders.
        vectors: Of filters.
        block: Vectors of a chunk.
    """

    channels: Int
    filters: Int
    groups: Int
    steps: Int
    repeats: Int
    vectors: Int
    block: Int


class _GroupedEmission:
    """Emits one convolution."""

    def __init__(self, k: KernelBuilder, config: GroupedConfig) -> None:
        self.k, self.c = k, config
        self.form = GroupForm(config.block, config.pieces, config.loaded, config.several)
        self.x, self.w = k.pointer("x", config.element), k.pointer("w")
        self.epilogue, self.totals = Epilogue(k, config.epilogue), RowTotals(k, config.sums)
        self.s = k.sizes(_GroupedSizes)
        self.epilogue.declare_integers()
        self.totals.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k, s = self.k, self.s
        with s.chunks(k, (s.vectors + s.block - 1) // s.block) as band:
            first = band.part * s.block
            end = first + s.block
            with k.range(first, k.minimum_int(end, s.vectors - int(self.c.half))) as v:
                self._vector(band, v, self.form, k.lanes)
            if self.c.half:
                with k.when(end >= s.vectors):
                    kept = k.lanes // 2
                    self._vector(band, s.vectors - 1, self.form.cut(k.lanes, kept), kept)

    def _vector(self, band: Band, vector: Int, form: GroupForm, lanes: int) -> None:
        """The rows of a band, of a vector of so many lanes."""
        k, s, c = self.k, self.s, self.c
        groups = RowGroups.of(c.first, c.body, c.last, c.any_width)
        code = GroupedCode(k, groups, c.taps, c.stride, c.dilation, s, form, lanes)
        place = self.epilogue.place_at(vector * k.lanes, lanes=lanes)
        panel = s.taps * s.steps * (c.taps * form.block * k.lanes)
        corner = self.x + (s.x_n * band.image - s.x_w * s.left)
        pieces, mask = self._pieces(corner, vector, form), self._mask(place, form)
        with k.range(band.low, s.end(k, band)) as p:
            h, taps = s.window(k, p)
            rows = GroupedRows(
                tuple(piece + s.x_h * h for piece in pieces), s.x_h * s.dilation, s.x_w,
                self.w + vector * panel, s.steps, taps, mask,
            )  # fmt: skip
            total = self.totals.begin(lanes)
            code.emit(rows, s.repeats, FinishRow(self.epilogue, place, band.image, p, total))
            self.totals.end(total, band.image, p, place)

    def _pieces(self, corner: Ptr, vector: Int, form: GroupForm) -> list[Ptr]:
        """Where each load of a vector begins in the channels."""
        k, s = self.k, self.s
        if not form.pieces:
            return [corner + vector * self.form.loaded]
        # Lanes past the last filter read the last group: nobody stores them.
        numbers = [
            k.minimum_int((vector * k.lanes + i * form.block) // s.filters, s.groups - 1)
            for i in range(form.pieces)
        ]
        return [corner + number * s.channels for number in numbers]

    def _mask(self, place: VectorPlace, form: GroupForm) -> Mask | None:
        """Which elements of a load there are."""
        if place.mask is None or form.pieces or form.loaded == 1:
            return None
        if form.loaded == place.lanes:
            return place.mask
        return self.k.first(place.count // (place.lanes // form.loaded), form.loaded)


def _emit(k: KernelBuilder, config: GroupedConfig) -> None:
    _GroupedEmission(k, config).emit()


# Planning


def _supports(call: CpuCall) -> str | None:
    sums, call = SumsSpec(call), conv_call(call)
    if not isinstance(call.op, Conv2d):
        return "another convolution's sums"
    op, (x, w) = call.op, call.inputs[:2]
    if op.groups == 1 or (w.shape[0] == op.groups and w.shape[1] == 1):
        return "one group, or one channel for each"
    if not call.constant[1]:
        return "weights are not known ahead"
    if op.prologue != IDENTITY or op.n_prologue:
        return "takes no prologue"
    if x.dtype not in FLOATS or w.dtype not in FLOATS:
        return f"elements are {x.dtype.value} and {w.dtype.value}"
    if not x.channels_last:
        return "x is not channels-last"
    form = _form(call)
    if form is None:
        return f"{w.shape[1]} channels and {w.shape[0] // op.groups} filters do not fill vectors"
    if w.shape[3] * form.block > _MOST_VECTORS:
        return f"more than {_MOST_VECTORS} vectors of weights for a row of taps"
    spec = _epilogue(call)
    if spec.kind not in ("plain", "interleave"):
        return "the result is not channels-last"
    if _cut(call, spec, form) is None:
        return "too many windows leave the image"
    return spec.refuse() or sums.refuse()


@per_call
def _epilogue(call: CpuCall) -> EpilogueSpec:
    # Channels are counted through all groups: a vector holds filters of several.
    return replace(conv_epilogue(call), groups=1)


def _form(call: CpuCall) -> GroupForm | None:
    op, (filters, channels, *_) = call.op, call.inputs[1].shape
    return form_of(channels, filters // op.groups, call.target)


def _cut(call: CpuCall, spec: EpilogueSpec, form: GroupForm) -> RowGroups | None:
    op, (x, w) = call.op, call.inputs[:2]
    return cut_row(
        spec.shape[3], x.shape[3], taps=w.shape[3], stride=op.stride[1], left=op.padding[1],
        dilation=op.dilation[1], largest=most_pixels(form, call.target),
    )  # fmt: skip


def _any_cut(call: CpuCall, spec: EpilogueSpec, form: GroupForm) -> RowGroups:
    return any_cut(spec.shape[3], most_pixels(form, call.target))


def _config(
    call: CpuCall, spec: EpilogueSpec, sums: SumsSpec, form: GroupForm, cut: RowGroups
) -> GroupedConfig:
    op, (x, w), half = call.op, call.inputs[:2], _half(call, spec)
    stored = replace(spec, lanes=spec.lanes // 2) if half else spec
    return GroupedConfig(
        x.dtype.value, *form, half, w.shape[3], op.stride[1], op.dilation[1], *cut.code(),
        stored.code(), sums.code,
    )  # fmt: skip


def _half(call: CpuCall, spec: EpilogueSpec) -> bool:
    """Whether half a vector holds the last filters, in half the time."""
    rest, lanes = spec.channels % spec.lanes, spec.lanes
    return ports(call.target).halves and spec.kind == "plain" and 0 < rest <= lanes // 2


def _variants(call: CpuCall) -> Iterator[Variant]:
    """Code for rows as they are cut, then code for rows of any length."""
    conv = conv_call(call)
    spec, form = _epilogue(conv), _form(conv)
    assert form is not None
    cut = _cut(conv, spec, form)
    assert cut is not None
    yield Variant(_micros(conv, spec, form, cut), partial(_launch, call, form, cut))
    free = _any_cut(conv, spec, form)
    yield Variant(_micros(conv, spec, form, free), partial(_launch, call, form, free))


def _generic_configs(call: CpuCall) -> tuple[GroupedConfig, ...]:
    sums, conv = SumsSpec(call), conv_call(call)
    spec, form = _epilogue(conv), _form(conv)
    assert form is not None
    return (_config(conv, spec, sums, form, _any_cut(conv, spec, form)),)


def _launch(call: CpuCall, form: GroupForm, cut: RowGroups) -> tuple[Launch, ...]:
    sums, call = SumsSpec(call), conv_call(call)
    spec, op, (x, w) = _epilogue(call), call.op, call.inputs[:2]
    (n, _, rows, _), lanes = spec.shape, call.target.lanes
    band, block = split_bands(rows, spec.vectors, call.threads)
    filters, channels, *taps = w.shape
    size = 4 * spec.vectors * lanes * channels * taps[0] * taps[1]
    weights = Packed(Packing("pack_grouped", (op.groups, lanes, form.block), (1,), size))
    integers = {
        **band_integers(op, x, taps[0], spec.shape, band),
        "channels": channels,
        "filters": filters // op.groups,
        "groups": op.groups,
        "steps": channels // form.block,
        "repeats": cut.repeats,
        "vectors": spec.vectors,
        "block": block,
        **spec.integers(),
        **sums.integers(),
    }
    chunks = n * -(-rows // band) * -(-spec.vectors // block)
    operands = {"x": In(0), "w": weights, **spec.pointers(), **sums.pointers()}
    return (Launch(_config(call, spec, sums, form, cut), operands, integers, chunks),)


def _micros(call: CpuCall, spec: EpilogueSpec, form: GroupForm, cut: RowGroups) -> float:
    """Estimated microseconds."""
    (x, w), speed, op = call.inputs[:2], machine(call.target), call.op
    n, _, rows, columns = spec.shape
    down, along = (
        spans(ConvAxis(x.shape[2 + i], spec.shape[2 + i], w.shape[2 + i], op.stride[i],
                       op.padding[i], op.dilation[i]))
        for i in range(2)
    )  # fmt: skip
    # Rows and columns of taps that fall on the image, over all rows and columns of the result.
    reached = sum(many * (high - low) for _, many, low, high in down)
    taken = sum(many * (high - low) for _, many, low, high in along)
    steps = w.shape[1] // form.block
    rate = ports(call.target).products
    products = form.block * taken
    # Every vector of weights once for a group of pixels, every element once in each piece.
    loads = cut.count * form.block * w.shape[3] + taken * max(1, form.pieces)
    trip = max(products, loads) / rate + cut.count * _TRIP
    ends = columns * (_FOLD * form.block + expr_flops(spec.expr) / rate / 2)
    vectors = spec.vectors - _half(call, spec) / 2
    cycles = n * vectors * (reached * steps * trip + rows * ends)
    busy = cycles / clock(call.target) / call.threads
    tested = n * rows * vectors * steps * form.block / call.threads
    busy += tested * testing_micros(cut, w.shape[2:], call.target)
    moved = float(x.nbytes + 2 * call.outputs[0].nbytes)
    bandwidth = speed.bandwidth if moved > call.target.l3 else speed.cache_bandwidth * call.threads
    return speed.step + max(busy, moved / bandwidth)


CONV2D_GROUPED = CpuKernel(
    "conv2d.grouped", (Conv2d, RowSums), GroupedConfig, _supports, _variants, _emit,
    generic_configs=_generic_configs,
)  # fmt: skip
