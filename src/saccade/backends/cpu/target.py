"""The machine that code is emitted for: instruction set, vector width, LLVM names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from platform import machine, system

from saccade.backends.cpu.machines import Description, description, nearest
from saccade.backends.cpu.processor import TILES, cpuinfo, tiles_allowed
from saccade.errors import OptionError
from saccade.locks import forkless

__all__ = [
    "ALIGNMENT",
    "NOMINAL_THREADS",
    "Isa",
    "Target",
    "cache_sizes",
    "described_target",
    "foreign_target",
    "host_flags",
    "host_instructions",
    "host_target",
    "instructions_of",
    "nearest_machine",
    "target_for",
]

Isa = str
"""`amx` (AVX-512 and tiles of matrices), `avx512`, `avx2` or `neon`."""
ALIGNMENT = 64
"""Bytes that memory of steps begins at a multiple of: a line of cache, and the widest vector."""
NOMINAL_THREADS = 2
"""Width of the team that algorithms are chosen for, whatever the width of the real one: they round
differently, and answers must not depend on the team. As many as the machine of the records has."""

_L1, _L2, _L3 = 32 << 10, 1 << 20, 16 << 20  # bytes of common caches, where nothing tells more


@dataclass(frozen=True, slots=True)
class Target:
    """What a kernel may use, and the caches that choices go by.

    Attributes:
        isa: Instruction set that kernels are parametrised by.
        vector_bits: Width of a vector register.
        registers: How many vector registers there are.
        triple: LLVM target triple.
        cpu: LLVM CPU name, for scheduling.
        features: LLVM feature string.
        bf16: Whether there are instructions to round to bfloat16 and for dot products of it.
        plays_tiles: Whether code for tiles of matrices does without their instructions, for tests
            (`codegen.matrix_tiles`).
        l1, l2, l3: Cache sizes in bytes (l1, l2 of one core; l3 shared).
        machine: The description that choices go by (`machines`).
    """

    isa: Isa
    vector_bits: int
    registers: int
    triple: str
    cpu: str
    features: str
    bf16: bool = False
    plays_tiles: bool = False
    l1: int = _L1
    l2: int = _L2
    l3: int = _L3
    machine: str = field(default="zen4", repr=False)
    lanes: int = field(init=False, repr=False, compare=False)
    """fp32 elements in one vector."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lanes", self.vector_bits // 32)

    def __hash__(self) -> int:
        # What planning remembers is looked up by target, too; a few fields tell most apart.
        return hash((self.machine, self.isa, self.l2, self.l3))

    @property
    def code(self) -> str:
        """Names what code depends on: not the caches, the description, or which kernels run."""
        known = (
            self.vector_isa,
            self.vector_bits,
            self.registers,
            self.triple,
            self.cpu,
            self.features,
        )
        return "/".join(map(str, (*known, self.bf16, self.plays_tiles)))

    @property
    def vector_isa(self) -> Isa:
        """The instruction set of vectors."""
        return "avx512" if self.isa == "amx" else self.isa

    @property
    def tiles(self) -> bool:
        """Whether there are registers of tiles of matrices, and their products of bfloat16."""
        return self.isa == "amx"

    @property
    def least_masked(self) -> int | None:
        """Bits of the smallest elements that masked loads and stores take; None: there are none."""
        return {"avx512": 8, "avx2": 32}.get(self.vector_isa)

    @property
    def splits_vectors(self) -> bool:
        """Whether vectors half as wide exist beside the widest, with all of their registers."""
        return self.vector_isa == "avx512"

    @property
    def embedded_broadcasts(self) -> bool:
        """Whether a product takes one element from memory for all lanes."""
        return self.vector_isa == "avx512"

    @property
    def fills_lines(self) -> bool:
        """Whether a vector fills a line of cache, and can be stored past the caches."""
        return self.vector_isa == "avx512"

    @property
    def looks_up(self) -> bool:
        """Whether one instruction picks numbers from a table that fills two vectors."""
        return self.vector_isa == "avx512"

    def permutes(self, nbytes: int) -> bool:
        """Whether one instruction puts a register's elements of so many bytes in any order."""
        return {"avx512": nbytes in (4, 8), "avx2": nbytes == 4}.get(self.vector_isa, False)

    @property
    def estimates_reciprocals(self) -> bool:
        """Whether there are estimates of reciprocals within 2^-14, exact for powers of two."""
        return self.vector_isa == "avx512"


_X86 = ("amx", "avx512", "avx2")
"""Instruction sets of x86-64, each of which a processor with the one before it has."""
_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
_PLAIN = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
_SINCE_ZEN4 = (
    *_PLAIN, *_AVX512, "avx512bf16", "avx512bitalg", "avx512cd", "avx512ifma", "avx512vbmi",
    "avx512vbmi2", "avx512vnni", "avx512vpopcntdq", "gfni",
)  # fmt: skip
_USED: Mapping[str, tuple[str, ...]] = {
    "x86-64-v3": _PLAIN,
    "znver4": (*_SINCE_ZEN4, "sse4a"),
    "znver5": (*_SINCE_ZEN4, "sse4a", "avx512vp2intersect", "avxvnni"),
    "sapphirerapids": (*_SINCE_ZEN4, "avx512fp16", "avxvnni"),
}
"""What LLVM may use by itself of the processors that machines are described by. A processor that
has all of it runs their code, of which there is one copy for all such (`saccade.prebuilt`)."""
_SYSTEM_NAMES = {
    "avx512bf16": "avx512_bf16", "avx512bitalg": "avx512_bitalg", "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni",
    "avx512vp2intersect": "avx512_vp2intersect", "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni", "bmi": "bmi1", "lzcnt": "abm",
}  # fmt: skip
"""What Linux calls them, where that is another name."""
_OLDER = "x86-64-v3"  # LLVM's name for processors with AVX2 and without AVX-512
_FEATURES = {"amx": "-prefer-256-bit", "avx512": "-prefer-256-bit", "avx2": "", "neon": ""}
"""Beside those of the described processor: whole vectors, which LLVM is careful with on some."""


@lru_cache(maxsize=8)
def host_target(isa: Isa = "native") -> Target:
    """The target for this machine, or for an older instruction set that it still runs.

    `amx` is AVX-512 with tiles of matrices, which `native` takes where there are any.

    Raises:
        OptionError: If this machine cannot run `isa`.
    """
    with forkless:
        return _host_target(isa)


def target_for(machine: str | None, isa: Isa = "native") -> Target:
    """The target for a described machine; for this one if None.

    Raises:
        OptionError: As of `host_target` and `described_target`.
    """
    return host_target(isa) if machine is None else described_target(machine, isa)


def host_flags() -> Mapping[str, bool]:
    """What this processor has of what kernels and described processors want, by LLVM's names."""
    told = cpuinfo().get("flags")
    if told is None:
        import llvmlite.binding as llvm  # noqa: PLC0415 - 40 ms and 40 MB, where the system is silent

        found: Mapping[str, bool] = llvm.get_host_cpu_features()
        return found
    there = set(told.split())
    names = sorted({name for used in _USED.values() for name in used})
    return {name: _SYSTEM_NAMES.get(name, name) in there for name in names}


def host_instructions() -> frozenset[str]:
    """The instruction sets that this processor has, as the system calls them."""
    info = cpuinfo()
    found = frozenset(info.get("flags", info.get("Features", "")).split())
    return found if tiles_allowed() else found - TILES


def instructions_of(target: Target) -> frozenset[str]:
    """Those that a target's code may take: all of this processor's where it is not described."""
    if target.cpu not in _USED or target.features != _FEATURES[target.isa]:
        return host_instructions()
    used = {_SYSTEM_NAMES.get(name, name) for name in _USED[target.cpu]}
    return frozenset(used | TILES if target.tiles else used)


def nearest_machine() -> str:
    """The description that this processor counts as."""
    if machine() in ("aarch64", "arm64"):
        return _like("neon").name
    flags = host_flags()
    return _like(_widest(flags)).name


def _host_target(isa: Isa) -> Target:
    if machine() in ("aarch64", "arm64"):
        triple, cpu, features = _told_by_llvm()
        return Target("neon", 128, 32, triple, cpu, features, machine=_like("neon").name)
    flags = host_flags()
    has2, widest = flags.get("avx2", False) and flags.get("fma", False), _widest(flags)
    chosen = widest if isa == "native" else isa
    if chosen not in _X86:
        raise OptionError(f"isa={isa!r} is not one of native, {', '.join(_X86)}")
    if not has2 or _X86.index(chosen) < _X86.index(widest):
        raise OptionError(f"this machine's processor does not have {chosen}")
    wide = chosen != "avx2"
    # An older instruction set of a processor is as fast as that processor is.
    like = _like("avx512" if widest == "amx" != chosen else widest)
    caches = cache_sizes()
    triple, cpu, features = like.triple, like.cpu if wide else _OLDER, _FEATURES[chosen]
    if not _runs(cpu, flags) or system() != "Linux":
        triple, own, told = _told_by_llvm()
        if wide:
            cpu, features = own, f"{told},{features}"
        else:
            kept = [f for f in told.split(",") if not re.search("avx512|evex|avx10", f)]
            features = ",".join((*kept, "-avx512f"))
    bits, registers = (512, 32) if wide else (256, 16)
    bf16 = wide and flags.get("avx512bf16", False)
    return Target(chosen, bits, registers, triple, cpu, features, bf16, False, *caches, like.name)


def _widest(flags: Mapping[str, bool]) -> Isa:
    """The newest instruction set that this processor has, and that kernels are written for."""
    if not all(flags.get(name, False) for name in _AVX512):
        return "avx2"
    return "amx" if tiles_allowed() else "avx512"


def _told_by_llvm() -> tuple[str, str, str]:
    """Triple, processor and features of this machine, as LLVM finds them."""
    import llvmlite.binding as llvm  # noqa: PLC0415 - 40 ms and 40 MB, for machines that nothing describes

    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), features


def _runs(cpu: str, flags: Mapping[str, bool]) -> bool:
    """Whether a processor of these flags runs whatever LLVM makes for another one."""
    return cpu in _USED and all(flags.get(name, False) for name in _USED[cpu])


def _like(isa: Isa) -> Description:
    """The description that this processor is nearest to."""
    info = cpuinfo()
    family, model = (
        int(text) if text.isdigit() else 0
        for text in (info.get("cpu family", ""), info.get("model", ""))
    )
    return nearest(isa, info.get("vendor_id", ""), family, model)


def described_target(name: str, isa: Isa = "native") -> Target:
    """The target of a described machine, on any machine: to plan for it and to emit its code.

    Raises:
        OptionError: If no machine is called so, or if it cannot run `isa`.
    """
    one = description(name)
    chosen = one.isa if isa == "native" else isa
    older = _X86[_X86.index(one.isa) :] if one.isa in _X86 else (one.isa,)
    if chosen not in older:
        raise OptionError(f"isa={isa!r} does not run on machine={name!r}")
    bits, registers = {"avx2": (256, 16), "neon": (128, 32)}.get(chosen, (512, 32))
    narrow = chosen == "avx2" != one.isa
    return Target(
        chosen, bits, registers, one.triple, _OLDER if narrow else one.cpu, _FEATURES[chosen],
        one.bf16 and not narrow, False, one.l1, one.l2, one.l3, one.name,
    )  # fmt: skip


def foreign_target(isa: Isa) -> Target:
    """A target that code can be emitted for on any machine: `neon`, a common 64-bit Arm server.

    Raises:
        OptionError: If no such target is described.
    """
    if isa != "neon":
        raise OptionError(f"isa={isa!r} is not one of neon")
    return described_target("neoverse-n1")


def cache_sizes() -> tuple[int, int, int]:
    """L1 data, L2 and L3 bytes from sysfs, with common sizes where it is silent."""
    from pathlib import Path  # noqa: PLC0415

    found = {1: _L1, 2: _L2, 3: _L3}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size[-1:] in "KM":
            found[level] = int(size[:-1]) << (10 if size.endswith("K") else 20)
    return found[1], found[2], found[3]
