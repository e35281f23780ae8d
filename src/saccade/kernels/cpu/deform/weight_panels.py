"""Packs weights for the products of deformable convolution, and their gradient back.

    outputs     panels[group, panel, block, step, channel of the result]: the result; a block's
                steps are (tap, channel of the block), then zeros up to a whole number of trips
    channels    panels[block, tap, panel, channel of the result, channel of the block]: the gradient
                of columns; channels of the result are filled up with zeros
    gradient    [part, block, set of taps, channel of the result, step] summed into the weights'
                gradient

In pairs, 32 bits are two steps of a column (as in `matmul.operand_panels`).
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike
from saccade.kernels.base import Launch, Operand, View
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.deform.config import DeformConfig, SampleGeometry, SampleSizes, element_of

__all__ = ["emit_panels", "emit_weight_gradient", "panels_launch", "weight_gradient_launch"]


@dataclass(frozen=True, slots=True)
class _Strides:
    """Integer parameters: the weights' strides, the steps of a panel, panels of a tap, chunks."""

    output: Int
    channel: Int
    row: Int
    column: Int
    capacity: Int
    per_tap: Int
    chunks: Int


@dataclass(frozen=True, slots=True)
class _WeightPanel:
    """Rows of a panel: `target[first + i, j] = source[i · by_row + j · by_column]`."""

    source: Ptr
    target: Ptr
    by_row: Int
    by_column: Int
    first: IntLike
    rows: IntLike
    columns: Int


def emit_panels(k: KernelBuilder, config: DeformConfig) -> None:
    """One chunk for each panel of a block."""
    _WeightPanels(k, config).emit()


class _WeightPanels:
    def __init__(self, k: KernelBuilder, config: DeformConfig) -> None:
        self.k, self.config = k, config
        self.source = k.pointer("weights", config.source)
        self.panels = k.pointer("panels", config.target)
        self.s, self.g = k.sizes(_Strides), k.sizes(SampleSizes)
        self.width = config.vectors * k.lanes

    def emit(self) -> None:
        """All chunks."""
        k, size = self.k, self.s.capacity
        with k.chunks(self.s.chunks) as chunk:
            panel = self.panels + chunk * size * self.width
            # What weights do not fill is multiplied, too: channels and steps up to whole tiles and
            # trips.
            with k.range(0, size * self.width, k.lanes) as at:
                floats.store(k, panel, k.zero(k.lanes, self.config.wide), at)
            if self.config.form == "outputs":
                self._outputs(chunk, panel)
            else:
                self._channels(chunk, panel)

    def _outputs(self, chunk: Int, target: Ptr) -> None:
        s, g = self.s, self.g
        place = chunk // g.per_group
        group = place // g.panels
        block = group * g.per_group + (chunk - place * g.per_group)
        before = (place - group * g.panels) * self.width
        first, count = g.channels_of(block)
        # Weights number their channels from the first of the group.
        inner = first - group * (g.per_group // g.per * g.unit)
        weights = self.source + ((group * g.outputs + before) * s.output + inner * s.channel)
        left = g.outputs - before
        with self.k.range(0, g.taps) as tap:
            row = tap // g.tap_columns
            at = weights + (row * s.row + (tap - row * g.tap_columns) * s.column)
            self._copy(_WeightPanel(at, target, s.channel, s.output, tap * count, count, left))

    def _channels(self, chunk: Int, target: Ptr) -> None:
        s, g = self.s, self.g
        place = chunk // s.per_tap
        block = place // g.taps
        tap = place - block * g.taps
        before = (chunk - place * s.per_tap) * self.width
        group = block // g.per_group
        first, count = g.channels_of(block)
        inner = first - group * (g.per_group // g.per * g.unit) + before
        row = tap // g.tap_columns
        at = row * s.row + (tap - row * g.tap_columns) * s.column
        weights = self.source + (group * g.outputs * s.output + inner * s.channel + at)
        left = count - before
        self._copy(_WeightPanel(weights, target, s.output, s.channel, 0, g.outputs, left))

    def _copy(self, p: _WeightPanel) -> None:
        """Element by element, between zeros."""
        k, config, width = self.k, self.config, self.width
        with k.range(0, p.rows) as i, k.range(0, k.minimum_int(p.columns, width)) as j:
            value = floats.load_one(k, p.source, i * p.by_row + j * p.by_column, config.wide)
            step = i + p.first
            if config.pairs:
                # Step and column to 32 bits, the even step in the lower half.
                half = step // 2
                floats.store(k, p.target, value, (half * width + j) * 2 + (step - half * 2))
            else:
                floats.store(k, p.target, value, step * width + j)


def panels_launch(
    view: View, source: Operand, target: Operand, g: SampleGeometry, config: DeformConfig,
    *, capacity: int, panels: int,
) -> Launch:  # fmt: skip
    """The phase that packs weights.

    Args:
        view: The weights.
        source: Operand.
        target: Operand.
        g: Sizes.
        config: Form, elements and tile.
        capacity: Steps of a panel.
        panels: Panels of a block and tap, or of a group.
    """
    if config.form == "outputs":
        chunks = g.groups * panels * g.per_group
    else:
        chunks = g.blocks * g.taps * panels
    integers = {
        **_weights(view),
        "capacity": capacity,
        "per_tap": panels,
        "chunks": chunks,
        **g.integers(),
    }
    return Launch(config, {"weights": source, "panels": target}, integers, chunks)


def _weights(view: View) -> dict[str, int]:
    """The strides of weights."""
    return dict(zip(("output", "channel", "row", "column"), view.strides, strict=True))


def emit_weight_gradient(k: KernelBuilder, config: DeformConfig) -> None:
    """One chunk for each channel of the result."""
    sums = k.pointer("sums", config.wide)
    result = k.pointer("result", config.target)
    s, g = k.sizes(_Strides), k.sizes(SampleSizes)
    parts, each, sets = k.integers("parts each sets")
    apart = g.blocks * sets * g.outputs * s.capacity
    with k.chunks(s.chunks) as chunk, k.range(0, g.per_group) as number:
        group = chunk // g.outputs
        block = group * g.per_group + number
        first, count = g.channels_of(block)
        inner = first - group * (g.per_group // g.per * g.unit)
        target = result + (chunk * s.output + inner * s.channel)
        with k.range(0, g.taps) as tap:
            row = tap // g.tap_columns
            at = row * s.row + (tap - row * g.tap_columns) * s.column
            number_of_set = tap // each
            output = chunk - group * g.outputs
            source = sums + ((block * sets + number_of_set) * g.outputs + output) * s.capacity
            with k.range(0, count) as channel:
                place = source + ((tap - number_of_set * each) * count + channel)
                # In the order of the parts, whoever summed them.
                total = k.var(place.load())
                with k.range(1, parts) as part:
                    total.set(total.get() + place.load(part * apart))
                floats.store(k, target, total.get(), at + channel * s.channel)


def weight_gradient_launch(
    view: View, source: Operand, target: Operand, g: SampleGeometry,
    *, capacity: int, parts: int, taps: tuple[int, int], wide: str,
) -> Launch:  # fmt: skip
    """The phase that sums parts into the weights' gradient; `taps` of a set, and sets."""
    config = DeformConfig("weight_gradient", "", element_of(view), wide)
    chunks = g.groups * g.outputs
    sets = {"parts": parts, "each": taps[0], "sets": taps[1]}
    steps = {"capacity": capacity, "per_tap": 0, "chunks": chunks}
    integers = {**_weights(view), **steps, **g.integers(), **sets}
    return Launch(config, {"sums": source, "result": target}, integers, chunks)
