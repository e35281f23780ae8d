"""A plan as a CUDA graph.

    device = open_device()                      # context.py: the process's, memory and constants
    program = CudaProgram(device, plan, codes, constant, identity)

`codes` has the cubin of every phase of every step, in the plan's order, whether or not the phase
has chunks. They may be compiled for pointers that are multiples of 16: every entry of the table of
bases is one, so that a pointer is one if its `Ref.offset` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.backends.cuda.codegen.compile import Cubin
    from saccade.backends.cuda.runtime.context import DeviceContext
    from saccade.ir import Array
    from saccade.plan import Plan

__all__ = ["CudaProgram"]


class CudaProgram:
    """A plan ready to run; may be called from several threads at once.

    Args:
        device: The GPU, with what this process has on it.
        plan: What to run; host steps are refused.
        codes: The code of each phase.
        constant: The plan's constant of a number as its kernels read it, contiguous; asked only for
            those that are read and that no other program has brought to the GPU.
        identity: Of the constants: equal for programs whose equal constants may be shared.

    Raises:
        OptionError: If a step has no kernel.
        OutOfMemoryError: If the GPU has no room for the constants.
        DeviceError: If it is lost, or the code is for another one.
    """

    def __init__(
        self,
        device: DeviceContext,
        plan: Plan,
        codes: Sequence[Cubin],
        constant: Callable[[int], Array],
        identity: str,
    ) -> None:
        self.device = device
        self.plan = plan
        del codes, constant, identity
        raise NotImplementedError
