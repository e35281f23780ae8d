"""Native packers in this process: compiled like kernels and kept with them, called by any thread.

A handful of objects serves all constants of all models. Those that are missing are compiled beside
the first program's kernels, if there is enough to pack, and are on disk from then on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from saccade.codegen.calling import CONTEXT_WORDS, COUNTER_WORDS
from saccade.errors import OutOfBoundsError
from saccade.kernels.pack.panels import PackConfig, Panels
from saccade.locks import Lock
from saccade.runtime.cpu.linker import link
from saccade.runtime.cpu.objects import Key, ObjectFile, Objects

if TYPE_CHECKING:
    from saccade.ir import Array
    from saccade.processes import Processes
    from saccade.runtime.cpu.image import Linked

__all__ = ["Packers"]

_KERNEL = "pack.panels"
# The NumPy functions take 10 ms or so for a MB; an object takes 100 ms to compile.
_WORTH_COMPILING = 8 << 20


class Packers:
    """Packers among the objects of one target; safe to call from any thread.

    Args:
        objects: Where their code is.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._functions: dict[PackConfig, Callable[[int, int], None]] = {}
        self._code: list[Linked] = []
        self._lock = Lock()

    def prepare(self, work: Iterable[Panels], processes: Processes) -> list[Key]:
        """Have the code ready that there is for these, in memory or on disk.

        Returns:
            What else is worth compiling, for `take`.
        """
        nbytes: dict[PackConfig, int] = {}
        for panels in work:
            nbytes[panels.config] = nbytes.get(panels.config, 0) + panels.nbytes
        keys: list[Key] = [(_KERNEL, config) for config in nbytes if config not in self._functions]
        self._objects.recall(keys)
        there = [key for key in keys if self._objects.has(*key)]
        self.take(self._objects.get(there, processes))
        large = sum(nbytes[config] for _, config in keys) >= _WORTH_COMPILING
        return [key for key in keys if key not in there] if large else []

    def take(self, files: Mapping[Key, ObjectFile]) -> None:
        """Make what there is of packers among these objects callable."""
        for (kernel, config), file in files.items():
            if kernel == _KERNEL and config not in self._functions:
                linked = link([file.code], [file.symbol])
                void2 = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
                with self._lock:
                    self._code.append(linked)
                    self._functions[config] = void2(linked.addresses[file.symbol])

    def ready(self, panels: Panels) -> bool:
        """Whether the code for these is there."""
        return panels.config in self._functions

    def pack(
        self, panels: Panels, source: Array, part: range, target: int, strides: tuple[int, int]
    ) -> None:
        """Pack some panels on the calling thread, which lets go of the GIL.

        Args:
            panels: What to do; the code must be `ready`.
            source: float32, contiguous.
            part: Which of the panels.
            target: Address of the first one's first element.
            strides: Bytes from panel to panel and from square to square there.

        Raises:
            OutOfBoundsError: If the checked code reached past a buffer.
        """
        count, (to_panel, to_square) = len(part), strides
        extent = (count - 1) * to_panel + (panels.squares - 1) * to_square + panels.square_bytes
        lanes, beside = panels.lanes[part.start : part.stop], panels.beside(part)
        matrices = () if panels.spectra is None else (panels.spectra.numbers,)
        tile = np.empty(panels.tile_bytes + 64, np.uint8)
        arrays = (source, lanes, beside, *matrices)
        bases = [(array.ctypes.data, array.nbytes) for array in arrays]
        aligned = tile.ctypes.data + -tile.ctypes.data % 64
        bases += [(target, extent), (aligned, panels.tile_bytes)]
        self._call(panels.config, bases, panels.integers(count, strides))

    def _call(
        self, config: PackConfig, bases: list[tuple[int, int]], integers: tuple[int, ...]
    ) -> None:
        """One thread's share is everything."""
        addresses = np.array([address for address, _ in bases], np.int64)
        spans = [word for i, (_, nbytes) in enumerate(bases) for word in (i, 0, nbytes)]
        arguments = np.array((*spans, *integers), np.int64)
        counters, fault = np.zeros(COUNTER_WORDS, np.int64), np.zeros(8, np.int64)
        words = (addresses.ctypes.data, counters.ctypes.data, 1, 0, fault.ctypes.data, 1)
        context = np.array(words, np.int64)
        assert len(context) == CONTEXT_WORDS
        self._functions[config](arguments.ctypes.data, context.ctypes.data)
        if fault[0]:
            raise OutOfBoundsError(
                f"a packer's access {fault[0]} reached element {fault[1]} of a buffer of {fault[2]}"
            )
