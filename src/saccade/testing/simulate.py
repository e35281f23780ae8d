"""Plays a program step by step on logical threads and watches every byte: races, lifetimes, bounds.

At every barrier, every byte of the arena that nobody needs any more becomes NaN, so that whoever
reads past a lifetime, past a buffer or something that was never written spoils the result. Between
two barriers the last phase comes first: none may depend on one before it. After every logical
thread of every phase, the arena is compared with what it was: only the step's results, its
temporaries and this thread's scratch may have changed, and no byte that another thread changed
since the barrier. Inputs and results stand between guard bands; inputs and constants must stay as
they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.backends.cpu.codegen.calling import CONTEXT_WORDS, COUNTER_WORDS
from saccade.backends.cpu.runtime.program import CpuProgram
from saccade.backends.host import run_host_step
from saccade.backends.lengths import cut_outputs
from saccade.ir import Array
from saccade.plan import Phase, Plan, Ref, Role, Slot, Step
from saccade.waits import between_meetings

__all__ = ["PlayError", "live_masks", "simulate"]

GUARD = 4096
_PATTERN = 0xFF  # NaN in every float type
_PART = 1 << 16  # bytes that are compared at once: few enough to stay in a cache

Mask = NDArray[np.bool_]


class PlayError(AssertionError):
    """A step did what its plan does not allow."""


def simulate(
    program: CpuProgram, inputs: Sequence[Array], order: Sequence[int] | None = None
) -> tuple[Array, ...]:
    """Results of a program for contiguous inputs, computed under watch.

    Args:
        program: Any program.
        inputs: Arrays of the plan's shapes and dtypes.
        order: In which the logical threads take their turns in every phase; fewer of them than the
            plan has share its chunks among themselves.

    Raises:
        PlayError: If a step breaks the plan; the message names step and kernel.
    """
    return _Play(program, inputs, tuple(order or range(program.plan.threads))).run()


def live_masks(plan: Plan) -> list[Mask]:
    """For each step, the bytes of the arena that it or a later step reads before writing them.

    Raises:
        PlayError: If the first step already needs some: something is read that nobody wrote.
    """
    live = np.zeros(plan.arena_bytes, bool)
    masks = []
    for step in reversed(plan.steps):
        # Going backwards, results come first: an operand in the same place stays alive.
        for slot in step.outputs:
            _cover(live, slot, False)
        for slot in step.inputs:
            _cover(live, slot, True)
        masks.append(live.copy())
    if live.any():
        raise PlayError(f"{int(live.sum())} bytes of the arena are read but never written")
    return masks[::-1]


def _cover(mask: Mask, slot: Slot, value: bool) -> None:
    """Set the bytes of a slot of the arena."""
    # Base 0 is the arena; inputs, results and constants lie elsewhere.
    if slot.ref.base == 0 and slot.view.size:
        size = slot.view.dtype.itemsize
        start, steps = slot.ref.offset, tuple(s * size for s in slot.view.strides)
        shape = (*slot.view.shape, size)
        np.lib.stride_tricks.as_strided(mask[start:], shape, (*steps, 1))[...] = value


class _Played(NamedTuple):
    """A phase: its step, whether it follows others of it, and its row of the program's table."""

    step: int
    phase: Phase
    begun: bool
    row: tuple[int, int, bool]


@dataclass
class _Play:
    program: CpuProgram
    inputs: Sequence[Array]
    order: tuple[int, ...]
    guarded: list[tuple[Array, int]] = field(default_factory=list)

    def run(self) -> tuple[Array, ...]:
        plan = self.program.plan
        self.arena = self._guard(plan.arena_bytes)
        self.before = self.arena.copy()
        copies = tuple(self._place(a) for a in self.inputs)
        outputs = tuple(
            self._place(np.full(p.shape, 0, p.dtype), poison=True) for p in plan.outputs
        )
        constants = self.program.constants
        before = [c.copy() for c in constants]
        self.memory = (self.arena, *copies, *outputs, *constants)
        self.bases = np.array([m.ctypes.data for m in self.memory], np.int64)
        # Steps on the host have no rows in it.
        table = iter(self.program.phase_table)
        masks = live_masks(plan)
        for host, numbers in groupby(range(len(plan.steps)), lambda i: not plan.steps[i].kernel):
            if host:
                for i in numbers:
                    self.arena[~masks[i]] = _PATTERN
                    run_host_step(plan.steps[i], self.memory)
                continue
            phases = [_Played(i, phase, k > 0, next(table))
                      for i in numbers for k, phase in enumerate(plan.steps[i].phases)]  # fmt: skip
            for between in between_meetings([phase.row[2] for phase in phases]):
                self._between([phases[i] for i in between], masks)
        for given, copy in zip((*self.inputs, *before), (*copies, *constants), strict=True):
            if next(_differences(_bytes(given), _bytes(copy)), None) is not None:
                raise PlayError("an input or a constant was written to")
        for block, nbytes in self.guarded:
            ends = (block[:GUARD], block[GUARD + nbytes :])
            if any((end != _PATTERN).any() for end in ends):
                raise PlayError("a guard band was written to")
        tables = self.program.tables
        return cut_outputs([output.copy() for output in outputs], tables.counts, tables.cuts)

    def _guard(self, nbytes: int) -> Array:
        block = np.full(nbytes + 2 * GUARD + 64, _PATTERN, np.uint8)
        skip = -block.ctypes.data % 64
        block = block[skip : skip + nbytes + 2 * GUARD]
        self.guarded.append((block, nbytes))
        return block[GUARD : GUARD + nbytes]

    def _place(self, array: Array, *, poison: bool = False) -> Array:
        placed: Array = self._guard(array.nbytes).view(array.dtype).reshape(array.shape)
        if not poison:
            placed[...] = array
        return placed

    def _between(self, phases: Sequence[_Played], masks: Sequence[Mask]) -> None:
        """All phases from one barrier to the next."""
        first = phases[0]
        live = masks[first.step].copy()
        if first.begun:
            step = self.program.plan.steps[first.step]
            for phase in step.phases:
                live |= self._writable(step, phase)[0]
        self.arena[~live] = _PATTERN
        self.before[:] = self.arena
        touched = np.zeros(len(self.arena), bool)
        for played in reversed(phases):
            self._phase(self.program.plan.steps[played.step], played, touched)

    def _phase(self, step: Step, played: _Played, touched: Mask) -> None:
        code, arguments, _ = played.row
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code)
        shared, scratch = self._writable(step, played.phase)
        fault = np.zeros(8, np.int64)
        width = len(self.order)
        counters = np.zeros(width * COUNTER_WORDS, np.int64)
        for thread in self.order:
            words = (self.bases.ctypes.data, counters.ctypes.data, width, thread, fault.ctypes.data)
            context = np.array([*words, 1], np.int64)
            assert len(context) == CONTEXT_WORDS
            function(arguments, context.ctypes.data)
            outside, twice = [], []
            for part in _differences(self.arena, self.before):
                # A byte that is written with what was there does not show; poison makes it
                # unlikely.
                changed = self.arena[part] != self.before[part]
                allowed = shared[part].copy()
                for ref in scratch:
                    start = ref.offset + thread * ref.nbytes - part.start
                    allowed[max(start, 0) : max(start + ref.nbytes, 0)] = True
                outside.append(part.start + np.flatnonzero(changed & ~allowed))
                twice.append(part.start + np.flatnonzero(changed & touched[part]))
                touched[part] |= changed
                self.before[part] = self.arena[part]
            _judge(step, thread, "outside its results", outside)
            _judge(step, thread, "what another thread wrote", twice)
        if fault[0]:
            raise PlayError(f"{_title(step)} left a buffer: {fault[:3].tolist()}")

    def _writable(self, step: Step, phase: Phase) -> tuple[Mask, list[Ref]]:
        """Bytes that every thread may write, and the scratch of which each has its part."""
        mask = np.zeros(len(self.arena), bool)
        for slot in step.outputs:
            _cover(mask, slot, True)
        scratch = []
        for _, role, ref in phase.arguments:
            if role is Role.TEMP:
                mask[ref.offset : ref.offset + ref.nbytes] = True
            elif role is Role.SCRATCH:
                scratch.append(ref)
        return mask, scratch


def _bytes(array: Array) -> Array:
    """What an array holds, whatever it means: NaN does not equal itself."""
    found: Array = array.reshape(-1).view(np.uint8)
    return found


def _differences(one: Array, other: Array) -> Iterator[slice]:
    """The parts of two arrays of as many bytes that are not alike."""
    whole = len(one) - len(one) % 8
    # Eight bytes at once, but for the last few.
    words, others = one[:whole].view(np.uint64), other[:whole].view(np.uint64)
    for start in range(0, whole, _PART):
        part = slice(start // 8, (start + _PART) // 8)
        if (words[part] != others[part]).any():
            yield slice(start, min(start + _PART, whole))
    if (one[whole:] != other[whole:]).any():
        yield slice(whole, len(one))


def _judge(step: Step, thread: int, what: str, wrong: Sequence[NDArray[np.intp]]) -> None:
    if any(len(part) for part in wrong):
        at = np.concatenate(wrong)
        raise PlayError(
            f"{_title(step)}, thread {thread}, wrote {what}: {len(at)} bytes, the first at {at[0]}"
        )


def _title(step: Step) -> str:
    return f"{step.name} ({step.kernel})"
