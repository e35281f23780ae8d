"""Arguments of steps for as many rows as a run found, in place of those for the most there can be.

A program's tables are for the bounds of what its steps find out. Once a number is known, steps
behind may run for about as many rows: code and places in memory stay what they are, other numbers
say how much there is to do. A kernel gives them as for any call, here of operands and results with
fewer rows, by a variant with the same code and the same rounding, so that the bits of the rows
that there are do not depend on it. A step without such a variant computes all rows. What others
read as a whole is filled up with zeros, as if nothing had been there to begin with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from saccade.backends.cpu.runtime.counted_run import RowArguments
from saccade.backends.cpu.runtime.tables import Native, ProgramTables
from saccade.backends.cpu.target import ALIGNMENT, Target, described_target, host_target
from saccade.backends.host import array_at
from saccade.kernels.base import Launch, Packed, Packing, Temp, Variant, View
from saccade.kernels.bind import Binder, Phase, Ref, Role
from saccade.kernels.cpu import kernel_named
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.packing import FUNCTIONS
from saccade.plan import Plan, Slot, Step
from saccade.plan.rows import all_counted_steps, rows_of, with_rows

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = ["FewerRows", "alike"]

_LEAST_CACHE = 4096
"""Bytes of a cache that kernels can choose by."""


class FewerRows:
    """What steps of a program need for fewer rows; found once for each number.

    Args:
        plan: What the program runs.
        tables: Of the program.
    """

    def __init__(self, plan: Plan, tables: ProgramTables) -> None:
        self._plan, self._tables = plan, tables
        self._groups = all_counted_steps(plan)
        self._target = _target_of(plan)
        self._binder = Binder(plan.threads, alignment=ALIGNMENT)
        self._places = [
            (number, at)
            for number, (host, steps) in enumerate(plan.segments())
            for at in _positions(host, steps)
        ]
        self._variants: dict[CpuCall, Variant | None] = {}
        self._made: dict[Packing, Array] = {}
        self._known: dict[tuple[int, int], RowArguments | None] = {}

    def arguments(self, number: int, rows: int) -> RowArguments | None:
        """Those of the steps behind a counted point.

        Args:
            number: Of the point among the program's.
            rows: What its count is.

        Returns:
            None if no step can do with less.
        """
        key = number, rows
        if key not in self._known:  # of two threads that find it both, one is kept
            self._known.setdefault(key, self._find(self._groups[number].steps, rows))
        return self._known[key]

    def _find(self, steps: Sequence[int], rows: int) -> RowArguments | None:
        words: list[int] = []
        blocks: list[tuple[int, int, int]] = []
        idle = set[tuple[int, int]]()
        fewer = set[int]()
        for i in steps:
            segment, at = self._places[i]
            if rows == 0:
                idle.update((segment, at + k) for k in range(len(self._plan.steps[i].phases)))
                fewer.add(i)
                continue
            phases = self._phases(self._plan.steps[i], rows)
            for k, phase in enumerate(phases or ()):
                blocks.append((segment, at + k, len(words)))
                words += self._words(segment, at + k, phase)
                fewer.add(i)
        if not fewer:
            return None
        held = np.array(words, np.int64)
        start = held.ctypes.data
        return RowArguments(
            held,
            tuple((segment, at, start + 8 * first) for segment, at, first in blocks),
            frozenset(idle),
            self._zeros(sorted(fewer), rows),
        )

    def _words(self, segment: int, at: int, phase: Phase) -> list[int]:
        native = self._tables.segments[segment]
        assert isinstance(native, Native)
        parameters = self._tables.codes[native.phases[at, 0]].parameters
        assert parameters is not None
        words: list[int] = parameters.words(phase)
        return words

    def _zeros(
        self, fewer: Sequence[int], rows: int
    ) -> dict[tuple[int, int], tuple[partial[None], ...]]:
        """What is filled with zeros where, at as few places as will do."""
        wanted = []
        for i in fewer:
            step = self._plan.steps[i]
            assert step.rows is not None
            left = [reader for reader in step.rows.readers if reader not in fewer]
            first = min((*step.rows.whole, *left), default=None)
            if first is not None:
                wanted.append((first, i, _rest(step, rows)))
        found: dict[int, list[partial[None]]] = {}
        last = -1
        for first, i, fills in sorted(wanted, key=lambda one: one[0]):
            # Behind the step that writes the rest, at the latest before the one that reads it.
            if last <= i:
                last = first
            found.setdefault(last, []).extend(fills)
        return {self._places[i]: tuple(fills) for i, fills in found.items()}

    def _phases(self, step: Step, rows: int) -> list[Phase] | None:
        """The phases of a step for fewer rows; None if its kernel has none with the same code."""
        assert step.kernel is not None
        plan = self._plan
        constant = tuple(map(plan.is_weight, step.inputs))
        ins, outs = (tuple(slot.view for slot in slots) for slots in (step.inputs, step.outputs))
        target, options = self._target, (plan.threads, plan.exact)
        whole = CpuCall(step.op, ins, outs, constant, target, *options)
        if whole not in self._variants:
            self._variants[whole] = _variant_of(step, whole)
        variant = self._variants[whole]
        if variant is None:
            return None
        less = CpuCall(*with_rows(step, rows), constant, target, *options)
        if less not in self._variants:
            share = less.outputs[0].shape[0] / outs[0].shape[0]
            self._variants[less] = alike(kernel_named(step.kernel), less, share, variant)
        found = self._variants[less]
        if found is None:
            return None
        memory = _memory(step, variant.launches)
        needed, there = (self._binder.workspace(v.launches) for v in (found, variant))
        if needed.scratch > there.scratch or any(
            nbytes > there.temps.get(index, 0) for index, nbytes in needed.temps.items()
        ):
            return None
        missing = _packings(found.launches) - memory.packed.keys()
        if any(packing.inputs for packing in missing):
            return None
        memory.packed.update((packing, self._table(packing)) for packing in missing)
        places = _Places(step, less.inputs, less.outputs, memory)
        return [self._binder.phase(launch, places) for launch in found.launches]

    def _table(self, packing: Packing) -> Ref:
        """A constant that follows from sizes alone, such as a table of an image's regions."""
        array = self._made.get(packing)
        if array is None:
            made = FUNCTIONS[packing.function](*packing.parameters)
            block = np.empty(made.nbytes + ALIGNMENT, np.uint8)
            start = -block.ctypes.data % ALIGNMENT
            block[start : start + made.nbytes] = made.reshape(-1).view(np.uint8)
            # Of two threads that make it both, one array is kept.
            array = self._made.setdefault(packing, block[start : start + made.nbytes])
        # The last base is 0.
        base = self._tables.constant_base + len(self._tables.constants)
        return Ref(base, array.ctypes.data, array.nbytes)


def _target_of(plan: Plan) -> Target:
    """The machine that a plan was made for: this one, or one that is described."""
    here = host_target(plan.isa)
    # What was read from a file has an `isa` that this machine has.
    return here if machine(here) == plan.speeds else described_target(plan.speeds.name, here.isa)


def _positions(host: bool, steps: Sequence[Step]) -> Iterator[int]:
    """Where steps begin in their segment."""
    at = 0
    for step in steps:
        yield at
        at += 1 if host else len(step.phases)


def _rest(step: Step, rows: int) -> list[partial[None]]:
    """What fills the rows of a step's results that are not computed."""
    assert step.rows is not None
    firsts = [
        rows_of(slot.view, factor, rows)
        for slot, factor in zip(step.outputs, step.rows.outputs, strict=True)
    ]
    return [partial(_fill, slot, first) for slot, first in zip(step.outputs, firsts, strict=True)]


def _fill(slot: Slot, first: int, memory: Sequence[Array]) -> None:
    """Zeros from a row on."""
    array_at(slot, memory)[first:] = 0


def _variant_of(step: Step, call: CpuCall) -> Variant | None:
    """The variant that a step was planned with."""
    assert step.kernel is not None
    kernel = kernel_named(step.kernel)
    if kernel.supports(call) is not None:
        return None
    configs = tuple(phase.config for phase in step.phases)
    for variant in kernel.variants(call):
        if tuple(variant.needs) == configs and _is_planned(variant.launches, step.phases):
            return variant
    return None


def _is_planned(launches: Sequence[Launch], phases: Sequence[Phase]) -> bool:
    return all(
        dict(launch.integers) == dict(phase.integers)
        and list(launch.operands) == [argument.name for argument in phase.arguments]
        for launch, phase in zip(launches, phases, strict=True)
    )


def alike(kernel: CpuKernel, call: CpuCall, share: float, variant: Variant) -> Variant | None:
    """A variant for a call with the code and the rounding of one that was planned.

    Whether results go past the caches, or operands are asked for early, is in the code, and goes by
    sizes. With caches as much smaller as there are fewer rows it comes out as it was planned.

    Args:
        kernel: Whose variants.
        call: With fewer rows.
        share: How many of the rows that were planned for.
        variant: Planned.
    """
    target, needs = call.target, tuple(variant.needs)
    l2, l3 = (max(int(nbytes * share), _LEAST_CACHE) for nbytes in (target.l2, target.l3))
    for one in (target, replace(target, l3=l3), replace(target, l2=l2, l3=l3)):
        asked = replace(call, target=one)
        if kernel.supports(asked) is not None:
            continue
        for found in kernel.variants(asked):
            if found.rounding == variant.rounding and tuple(found.needs) == needs:
                return found
    return None


def _packings(launches: Sequence[Launch]) -> set[Packing]:
    return {
        operand.packing
        for launch in launches
        for operand in launch.operands.values()
        if isinstance(operand, Packed)
    }


class _PlannedMemory(NamedTuple):
    """Where a planned step has what is no operand: constants, temporaries, scratch."""

    packed: dict[Packing, Ref]
    temps: dict[int, Ref]
    scratch: Ref | None


def _memory(step: Step, launches: Sequence[Launch]) -> _PlannedMemory:
    packed, temps = dict[Packing, Ref](), dict[int, Ref]()
    scratch: list[Ref] = []
    for launch, phase in zip(launches, step.phases, strict=True):
        for operand, argument in zip(launch.operands.values(), phase.arguments, strict=True):
            if isinstance(operand, Packed):
                packed[operand.packing] = argument.ref
            elif isinstance(operand, Temp):
                temps[operand.index] = argument.ref
            elif argument.role is Role.SCRATCH:
                scratch.append(argument.ref)
    return _PlannedMemory(packed, temps, min(scratch, key=lambda ref: ref.offset, default=None))


class _Places(NamedTuple):
    """Memory of a step with fewer rows: where it is for all of them."""

    step: Step
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    memory: _PlannedMemory

    def input(self, index: int) -> Ref:
        return _part(self.step.inputs[index], self.inputs[index])

    def output(self, index: int) -> Ref:
        return _part(self.step.outputs[index], self.outputs[index])

    def packed(self, packing: Packing) -> Ref:
        return self.memory.packed[packing]

    def temp(self, operand: Temp) -> Ref:
        return self.memory.temps[operand.index]._replace(nbytes=operand.nbytes)

    def scratch(self, before: int, nbytes: int) -> Ref:
        ref = self.memory.scratch
        assert ref is not None  # as much as is needed is there
        return Ref(ref.base, ref.offset + before, nbytes)


def _part(slot: Slot, view: View) -> Ref:
    return slot.ref._replace(nbytes=view.extent * view.dtype.itemsize)
