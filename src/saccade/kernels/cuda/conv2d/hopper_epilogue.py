"""Epilogues and prologues as Gluon functions: layouts are explicit there.

Operands that vary along rows or along channels alone are read where the sums lie. One that varies
along both is asked for before the products are made, sixteen bytes a thread, in a layout of its
own, and comes to the sums by way of shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.ir.expr import parse, subtrees
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, load_of, pointers_of

__all__ = [
    "beside_tiles", "gluon_epilogue_of", "gluon_fetch_of", "gluon_known_of",
    "gluon_prologue_of", "moved_functions", "tile_bytes", "tiles_of",
]  # fmt: skip

_PLACES = "n, k, p, q, row_mask, channel_mask"


def _is_tile(word: str) -> bool:
    """Whether an operand of an epilogue's code varies along rows and along channels."""
    # In the order n, k, p, q.
    kinds = word.split()[1]
    return kinds[1] != "0" and kinds[0] + kinds[2:] != "000"


def _used(code: EpilogueCode) -> list[int]:
    return sorted({part.index for part in subtrees(parse(code[0])) if part.op == "arg"} - {0})


def _loads(code: EpilogueCode, *, moved: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Of each operand that is used: which it is, how it is loaded, whether it is a tile.

    What is `moved` to where the sums lie is not loaded, and tiles are not among what is given.
    """
    pointers, integers = beside_tiles(code) if moved else (pointers_of(code), integers_of(code))
    at = {word: i for i, word in enumerate((*(p for p, _ in pointers), *integers))}
    for i in _used(code):
        tile = _is_tile(code[i])
        load = "" if moved and tile else load_of(f"e{i}", code[i].split()[1], at)
        yield i, load, tile


@lru_cache(maxsize=1024)  # estimates ask about few codes for every tile
def tile_bytes(code: EpilogueCode) -> tuple[int, ...]:
    """Of the operands that vary along both: bytes of an element of each."""
    tiles = [code[i].split()[0] for i in _used(code) if _is_tile(code[i])]
    return tuple(max(1, int(element.strip("abfipu")) // 8) for element in tiles)


def tiles_of(code: EpilogueCode) -> tuple[str, ...]:
    """Names of the operands that vary along both."""
    return tuple(f"e{i}" for i in _used(code) if _is_tile(code[i]))


def _by_channel(code: EpilogueCode) -> int | None:
    """How many operands vary along channels; None if one that is no tile varies along rows."""
    kinds = [code[i].split()[1] for i in _used(code) if not _is_tile(code[i])]
    if any(kind[0] + kind[2:] != "000" for kind in kinds):
        return None
    return sum(kind[1] != "0" for kind in kinds)


def beside_tiles(
    code: EpilogueCode,
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """`pointers_of` and `integers_of` the operands that do not vary along both."""
    tiles = tiles_of(code)
    pointers = tuple(one for one in pointers_of(code) if one[0] not in tiles)
    return pointers, tuple(n for n in integers_of(code) if n.partition("_")[0] not in tiles)


def gluon_fetch_of(code: EpilogueCode, name: str = "fetch") -> str | None:
    """Text of `name(n, k, p, q, row_mask, channel_mask, extra)`: a tuple of the operands' tiles.

    Args:
        code: What it depends on.
        name: What it is called.

    Returns:
        None if no operand varies along rows and along channels.
    """
    loads = [load for _, load, tile in _loads(code) if tile]
    if not loads:
        return None
    return f"@gluon.jit\ndef {name}({_PLACES}, extra):\n    return ({', '.join(loads)},)\n"


def gluon_epilogue_of(
    code: EpilogueCode, name: str = "epilogue", *, moved: bool = False, rounded: bool = False,
    known: bool = False,
) -> str:  # fmt: skip
    """Text of `name(acc, n, k, p, q, row_mask, channel_mask, fetched, extra)`: the block to store.

    Args:
        code: What it depends on.
        name: What it is called.
        moved: Whether `fetched` lies as the sums do, and `extra` has only `beside_tiles`.
        rounded: Whether what is stored has 16 bits.
        known: Whether `extra` is what `gluon_known_of` gives.
    """
    lines, tiles = TritonLines({0: "acc"}, rounded=rounded), 0
    for beside, (i, load, tile) in enumerate(_loads(code, moved=moved)):
        lines.names[i] = f"v{i}"
        near = f"extra[{beside - tiles}]" if known else load
        near = f"tl.convert_layout(fetched[{tiles}], acc.type.layout)" if tile else near
        lines.add(f"v{i} = {near}.to(tl.float32)")
        tiles += tile
    result = lines.expression(parse(code[0]))
    body = "".join(f"    {line}\n" for line in lines.lines)
    head = f"@gluon.jit\ndef {name}(acc, {_PLACES}, fetched, extra):\n"
    return f"{head}{body}    return {result}\n"


def gluon_known_of(code: EpilogueCode, name: str = "known") -> str:
    """Text of `name(k, channel_mask, extra)`: a tuple of operands, for a `known` epilogue.

    Args:
        code: What it depends on; operands that are no tiles do not vary along rows, and `extra` has
            only `beside_tiles`.
        name: What it is called.
    """
    loads = [f"{load}.to(tl.float32)" for _, load, tile in _loads(code, moved=True) if not tile]
    body = f"({', '.join(loads)},)" if loads else "()"
    return f"@gluon.jit\ndef {name}(k, channel_mask, extra):\n    return {body}\n"


def moved_functions(code: EpilogueCode, sums: int, columns: int, most: int) -> dict[str, str]:
    """For `Entry.functions` where TMA moves results and what is added to them.

    What is read for channels is asked for before the products if registers have room.

    Args:
        code: The epilogue.
        sums: Registers of a thread for them.
        columns: Output channels of a tile.
        most: Registers of a thread for sums and for what is read for channels.
    """
    operands = _by_channel(code)
    # A thread has two neighbours in eight channels.
    known = bool(operands) and sums + (operands or 0) * columns // 4 <= most
    functions = {"EPILOGUE": gluon_epilogue_of(code, moved=True, rounded=True, known=known)}
    return {**functions, "KNOWN": gluon_known_of(code)} if known else functions


def gluon_prologue_of(code: EpilogueCode, name: str = "prologue") -> str:
    """Text of `name(acc, n, k, p, q, row_mask, channel_mask, extra)`: what products are made of.

    Args:
        code: What it depends on; operands differ by image and channel alone.
        name: What it is called.
    """
    lines = TritonLines({0: "acc"})
    for i, load, _ in _loads(code):
        lines.names[i] = f"v{i}"
        lines.add(f"v{i} = {load}.to(tl.float32)")
    result = lines.expression(parse(code[0]))
    body = "".join(f"    {line}\n" for line in lines.lines)
    return f"@gluon.jit\ndef {name}(acc, {_PLACES}, extra):\n{body}    return {result}\n"
