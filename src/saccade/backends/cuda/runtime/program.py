"""A plan as a CUDA graph.

    device = open_device()                      # context.py: the process's, memory and constants
    program = CudaProgram(device, plan, codes, constant, identity)

`codes` has the cubin of every phase of every step, in the plan's order, whether or not the phase
has chunks; then those of bodies, as `whole_plans` has them. They may be compiled for pointers that
are multiples of 16: every entry of the table of bases is one, so that a pointer is one if its
`Ref.offset` is.

Runs only enqueue: they return before the GPU is done, with results that are written on the stream
that the run went to. That is the caller's if an input is an array on it (`DeviceArray.caller`),
else one of this thread's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, cast
from weakref import finalize

import numpy as np

from saccade.backends.cuda.runtime.array import DeviceArray
from saccade.backends.cuda.runtime.batches import launched_of
from saccade.backends.cuda.runtime.clocks import clocks_of, timed_steps
from saccade.backends.cuda.runtime.facts import phase_facts
from saccade.backends.cuda.runtime.graph import Launched, PhaseCode, RecordedGraph, check_arguments
from saccade.backends.cuda.runtime.lengths import NUMBER_BYTES, cut_on_device, numbers_array
from saccade.backends.cuda.runtime.turns import StepTurns
from saccade.errors import OptionError, OutOfMemoryError
from saccade.ir import DType
from saccade.locks import cached_property

if TYPE_CHECKING:
    from saccade.backends.cuda.codegen.compile import Cubin
    from saccade.backends.cuda.runtime.context import DeviceContext
    from saccade.backends.cuda.runtime.memory import Arena
    from saccade.ir import Array
    from saccade.kernels.machine import Machine
    from saccade.plan import Plan, Step
    from saccade.profile.types import Facts, Reading
    from saccade.program import DeviceBuffer

__all__ = ["CudaProgram"]

Bodies = Callable[["Step"], Sequence["Plan"]]

_ALIGNMENT = 16
"""Bytes; code is compiled for bases at multiples of so many."""


class CudaProgram:
    """A plan ready to run; may be called from several threads at once.

    Launches between two loops or branches are a graph each; their bodies are programs.

    Args:
        device: The GPU, with what this process has on it.
        plan: What to run; host steps without bodies are refused.
        codes: The code of each phase.
        constant: The constant of a number as kernels read it, of the plan or, behind those, of its
            bodies; asked only for those that are read and that no other program has brought to the
            GPU.
        identity: Of the constants: equal for programs whose equal constants may be shared.
        bodies: What is run for a step's bodies: these, or several turns of one (`beside`).

    Raises:
        OptionError: If a step has no kernel.
        OutOfMemoryError: If the GPU has no room for the constants.
        DeviceError: If it is lost, or the code is for another one.
        LaunchError: If the arguments of a phase are not those that its code takes.
    """

    def __init__(
        self,
        device: DeviceContext,
        plan: Plan,
        codes: Iterable[Cubin],
        constant: Callable[[int], Array],
        identity: str,
        bodies: Bodies = attrgetter("bodies"),
    ) -> None:
        self.device = device
        self.plan = plan
        _check(plan)
        # The finalizer has this very dictionary: it is changed, never replaced.
        self._graphs: dict[int, tuple[int, list[RecordedGraph]]] = {}
        results = plan.outputs[: len(plan.outputs) - plan.counts]
        self._ports = [(port.shape, DType(port.dtype)) for port in results]
        held: list[tuple[str, str]] = []
        # Constants stay in it, and how far numbers lie apart; each run copies it and sets the rest.
        self._bases = np.zeros(plan.constant_base + len(plan.constants), np.int64)
        first = plan.constant_base - plan.counts
        self._bases[first : plan.constant_base] = NUMBER_BYTES * np.arange(plan.counts)
        with device.driver.current():
            device.enter()
            # Before anything is held, so that what follows may fail. At exit the driver frees all.
            finalize(self, _retire, device, self._graphs, held).atexit = False
            own = sum(len(step.phases) for step in plan.steps)
            rest = iter(codes)
            self._codes = _loaded(device, plan, tuple(islice(rest, own)))
            self._turns = _turns(self, rest, constant, identity, bodies, held)
            for i, (one, read) in enumerate(zip(plan.constants, plan.constants_read, strict=True)):
                if read:
                    key = (identity, f"{one.key} {one.nbytes}")
                    address = device.constants.hold(key, partial(constant, i))
                    held.append(key)
                    self._bases[plan.constant_base + i] = address

    def run(self, inputs: Sequence[DeviceBuffer]) -> tuple[DeviceArray, ...]:
        """Results for dense arrays on the GPU of the plan's shapes and dtypes; see above.

        Raises:
            OutOfMemoryError: If the GPU has not what it needs; runs of smaller sizes go on.
            DeviceError: If it was lost.
        """
        given = cast("Sequence[DeviceArray]", inputs)  # by `Program`, from `CudaArrays`
        with self.device.driver.current():
            stream = self._entered(given)
            try:
                results, numbers = self._enqueued(given, stream)
            except OutOfMemoryError as error:
                raise self._out_of_memory(error) from error
            results = cut_on_device(results, numbers, self.plan.cuts, stream)
            if not all(a.leased or a.caller for a in given):
                # Another library's memory, of which it may let go as soon as this returns.
                self.device.driver.wait_stream(stream)
            return results

    def _entered(self, given: Sequence[DeviceArray]) -> int:
        """The stream to run on, which waits for the inputs."""
        stream = next((a.stream for a in given if a.caller), None)
        if stream is None:
            stream = self.device.stream()
        self.device.order(stream, [a.stream for a in given])
        # Or a buffer that the caller lets go of could be another's before it is read.
        for one in given:
            one.used_on(stream)
        return stream

    def _enqueued(
        self, given: Sequence[DeviceArray], stream: int
    ) -> tuple[tuple[DeviceArray, ...], DeviceArray | None]:
        """The results, and the numbers that steps find out."""
        device = self.device
        aligned = [self._aligned(one, stream) for one in given]
        make = next((a.make for a in given if a.make is not None), DeviceArray.empty)
        results = tuple(make(device, shape, kind, stream) for shape, kind in self._ports)
        numbers = numbers_array(device, self.plan.counts, stream)
        if not self._pieces:
            return results, numbers
        arena = device.arenas.take(self.plan.arena_bytes, stream)
        try:
            bases = self._table(arena.address, aligned, results, numbers)
            self._go_through(arena, bases, stream)
        finally:
            device.arenas.give_back(arena, stream)
        return results, numbers

    def turn(self, inputs: Sequence[DeviceArray], stream: int) -> tuple[DeviceArray, ...]:
        """A run as a body, on the stream of the program around it.

        Raises:
            OutOfMemoryError: If the GPU has not what it needs.
            DeviceError: If it was lost.
        """
        return self._enqueued(inputs, stream)[0]

    def _go_through(self, arena: Arena, bases: Array, stream: int) -> None:
        """All launches and steps with bodies, in order."""
        graphs = iter(self._recorded(arena, bases, stream))
        for piece in self._pieces:
            if isinstance(piece, StepTurns):
                piece.run(bases, stream)
            else:
                next(graphs).launch(bases, stream)

    def _aligned(self, one: DeviceArray, stream: int) -> DeviceArray:
        """Itself, or a copy where the code can read it."""
        if one.address % _ALIGNMENT == 0:
            return one
        copy = DeviceArray.empty(self.device, one.shape, one.kind, stream)
        if one.nbytes:
            self.device.driver.copy(copy.address, one.address, one.nbytes, stream)
        return copy

    def _table(
        self,
        arena: int,
        inputs: Sequence[DeviceArray],
        results: Sequence[DeviceArray],
        numbers: DeviceArray | None,
    ) -> Array:
        bases, end = self._bases.copy(), self.plan.constant_base
        bases[: end - self.plan.counts] = [arena, *(a.address for a in (*inputs, *results))]
        if numbers is not None:
            bases[end - self.plan.counts : end] += numbers.address
        return bases

    def _recorded(self, arena: Arena, bases: Array, stream: int) -> list[RecordedGraph]:
        """The graphs over this arena, which nobody else has meanwhile."""
        # By the arena's `id`, which stays its own: arenas live as long as the device.
        address, graphs = self._graphs.get(id(arena), (None, []))
        if address != arena.address:
            if graphs:  # the arena moved
                del self._graphs[id(arena)]
                self.device.driver.synchronize()  # other runs may be on their way
                for graph in graphs:
                    graph.free()
            graphs = []
            # With whatever is made of them, so that the finalizer finds it.
            self._graphs[id(arena)] = arena.address, graphs
        for launched in self._launched[len(graphs) :]:
            graphs.append(RecordedGraph(self.device.driver, *launched, bases, stream))
        return graphs

    @cached_property
    def _launched(self) -> list[Launched]:
        """Of `_pieces` what is launched."""
        return [piece for piece in self._pieces if not isinstance(piece, StepTurns)]

    @cached_property
    def _pieces(self) -> list[Launched | StepTurns]:
        """What runs one after the other: what is launched, and steps with bodies between that."""
        found: list[Launched | StepTurns] = []
        for part, turns in enumerate((None, *self._turns)):
            if turns is not None:
                found.append(turns)
            launched = launched_of(self.plan, self._codes, part)
            if launched[0]:  # a graph has at least one launch
                found.append(launched)
        return found

    def _out_of_memory(self, error: OutOfMemoryError) -> OutOfMemoryError:
        plan = self.plan
        return OutOfMemoryError(
            f"inputs of these sizes need {plan.arena_bytes + plan.output_bytes} bytes of the GPU's "
            f"memory ({plan.arena_bytes} while it runs, {plan.output_bytes} for the outputs) and "
            f"there is no room: {error}: use smaller ones"
        )

    def asked_again(self) -> None:
        """There is nothing to keep."""

    def profile(self, inputs: Sequence[DeviceBuffer], repeat: int) -> list[Reading]:
        """Clock readings in nanoseconds: for each phase in order, [repeat, 1, (start, end)].

        Launches follow one another, each between two events; after a run that is not counted.
        Phases that are launched together share its time. A step with bodies is one without a phase.

        Raises:
            OutOfMemoryError: If the GPU has not what it needs.
            DeviceError: If it was lost.
        """
        given = cast("Sequence[DeviceArray]", inputs)
        with self.device.driver.current():
            stream = self._entered(given)
            try:
                clocks = self._clocked(given, stream, repeat)
            except OutOfMemoryError as error:
                raise self._out_of_memory(error) from error
        each = enumerate(timed_steps(self.plan))
        return [(step, phase, clocks[:, i, None]) for i, (step, phase) in each]

    def _clocked(self, given: Sequence[DeviceArray], stream: int, repeat: int) -> Array:
        """See `clocks_of`."""
        device = self.device
        aligned = [self._aligned(one, stream) for one in given]
        results = [DeviceArray.empty(device, *port, stream) for port in self._ports]
        numbers = numbers_array(device, self.plan.counts, stream)
        arena = device.arenas.take(self.plan.arena_bytes, stream)
        try:
            bases = self._table(arena.address, aligned, results, numbers)
            return clocks_of(device.driver, self.plan, self._pieces, bases, stream, repeat)
        finally:
            device.arenas.give_back(arena, stream)

    def micros(self, inputs: Sequence[DeviceBuffer], runs: int) -> float:
        """Microseconds of one of several runs on end by the GPU's clock, after one before them.

        Raises:
            OutOfMemoryError: If the GPU has not what it needs.
            DeviceError: If it was lost.
        """
        given = cast("Sequence[DeviceArray]", inputs)
        if not self._pieces:
            return 0.0
        with self.device.driver.current():
            stream = self._entered(given)
            try:
                return self._timed(given, stream, runs)
            except OutOfMemoryError as error:
                raise self._out_of_memory(error) from error

    def _timed(self, given: Sequence[DeviceArray], stream: int, runs: int) -> float:
        device, driver = self.device, self.device.driver
        aligned = [self._aligned(one, stream) for one in given]
        results = [DeviceArray.empty(device, *port, stream) for port in self._ports]
        numbers = numbers_array(device, self.plan.counts, stream)
        start, end = (driver.make_event(timed=True) for _ in range(2))
        arena = device.arenas.take(self.plan.arena_bytes, stream)
        try:
            bases = self._table(arena.address, aligned, results, numbers)
            self._go_through(arena, bases, stream)
            driver.record(start, stream)
            for _ in range(runs):
                self._go_through(arena, bases, stream)
            driver.record(end, stream)
            driver.wait_stream(stream)
        finally:
            device.arenas.give_back(arena, stream)
        taken = 1e3 * driver.milliseconds(start, end) / runs
        driver.free_event(start)
        driver.free_event(end)
        return taken

    def speeds(self) -> Machine:
        """What the plan was made for, with the bandwidth of this GPU's memory as a copy has it.

        Raises:
            DeviceError: If it was lost.
        """
        with self.device.driver.current():
            return replace(self.plan.speeds, bandwidth=self.device.bandwidth())

    def facts(self) -> list[Facts]:
        """Of each phase's code: see `phase_facts`; nothing where it has no chunks, nor of bodies.

        Raises:
            DeviceError: If it was lost.
        """
        found: list[Facts] = [{} for _ in timed_steps(self.plan)]
        places = [i for i, (_, phase) in enumerate(timed_steps(self.plan)) if phase is not None]
        with self.device.driver.current():
            for code in (code for codes, _ in self._launched for code in codes):
                facts = phase_facts(self.device.driver, code)
                for one in (code, *code.others):
                    found[places[one.number]] = facts
        return found


def _check(plan: Plan) -> None:
    for step in plan.steps:
        if step.kernel is None and not step.bodies:
            raise OptionError(
                f"device cuda has no kernel for {type(step.op).__name__} ({step.name}): "
                f"{'; '.join(step.reasons) or 'none is listed'}"
            )


def _loaded(device: DeviceContext, plan: Plan, codes: Sequence[Cubin]) -> list[PhaseCode]:
    phases = [phase for step in plan.steps for phase in step.phases]
    return [
        check_arguments(PhaseCode(number, phase, cubin, device.load(cubin)))
        for number, (phase, cubin) in enumerate(zip(phases, codes, strict=True))
        if phase.chunks
    ]


def _turns(
    program: CudaProgram,
    codes: Iterator[Cubin],
    constant: Callable[[int], Array],
    identity: str,
    bodies: Bodies,
    held: list[tuple[str, str]],
) -> list[StepTurns]:
    """The steps with bodies, whose programs take their codes, and constants behind the plan's."""
    device, plan = program.device, program.plan
    found, known = [], len(plan.constants)
    for step in plan.steps:
        inside, turns = bodies(step), []
        for body in inside:
            of_body = partial(_behind, constant, known)
            turns.append(CudaProgram(device, body, codes, of_body, identity, bodies).turn)
            known += len(body.whole_constants)
        if turns:
            beside = 1 if inside is step.bodies else inside[0].inputs[0].shape[0]
            found.append(StepTurns(device, step, turns, beside, plan.constant_base, held))
    return found


def _behind(constant: Callable[[int], Array], first: int, index: int) -> Array:
    return constant(first + index)


def _retire(
    device: DeviceContext,
    graphs: dict[int, tuple[int, list[RecordedGraph]]],
    held: Sequence[tuple[str, str]],
) -> None:
    frees = [graph.free for _, each in graphs.values() for graph in each]
    device.retire([*frees, *(partial(device.constants.let_go, key) for key in held)])
