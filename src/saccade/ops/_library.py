"""Operators of the small IR as operations: chooses the kernel, compiles it once, links it.

The process has one library. Its code is shared by all calls that differ in sizes only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.runtime.objects import Objects
from saccade.backends.cpu.runtime.operation import LinkedCode, Operation
from saccade.backends.cpu.runtime.workspace import Workspaces
from saccade.backends.cpu.target import NOMINAL_THREADS, host_target
from saccade.backends.trace import SymbolicTrace
from saccade.errors import OptionError
from saccade.ir import Op
from saccade.kernels.base import Launch, View
from saccade.kernels.cpu import kernels_for
from saccade.kernels.cpu.base import CpuCall, selectable
from saccade.kernels.select import Candidates
from saccade.locks import Lock, preload_hooks
from saccade.processes import Processes

__all__ = ["Library", "library"]

# Of compiling in the caller's process, in tenths of a second or so (`CpuKernel.effort`); what is
# more goes to several others. By eye: one or two small kernels.
_EFFORT_HERE = 3.0
# Estimated microseconds of a team: entering its region costs more than it saves (two Zen 4 cores:
# roi_pool took 27 with two threads, 20 alone).
_ALONE = 8.0


class Library:
    """The process's kernels, and what runs of them share."""

    def __init__(self) -> None:
        preload_hooks()
        # As an option of `compile` is, but for all operators: tests run them in checked mode.
        checked = os.environ.get("SACCADE_CHECKED", "") not in ("", "0")
        self._target = host_target()
        self._objects = Objects(self._target, checked=checked)
        self._processes = Processes()
        self._codes: dict[str, tuple[object, LinkedCode]] = {}
        self._lock = Lock()
        self.workspaces = Workspaces()

    def make(
        self,
        op: Op,
        inputs: tuple[View, ...],
        outputs: tuple[View, ...],
        threads: int,
        *,
        report: bool = False,
        trace: SymbolicTrace | None = None,
    ) -> Operation:
        """The operation of a new call.

        Args:
            op: What to do.
            inputs: Operands. Extents may be numbers of the trace.
            outputs: Results, the report included.
            threads: The widest team that will run it.
            report: See `Operation`.
            trace: The same.

        Raises:
            OptionError: If no kernel takes the call.
            CompileError: If its kernel cannot be compiled.
            UntraceableError: If the kernel does with a number what a trace cannot follow.
        """
        # Weights may change from call to call: nothing can be packed beforehand.
        constant = (False,) * len(inputs)
        # Kernels follow from a nominal team: results have the same bits on any number of threads.
        call = CpuCall(op, inputs, outputs, constant, self._target, NOMINAL_THREADS)
        found = Candidates.of(call, selectable(kernels_for(op.family)), NOMINAL_THREADS)
        if not found.able:
            reasons = "; ".join(map(str, found.refused))
            raise OptionError(f"no kernel takes {op.family} ({reasons})")
        chosen = found.cheapest
        launches = chosen.best.launches
        return Operation(
            call,
            launches,
            self._code(chosen.kernel.name, launches),
            1 if chosen.micros <= _ALONE else threads,
            self.workspaces,
            report=report,
            trace=trace,
        )

    def _code(self, kernel: str, launches: Sequence[Launch]) -> list[LinkedCode]:
        keys = [(kernel, launch.config) for launch in launches]
        try:
            files = self._objects.get(keys, self._processes, here=_EFFORT_HERE)
        finally:
            # Or the fork server would live on beside the caller, for kernels that may never come.
            self._processes.close()
        with self._lock:
            # Threads may compile the same code at the same time, but one of them links it.
            for file in files.values():
                if file.symbol not in self._codes:
                    linked = link([file.code], [file.symbol])
                    address = linked.addresses[file.symbol]
                    code = LinkedCode(address, file.parameters, file.accesses)
                    # `linked` is kept for the memory that the code lies in.
                    self._codes[file.symbol] = (linked, code)
            return [self._codes[files[key].symbol][1] for key in keys]


@cache
def library() -> Library:
    """The process's library."""
    return Library()
