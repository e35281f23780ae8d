"""How operators are done: one folder per family, an explicit list of all kernels."""

from saccade.kernels.base import CpuKernel

__all__ = ["CPU_KERNELS"]

CPU_KERNELS: tuple[CpuKernel, ...] = ()
