"""The GPU that plans are for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GpuTarget"]


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """What a kernel may use.

    Attributes:
        arch: Compute capability times ten, 90 for `sm_90`.
        multiprocessors: How many there are.
        shared: Bytes of shared memory that a program may have.
        tf32: Whether products of float32 may round their operands to TF32.
        machine: The description that choices go by.
    """

    arch: int = 90
    multiprocessors: int = 132
    shared: int = 227 << 10
    tf32: bool = False
    machine: str = "h200"

    @property
    def isa(self) -> str:
        """The architecture and what products may round to, as plans and names of calls say it."""
        return f"sm_{self.arch} tf32" if self.tf32 else f"sm_{self.arch}"
