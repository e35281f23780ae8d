"""Direct convolutions whose sums are made in parts, for grids of few tiles and long sums.

One pixel or a few, few filters and thousands of input channels leave fewer tiles than threads. A
split adds the parts of the reduction to the grid: its first phase is a convolution with a group of
results for every part, into a shared buffer, the second one adds the parts in their order and
applies the epilogue. Where the reduction is cut depends on the call alone, and whether that comes
first on a nominal team: parts round differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from saccade.backends.cpu.target import NOMINAL_THREADS
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Launch, Temp, Variant, View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.direct_config import DirectConfig
from saccade.kernels.cpu.conv2d.direct_launch import SlidingWindows, beside
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec
from saccade.kernels.cpu.machine import clock, machine

__all__ = ["Split", "with_splits"]

_PARTS = (2, 4, 8, 16)  # into which sums may be cut
_CLOSE = 1.03  # over the best estimate: of those within it the one with the most parts (by eye)
_GAIN = 0.95  # of the whole's estimate, below which sums in parts come first (by eye)
_LEAST = 64  # steps of a part
_FEW = 4  # units of the grid per thread, from which on its balance is good
_SHARE = 4096  # cycles of a chunk of the second phase, about a microsecond (by eye)
_VECTOR, _PART = 30, 3  # cycles of one vector there, of each part that it adds (an estimate)


@dataclass(frozen=True, slots=True)
class Split:
    """Where a reduction is cut.

    Attributes:
        channels: Parts of the input channels of a group, all of one size.
        rows: Parts of the rows of taps.
    """

    channels: int
    rows: int = 1

    @property
    def parts(self) -> int:
        """How many sums are made apart."""
        return self.channels * self.rows

    def window(self, window: SlidingWindows, spec: EpilogueSpec) -> SlidingWindows:
        """The window of the first phase: groups for parts."""
        return replace(
            window, depth=window.depth // self.channels, groups=window.groups * self.channels,
            pack=("pack_parts_of_channels", (window.groups, self.channels, spec.order)),
            row_parts=self.rows, widened=False,
        )  # fmt: skip

    def sums(self, window: SlidingWindows, spec: EpilogueSpec) -> EpilogueSpec:
        """What the first phase stores: bare sums, pixel by pixel, every group in whole vectors."""
        groups = window.groups * self.parts
        (images, _, rows, columns), pitch = spec.shape, groups * spec.vectors * spec.lanes
        strides = (rows * columns * pitch, 1, columns * pitch, pitch)
        out = View(DType.F32, (images, pitch, rows, columns), strides)
        return EpilogueSpec(IDENTITY, None, out.shape, (), None, out, groups, spec.lanes)

    def cost(self, call: CpuCall, spec: EpilogueSpec, window: SlidingWindows) -> float:
        """Estimated microseconds, without the traffic of operands and results."""
        sums, speed = self.sums(window, spec), machine(call.target)
        handed = 2 * sums.out.nbytes / (speed.cache_bandwidth * call.threads)
        busy = _vectors(spec, window) * self._cycles() / clock(call.target)
        adding = speed.step + busy / min(call.threads, max(1, self._chunks(spec, window)))
        return self.window(window, spec).cost(call, sums) + handed + adding

    def _cycles(self) -> int:
        return _VECTOR + _PART * self.parts

    def _share(self) -> int:
        return -(-_SHARE // self._cycles())

    def _chunks(self, spec: EpilogueSpec, window: SlidingWindows) -> int:
        return -(-_vectors(spec, window) // self._share())

    def launches(
        self, call: CpuCall, spec: EpilogueSpec, window: SlidingWindows
    ) -> tuple[Launch, ...]:
        """Both phases."""
        inner, sums = self.window(window, spec), self.sums(window, spec)
        first = inner.launch(call, sums, next(inner.schedules(call, sums)))
        buffer = Temp(0, sums.out.nbytes)
        images, _, rows, columns = spec.shape
        sizes = {
            "pixels": images * rows * columns,
            "rows": rows,
            "columns": columns,
            "groups": window.groups,
            "parts": self.parts,
            "vectors": spec.vectors,
            "share": self._share(),
        }
        config = DirectConfig(
            1, 1, False, 1, "once", False, False, DType.F32.value, "none", True, False, False,
            "sum", False, str(IDENTITY), (), spec.code(),
        )  # fmt: skip
        return (
            replace(first, operands={**first.operands, "y": buffer}),
            Launch(
                config,
                {"sums": buffer, **spec.pointers()},
                {**sizes, **spec.integers()},
                self._chunks(spec, window),
            ),
        )


def _vectors(spec: EpilogueSpec, window: SlidingWindows) -> int:
    """Vectors of results."""
    images, _, rows, columns = spec.shape
    return images * rows * columns * window.groups * spec.vectors


def _splits(window: SlidingWindows) -> Iterator[Split]:
    """Ways to cut a reduction: its channels as far as they divide, then its rows of taps."""
    if window.prologue != IDENTITY:
        return  # every part would need its own share of the operands
    # A pair stays in one part.
    units = window.depth // 2 if window.pairs and window.depth % 2 == 0 else window.depth
    seen = set()
    for wanted in _PARTS:
        channels = next(n for n in range(wanted, 0, -1) if units % n == 0)
        split = Split(channels, min(window.taps[0], wanted // channels))
        if split.parts > 1 and window.length >= _LEAST * split.parts and split not in seen:
            seen.add(split)
            yield split


def _ranked(call: CpuCall, spec: EpilogueSpec, window: SlidingWindows) -> list[Split]:
    """The fastest split first, of about equal ones that with the most parts for wide teams."""
    costs = {split: split.cost(call, spec, window) for split in _splits(window)}
    close = _CLOSE * min(costs.values(), default=0.0)
    return sorted(costs, key=lambda split: (max(costs[split], close), -split.parts))


def with_splits(
    call: CpuCall, spec: EpilogueSpec, window: SlidingWindows, traffic: float, stream: float
) -> Iterator[Variant]:
    """All variants of a call that is one window; see `SlidingWindows.variants`."""
    nominal = call
    if call.threads != NOMINAL_THREADS:
        nominal = replace(call, threads=NOMINAL_THREADS)
    first = _may_gain(nominal, spec, window) and _gains(nominal, spec, window)
    if first:
        yield from _apart(call, spec, window, traffic, stream)
    yield from window.variants(call, spec, traffic, stream)
    if not first and _may_gain(call, spec, window):
        yield from _apart(call, spec, window, traffic, stream)


def _may_gain(call: CpuCall, spec: EpilogueSpec, window: SlidingWindows) -> bool:
    """Whether tiles are so few that the team may be out of balance: hardly ever, and quickly so."""
    sums = _vectors(spec, window)
    few = _FEW * max(call.threads, NOMINAL_THREADS)
    return 0 < sums <= few * call.target.registers and window.units(call, spec) < few


def _gains(nominal: CpuCall, spec: EpilogueSpec, window: SlidingWindows) -> bool:
    """Whether the best split is expected to be faster; it saves half of the products at most."""
    whole, step = window.cost(nominal, spec), machine(nominal.target).step
    if whole < 3 * step:
        return False
    return any(s.cost(nominal, spec, window) < _GAIN * whole for s in _splits(window))


def _apart(
    call: CpuCall, spec: EpilogueSpec, window: SlidingWindows, traffic: float, stream: float
) -> Iterator[Variant]:
    for split in _ranked(replace(call, threads=NOMINAL_THREADS), spec, window):
        time = traffic + beside(split.cost(call, spec, window), stream, call.target)
        yield Variant(time, partial(split.launches, call, spec, window), split)
