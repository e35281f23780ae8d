"""Entries to machine code for an architecture, on any machine: needs Triton, no GPU, no PyTorch."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from saccade.backends.cuda.ahead import AHEAD, ROWS
from saccade.backends.cuda.codegen.entry import Descriptor, Entry
from saccade.backends.cuda.codegen.functions import function_of
from saccade.errors import CompileError

__all__ = [
    "Cubin",
    "compile_entry",
    "compiled",
    "cubin_of",
    "decode_cubin",
    "encode_cubin",
    "parameters_of",
]


_CHAINS = 90
"""Compute capability from which launches wait for each other by themselves."""


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of one kernel.

    Attributes:
        symbol: Of the function in it.
        code: The cubin.
        parameters: The launch's names in the order of the function's parameters.
        warps: Warps of a program.
        shared: Bytes of shared memory of a program.
        chained: Whether it waits for the launch before it by itself (`griddepcontrol.wait`).
        descriptors: Parameters that are tensor maps (`runtime.tensor_maps`).
    """

    symbol: str
    code: bytes
    parameters: tuple[str, ...]
    warps: int
    shared: int
    chained: bool = False
    descriptors: tuple[Descriptor, ...] = ()

    @property
    def rows(self) -> bool:
        """Whether its grid has rows (`ahead.ROWS`)."""
        return self.parameters[-1:] == (ROWS,)


def encode_cubin(cubin: Cubin) -> bytes:
    """Machine code with what launching it needs, as bytes."""
    described = [astuple(descriptor) for descriptor in cubin.descriptors]
    head = [cubin.symbol, cubin.parameters, cubin.warps, cubin.shared, cubin.chained, described]
    # JSON has no line break here, so that the first one ends it whatever the code's bytes are.
    return json.dumps(head).encode() + b"\n" + cubin.code


def decode_cubin(payload: bytes) -> Cubin | None:
    """What `encode_cubin` wrote, or None if it is no such thing."""
    line, _, code = payload.partition(b"\n")
    try:
        symbol, parameters, warps, shared, chained, described = json.loads(line)
        return Cubin(
            str(symbol), code, tuple(map(str, parameters)), int(warps), int(shared), bool(chained),
            tuple(_descriptor(*fields) for fields in described),
        )  # fmt: skip
    except (TypeError, ValueError):
        return None


def _descriptor(name: str, element: str, *dims: Sequence[Any]) -> Descriptor:
    return Descriptor(name, element, *(tuple(numbers) for numbers in dims))


def parameters_of(entry: Entry) -> tuple[str, ...]:
    """The names of a launch in the order of the code's parameters."""
    pointers = (*entry.pointers, *entry.extra_pointers)
    described = (descriptor.name for descriptor in entry.descriptors)
    return (*described, *(name for name, _ in pointers), *entry.extra_integers, *entry.integers)


def compile_entry(entry: Entry, arch: int, aligned: Sequence[str], *, rows: bool = False) -> Cubin:
    """Machine code.

    Args:
        entry: What to compile.
        arch: Compute capability, 90 for `sm_90`.
        aligned: Pointers, and integers of `entry.multiples`, that are multiples of 16, or of so
            much as they say behind a colon.
        rows: Whether its grid is to have rows (`ahead.ROWS`); not of code with tensor maps.

    Raises:
        CompileError: If Triton cannot compile it.
    """
    made = compiled(entry, arch, aligned, rows=rows)
    return cubin_of(made, made.asm["cubin"], entry, arch, rows=rows)


def cubin_of(
    made: Any,  # noqa: ANN401 - Triton's
    code: bytes,
    entry: Entry,
    arch: int,
    *,
    rows: bool = False,
) -> Cubin:
    """Machine code with what launching it needs; `made` is what `compiled` gave."""
    kept, chained = made.metadata, arch >= _CHAINS
    names = parameters_of(entry) + ((ROWS,) if rows else AHEAD if chained else ())
    return Cubin(
        kept.name, code, names, kept.num_warps, kept.shared, chained, entry.descriptors
    )  # fmt: skip


def compiled(entry: Entry, arch: int, aligned: Sequence[str], *, rows: bool = False) -> Any:  # noqa: ANN401 - Triton's
    """What Triton makes of an entry: `metadata`, and `asm` with the text of every stage.

    Raises:
        CompileError: If it cannot compile it.
    """
    import triton  # noqa: PLC0415 - planning and running need none
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415

    if tuple(map(int, triton.__version__.split(".")[:2])) < entry.triton:
        needed = ".".join(map(str, entry.triton))
        raise CompileError(
            f"{entry.core} needs Triton {needed} or later, here is {triton.__version__}"
        )
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    names = parameters_of(entry)
    grains = {name: int(grain or 16) for name, _, grain in (w.partition(":") for w in aligned)}
    # Triton knows parameters by their place.
    multiples = {(names.index(name),): [["tt.divisibility", n]] for name, n in grains.items()}
    chained = arch >= _CHAINS
    options = {"launch_pdl": chained, "num_warps": entry.warps, "num_stages": entry.stages}
    options["enable_fp_fusion"] = entry.contract
    if entry.registers:
        options["maxnreg"] = entry.registers
    function = function_of(entry, chained=chained, grains=grains if rows else None)
    types = _signature(entry)
    if rows:
        types[ROWS] = "*i64"
    elif chained:
        multiples |= {(len(names) + i,): [["tt.divisibility", 16]] for i in range(len(AHEAD))}
        types |= dict(zip(AHEAD, ("*i8", "i32", "i32"), strict=True))
    try:
        return triton.compile(
            _source_class(entry)(function, types, {}, multiples),
            target=GPUTarget("cuda", arch, 32),
            options=options,
        )
    except (triton.CompilationError, RuntimeError) as error:
        raise CompileError(f"{entry.core}: {error}") from error


def _signature(entry: Entry) -> dict[str, str]:
    """What Triton calls the parameters' types."""
    kinds = {name: f"*{kind}" for name, kind in (*entry.pointers, *entry.extra_pointers)}
    kinds |= {descriptor.name: _descriptor_type(descriptor) for descriptor in entry.descriptors}
    return {name: kinds.get(name, "i32") for name in parameters_of(entry)}


def _descriptor_type(descriptor: Descriptor) -> str:
    rank, sizes = len(descriptor.block), ",".join(map(str, descriptor.block))
    bits = 8 * descriptor.item
    # Spelled as by Triton's own descriptors, as the compiler parses this text.
    layout = f"NVMMASharedLayout(swizzle_byte_width={descriptor.swizzle}, element_bitwidth={bits}, "
    layout += f"rank={rank}, transposed=False, fp4_padded=False, cga_layout=[])"
    block = f"{descriptor.element}[{sizes}]"
    if descriptor.im2col:
        return f"tensordesc_im2col<{block},input_rank={len(descriptor.sizes)},{layout}>"
    return f"tensordesc<{block},{layout}>"


def _source_class(entry: Entry) -> Any:  # noqa: ANN401 - Triton carries no types
    if entry.gluon:
        from triton.experimental.gluon._runtime import GluonASTSource  # noqa: PLC0415

        return GluonASTSource
    from triton.compiler import ASTSource  # noqa: PLC0415

    return ASTSource
