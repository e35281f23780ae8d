"""Epilogues as Gluon functions: layouts are explicit there.

Operands that vary along rows or along channels alone are read where the sums lie. One that varies
along both is read sixteen bytes a thread, in a layout of its own, and comes to the sums by way of
the shared memory in which the result will be put together.
"""

from __future__ import annotations

from collections.abc import Mapping

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.ir.expr import parse
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, load_of, pointers_of

__all__ = ["gluon_source_of", "is_tile"]

_UNPACK = "    n, k, p, q, row_mask, channel_mask = {}\n"


def is_tile(word: str) -> bool:
    """Whether an operand of an epilogue's code varies along rows and along channels."""
    kinds = word.split()[1]
    return kinds[1] != "0" and kinds[0] + kinds[2:] != "000"


def gluon_source_of(code: EpilogueCode, name: str = "epilogue") -> str:
    """Text of the function `name(acc, out, near, far, extra)`, which gives the block to store.

    Args:
        code: What it depends on.
        name: What it is called.
    """
    words = (*(p for p, _ in pointers_of(code)), *integers_of(code))
    at = {word: i for i, word in enumerate(words)}
    lines, tiles = TritonLines({0: "acc"}), ""
    for i, word in enumerate(code[1:], 1):
        lines.names[i] = f"v{i}"
        if is_tile(word):
            tiles += _tile(f"e{i}", word, at)
            lines.add(f"out.store(e{i}_tile(far, extra))")
            lines.add(f"v{i} = out.load(acc.type.layout).to(tl.float32)")
        else:
            lines.add(f"v{i} = {load_of(f'e{i}', word.split()[1], at)}.to(tl.float32)")
    result = lines.expression(parse(code[0]))
    body = "".join(f"    {line}\n" for line in lines.lines)
    head = f"@gluon.jit\ndef {name}(acc, out, near, far, extra):\n{_UNPACK.format('near')}"
    return f"{tiles}{head}{body}    return {result}\n"


def _tile(name: str, word: str, at: Mapping[str, int]) -> str:
    """A function that loads an operand for a whole tile."""
    text = load_of(name, word.split()[1], at)
    head = f"@gluon.jit\ndef {name}_tile(far, extra):\n{_UNPACK.format('far')}"
    return f"{head}    return {text}\n\n\n"
