"""How long variants for a step take on a GPU: apart from the program, with a cold L2 cache.

Operands and results lie there many times, on more bytes than the L2 cache has twice, and every
launch takes the next ones: what it reads was evicted since it was read last. (Small operands lie
there `MOST_SETS` times at most, and may stay in the cache.) One CUDA graph
repeats the launches of one variant on all of them, chained as in programs, so that neither the host
nor the gap between graphs counts; the time of a launch is that of the graph, between two events, by
the repetitions. Nothing is subtracted. Variants take turns, in changing order, and all turns are on
the stream before the first one ends; one turn before is not counted.

Floats are random, from -1 to 1: zeros would take less power, and so less time. Integers are zero
unless they are constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cuda.runtime.graph import PhaseCode, RecordedGraph, check_arguments
from saccade.errors import DeviceError
from saccade.ir import DType

if TYPE_CHECKING:
    from saccade.backends.cuda.codegen.compile import Cubin
    from saccade.backends.cuda.runtime.context import DeviceContext
    from saccade.ir import Array
    from saccade.plan import Phase

__all__ = ["Contest", "Gauge", "Region"]

MOST_SETS = 256
"""Of operands: the host makes as many launches for each variant."""
_ALIGNMENT = 256  # bytes, of regions, as in arenas
_NOISE = 4 << 20  # elements


@dataclass(frozen=True, slots=True)
class Region:
    """Memory of one operand, result, packed constant or temporary.

    Attributes:
        nbytes: Of it, from a multiple of 256.
        content: What is there, from its beginning.
        noise: Or else the type of random floats that are. With neither, it is all zeros.
        read: Whether it matters what is there.
    """

    nbytes: int
    content: bytes = b""
    noise: str = ""
    read: bool = True


@dataclass(frozen=True, slots=True)
class Contest:
    """What is timed.

    Attributes:
        regions: What variants read and write. The base of a phase's argument is the number of one.
        variants: Phases and code of each.
        rounds: Turns of each that are counted.
        cold: Bytes that are touched before anything is touched again.
        repetitions: Of each variant in a turn, at least.
    """

    regions: tuple[Region, ...]
    variants: tuple[tuple[tuple[Phase, Cubin], ...], ...]
    rounds: int
    cold: int
    repetitions: int


class Gauge:
    """Times variants on a GPU; for one thread.

    Args:
        device: The GPU. Memory and code stay with it until it goes.
    """

    def __init__(self, device: DeviceContext) -> None:
        self._device, self._driver = device, device.driver
        self._address = self._nbytes = 0
        self._noise: dict[str, int] = {}
        self._events: list[int] = []

    @property
    def lost(self) -> bool:
        """Whether the GPU answers nothing any more."""
        return self._driver.lost is not None

    def times(self, contest: Contest) -> Array:
        """Microseconds [variants, rounds] of each variant, once.

        Raises:
            OutOfMemoryError: If the GPU has no room for what they read and write.
            DeviceError: If code is refused, or fails; the GPU may be lost then.
            LaunchError: If the arguments of a phase are not those that its code takes.
        """
        with self._driver.current():
            # Phases without programs are left out: the driver takes no empty grid.
            codes = [
                [
                    check_arguments(PhaseCode(i, phase, cubin, self._device.load(cubin)))
                    for i, (phase, cubin) in enumerate(variant)
                    if phase.chunks
                ]
                for variant in contest.variants
            ]
            sets = _sets(contest)
            # A multiple of the sets: each turn begins with the first, which has to be cold again.
            repetitions = -(-max(contest.repetitions, sets) // sets) * sets
            bases = self._placed(contest.regions, sets)
            with ExitStack() as made:
                graphs = [self._graph(code, bases, repetitions, made) for code in codes]
                return self._turns(graphs, bases.reshape(-1), contest.rounds) / repetitions

    def _placed(self, regions: Sequence[Region], sets: int) -> Array:
        """Fill memory; addresses [sets, regions]."""
        sizes = np.array([_whole(region.nbytes) for region in regions], np.int64)
        self._grow(int(sizes.sum()) * sets)
        # Copies of one region lie side by side, so that a single fill does for all of them.
        starts = self._address + sets * np.concatenate([[0], np.cumsum(sizes)[:-1]])
        addresses: Array = (starts + np.arange(sets)[:, None] * sizes).astype(np.int64)
        for i, region in enumerate(regions):
            if region.read and region.nbytes:
                self._fill(region, [int(address) for address in addresses[:, i]], int(sizes[i]))
        return addresses

    def _grow(self, nbytes: int) -> None:
        if nbytes <= self._nbytes:
            return
        # `free` wants that whoever uses the memory has ended.
        self._driver.synchronize()
        if self._nbytes:
            # Forgotten first: where there is no room for more, nothing must point to what is gone.
            old, self._address, self._nbytes = self._address, 0, 0
            self._driver.free(old)
        self._address = self._driver.allocate(nbytes)
        self._nbytes = nbytes

    def _fill(self, region: Region, addresses: Sequence[int], size: int) -> None:
        """The copies of a region, which lie side by side."""
        driver, stream, first = self._driver, self._device.stream(), addresses[0]
        if region.content:
            array = np.frombuffer(region.content, np.uint8)
            with self._device.staging() as chunks:
                chunks.upload(first, array.ctypes.data, array.nbytes, stream)
            # From the first copy: within the GPU that is faster than over the bus again.
            for address in addresses[1:]:
                driver.copy(address, first, array.nbytes, stream)
            return
        end = first + len(addresses) * size
        if not region.noise:
            driver.fill(first, 0, end - first, stream)
            return
        source, most = self._noise_of(region.noise), _NOISE * DType(region.noise).itemsize
        for address in range(first, end, most):
            driver.copy(address, source, min(most, end - address), stream)

    def _noise_of(self, kind: str) -> int:
        """Where random floats of a type lie."""
        found = self._noise.get(kind)
        if found is None:
            array = np.random.default_rng(0).uniform(-1, 1, _NOISE).astype(DType(kind).numpy)
            found, stream = self._driver.allocate(array.nbytes), self._device.stream()
            with self._device.staging() as chunks:
                chunks.upload(found, array.ctypes.data, array.nbytes, stream)
            self._noise[kind] = found
        return found

    def _graph(
        self, variant: Sequence[PhaseCode], bases: Array, repetitions: int, made: ExitStack
    ) -> RecordedGraph | None:
        """The launches of a variant on one set after the other; None if it has none."""
        if not variant:
            return None
        sets, regions = bases.shape
        # The table has bases for every set, so that one graph goes through all of them.
        each = [[_moved(code, i * regions) for code in variant] for i in range(sets)]
        launches = [code for i in range(repetitions) for code in each[i % sets]]
        # On operands of their own they would run side by side, and not take what one takes.
        chain = [(i - 1,) if i else () for i in range(len(launches))]
        stream = self._device.stream()
        graph = RecordedGraph(self._driver, launches, chain, bases.reshape(-1), stream)
        made.callback(self._free, graph)
        return graph

    def _free(self, graph: RecordedGraph) -> None:
        with suppress(DeviceError):  # of a lost GPU nothing is left
            graph.free()

    def _turns(self, graphs: Sequence[RecordedGraph | None], bases: Array, rounds: int) -> Array:
        """Microseconds [graphs, rounds]."""
        driver, stream, count = self._driver, self._device.stream(), len(graphs)
        # Made before the turns, which have to follow each other without gaps.
        while len(self._events) < 2 * count * rounds:
            self._events.append(driver.make_event(timed=True))
        for graph in graphs:
            if graph is not None:
                graph.launch(bases, stream)
        for i in range(rounds):
            for which in range(count) if i % 2 == 0 else reversed(range(count)):
                start = 2 * (i * count + which)
                driver.record(self._events[start], stream)
                graph = graphs[which]
                if graph is not None:
                    graph.launch(bases, stream)
                driver.record(self._events[start + 1], stream)
        driver.wait_stream(stream)
        pairs = [
            driver.milliseconds(self._events[i], self._events[i + 1])
            for i in range(0, 2 * count * rounds, 2)
        ]
        times: Array = 1e3 * np.array(pairs).reshape(rounds, count).T
        return times


def _sets(contest: Contest) -> int:
    """How often operands lie there."""
    touched = [
        sum(contest.regions[number].nbytes for number in {a.ref.base for a in arguments})
        for arguments in (
            [argument for phase, _ in variant for argument in phase.arguments]
            for variant in contest.variants
        )
    ]
    # By the variant that touches least: it is the first that would find its operands cached.
    return min(MOST_SETS, 1 + contest.cold // max(min(touched), 1))


def _whole(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _moved(code: PhaseCode, bases: int) -> PhaseCode:
    """The same with arguments so many entries of the table of bases on."""
    arguments = tuple(
        argument._replace(ref=argument.ref._replace(base=argument.ref.base + bases))
        for argument in code.phase.arguments
    )
    return replace(code, phase=code.phase._replace(arguments=arguments))
