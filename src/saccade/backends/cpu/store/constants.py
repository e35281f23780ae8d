"""Constants as kernels read them; each is held once per process, for all plans of its model.

With a bundle, most are packed into a file and mapped from there, so that processes share them and
the next start packs less. Others live in memory; `keeping` says which.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from saccade.backends.cpu.store.weights import place
from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.backends.cpu.store.bundle import Bundles
    from saccade.backends.cpu.store.keeping import KeptConstants
    from saccade.backends.cpu.store.packer_code import PackerCode
    from saccade.backends.cpu.store.weights import Put
    from saccade.ir import Array, Graph
    from saccade.plan import Constant

__all__ = [
    "RecentConstants",
    "constants_of",
    "keep_constants",
    "pack_ahead",
    "stored_constants",
    "unknown_constants",
    "used_constants",
]

_held: WeakValueDictionary[tuple[str, str], Array] = WeakValueDictionary()
"""By the identity of the model and the name of the constant."""
_lock = Lock()


def constants_of(
    graph: Graph,
    identity: str,
    wanted: Sequence[Constant],
    used: Sequence[bool],
    bundles: Bundles | None = None,
    packers: PackerCode | None = None,
    share: KeptConstants | None = None,
) -> list[Array]:
    """The arrays of a plan's constants, in order; those not `used` come as empty arrays.

    Args:
        graph: Holds the sources.
        identity: Distinguishes graphs whose values share names.
        wanted: The plan's constants.
        used: Which of them the program reads.
        bundles: Where they are on disk, if anywhere.
        packers: Native code for what is missing; without it, or where it is not ready, functions
            of NumPy give the same bits.
        share: What of that to pack into a file there, and map. What is not is packed into memory,
            which is faster; `keep_constants` may write it later.
    """
    names = _names(wanted, used)
    needed = used_constants(wanted, used)
    with _lock:
        found = _known(identity, needed)
        if bundles is not None and len(found) < len(needed):
            found |= _from_disk(bundles, set(needed) - set(found))
        missing = {name: c for name, c in needed.items() if name not in found}
        if missing:
            found |= _packed(graph, missing, bundles, packers, share)
        _hold(identity, found)
    return _in_order(names, found)


def pack_ahead(
    graph: Graph, identity: str, missing: Mapping[str, Constant], packers: PackerCode
) -> list[Array]:
    """Constants that are going to be asked for; nobody waits meanwhile who asks for others.

    Args:
        graph: Holds the sources.
        identity: Distinguishes graphs whose values share names.
        missing: What nobody holds, by name.
        packers: As of `constants_of`.
    """
    from saccade.backends.cpu.store import packing  # noqa: PLC0415 - as in `_packed`

    found = packing.pack_into_memory(packing.unpacked(graph, missing), packers)
    with _lock:
        _hold(identity, found)
    return list(found.values())


class RecentConstants:
    """The constants that programs of a model asked for last, whether or not these are still there.

    A size that comes back after others often reads what a program that was dropped had read.

    Args:
        most: Bytes of all together; the ones that were asked for longest ago go first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._arrays: OrderedDict[int, Array] = OrderedDict()
        self._nbytes = 0
        self._lock = Lock()

    def keep(self, arrays: Iterable[Array]) -> None:
        """Hold what a program reads."""
        with self._lock:
            for array in arrays:
                if id(array) not in self._arrays:
                    self._nbytes += array.nbytes
                self._arrays[id(array)] = array
                self._arrays.move_to_end(id(array))
            while self._nbytes > self._most:
                _, gone = self._arrays.popitem(last=False)
                self._nbytes -= gone.nbytes

    @property
    def room(self) -> int:
        """Bytes that can be held without letting go of others."""
        return self._most - self._nbytes


def used_constants(wanted: Sequence[Constant], used: Sequence[bool]) -> dict[str, Constant]:
    """The constants that a program reads, by name."""
    return {n: c for n, c in zip(_names(wanted, used), wanted, strict=True) if n}


def unknown_constants(identity: str, used: Iterable[Constant]) -> dict[str, Constant]:
    """Those of the constants, by name, that no program of this process holds."""
    needed = {constant.key: constant for constant in used}
    held = _known(identity, needed)
    return {name: one for name, one in needed.items() if name not in held}


def _names(wanted: Sequence[Constant], used: Sequence[bool]) -> list[str]:
    return [c.key if needed else "" for c, needed in zip(wanted, used, strict=True)]


def keep_constants(bundles: Bundles, share: KeptConstants, arrays: Mapping[str, Array]) -> bool:
    """Write what of a program's constants is to be kept packed; whether that was possible.

    Args:
        bundles: Of the model.
        share: What to keep.
        arrays: The program's constants by name.
    """
    placed = place((name, array.nbytes) for name, array in arrays.items() if name in share.packed)

    def fill(put: Put) -> None:
        for name, at, _ in placed:
            put(at, arrays[name])

    return not placed or bundles.keep_weights(placed, fill, share.most)


def stored_constants(
    bundles: Bundles,
    names: Sequence[str],
    derive: Callable[[set[str]], Mapping[str, Array] | None],
) -> list[Array] | None:
    """The constants of these names, in order, if all are in memory, on disk, or can be made.

    Args:
        bundles: Of the model.
        names: Of the constants; empty where nothing reads one.
        derive: Makes the rest; None if it cannot make all of it.
    """
    needed, identity = {name for name in names if name}, bundles.identity
    with _lock:
        found = _known(identity, needed)
        if len(found) < len(needed):
            found |= _from_disk(bundles, needed - set(found))
        if len(found) < len(needed):
            found |= derive(needed - set(found)) or {}
        _hold(identity, found)
    return _in_order(names, found) if len(found) == len(needed) else None


def _known(identity: str, names: Iterable[str]) -> dict[str, Array]:
    """Those that some program of this process holds."""
    held = {name: _held.get((identity, name)) for name in names}
    return {name: array for name, array in held.items() if array is not None}


def _hold(identity: str, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        _held[identity, name] = array


def _in_order(names: Sequence[str], arrays: Mapping[str, Array]) -> list[Array]:
    return [arrays[name] if name else np.empty(0, np.uint8) for name in names]


def _from_disk(bundles: Bundles, names: set[str]) -> dict[str, Array]:
    """Those that the files of a model hold, from as few files as will do."""
    found: dict[str, Array] = {}
    shares = [(len(names & held), path) for path, held in bundles.weights()]
    for share, path in sorted(shares, reverse=True):
        if share and len(found) < len(names):
            content = bundles.map(path)
            found |= {name: array for name, array in content.items() if name in names}
    return found


def _packed(
    graph: Graph,
    missing: Mapping[str, Constant],
    bundles: Bundles | None,
    packers: PackerCode | None,
    share: KeptConstants | None,
) -> dict[str, Array]:
    from saccade.backends.cpu.store import packing  # noqa: PLC0415 - a warm start needs only a part of it

    work = packing.unpacked(graph, missing)
    found: dict[str, Array] = {}
    if bundles is not None and share is not None:
        kept = {name: one for name, one in work.items() if name in share.packed}
        placed = place((name, one.constant.nbytes) for name, one in kept.items())
        if kept and bundles.keep_weights(
            placed, lambda put: packing.pack_into_file(kept, placed, put, packers), share.most
        ):
            found = _from_disk(bundles, set(kept))
    rest = {name: one for name, one in work.items() if name not in found}
    return found | packing.pack_into_memory(rest, packers)
