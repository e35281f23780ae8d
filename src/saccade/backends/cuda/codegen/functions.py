"""An `Entry` as a Triton function: its text, and the function that the text defines."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from saccade.backends.cuda.ahead import AHEAD, ROWS
from saccade.backends.cuda.codegen.entry import Entry

__all__ = ["function_of", "text_of"]

_HEAD = """\
import triton
import triton.language as tl
from triton.language.extra import cuda

from saccade.backends.cuda.codegen import elementary
from saccade.kernels.cuda.{module} import {core} as core

"""

_GLUON_HEAD = """\
from triton.experimental import gluon
import triton.experimental.gluon.language as tl
from triton.language.extra import cuda

from saccade.backends.cuda.codegen import elementary
from saccade.kernels.cuda.{module} import {core} as core

"""

_ASK = """\
@{decorator}.jit
def ask(address, nbytes, share):
    start = tl.program_id(0) * share
    tl.inline_asm_elementwise(
        "{{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; "
        "setp.gt.and.s32 p, $2, 0, p; @p cp.async.bulk.prefetch.L2.global [$1], $2; "
        "mov.b32 $0, 0; }}",
        "=r,l,r", [address + start, tl.minimum(share, nbytes - start)],
        dtype=tl.int32, is_pure=False, pack=1,
    )


"""


_MOVED = """\
@triton.jit
def moved(pointer, offsets, grain: tl.constexpr):
    offset = tl.multiple_of(tl.load(offsets), grain)
    first = pointer.to(tl.pointer_type(tl.int8), bitcast=True)  # whatever it goes to
    return (first + offset).to(pointer.dtype, bitcast=True)


"""


def name_of(entry: Entry) -> str:
    """What profilers and disassemblers call the code: `roi_align` of `roi.align_code:align`."""
    module, _, core = entry.core.partition(":")
    words = module.removesuffix("_code").replace(".", "_")
    return words if words.endswith(core) else f"{words}_{core}"


def text_of(entry: Entry, *, chained: bool = False, grains: Mapping[str, int] | None = None) -> str:
    """The module that is compiled: a function by `name_of` of the launch's pointers and integers.

    Args:
        entry: What to compile.
        chained: Whether it waits for the launch before it by itself, and lets the next one come as
            soon as its own last program is done. Such code takes `AHEAD`, too: one thread of each
            program asks the L2 cache for its share of those bytes.
        grains: Not None for a grid of rows, of code that takes `ROWS` in place of `AHEAD`; of
            pointers that are multiples of more than a byte, of how many.
    """
    module, _, core = entry.core.partition(":")
    extra = [*(name for name, _ in entry.extra_pointers), *entry.extra_integers]
    leading = [d.name for d in entry.descriptors] + [name for name, _ in entry.pointers]
    asks = chained and grains is None
    behind = AHEAD if asks else () if grains is None else (ROWS,)
    parameters = [*leading, *extra, *entry.integers, *behind]
    # A comma makes a tuple of one.
    packed = f"({', '.join(extra)}{',' if len(extra) == 1 else ''})"
    given = [*leading, packed, *entry.integers]
    given += [f"{name}={value!r}" for name, value in entry.constants.items()]
    given += [f"{name}={name.lower()}" for name in entry.functions]
    parts = [
        (_GLUON_HEAD if entry.gluon else _HEAD).format(module=module, core=core),
        *(f"{t}\n\n" for t in entry.functions.values()),
    ]
    decorator = "gluon" if entry.gluon else "triton"
    if asks:
        parts.append(_ASK.format(decorator=decorator))
    if grains is not None:
        parts.append(_MOVED)
    parts.append(f"@{decorator}.jit\ndef {name_of(entry)}({', '.join(parameters)}):\n")
    # Waits before it touches anything but constants: until then the launch before may still read
    # what this one writes. The next one could come at once, as it waits in turn; but its programs
    # would crowd on the multiprocessors that have room first, and leave others idle later.
    if asks:
        parts.append(f"    ask({', '.join(AHEAD)})\n")
    if grains is not None:
        # They are there before any launch.
        names = [name for name, _ in (*entry.pointers, *entry.extra_pointers)]
        parts.append(f"    {ROWS} += tl.program_id(1) * {len(names)}\n")
        parts += [
            f"    {name} = moved({name}, {ROWS} + {i}, {grains.get(name, 1)})\n"
            for i, name in enumerate(names)
        ]
    if chained:
        parts.append("    cuda.gdc_wait()\n")
    parts.append(f"    core({', '.join(given)})\n")
    if chained:
        parts.append("    cuda.gdc_launch_dependents()\n")
    return "".join(parts)


def function_of(
    entry: Entry, *, chained: bool = False, grains: Mapping[str, int] | None = None
) -> Any:  # noqa: ANN401 - Triton carries no types
    """The Triton function of an entry, see `text_of`; imports Triton."""
    return _function(text_of(entry, chained=chained, grains=grains), name_of(entry))


@lru_cache(maxsize=4096)
def _function(text: str, function: str) -> Any:  # noqa: ANN401
    name = f"<saccade {sha256(text.encode()).hexdigest()[:16]}>"
    # Triton reads a function's source, which is in no file, by way of this cache.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    defined: dict[str, Any] = {"__name__": "saccade_entry"}
    exec(compile(text, name, "exec"), defined)
    return defined[function]
