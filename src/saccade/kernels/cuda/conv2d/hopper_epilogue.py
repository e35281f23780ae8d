"""Epilogues as Gluon functions: layouts are explicit there.

Operands that vary along rows or along channels alone are read where the sums lie. One that varies
along both is asked for before the products are made, sixteen bytes a thread, in a layout of its
own; it comes to the sums by way of the shared memory in which the result will be put together.
"""

from __future__ import annotations

from collections.abc import Iterator

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.ir.expr import parse, subtrees
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, load_of, pointers_of

__all__ = ["gluon_epilogue_of", "gluon_fetch_of", "is_tile"]

_UNPACK = "    n, k, p, q, row_mask, channel_mask = {}\n"


def is_tile(word: str) -> bool:
    """Whether an operand of an epilogue's code varies along rows and along channels."""
    kinds = word.split()[1]
    return kinds[1] != "0" and kinds[0] + kinds[2:] != "000"


def _loads(code: EpilogueCode) -> Iterator[tuple[int, str, bool]]:
    """Of each operand that is used: which it is, how it is loaded, whether it is a tile."""
    words = (*(p for p, _ in pointers_of(code)), *integers_of(code))
    at = {word: i for i, word in enumerate(words)}
    for i in sorted({part.index for part in subtrees(parse(code[0])) if part.op == "arg"} - {0}):
        yield i, load_of(f"e{i}", code[i].split()[1], at), is_tile(code[i])


def gluon_fetch_of(code: EpilogueCode, name: str = "fetch") -> str:
    """Text of the function `name(far, extra)`: a tuple of the operands that are tiles.

    Args:
        code: What it depends on.
        name: What it is called.
    """
    loads = [load for _, load, tile in _loads(code) if tile] or ["row_mask"]
    head = f"@gluon.jit\ndef {name}(far, extra):\n{_UNPACK.format('far')}"
    return f"{head}    return ({', '.join(loads)},)\n"


def gluon_epilogue_of(code: EpilogueCode, name: str = "epilogue") -> str:
    """Text of the function `name(acc, out, near, fetched, extra)`, which gives the block to store.

    Args:
        code: What it depends on.
        name: What it is called.
    """
    lines, tiles = TritonLines({0: "acc"}), 0
    for i, load, tile in _loads(code):
        lines.names[i] = f"v{i}"
        if tile:
            lines.add(f"out.store(fetched[{tiles}])")
            lines.add(f"v{i} = out.load(acc.type.layout).to(tl.float32)")
            tiles += 1
        else:
            lines.add(f"v{i} = {load}.to(tl.float32)")
    result = lines.expression(parse(code[0]))
    body = "".join(f"    {line}\n" for line in lines.lines)
    head = f"@gluon.jit\ndef {name}(acc, out, near, fetched, extra):\n{_UNPACK.format('near')}"
    return f"{head}{body}    return {result}\n"
