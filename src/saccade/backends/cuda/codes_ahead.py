"""Code of candidates, compiled side by side while others are measured."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import CodeKey, Cubins
from saccade.options import default_threads
from saccade.processes import Processes

__all__ = ["CodesAhead"]

_BATCH = 4  # kernels for each core: the first are there soon, and cores are seldom idle
_SECONDS = 0.4  # that a core takes for a kernel, until it is known better

_Found = Mapping[CodeKey, Cubin | str]


class CodesAhead:
    """What is announced is compiled in the background, in that order, in batches.

    Args:
        cubins: Where code is and goes.
        processes: Where it is compiled.
    """

    def __init__(self, cubins: Cubins, processes: Processes) -> None:
        self._cubins, self._processes = cubins, processes
        # One: a batch keeps all cores busy by itself, and batches begin as announced.
        self._thread = ThreadPoolExecutor(1)
        self._batches: dict[CodeKey, Future[_Found]] = {}
        self._seconds = _SECONDS / default_threads()

    def announce(self, keys: Iterable[CodeKey]) -> None:
        """What will be asked for; what was announced before and is not begun is dropped."""
        for future in set(self._batches.values()):
            future.cancel()
        self._begin([key for key in dict.fromkeys(keys) if not self._coming(key)])

    def get(self, keys: Iterable[CodeKey]) -> _Found:
        """The code of each, or why it cannot be compiled; waits for it.

        Raises:
            CompileError: If there is no Triton.
        """
        wanted = list(dict.fromkeys(keys))
        self._begin([key for key in wanted if not self._coming(key)])
        return {key: self._batches[key].result()[key] for key in wanted}

    def seconds_left(self) -> float:
        """Until all that is wanted is there, by what the last batch took."""
        # What was dropped counts as done.
        missing = sum(not future.done() for future in self._batches.values())
        return missing * self._seconds

    def close(self) -> None:
        """Drop what is not begun, and wait for the rest."""
        self._thread.shutdown(cancel_futures=True)

    def _coming(self, key: CodeKey) -> bool:
        return key in self._batches and not self._batches[key].cancelled()

    def _begin(self, keys: Sequence[CodeKey]) -> None:
        size = _BATCH * default_threads()
        for i in range(0, len(keys), size):
            batch = keys[i : i + size]
            self._batches |= dict.fromkeys(batch, self._thread.submit(self._made, batch))

    def _made(self, keys: Sequence[CodeKey]) -> _Found:
        before, began = self._cubins.compiled, time.monotonic()
        found = self._cubins.attempt(keys, self._processes)
        made = self._cubins.compiled - before
        # What was found on disk says nothing of how long compiling takes.
        if made:
            self._seconds = (time.monotonic() - began) / made
        return found
