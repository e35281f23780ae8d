"""Constants packed by all threads: native code where there is some, NumPy functions for the rest.

Which of the two does not show in the result: they give the same bits (see `kernels.packing`). Large
constants are cut between panels, and parts go to whichever thread is free, the largest constants
first. For a file a part is packed in a thread's own buffer, which stays in its caches, and put from
there: a process needs no memory for what it maps afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cpu.store.native_packing import (
    Task,
    allocate,
    allocate_each,
    parts,
    side_by_side,
    tasks_into,
)
from saccade.graphfile import let_go
from saccade.kernels.cpu import packing
from saccade.kernels.cpu.pack.panels_config import Panels
from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.backends.cpu.store.packer_code import PackerCode
    from saccade.backends.cpu.store.weights import Placed, Put
    from saccade.ir import Array, Graph
    from saccade.plan import Constant

__all__ = ["Unpacked", "pack_into_file", "pack_into_memory", "unpacked"]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A constant and what it is made of.

    Attributes:
        constant: The plan's.
        sources: Its arrays.
        panels: What a native packer would do; empty where none can.
    """

    constant: Constant
    sources: tuple[Array, ...]
    panels: tuple[Panels, ...]

    def pack(self) -> Array:
        """By the NumPy function."""
        wanted = self.constant.packing
        if wanted is None:
            return np.ascontiguousarray(self.sources[0])
        function = packing.FUNCTIONS[wanted.function]
        packed = np.ascontiguousarray(function(*self.sources, *wanted.parameters))
        assert packed.nbytes == self.constant.nbytes, (self.constant, packed.nbytes)
        return packed


def unpacked(graph: Graph, wanted: Mapping[str, Constant]) -> dict[str, Unpacked]:
    """What constants are made of, by their names; the sources are the graph's."""
    by_name = {value.name: array for value, array in graph.constants.items()}
    found = {}
    for name, constant in wanted.items():
        sources, how = tuple(by_name[source] for source in constant.sources), constant.packing
        panels = () if how is None else packing.panels_of(how.function, how.parameters, sources)
        assert not panels or sum(p.nbytes for p in panels) == constant.nbytes, constant
        found[name] = Unpacked(constant, sources, panels)
    return found


def pack_into_memory(
    work: Mapping[str, Unpacked], packers: PackerCode | None = None
) -> dict[str, Array]:
    """The constants by name: as bytes, on huge pages, where native code packs them."""
    native, others = _split(work, packers)
    found = allocate_each({name: one.constant.nbytes for name, one in native.items()})
    tasks: list[Task] = []
    read = _Read()

    def by_function(name: str, one: Unpacked) -> None:
        found[name] = one.pack()

    for name, one in others.items():
        do = read.by(partial(by_function, name, one), one.sources)
        tasks.append((one.constant.nbytes, do))
    for name, one in native.items():
        assert packers is not None
        for panels in one.panels:
            for size, do in tasks_into(found[name], panels, one.sources[0], packers):
                tasks.append((size, read.by(do, one.sources)))
    side_by_side(tasks)
    return found


def pack_into_file(
    work: Mapping[str, Unpacked],
    placed: Iterable[Placed],
    put: Put,
    packers: PackerCode | None = None,
) -> None:
    """Put the constants where they are placed.

    Raises:
        OSError: What `put` raises.
    """
    native, others = _split(work, packers)
    offsets = {name: at for name, at, _ in placed}
    tasks: list[Task] = []

    def by_function(at: int, one: Unpacked) -> None:
        put(at, one.pack())

    read = _Read()
    for name, one in others.items():
        do = read.by(partial(by_function, offsets[name], one), one.sources)
        tasks.append((one.constant.nbytes, do))
    buffers = _Buffers()
    for name, one in native.items():
        assert packers is not None
        for panels in one.panels:
            for part in parts(panels):
                at = offsets[name] + panels.start
                do = partial(_put_part, packers, panels, one.sources[0], part, buffers, at, put)
                tasks.append((len(part) * panels.panel_bytes, read.by(do, one.sources)))
    side_by_side(tasks)


class _Read:
    """Sources whose memory is given back once the last task that reads them is done.

    A graph's constants are mapped from its file, so that whoever wants them again finds them there;
    meanwhile a start holds what it packs, and not both.
    """

    def __init__(self) -> None:
        self._left: Counter[int] = Counter()
        self._lock = Lock()

    def by(self, do: Callable[[], None], sources: Sequence[Array]) -> Callable[[], None]:
        """The task, which tells when it is done."""
        names = [id(source) for source in sources]  # as long as the task holds them
        self._left.update(names)

        def done() -> None:
            do()
            with self._lock:
                self._left.subtract(names)
                gone = [s for s, name in zip(sources, names, strict=True) if not self._left[name]]
            for source in gone:
                let_go(source)

        return done


def _put_part(
    packers: PackerCode,
    panels: Panels,
    source: Array,
    part: range,
    buffers: _Buffers,
    at: int,
    put: Put,
) -> None:
    """Pack some panels in a buffer, and put them at their places behind `at`."""
    nbytes = len(part) * panels.panel_bytes
    strides = panels.strides(len(part))
    buffer = buffers.take(nbytes)
    packers.pack(panels, source, part, buffer.ctypes.data, strides)
    runs = panels.squares if panels.scattered else 1
    apart = panels.strides(panels.count)
    for run, content in enumerate(buffer[:nbytes].reshape(runs, -1)):
        put(at + part.start * apart[0] + run * apart[1], content)
    buffers.give_back(buffer)


class _Buffers:
    """One for each thread that packs at a time, as large as its largest part so far."""

    def __init__(self) -> None:
        self._idle: list[Array] = []

    def take(self, nbytes: int) -> Array:
        """At least so many bytes."""
        try:
            buffer = self._idle.pop()
        except IndexError:
            return allocate(nbytes)
        return buffer if len(buffer) >= nbytes else allocate(nbytes)

    def give_back(self, buffer: Array) -> None:
        """Let another part have it."""
        self._idle.append(buffer)


def _split(
    work: Mapping[str, Unpacked], packers: PackerCode | None
) -> tuple[dict[str, Unpacked], dict[str, Unpacked]]:
    """Those that native code packs, and the others."""
    native = {
        name: one
        for name, one in work.items()
        if packers is not None and one.panels and all(map(packers.ready, one.panels))
    }
    return native, {name: one for name, one in work.items() if name not in native}
