"""Targets of tests: described machines to plan for, and the same with code that runs here."""

from __future__ import annotations

from dataclasses import replace

from saccade.backends.cpu.target import Target, described_target, foreign_target, host_target
from saccade.errors import OptionError

__all__ = ["ZEN4", "lacking", "runnable_target", "tile_targets"]

ZEN4 = described_target("zen4")
"""What tests plan for where any machine will do; its code is not for every processor."""

_PLAIN = "avx512-plain"


def runnable_target(isa: str = "native", machine: str = "zen4") -> Target:
    """A target whose code runs here, planned as a described machine would.

    Instruction set, processor and features are this machine's; caches and speeds, which decide on
    kernels, tiles and chunks, are the described one's.

    Args:
        isa: As for `host_target`; or `avx512-plain`, AVX-512 without bfloat16; or `neon`, which
            is emulated where this machine is none.
        machine: Of `machines.MACHINES`; one for 64-bit Arm stands in where code is for that.

    Raises:
        OptionError: If this machine cannot run `isa`.
    """
    # Emulated: what this machine has says nothing of it.
    if isa == "neon" and host_target().isa != "neon":
        return foreign_target(isa)
    host = host_target("avx512" if isa == _PLAIN else isa)
    if host.isa == "neon":
        as_planned = described_target("neoverse-n1")
    else:
        alike = host.isa == described_target(machine).isa
        as_planned = described_target(machine, host.isa if alike else host.vector_isa)
    return replace(
        as_planned,
        triple=host.triple,
        cpu=host.cpu,
        features=host.features,
        bf16=as_planned.bf16 and host.bf16 and isa != _PLAIN,
    )


def tile_targets() -> tuple[Target, ...]:
    """Those with tiles of matrices whose code runs here: played, and by the processor if it can.

    None where there are no vectors as wide as a row of a tile.
    """
    if lacking("avx512"):
        return ()
    plain = runnable_target("avx512", "sapphire-rapids-amx")
    played = replace(plain, isa="amx", plays_tiles=True)
    return (played, replace(played, plays_tiles=False)) if host_target().tiles else (played,)


def lacking(isa: str) -> str | None:
    """Why code for `isa` (as for `runnable_target`) cannot run here, or None if it can."""
    try:
        runnable_target(isa)
    except OptionError as refusal:
        return str(refusal)
    return None
