"""What stays of all classes as rows (image, class, box), one class behind the other."""

from __future__ import annotations

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Vec, literal

__all__ = ["PADDED", "emit_places", "emit_rows"]

PADDED = 8192
"""Rows behind the last one that a chunk looks after."""


def emit_places(k: KernelBuilder) -> None:
    """The phase that finds out where the rows of each class begin, and how many there are."""
    counts, starts, total = (k.pointer(n, "int64") for n in ("counts", "starts", "total"))
    runs = k.integer("runs")
    with k.chunks(k.int(1)):
        # A running sum, of as many numbers as there are classes: not worth a team.
        at = k.var(0)
        with k.range(0, runs) as run:
            starts.store_int(at.get(), run)
            at.set(at.get() + counts.load_int(run))
        total.store_int(at.get())


def emit_rows(k: KernelBuilder) -> None:
    """The phase that writes the rows, a chunk for each class, and zeros behind them."""
    kept = k.pointer("kept", "int32")
    names = ("counts", "starts", "total", "rows")
    counts, starts, total, rows = (k.pointer(n, "int64") for n in names)
    runs, classes, most, size, fill = k.integers("runs classes most size fill")
    with k.chunks(runs + fill) as chunk:
        with k.when(chunk < runs):
            image, group = chunk // classes, chunk % classes
            boxes, to = kept + chunk * most, rows + starts.load_int(chunk) * 3
            with k.range(0, counts.load_int(chunk)) as i:
                for column, number in enumerate((image, group, boxes.load_int(i))):
                    to.store_int(number, i * 3 + column)
        with k.when(chunk >= runs):
            first = (chunk - runs) * PADDED
            # These chunks cover all rows that there is space for; what classes fill is not theirs.
            low = k.maximum_int(first, total.load_int())
            high = k.maximum_int(k.minimum_int(first + PADDED, size), low)
            _clear(k, rows, low * 3, high * 3)


def _clear(k: KernelBuilder, rows: Ptr, low: Int, high: Int) -> None:
    """Zeros from one element to another one."""
    half = k.lanes // 2
    zero = Vec(k.b, literal(k.vector_type(half, "int64"), 0))
    with k.range(low, high - (half - 1), half) as at:
        rows.store(zero, at)
    with k.range(high - (high - low) % half, high) as at:
        rows.store_int(0, at)
