"""Runs an operator of the small IR on tensors: chooses the kernel, compiles it once, calls it.

Equal calls (operator, dtypes, shapes, strides, number of threads) share an `Operation`; calls that
differ in sizes only share the code. The threads are those of PyTorch's own pool.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from saccade.codegen.target import host_target
from saccade.errors import OptionError
from saccade.ir import Op
from saccade.kernels import CPU_KERNELS
from saccade.kernels.base import Call, CpuKernel, Launch, View
from saccade.locks import Lock
from saccade.ops._tensors import view_of
from saccade.processes import Processes
from saccade.runtime.cpu.linker import link
from saccade.runtime.cpu.objects import Objects
from saccade.runtime.cpu.openmp import OpenMpTeam, openmp_library
from saccade.runtime.cpu.operation import LinkedCode, Operation
from saccade.runtime.cpu.team import FutexTeam, Inline, Team, shared_team
from saccade.runtime.cpu.workspace import Workspaces

__all__ = ["Describe", "execute", "release_memory"]

_KEPT = 4096  # operations; detectors ask for another number of boxes every time
_NOMINAL_THREADS = 2  # kernels are chosen for such a team, whatever its width

Describe = Callable[..., Op]
"""`describe(views of the inputs, *parameters)`."""

_workspaces = Workspaces()


def execute(
    describe: Describe,
    parameters: tuple[Hashable, ...],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> None:
    """Do an operator: `outputs` are written, `inputs` only read.

    Args:
        describe: Gives the operator for views of the inputs and the parameters. A function of a
            module: it stands for the operator's name in the table of calls that were seen.
        parameters: Whatever else decides what the operator does.
        inputs: CPU tensors of any strides.
        outputs: The same, none of them overlapping anything else. Nothing happens where no result
            has an element.

    Raises:
        OptionError: If no kernel takes the call.
        CompileError: If its kernel cannot be compiled.
    """
    tensors = (*inputs, *outputs)
    width = torch.get_num_threads()
    key = (describe, parameters, width, *[(t.dtype, t.shape, t.stride()) for t in tensors])
    library = _library()
    operation = library.operations.get(key)
    if operation is None:
        ins, outs = (tuple(map(view_of, group)) for group in (inputs, outputs))
        operation = library.make(describe(ins, *parameters), ins, outs, width)
        library.keep(key, operation)
    if operation.busy:
        _run(operation, [t.data_ptr() for t in tensors], min(width, operation.busy))


def release_memory() -> None:
    """Give back what operators keep for their next call (up to 512 MiB)."""
    _workspaces.clear()


class _Library:
    """The process's operations and their code."""

    def __init__(self) -> None:
        # As an option of `compile` is, but for all operators: tests run them in checked mode.
        checked = os.environ.get("SACCADE_CHECKED", "") not in ("", "0")
        self._target = host_target()
        self._objects = Objects(self._target, checked=checked)
        self._processes = Processes()
        self._codes: dict[str, tuple[Any, LinkedCode]] = {}
        self.operations: OrderedDict[Hashable, Operation] = OrderedDict()
        self._lock = Lock()

    def make(
        self, op: Op, inputs: tuple[View, ...], outputs: tuple[View, ...], threads: int
    ) -> Operation:
        """The operation of a new call."""
        constant = (False,) * len(inputs)
        call = Call(op, inputs, outputs, constant, self._target, _NOMINAL_THREADS)
        kernel = _choose(call)
        launches = kernel.launch(call)
        return Operation(call, launches, self._code(kernel, launches), threads, _workspaces)

    def keep(self, key: Hashable, operation: Operation) -> None:
        """Know it again; the oldest goes where there are too many."""
        with self._lock:
            self.operations[key] = operation
            while len(self.operations) > _KEPT:
                self.operations.popitem(last=False)

    def _code(self, kernel: CpuKernel, launches: Sequence[Launch]) -> list[LinkedCode]:
        keys = [(kernel.name, launch.config) for launch in launches]
        try:
            files = self._objects.get(keys, self._processes)
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
def _library() -> _Library:
    return _Library()


def _choose(call: Call) -> CpuKernel:
    """The cheapest kernel of those that take the call."""
    able, refusals = [], []
    for kernel in CPU_KERNELS:
        if type(call.op) in kernel.ops:
            reason = kernel.supports(call)
            if reason is None:
                able.append(kernel)
            else:
                refusals.append(f"{kernel.name}: {reason}")
    if not able:
        raise OptionError(f"no kernel takes {call.op.family} ({'; '.join(refusals)})")
    return min(able, key=lambda kernel: kernel.cost(call)) if len(able) > 1 else able[0]


def _run(operation: Operation, pointers: Sequence[int], width: int) -> None:
    team = _teams.get(width) or _find_team(width)
    if isinstance(team, FutexTeam):
        with team.lock:
            operation.run(pointers, team)
    else:
        operation.run(pointers, team)


def _find_team(width: int) -> Team:
    """PyTorch's own threads; ours where PyTorch has no OpenMP, or lost it by a fork."""
    library = openmp_library()
    if width == 1:
        team: Team = Inline()
    elif library is not None:
        team = OpenMpTeam(library, width)
    else:
        team = shared_team(width)
    _teams[width] = team
    return team


_teams: dict[int, Team] = {}

os.register_at_fork(after_in_child=_teams.clear)
