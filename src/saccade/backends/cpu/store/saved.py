"""Programs in a bundle: tables, code and plan in one entry, constants in files beside it.

An entry is: header bytes (8)  header (JSON)  tables (int64)  derived (int32)  code  plan (JSON).
Constants that no file holds are derived from the graph's, by packers among the code (`derived`).
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.runtime.driver import PHASE_WORDS, provide
from saccade.backends.cpu.runtime.image import Image, Linked, map_image
from saccade.backends.cpu.runtime.program import CpuProgram
from saccade.backends.cpu.runtime.tables import (
    Code,
    CountedPoint,
    Host,
    Native,
    ProgramTables,
)
from saccade.backends.cpu.store.constants import stored_constants
from saccade.errors import CacheError
from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backends.cpu.store.bundle import Bundles
    from saccade.backends.cpu.store.derived import Derived
    from saccade.ir import Array
    from saccade.kernels.cpu.pack.panels_config import PackConfig
    from saccade.plan import Plan

__all__ = [
    "decode_program", "encode_program", "load_program", "save_beside", "save_program", "settle",
]  # fmt: skip

_LENGTH = struct.Struct("<Q")
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What comes of data of another form."""
_saving: dict[threading.Thread, str] = {}
"""Entries that are being written: who reads one waits, so that no answer depends on how far it is.
Others go on."""


def save_beside(entry: str, work: Callable[[], None]) -> None:
    """Keep things under a name while a program runs; the process waits for the last one."""

    def keep() -> None:
        try:
            work()
        finally:
            _saving.pop(thread, None)

    thread = threading.Thread(target=keep, name="saccade-save")
    thread.start()
    _saving[thread] = entry  # not before: nobody can wait for what has not begun
    if not thread.is_alive():
        _saving.pop(thread, None)


def settle(entry: str | None = None) -> None:
    """Wait until what is being kept under a name is there, under any name if it is None."""
    for thread, name in tuple(_saving.items()):
        if entry in (None, name):
            thread.join()


os.register_at_fork(after_in_child=_saving.clear)  # it has none of these threads


def save_program(
    bundles: Bundles,
    program: CpuProgram,
    image: Image,
    derived: Mapping[str, Derived],
    packers: Mapping[PackConfig, str],
) -> None:
    """Keep a program for the next start, as far as the disk allows.

    Args:
        bundles: Of the model.
        program: What to keep.
        image: Its code, with the driver and what packs the constants that are derived.
        derived: How to make the constants that no file holds, by name.
        packers: Symbols of the code for that.
    """
    more: dict[str, object] = {}
    words = b""
    if derived:
        with forkless:
            from saccade.backends.cpu.store.derived import encode  # noqa: PLC0415 - few programs derive any

        more["derived"], numbers = encode(derived, packers)
        more["graph"], words = bundles.graph, numbers.tobytes()
    shapes = [port.shape for port in program.plan.inputs]
    content = encode_program(program.plan, program.tables, image, more, words)
    bundles.write(bundles.program_name(shapes), content)


def encode_program(
    plan: Plan,
    tables: ProgramTables,
    image: Image,
    more: Mapping[str, object],
    words: bytes = b"",
) -> bytes:
    """A program without its constants.

    Args:
        plan: What it was made from.
        tables: What runs.
        image: Its code, with the driver.
        more: Further fields of the header.
        words: The numbers that go with these.
    """
    arrays = [
        array
        for part in tables.whole()
        for segment in part.segments
        if isinstance(segment, Native)
        for array in (segment.arguments, segment.phases)
    ]
    header = {
        **_described(tables),
        "image": [len(image.code), dict(image.symbols), image.slots, image.imports],
        **more,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    parts = (
        _LENGTH.pack(len(text)),
        text,
        *(np.ascontiguousarray(array, np.int64).tobytes() for array in arrays),
        words,
        image.code,
        plan.to_json().encode(),
    )
    return b"".join(parts)


def decode_program(
    content: bytes, constants: Callable[[Sequence[str]], Sequence[Array]]
) -> CpuProgram | None:
    """The program that `encode_program` wrote, all of whose constants are given.

    Args:
        content: What it wrote.
        constants: Gives the constants of these names; those without a name are not read.

    Returns:
        None if it is no such thing.

    Raises:
        OSError: If the system allows no memory for code.
    """
    parsed = _parse(content)
    return None if parsed is None else _program(parsed, constants(parsed.tables.all_constants))


def load_program(bundles: Bundles, shapes: Sequence[Sequence[int]]) -> CpuProgram | None:
    """The program kept for these input shapes, if all of it is there."""
    name = bundles.program_name(shapes)
    settle(name)
    content = bundles.read(name)
    parsed = None if content is None else _parse(content)
    if parsed is None:
        return None
    try:
        linked = map_image(parsed.image)
    except (CacheError, OSError):  # a system that allows no such memory: LLVM may know a way
        return None
    derive = partial(_derive, bundles, parsed, linked)
    constants = stored_constants(bundles, parsed.tables.all_constants, derive)
    if constants is None:
        return None
    return _program(parsed, constants, linked)


def _program(
    parsed: _Parsed, constants: Sequence[Array], linked: Linked | None = None
) -> CpuProgram:
    """The program of an entry; `linked` is its code, where that is there already."""
    code = map_image(parsed.image) if linked is None else linked
    provide(code)

    def plan() -> Plan:
        with forkless:
            from saccade.plan import Plan  # noqa: PLC0415 - running needs none of its classes

        return Plan.from_json(parsed.plan.decode())

    return CpuProgram(parsed.tables, constants, code, plan)


def _derive(
    bundles: Bundles, entry: _Parsed, linked: Linked, names: set[str]
) -> dict[str, Array] | None:
    """Constants that no file holds, made from the graph's; None if that cannot be."""
    if entry.graph is None or entry.derived is None:
        return None
    with forkless:
        from saccade.backends.cpu.store import derived  # noqa: PLC0415 - few programs derive any
        from saccade.backends.cpu.store.packer_code import PackerCode  # noqa: PLC0415

    try:
        known, symbols = derived.decode(entry.derived, entry.words)
        wanted = {name: known[name] for name in names}
        packers = PackerCode({config: linked.addresses[s] for config, s in symbols.items()})
    except _MALFORMED:
        return None
    sources = bundles.sources(entry.graph, {one.source for one in wanted.values()})
    try:
        return None if sources is None else derived.derive(wanted, sources, packers)
    except CacheError:
        return None


class _Parsed(NamedTuple):  # which a start makes in a fifth of a dataclass's time
    """An entry.

    Attributes:
        tables: Of the program.
        image: The code.
        plan: JSON.
        graph: Name of the entry that has the sources of what is derived.
        derived: How constants are made, for `derived.decode`.
        words: The numbers that go with it.
    """

    tables: ProgramTables
    image: Image
    plan: bytes
    graph: str | None
    derived: dict[str, Any] | None
    words: Array


def _parse(content: bytes) -> _Parsed | None:
    """An entry's parts; None if they are not as `save_program` writes them."""
    try:
        (length,) = _LENGTH.unpack_from(content)
        header: dict[str, Any] = json.loads(content[_LENGTH.size : _LENGTH.size + length])
        tables, at = _tables(header, content, _LENGTH.size + length)
        graph, derived = header.get("graph"), header.get("derived")
        words = np.frombuffer(content, np.int32, derived["words"] if derived else 0, at)
        at += words.nbytes
        size, symbols, slots, imports = header["image"]
        image = Image(content[at : at + size], symbols, slots, tuple(imports))
        inside = [slots, slots + 8 * len(image.imports), *symbols.values()]
        if len(image.code) != size or not all(0 <= offset <= size for offset in inside):
            return None
    except (struct.error, *_MALFORMED):
        return None
    return _Parsed(tables, image, content[at + size :], graph, derived, words)


def _described(tables: ProgramTables) -> dict[str, Any]:
    """What `_tables` reads, but for the arrays: those of bodies follow their program's."""
    return {
        "threads": tables.threads,
        "arena_bytes": tables.arena_bytes,
        "inputs": tables.inputs,
        "outputs": tables.outputs,
        "constants": tables.constants,
        "counts": tables.counts,
        "cuts": tables.cuts,
        "codes": [[code.symbol, *code.accesses] for code in tables.codes],
        "counted": tables.counted,
        "parameters": [code.parameters and astuple(code.parameters) for code in tables.codes],
        "segments": [_segment(segment) for segment in tables.segments],
        "bodies": [[step, [*map(_described, inside)]] for step, inside in tables.bodies],
    }


def _segment(segment: Native | Host) -> list[Any]:
    if isinstance(segment, Host):
        return ["host", segment.first, segment.end]
    return ["native", len(segment.arguments), len(segment.phases)]


def _tables(header: dict[str, Any], content: bytes, at: int) -> tuple[ProgramTables, int]:
    """The tables, and where what follows them starts."""
    segments: list[Native | Host] = []
    for kind, first, second in header["segments"]:
        if kind == "host":
            segments.append(Host(first, second))
            continue
        arguments = np.frombuffer(content, np.int64, first, at)
        phases = np.frombuffer(content, np.int64, PHASE_WORDS * second, at + 8 * first)
        segments.append(Native(arguments, phases.reshape(-1, PHASE_WORDS)))
        at += 8 * (first + PHASE_WORDS * second)
    codes = [
        Code(symbol, tuple(accesses), parameters and _parameters(*parameters))
        for (symbol, *accesses), parameters in zip(
            header["codes"], header["parameters"], strict=True
        )
    ]
    bodies: list[tuple[int, tuple[ProgramTables, ...]]] = []
    for step, inside in header["bodies"]:
        programs = []
        for one in inside:
            program, at = _tables(one, content, at)
            programs.append(program)
        bodies.append((step, tuple(programs)))
    tables = ProgramTables(
        header["threads"],
        header["arena_bytes"],
        header["inputs"],
        tuple((tuple(shape), dtype) for shape, dtype in header["outputs"]),
        tuple(header["constants"]),
        tuple(codes),
        tuple(segments),
        header["counts"],
        tuple(tuple(cut) for cut in header["cuts"]),
        tuple(CountedPoint(*point) for point in header["counted"]),
        tuple(bodies),
    )
    return tables, at


def _parameters(pointers: Sequence[str], integers: Sequence[tuple[str, int | None]]) -> Parameters:
    return Parameters(tuple(pointers), tuple((name, count) for name, count in integers))
