"""Native packers that are there: called by any thread. A warm start finds them in its image."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cpu.codegen.calling import CONTEXT_WORDS, COUNTER_WORDS
from saccade.errors import OutOfBoundsError

if TYPE_CHECKING:
    from saccade.ir import Array
    from saccade.kernels.cpu.pack.panels_config import PackConfig, Panels

__all__ = ["PackerCode"]


class PackerCode:
    """Packers by what their code depends on; whoever links them keeps the code alive.

    Args:
        addresses: Of each function.
    """

    def __init__(self, addresses: Mapping[PackConfig, int]) -> None:
        self._functions: dict[PackConfig, Callable[[int, int], None]] = {}
        for config, address in addresses.items():
            self._add(config, address)

    def _add(self, config: PackConfig, address: int) -> None:
        void2 = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self._functions[config] = void2(address)

    def ready(self, panels: Panels) -> bool:
        """Whether the code for these is there."""
        return panels.config in self._functions

    def pack(
        self, panels: Panels, source: Array, part: range, target: int, strides: tuple[int, int]
    ) -> None:
        """Pack some panels on the calling thread, which lets go of the GIL.

        Args:
            panels: What to do; the code must be `ready`.
            source: float32, contiguous, or its bytes.
            part: Which of the panels.
            target: Address of the first one's first element.
            strides: Bytes from panel to panel and from square to square there.

        Raises:
            OutOfBoundsError: If the checked code reached past a buffer.
        """
        count, (to_panel, to_square) = len(part), strides
        extent = (count - 1) * to_panel + (panels.squares - 1) * to_square + panels.square_bytes
        lanes, beside = panels.lanes[part.start : part.stop], panels.beside(part)
        arrays = {"source": source, "lanes": lanes, "beside": beside}
        if panels.spectra is not None:
            arrays["matrices"] = panels.spectra.numbers
        tile = np.empty(panels.tile_bytes + 64, np.uint8)
        aligned = tile.ctypes.data + -tile.ctypes.data % 64
        buffers = {name: (array.ctypes.data, array.nbytes) for name, array in arrays.items()}
        buffers |= {"target": (target, extent), "tile": (aligned, panels.tile_bytes)}
        self._call(panels.config, buffers, panels.integers(count, strides))

    def _call(
        self,
        config: PackConfig,
        buffers: Mapping[str, tuple[int, int]],
        integers: Mapping[str, int],
    ) -> None:
        """One thread's share is everything; of a buffer there are the address and its bytes."""
        bases = [buffers[name] for name in config.pointers]
        addresses = np.array([address for address, _ in bases], np.int64)
        spans = [word for i, (_, nbytes) in enumerate(bases) for word in (i, 0, nbytes)]
        arguments = np.array((*spans, *(integers[name] for name in config.integers)), np.int64)
        counters, fault = np.zeros(COUNTER_WORDS, np.int64), np.zeros(8, np.int64)
        words = (addresses.ctypes.data, counters.ctypes.data, 1, 0, fault.ctypes.data, 1)
        context = np.array(words, np.int64)
        assert len(context) == CONTEXT_WORDS
        self._functions[config](arguments.ctypes.data, context.ctypes.data)
        if fault[0]:
            raise OutOfBoundsError(
                f"a packer's access {fault[0]} reached element {fault[1]} of a buffer of {fault[2]}"
            )
