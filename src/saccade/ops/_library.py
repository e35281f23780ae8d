"""Operators of the small IR as operations: chooses the kernel, compiles it once, links it.

The process has one library. Its code is shared by all calls that differ in sizes only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from saccade.backends.cpu.runtime.formula import Formula
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.runtime.objects import Objects
from saccade.backends.cpu.runtime.operation import LinkedCode, Operation
from saccade.backends.cpu.runtime.workspace import Workspaces
from saccade.backends.cpu.target import host_target
from saccade.errors import OptionError
from saccade.ir import Op
from saccade.kernels.base import Call, CpuKernel, Launch, Variant, View
from saccade.kernels.cpu import kernels_for
from saccade.locks import Lock, preload_hooks
from saccade.processes import Processes

__all__ = ["Library", "library"]

_EFFORT_HERE = 3.0  # of compiling in the caller's process; what is more goes to several others
_NOMINAL_THREADS = 2  # kernels are chosen for such a team, whatever its width
_ALONE = 8.0  # estimated microseconds of a team; entering its region costs more than it saves


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
        formula: Formula | None = None,
    ) -> Operation:
        """The operation of a new call.

        Args:
            op: What to do.
            inputs: Operands. Extents may be numbers of the formula.
            outputs: Results, the report included.
            threads: The widest team that will run it.
            report: See `Operation`.
            formula: The same.

        Raises:
            OptionError: If no kernel takes the call.
            CompileError: If its kernel cannot be compiled.
            UntraceableError: If the kernel does with a number what a formula cannot follow.
        """
        constant = (False,) * len(inputs)
        call = Call(op, inputs, outputs, constant, self._target, _NOMINAL_THREADS)
        kernel, variant = _choose(call)
        launches = variant.launches
        return Operation(
            call,
            launches,
            self._code(kernel, launches),
            1 if variant.micros <= _ALONE else threads,
            self.workspaces,
            report=report,
            formula=formula,
        )

    def _code(self, kernel: CpuKernel, launches: Sequence[Launch]) -> list[LinkedCode]:
        keys = [(kernel.name, launch.config) for launch in launches]
        try:
            files = self._objects.get(keys, self._processes, here=_EFFORT_HERE)
        finally:
            self._processes.close()
        with self._lock:
            for file in files.values():
                if file.symbol not in self._codes:
                    linked = link([file.code], [file.symbol])
                    code = (linked.addresses[file.symbol], file.accesses)
                    self._codes[file.symbol] = (linked, code)
            return [self._codes[files[key].symbol][1] for key in keys]


@cache
def library() -> Library:
    """The process's library."""
    return Library()


def _choose(call: Call) -> tuple[CpuKernel, Variant]:
    """The cheapest kernel of those that take the call, and its best way."""
    able, refusals = [], []
    for kernel in kernels_for(call.op.family):
        reason = kernel.supports(call)
        if reason is None:
            able.append((kernel, kernel.best(call)))
        else:
            refusals.append(f"{kernel.name}: {reason}")
    if not able:
        raise OptionError(f"no kernel takes {call.op.family} ({'; '.join(refusals)})")
    return min(able, key=lambda found: found[1].micros)
