"""Sums that are divided among programs: parts [splits, matrices, rows, N'], and what adds them."""

from __future__ import annotations

from dataclasses import replace

from saccade.kernels.base import Config, Launch, Out, Temp
from saccade.kernels.cuda.base import Entry
from saccade.kernels.cuda.epilogue import (
    NO_EPILOGUE,
    BlockEpilogue,
    integers_of,
    pointers_of,
    source_of,
)
from saccade.kernels.cuda.matmul.product_axes import AxesCode, ProductAxes

__all__ = ["parts_for", "pitch_of", "sum_code", "sum_entry", "sum_launch", "without_result"]

_INTEGERS = (
    "n1", "m", "rows", "columns", "y_0", "y_1", "y_m", "y_n", "matrices", "pitch", "count",
)  # fmt: skip
_MULTIPLES = ("rows", "columns", "y_0", "y_1", "y_m", "y_n", "pitch")
_BLOCK = (4, 128)  # rows and columns of a program


def pitch_of(axes: ProductAxes) -> int:
    """N', columns of the parts: whole vectors."""
    return -(-axes.columns // 16) * 16


def parts_for(axes: ProductAxes, splits: int) -> Temp:
    """Where the parts are."""
    return Temp(0, 4 * splits * axes.matrices * axes.all_rows * pitch_of(axes))


def without_result(code: AxesCode) -> AxesCode:
    """Of a launch that leaves parts."""
    units = f"{code.units[:2]}n"
    a, b, _, multiplied = code.elements
    elements = (a, b, "fp32", multiplied)
    return replace(code, elements=elements, units=units, epilogue=NO_EPILOGUE)


def sum_code(code: AxesCode) -> AxesCode:
    """Of the launch that adds parts."""
    return replace(
        code, elements=("fp32", "fp32", code.elements[2], "fp32"), units=f"--{code.units[2]}"
    )


def sum_launch(
    config: Config, axes: ProductAxes, epilogue: BlockEpilogue, parts: Temp, splits: int
) -> Launch:
    """The launch that adds parts and stores the result."""
    known = axes.integers
    integers = {name: known[name] for name in _INTEGERS if name in known}
    integers |= {"matrices": axes.matrices, "pitch": pitch_of(axes), "count": splits}
    rows, columns = _BLOCK
    programs = axes.matrices * -(-axes.all_rows // rows) * -(-axes.columns // columns)
    operands = {"parts": parts, "y": Out(0), **epilogue.operands}
    return Launch(config, operands, {**integers, **epilogue.integers}, programs)


def sum_entry(code: AxesCode) -> Entry:
    """What adds parts, for what `sum_code` gave."""
    constants: dict[str, int | float | bool | str] = {
        "DEPENDS": code.depends, "FLAT": code.flat, "Y_UNIT": code.units[2] == "n",
        "BM": _BLOCK[0], "BN": _BLOCK[1],
    }  # fmt: skip
    return Entry(
        "matmul.split_sums_code:add_parts",
        (("parts", "fp32"), ("y", code.elements[2])),
        _INTEGERS,
        constants,
        {"EPILOGUE": source_of(code.epilogue)},
        pointers_of(code.epilogue),
        integers_of(code.epilogue),
        (*_MULTIPLES, *integers_of(code.epilogue)),
        4,
        1,
    )
