"""What happens to the result of a kernel before it is stored: an expression over operands.

Kernels hold a block of results, rows times channels, and call the generated function

    EPILOGUE(acc, n, k, p, q, row_mask, channel_mask, extra)

with `acc` [rows, channels] in float32; `n, p, q` [rows] and `k` [channels], the place of each
element in the result [N, K, P, Q]; masks of the rows and channels that there are; and `extra`, the
operands' pointers and strides. It gives the block to store. A matrix product [b0, b1, M, N] has
n = b0, p = b1, q = row, k = column.

The code depends on `BlockEpilogue.code` alone: the expression, then for each operand its element
type and, along n, k, p, q, `0` where it repeats, `1` where neighbours lie side by side, `8` where
the stride is so many times an integer of the launch (which keeps 16 bytes together), else `s`.
Along k it may be `w`: neighbours lie side by side, and those that fill the last 16 bytes may be
read, too; then the last of `extra` is their mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.ir.expr import IDENTITY, Expr, parse, subtrees
from saccade.kernels.base import In, Operand, View
from saccade.kernels.cuda.base import ELEMENTS, CudaCall

__all__ = [
    "NO_EPILOGUE", "BlockEpilogue", "EpilogueCode", "epilogue_of",
    "integers_of", "load_of", "pointers_of", "source_of",
]  # fmt: skip

EpilogueCode = tuple[str, ...]
NO_EPILOGUE: EpilogueCode = (str(IDENTITY),)
_AXES = "nkpq"
_VECTOR = 8  # elements: strides that are multiples of it keep accesses 16 bytes wide


@dataclass(frozen=True, slots=True)
class BlockEpilogue:
    """The epilogue of one call.

    Attributes:
        code: What the generated function depends on.
        operands: For the launch: its operands by parameter name.
        integers: For the launch: strides by parameter name.
    """

    code: EpilogueCode
    operands: Mapping[str, Operand]
    integers: Mapping[str, int]


def epilogue_of(
    call: CudaCall, expr: Expr, first: int, shape: Sequence[int], *, end: int | None = None,
    views: Sequence[View] | None = None, room: int = 0,
) -> BlockEpilogue:  # fmt: skip
    """The epilogue of a call.

    Args:
        call: The call.
        expr: Over the result `$0` and the operands `$1…`.
        first: Which of the call's inputs is `$1`.
        shape: [N, K, P, Q], what operands are broadcast to.
        end: One past the last of them; None for all that follow.
        views: How to see these operands, if not as they are stored: rank 4, broadcast already.
        room: How many columns beyond the last one there are masks for.
    """
    inputs = call.inputs[first:end]
    seen = views or tuple(view.broadcast_to(shape) for view in inputs)
    used = range(min(len(inputs), max(0, expr.operands - 1)))
    words, operands, integers = [], dict[str, Operand](), dict[str, int]()
    for i in used:
        name = f"e{i + 1}"
        operands[name] = In(first + i)
        kinds = ""
        for axis, stride in zip(_AXES, seen[i].strides, strict=True):
            wide = axis == "k" and stride == 1 and room and inputs[i].room == room
            known = "w" if wide else str(stride)
            kinds += known if stride in (0, 1) else "s" if stride % _VECTOR else "8"
            if kinds[-1] in "s8":
                integers[f"{name}_{axis}"] = stride // (1 if kinds[-1] == "s" else _VECTOR)
        words.append(f"{ELEMENTS[inputs[i].dtype]} {kinds}")
    return BlockEpilogue((str(expr), *words), operands, integers)


# Few codes serve all the steps of all sizes, and every plan asks about them.
@lru_cache(maxsize=1024)
def pointers_of(code: EpilogueCode) -> tuple[tuple[str, str], ...]:
    """Name and element type of the operands, for `Entry.extra_pointers`."""
    return tuple((f"e{i}", word.split()[0]) for i, word in enumerate(code[1:], 1))


@lru_cache(maxsize=1024)
def integers_of(code: EpilogueCode) -> tuple[str, ...]:
    """Names of the strides, for `Entry.extra_integers`."""
    return tuple(
        f"e{i}_{axis}"
        for i, word in enumerate(code[1:], 1)
        for axis, kind in zip(_AXES, word.split()[1], strict=True)
        if kind in "s8"
    )


def source_of(code: EpilogueCode, name: str = "epilogue", before: int = 0) -> str:
    """Text of the generated function.

    Args:
        code: What it depends on.
        name: What it is called.
        before: How many words of `extra` others have, in front of the operands'.
    """
    pointers, integers = pointers_of(code), integers_of(code)
    words = (*(p for p, _ in pointers), *integers, "wide")
    at = {word: before + i for i, word in enumerate(words)}
    lines, expr = TritonLines({0: "acc"}), parse(code[0])
    for i in sorted({part.index for part in subtrees(expr) if part.op == "arg"} - {0}):
        lines.names[i] = f"v{i}"
        lines.add(f"v{i} = {load_of(f'e{i}', code[i].split()[1], at)}.to(tl.float32)")
    result = lines.expression(expr)
    body = "".join(f"    {line}\n" for line in lines.lines)
    head = f"def {name}(acc, n, k, p, q, row_mask, channel_mask, extra):\n"
    return f"@triton.jit\n{head}{body}    return {result}\n"


def load_of(name: str, kinds: str, at: Mapping[str, int]) -> str:
    """A load of what the operand has for the block: rows and channels only where it varies."""
    rows = [_term(name, a, kind, at) for a, kind in zip(_AXES, kinds, strict=True) if a != "k"]
    by_row = " + ".join(filter(None, rows))
    by_channel = _term(name, "k", kinds[1], at)
    base = f"extra[{at[name]}]"
    if by_row and by_channel:
        places = f"({by_row})[:, None] + ({by_channel})[None, :]"
        columns = f"extra[{at['wide']}]" if kinds[1] == "w" else "channel_mask"
        return f"tl.load({base} + {places}, mask=row_mask[:, None] & {columns}[None, :], other=0)"
    if by_row:
        return f"tl.load({base} + ({by_row}), mask=row_mask, other=0)[:, None]"
    if by_channel:
        return f"tl.load({base} + {by_channel}, mask=channel_mask, other=0)[None, :]"
    return f"tl.load({base})"


def _term(name: str, axis: str, kind: str, at: Mapping[str, int]) -> str:
    if kind == "0":
        return ""
    if kind in "1w":
        return axis
    times = f" * {_VECTOR}" if kind == "8" else ""
    return f"{axis} * (extra[{at[f'{name}_{axis}']}]{times})"
