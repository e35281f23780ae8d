"""One to four rows times a matrix: heads of classifiers at batch 1.

`y[.., m, n] = epilogue(Σ_k a[.., m, k] · b[.., k, n])`

Layouts: as `matmul.tiled`. A program takes one row and a few columns, each thread's products go to
sums of its own, and these are added at the end. Where columns are few for the machine, sums are
divided among programs, and a second launch adds their parts in their order.
Floor: the bytes of b at the memory's rate; further rows come from the L2 cache.
Refuses: more than four rows for one matrix, where `matmul.tiled` reads b once; and what that does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Out, Temp, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.epilogue import integers_of, pointers_of, source_of
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.matmul.product_axes import AxesCode, ProductAxes, axes_for
from saccade.kernels.cuda.matmul.split_sums import (
    parts_for,
    pitch_of,
    sum_code,
    sum_entry,
    sum_launch,
    without_result,
)
from saccade.kernels.cuda.matmul.tile_times import LATENCY, sum_micros
from saccade.kernels.cuda.matmul.tiled import INTEGERS, MULTIPLES, aliases, refuse_product
from saccade.opdefs import MatMul

__all__ = ["MATMUL_GEMV", "GemvConfig"]

Block = tuple[int, int, int]
"""Depth and columns of a step, warps."""

_MOST_ROWS = 4  # from more on `tiled`, which reads b once
# Where rows of b are contiguous, where columns are.
_BY_ROW: tuple[Block, ...] = ((64, 64, 4), (32, 128, 4), (128, 32, 4), (64, 128, 8), (256, 16, 4))
_BY_COLUMN: tuple[Block, ...] = ((256, 16, 4), (512, 8, 4), (128, 32, 4), (256, 32, 8))
_SPLITS = (1, 2, 4, 8, 16, 32)  # parts of a sum
_WAVES = 8  # programs of a multiprocessor beyond which dividing sums has nothing left to fill
_STAGES = 3  # steps of the loop whose loads are under way


@dataclass(frozen=True)
class GemvConfig:
    """What the code depends on.

    Attributes:
        phase: `product`, `parts` of one, or `sum` of the parts.
        axes: See `AxesCode`.
        block: Depth and columns of a step, warps.
    """

    phase: str
    axes: AxesCode
    block: Block


def _supports(call: CudaCall) -> str | None:
    reason = refuse_product(call)
    if reason is not None:
        return reason
    rows = axes_for(call).all_rows
    return f"{rows} rows" if rows > _MOST_ROWS else None


def _blocks(axes: ProductAxes) -> tuple[Block, ...]:
    return _BY_COLUMN if axes.b[2] == 1 and axes.b[3] != 1 else _BY_ROW


def _splits(call: CudaCall, axes: ProductAxes, block: Block) -> Iterator[int]:
    programs = axes.matrices * axes.all_rows * -(-axes.columns // block[1])
    most = _WAVES * gpu(call.target.machine).multiprocessors
    for splits in _SPLITS:
        if splits == 1 or (2 * splits * block[0] <= axes.inner and 0 < programs * splits <= most):
            yield splits


def _times(call: CudaCall, axes: ProductAxes) -> Iterator[tuple[float, Block, int]]:
    """Bytes at the memory's rate, or the steps that a program has to wait for."""
    machine, size = gpu(call.target.machine), call.outputs[0].size
    again = (1 + 0.3 * (axes.all_rows - 1)) * call.inputs[1].nbytes
    others = sum(view.nbytes for view in (call.inputs[0], *call.inputs[2:], call.outputs[0]))
    memory = (again + others) / (0.8 * machine.bandwidth)
    rows = axes.matrices * axes.all_rows
    for block in _blocks(axes):
        depth, columns, warps = block
        for splits in _splits(call, axes, block):
            programs = rows * -(-axes.columns // columns) * splits
            steps = ceil(-(-axes.inner // depth) / splits)
            waves = ceil(programs / (machine.multiprocessors * 32 / warps))
            latency = waves * LATENCY * (1.5 + steps / (_STAGES - 1))
            yield LAUNCH + max(memory, latency) + sum_micros(machine, size, splits), block, splits


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = _times(call, axes_for(call))
    for micros, block, splits in sorted(timed):
        yield Variant(micros, partial(_launches, call, block, splits), (block, splits))


def _launches(call: CudaCall, block: Block, splits: int) -> tuple[Launch, ...]:
    axes = axes_for(call)
    epilogue = axes.epilogue(call)
    code = axes.code(call, epilogue.code)
    depth, columns, _ = block
    integers = {
        **axes.integers, "matrices": axes.matrices,
        "steps": ceil(-(-axes.inner // depth) / splits), "pitch": pitch_of(axes),
    }  # fmt: skip
    operands = {"a": In(0), "b": axes.b_operand}
    programs = axes.matrices * axes.all_rows * -(-axes.columns // columns) * splits
    if splits == 1:
        config = GemvConfig("product", code, block)
        given = {**operands, "y": Out(0), **epilogue.operands}
        return (Launch(config, given, {**integers, **epilogue.integers}, programs),)
    parts: Temp = parts_for(axes, splits)
    config = GemvConfig("parts", without_result(code), block)
    first = Launch(config, {**operands, "y": parts}, integers, programs)
    adding = GemvConfig("sum", sum_code(code), (1, 1, 4))
    return first, sum_launch(adding, axes, epilogue, parts, splits)


def _entry(config: GemvConfig) -> Entry:
    code = config.axes
    if config.phase == "sum":
        return sum_entry(code)
    depth, columns, warps = config.block
    constants: dict[str, int | float | bool | str] = {
        "DEPENDS": code.depends, "FLAT": code.flat, "A_UNIT": code.units[0],
        "B_UNIT": code.units[1], "Y_UNIT": code.units[2] == "n", "SPLIT": config.phase == "parts",
        "BK": depth, "BN": columns, "STAGES": _STAGES,
    }  # fmt: skip
    return Entry(
        "matmul.gemv_code:multiply_row",
        tuple(zip("aby", code.elements[:3], strict=True)),
        INTEGERS,
        constants,
        {"EPILOGUE": source_of(code.epilogue)},
        pointers_of(code.epilogue),
        integers_of(code.epilogue),
        (*MULTIPLES, *integers_of(code.epilogue)),
        warps,
        _STAGES,
    )


MATMUL_GEMV = CudaKernel(
    "matmul.gemv", (MatMul,), GemvConfig, _supports, _variants, _entry, aliases
)
