"""What is known of loaded code: registers, shared memory, occupancy, matrix instructions."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.driver import CudaDriver, DeviceFacts, Multiprocessor
    from saccade.backends.cuda.runtime.graph import PhaseCode

__all__ = ["device_facts", "matrix_instructions", "phase_facts", "programs_by"]

_WARP = 32  # threads
_KERNEL_MODULE = Path("/sys/module/nvidia/version")
_PARTS, _REGISTER_GRAIN, _SHARED_GRAIN = 4, 8, 128
"""A multiprocessor's parts, each with its own registers and warps; registers of a thread and bytes
of shared memory of a program are given out in multiples of so many."""
_OPCODES = {0x03C: "mma", 0x1F0: "wgmma", 0x1EA: "tcgen05"}
"""Low nine bits of HMMA, HGMMA and UTCHMMA; those above say where operands are."""
_INSTRUCTION = 16  # bytes
_ELF = struct.Struct("<4sB35xQ10xHHH")  # magic, class, place of headers; their size, count, names
_SECTION = struct.Struct("<IIQQQQ")  # name, type, flags, address, offset, size


def phase_facts(driver: CudaDriver, code: PhaseCode) -> dict[str, int | float | str]:
    """Of a phase's code and its grid, by the names that profiles show.

    programs      of the grid
    rows          how many phases are launched together, if several are: each has the programs
    warps         of a program
    registers     of a thread
    shared        bytes of a program, reserved ones not counted
    spilled       bytes of a thread's local memory
    resident      programs that a multiprocessor runs at the same time
    limit         what there are no more of for the next one
    occupancy     share of the warps that a multiprocessor holds
    matrix        matrix instructions in the code

    Raises:
        DeviceError: If the GPU was lost.
    """
    cubin, each = code.cubin, driver.facts.multiprocessor
    threads = _WARP * cubin.warps
    found = driver.describe(code.function, threads, cubin.shared)
    shared = found.shared + cubin.shared
    most = programs_by(each, threads, found.registers, shared)
    matrix = matrix_instructions(cubin.code)
    rows = {"rows": 1 + len(code.others)} if code.others else {}
    return {
        "programs": code.phase.chunks,
        **rows,
        "warps": cubin.warps,
        "registers": found.registers,
        "shared": shared,
        "spilled": found.local,
        "resident": found.programs,
        "limit": min(most, key=lambda name: most[name]),
        "occupancy": round(found.programs * threads / max(each.threads, 1), 3),
        "matrix": " ".join(f"{name}:{count}" for name, count in matrix.items()),
    }


def programs_by(of: Multiprocessor, threads: int, registers: int, shared: int) -> dict[str, int]:
    """How many programs a multiprocessor has room for, by each thing that it has.

    Args:
        of: What there is.
        threads: Of a program.
        registers: Of a thread.
        shared: Bytes of a program, without those that are reserved.
    """
    whole = _up(max(registers, 1), _REGISTER_GRAIN)
    # A warp's registers are all of one part: what each has left over is lost.
    warps = _PARTS * (of.registers // _PARTS // (whole * _WARP))
    return {
        "registers": warps * _WARP // threads,
        "shared": of.shared // max(_up(shared + of.reserved, _SHARED_GRAIN), 1),
        "threads": of.threads // threads,
        "programs": of.programs,
    }


def _up(value: int, grain: int) -> int:
    return -(-value // grain) * grain


def matrix_instructions(code: bytes) -> Mapping[str, int]:
    """How many matrix instructions of each kind a cubin has; none in what is no cubin."""
    counts: Counter[str] = Counter()
    for text in _texts(code):
        for (low,) in struct.iter_unpack(f"<H{_INSTRUCTION - 2}x", text):
            name = _OPCODES.get(low & 0x1FF)
            if name is not None:
                counts[name] += 1
    return dict(counts)


def _texts(code: bytes) -> Iterator[bytes]:
    """Its sections of instructions."""
    if len(code) < _ELF.size or code[:5] != b"\x7fELF\x02":
        return
    _, _, start, size, count, names_at = _ELF.unpack_from(code)
    sections = [_SECTION.unpack_from(code, start + size * i) for i in range(count)]
    names = sections[names_at][4]
    for name, _, _, _, offset, nbytes in sections:
        if code.startswith(b".text.", names + name):
            # `iter_unpack` takes whole instructions only.
            yield code[offset : offset + nbytes - nbytes % _INSTRUCTION]


def device_facts(facts: DeviceFacts) -> dict[str, str]:
    """A GPU as measurements name it; with the driver's own version where the system tells it."""
    # CUDA tells the version of its interface only, not the driver's own.
    driver = {"gpu_driver": _KERNEL_MODULE.read_text().strip()} if _KERNEL_MODULE.exists() else {}
    return {
        "gpu": facts.name,
        "gpu_arch": f"sm_{facts.arch}",
        "gpu_multiprocessors": str(facts.multiprocessors),
        "gpu_memory_bytes": str(facts.memory),
        "cuda": f"{facts.cuda // 1000}.{facts.cuda % 1000 // 10}",
        **driver,
    }
