"""An `Entry` as a Triton function: its text, and the function that the text defines."""

from __future__ import annotations

import linecache
from functools import lru_cache
from hashlib import sha256
from typing import Any

from saccade.backends.cuda.ahead import AHEAD
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


def name_of(entry: Entry) -> str:
    """What profilers and disassemblers call the code: `roi_align` of `roi.align_code:align`."""
    module, _, core = entry.core.partition(":")
    words = module.removesuffix("_code").replace(".", "_")
    return words if words.endswith(core) else f"{words}_{core}"


def text_of(entry: Entry, *, chained: bool = False) -> str:
    """The module that is compiled: a function by `name_of` of the launch's pointers and integers.

    Args:
        entry: What to compile.
        chained: Whether it waits for the launch before it by itself, and lets the next one come as
            soon as its own last program is done. Such code takes `AHEAD`, too: one thread of each
            program asks the L2 cache for its share of those bytes.
    """
    module, _, core = entry.core.partition(":")
    extra = [*(name for name, _ in entry.extra_pointers), *entry.extra_integers]
    leading = [d.name for d in entry.descriptors] + [name for name, _ in entry.pointers]
    parameters = [*leading, *extra, *entry.integers, *(AHEAD if chained else ())]
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
    if chained:
        parts.append(_ASK.format(decorator=decorator))
    parts.append(f"@{decorator}.jit\ndef {name_of(entry)}({', '.join(parameters)}):\n")
    # Waits before it touches anything but constants: until then the launch before may still read
    # what this one writes. The next one could come at once, as it waits in turn; but its programs
    # would crowd on the multiprocessors that have room first, and leave others idle later.
    if chained:
        parts.append(f"    ask({', '.join(AHEAD)})\n")
        parts.append("    cuda.gdc_wait()\n")
    parts.append(f"    core({', '.join(given)})\n")
    if chained:
        parts.append("    cuda.gdc_launch_dependents()\n")
    return "".join(parts)


def function_of(entry: Entry, *, chained: bool = False) -> Any:  # noqa: ANN401 - Triton carries no types
    """The Triton function of an entry, see `text_of`; imports Triton."""
    return _function(text_of(entry, chained=chained), name_of(entry))


@lru_cache(maxsize=4096)
def _function(text: str, function: str) -> Any:  # noqa: ANN401
    name = f"<saccade {sha256(text.encode()).hexdigest()[:16]}>"
    # Triton reads a function's source, which is in no file, by way of this cache.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    defined: dict[str, Any] = {"__name__": "saccade_entry"}
    exec(compile(text, name, "exec"), defined)
    return defined[function]
