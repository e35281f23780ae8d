"""Known processors: what plans are made for, and how fast they are.

Choices that change rounding divide by these speeds, so they are constants that ship with the
package: the same machine gets the same plan in every process, however loud it is. A processor that
is not listed counts as the nearest one that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from saccade.errors import OptionError

__all__ = ["MACHINES", "Description", "description", "nearest"]

# Vectors of multiply-adds per cycle.
_TWO = MappingProxyType({"avx512": 2, "avx2": 2, "neon": 2})


@dataclass(frozen=True, slots=True)
class Description:
    """One machine.

    Attributes:
        name: For `saccade inspect --machine` and for plans.
        isa: The widest instruction set.
        vendor: As /proc/cpuinfo spells it.
        models: Families and models of /proc/cpuinfo.
        triple, cpu: LLVM's names.
        bf16: Whether it multiplies bfloat16.
        l1, l2, l3: Bytes of its caches, where no system tells them.
        cores: How many it has, where no system tells.
        clock: Cycles per microsecond under full vector load.
        fma: Vectors of fused multiply-adds per cycle, by instruction set.
        pairs: Operations of products of bfloat16 in the time of one of float32.
        tiles: Operations of products of bfloat16 per microsecond of one core in tiles of matrices
            (AMX); 0 without.
        bandwidth: Bytes per microsecond from and to memory, two cores together.
        l2_bandwidth: Bytes per microsecond from the L2 cache to one core, beside products.
        cache_bandwidth: Bytes per microsecond from and to the last-level cache, one core.
        step: Microseconds of a phase that does nothing: 0.7 for arguments, claims and cold code,
            the rest for the barrier.
        late: Whether what streams from the L2 cache and beyond comes late unless code asks for it.
    """

    name: str
    isa: str
    vendor: str
    models: frozenset[tuple[int, int]]
    triple: str
    cpu: str
    bf16: bool
    l1: int
    l2: int
    l3: int
    cores: int
    clock: float
    fma: Mapping[str, int]
    pairs: float
    tiles: float
    bandwidth: float
    l2_bandwidth: float
    cache_bandwidth: float
    step: float
    late: bool = False


_LINUX = "x86_64-unknown-linux-gnu"

# fmt: off
_ALL = (
    # Two cores of an EPYC 9004: 118 GFLOP/s a core, 32 GB/s, 92 GB/s a core from the last-level
    # cache.
    Description(
        "zen4", "avx512", "AuthenticAMD", frozenset((25, model) for model in range(16, 192)),
        _LINUX, "znver4", True, 32 << 10, 1 << 20, 32 << 20, 2,
        3.7e3, MappingProxyType({"avx512": 1, "avx2": 2}), 2.0, 0.0, 32e3, 240e3, 92e3, 0.8,
    ),
    # The same with 64 cores, whose memory has twelve channels: not measured.
    Description(
        "zen4-64", "avx512", "AuthenticAMD", frozenset(),
        _LINUX, "znver4", True, 32 << 10, 1 << 20, 256 << 20, 64,
        3.7e3, MappingProxyType({"avx512": 1, "avx2": 2}), 2.0, 0.0, 60e3, 240e3, 92e3, 0.8,
    ),
    # Two cores of an EPYC 9005: 280 GFLOP/s a core, 47 GB/s, 110 GB/s a core from the last-level
    # cache.
    Description(
        "zen5", "avx512", "AuthenticAMD", frozenset((26, model) for model in range(256)),
        _LINUX, "znver5", True, 48 << 10, 1 << 20, 32 << 20, 2,
        4.4e3, _TWO, 2.0, 0.0, 47e3, 130e3, 110e3, 0.8,
    ),
    # Two cores of a Xeon (Emerald Rapids): 177 GFLOP/s a core, in pairs of bfloat16 half, 31 GB/s;
    # 28 GB/s a core from the last-level cache of its successor.
    Description(
        "sapphire-rapids", "avx512", "GenuineIntel",
        frozenset((6, model) for model in (143, 167, 173, 174, 207)),
        _LINUX, "sapphirerapids", True, 48 << 10, 2 << 20, 260 << 20, 2,
        2.8e3, _TWO, 0.5, 0.0, 31e3, 84e3, 28e3, 0.9, late=True,
    ),
    # The same where a hypervisor lets its tiles of matrices through: 2.1 TFLOP/s a core.
    Description(
        "sapphire-rapids-amx", "amx", "GenuineIntel",
        frozenset((6, model) for model in (143, 167, 173, 174, 207)),
        _LINUX, "sapphirerapids", True, 48 << 10, 2 << 20, 260 << 20, 2,
        2.8e3, _TWO, 0.5, 2.1e6, 31e3, 84e3, 28e3, 0.9, late=True,
    ),
    # Two cores of an EPYC 7003, which older ones of the vendor are nearest to: 103 GFLOP/s a core,
    # 37 GB/s, 57 GB/s a core from the last-level cache; 32 bytes a cycle from L2, not measured.
    Description(
        "zen3", "avx2", "AuthenticAMD",
        frozenset((25, model) for model in (*range(16), *range(32, 96))),
        _LINUX, "x86-64-v3", False, 32 << 10, 512 << 10, 32 << 20, 2,
        3.2e3, _TWO, 1.0, 0.0, 37e3, 102e3, 57e3, 0.9,
    ),
    # A desktop of Intel's without AVX-512: not measured.
    Description(
        "desktop-avx2", "avx2", "GenuineIntel", frozenset(),
        _LINUX, "x86-64-v3", False, 32 << 10, 1 << 20, 16 << 20, 8,
        3.7e3, _TWO, 1.0, 0.0, 32e3, 110e3, 60e3, 0.9,
    ),
    # A common 64-bit Arm server: not measured.
    Description(
        "neoverse-n1", "neon", "ARM", frozenset(),
        "aarch64-unknown-linux-gnu", "neoverse-n1", False, 64 << 10, 1 << 20, 32 << 20, 4,
        3.0e3, _TWO, 1.0, 0.0, 32e3, 110e3, 60e3, 0.9,
    ),
)
# fmt: on

MACHINES: Mapping[str, Description] = MappingProxyType({one.name: one for one in _ALL})


def description(name: str) -> Description:
    """The machine of a name.

    Raises:
        OptionError: If none has it.
    """
    found = MACHINES.get(name) if isinstance(name, str) else None  # of whatever type
    if found is None:
        raise OptionError(f"machine={name!r} is not one of {', '.join(MACHINES)}")
    return found


def nearest(isa: str, vendor: str, family: int, model: int) -> Description:
    """The listed machine that a processor is most like: itself, else of its vendor, else alike."""
    able = [one for one in _ALL if one.isa == isa]
    exact = [one for one in able if one.vendor == vendor and (family, model) in one.models]
    return (exact or [one for one in able if one.vendor == vendor] or able)[0]
