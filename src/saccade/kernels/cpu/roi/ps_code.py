"""What position-sensitive pooling and its gradient share: the pixels of boxes, and their phases.

Bins of bilinear samples use the tables of RoiAlign (`bilinear_tables`), packed bin by bin
(`ps_runs`), bins of pixels the ranges of RoiPool (`bin_ranges`). Channels are walked plane by
plane: a bin reads one channel only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import Launch, Operand, Temp
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.floats import wide
from saccade.kernels.cpu.movement.copy_code import CopyConfig, emit_copy
from saccade.kernels.cpu.roi.bilinear_axis import Sampling
from saccade.kernels.cpu.roi.bilinear_tables import TablesCode, TablesPlan, emit_tables
from saccade.kernels.cpu.roi.bin_ranges import Ranges, RangesCode, RangesPlan, emit_ranges
from saccade.kernels.cpu.roi.box_operands import Boxes, plan_boxes, truth
from saccade.kernels.cpu.roi.channel_blocks import NO_COPY
from saccade.kernels.cpu.roi.ps_runs import Runs, RunsPlan, emit_runs
from saccade.kernels.cpu.roi.window_transpose import WindowCode, emit_window

__all__ = [
    "PsCode",
    "PsConfig",
    "Regions",
    "RegionsPlan",
    "emit_regions",
    "first_phases",
    "own_bin",
    "regions",
]

_TABLES, _BAD, _BLANKS, _RUNS = 0, 4, 5, 6  # temporaries; others start at 12


@dataclass(frozen=True)
class PsCode:
    """What the code of the phase over planes depends on.

    Attributes:
        tables: How the tables were made; of ranges, what sums are kept in.
        align: Whether bins are of samples.
        element: Type of the images and of the bins.
        channels: Planes that are pooled side by side.
    """

    tables: TablesCode = field(default_factory=TablesCode)
    align: bool = True
    element: str = "float32"
    channels: int = 1


@dataclass(frozen=True)
class PsConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: `tables`, `runs`, `ranges`, `blanks`, `mapping`, `window`, `copy`, `planes` or
            `spread`.
        tables, ranges, window, copy, planes: Of the phase; `tables` of `runs` and `blanks` too,
            `planes` of `spread`.
    """

    phase: str
    tables: TablesCode = field(default_factory=TablesCode)
    ranges: RangesCode = field(default_factory=RangesCode)
    window: WindowCode = field(default_factory=WindowCode)
    copy: CopyConfig = NO_COPY
    planes: PsCode = field(default_factory=PsCode)

    @classmethod
    def copied(cls, found: Launch) -> Launch:
        """A phase of copying as one of this kernel."""
        return replace(found, config=cls("copy", copy=cast("CopyConfig", found.config)))


Regions = Runs | Ranges
RegionsPlan = RunsPlan | RangesPlan


def regions(call: CpuCall, images: tuple[int, int, int]) -> RegionsPlan:
    """The boxes of a call over so many images of so many rows and columns."""
    op, data = call.op, call.inputs[0]
    if op.mode == "pool":
        return RangesPlan.of(call, data, images)
    boxes = plan_boxes(call, data, images[0])
    code = TablesCode(boxes.code, wide(data.dtype.value))
    tables = TablesPlan(
        boxes, code, op.bins, images[1:], max(0, op.ratio), op.scale, aligned=True, temp=_TABLES
    )
    return RunsPlan(tables, call.target.lanes * 4 // tables.weight_bytes, _RUNS)


def first_phases(
    plan: RegionsPlan, bad: Operand | None, *, blanks: bool, packed: bool = True
) -> tuple[Launch, ...]:
    """Those that read the boxes.

    Args:
        plan: The boxes.
        bad: Gets how many boxes have no image.
        blanks: Whether it is wanted which boxes have bins of 0 / 0.
        packed: Whether tables are packed bin by bin.
    """
    tables = plan if isinstance(plan, RangesPlan) else plan.tables
    found = tables.launch(bad or Temp(_BAD, 64))
    if isinstance(plan, RangesPlan):
        return (replace(found, config=PsConfig("ranges", ranges=plan.code)),)
    code, runs = plan.tables.code, plan.launch()
    first: tuple[Launch, ...] = (replace(found, config=PsConfig("tables", tables=code)),)
    if packed:
        first += (replace(runs, config=PsConfig("runs", tables=code)),)
    if not blanks:
        return first
    return *first, _blanks(plan)


def _blanks(plan: RunsPlan) -> Launch:
    tables, boxes = plan.tables, plan.tables.boxes
    integers = {
        **boxes.integers,
        "ph": tables.bins[0],
        "pw": tables.bins[1],
        "scale": real_word(tables.scale),
        "ratio": tables.ratio,
    }
    operands = {**boxes.operands, "blanks": blanks_of(plan)}
    return Launch(PsConfig("blanks", tables=tables.code), operands, integers, 1)


def blanks_of(plan: RunsPlan) -> Temp:
    """NaN or 0 for each box."""
    return Temp(_BLANKS, plan.tables.weight_bytes * plan.tables.boxes.count)


def emit_regions(k: KernelBuilder, config: PsConfig) -> None:
    """The code of the phases that read boxes, and of copies."""
    if config.phase == "tables":
        emit_tables(k, config.tables)
    elif config.phase == "runs":
        emit_runs(k, config.tables)
    elif config.phase == "ranges":
        emit_ranges(k, config.ranges)
    elif config.phase == "blanks":
        _emit_blanks(k, config.tables)
    elif config.phase == "window":
        emit_window(k, config.window)
    else:
        emit_copy(k, config.copy)


def _emit_blanks(k: KernelBuilder, code: TablesCode) -> None:
    """Bins with 0 samples along an axis are 0 / 0; torchvision divides by a product of counts.

    Boxes that are not finite have no samples either, but their bins are 0, as in all of RoI's
    operators.
    """
    boxes, blanks = Boxes(k, code.boxes), k.pointer("blanks", code.weight)
    boxes.declare_integers()
    bins = k.integers("ph pw")
    geometry = code.boxes.geometry
    scale = k.convert(k.real("scale"), geometry)
    ratio = k.integer("ratio")
    # Half a pixel off and of any size, as the tables have it (`aligned`).
    sampling = Sampling(scale, scale.like(0.5), scale.like(float("-inf")), ratio)
    with k.chunks(k.int(1)), k.range(0, boxes.count) as box:
        down, along = (
            k.call(
                "ceil",
                sampling.span(
                    k, boxes.corner(box, 1 - axis), boxes.corner(box, 3 - axis), bins[axis]
                ).bin_size,
            )
            for axis in (0, 1)
        )
        finite = truth(k, down - down, "==", 0.0) & truth(k, along - along, "==", 0.0)
        none = truth(k, down, "==", 0.0) | truth(k, along, "==", 0.0)
        # Fixed grids always have samples; bins of boxes without an image are 0.
        blank = finite & none & ~(ratio > 0) & boxes.image(box)[1]
        values = (k.number(v, 1, code.weight).value for v in (float("nan"), 0.0))
        blanks.store(Vec(k.b, k.b.select(blank.value, *values)), box)


def own_bin(channel: Int, rows: Int, columns: Int) -> tuple[Int, Int, Int]:
    """Of a channel of the images: the channel of the bins, and the bin that it belongs to."""
    return channel // (rows * columns), channel // columns % rows, channel % columns
