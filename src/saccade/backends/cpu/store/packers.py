"""Native packers in this process: compiled like kernels and kept with them, called by any thread.

A handful of objects serves all constants of all models. Those that are missing are compiled beside
the first program's kernels, if there is enough to pack or if the program is kept only with them,
and are on disk from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.runtime.objects import Key, ObjectFile, Objects
from saccade.backends.cpu.store.packer_code import PackerCode
from saccade.kernels.cpu.pack.panels_config import PackConfig, Panels
from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.image import Linked
    from saccade.processes import Processes

__all__ = ["Packers"]

_KERNEL = "pack.panels"
# The NumPy functions take 10 ms or so for a MB; an object takes 100 ms to compile.
_WORTH_COMPILING = 8 << 20  # bytes of constants


class Packers(PackerCode):
    """Packers among the objects of one target; safe to call from any thread.

    Args:
        objects: Where their code is.
    """

    def __init__(self, objects: Objects) -> None:
        super().__init__({})
        self._objects = objects
        self._code: list[Linked] = []
        self._lock = Lock()

    def prepare(
        self, work: Iterable[Panels], processes: Processes, needed: Collection[PackConfig] = ()
    ) -> list[Key]:
        """Have the code ready that there is for these, in memory or on disk.

        Args:
            work: What is to be packed.
            processes: The caller's.
            needed: What there must be code for, however little there is to pack.

        Returns:
            What else is worth compiling, for `take`.
        """
        nbytes: dict[PackConfig, int] = dict.fromkeys(needed, 0)
        for panels in work:
            nbytes[panels.config] = nbytes.get(panels.config, 0) + panels.nbytes
        wanted = [config for config in nbytes if config not in self._functions]
        keys: list[Key] = [(_KERNEL, config) for config in wanted]
        self._objects.recall(keys)
        there = [key for key in keys if self._objects.has(*key)]
        self.take(self._objects.get(there, processes))
        large = sum(nbytes[config] for config in wanted) >= _WORTH_COMPILING
        return [k for k in keys if k not in there and (large or k[1] in needed)]

    @staticmethod
    def keys(work: Iterable[Panels]) -> list[Key]:
        """The code that packs these."""
        return [(_KERNEL, config) for config in dict.fromkeys(panels.config for panels in work)]

    def take(self, files: Mapping[Key, ObjectFile]) -> None:
        """Make what there is of packers among these objects callable."""
        for (_, config), file in files.items():
            if isinstance(config, PackConfig) and config not in self._functions:
                linked = link([file.code], [file.symbol])
                with self._lock:
                    self._code.append(linked)
                    self._add(config, linked.addresses[file.symbol])

    def files(
        self, configs: Iterable[PackConfig], processes: Processes
    ) -> dict[PackConfig, ObjectFile]:
        """The code for these; what is missing is compiled in this process.

        Raises:
            CompileError: If it cannot be.
        """
        keys: list[Key] = [(_KERNEL, config) for config in configs]
        found = self._objects.get(keys, processes, here=float("inf"))
        return {config: found[_KERNEL, config] for config in configs}
