"""Constants as kernels read them; each is held once per process, for all plans of its model.

With a bundle they are packed into a file and mapped from there, so that processes share them and
the next start packs nothing. Without one they live in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from saccade.locks import Lock
from saccade.runtime.weights import place

if TYPE_CHECKING:
    from saccade.ir import Array, Graph
    from saccade.plan import Constant
    from saccade.runtime.bundle import Bundles
    from saccade.runtime.cpu.packers import Packers
    from saccade.runtime.weights import Put

__all__ = ["constants_of", "keep_constants", "key_of", "stored_constants", "unknown_constants"]

_MOST = 2.2
"""Bytes of all packed constants of a model on disk, over those of its weights. A first program's
are always kept, whatever its algorithms make of the weights."""

_held: WeakValueDictionary[tuple[str, str], Array] = WeakValueDictionary()
"""By the identity of the model and the name of the constant."""
_lock = Lock()


def key_of(constant: Constant) -> str:
    """The name of a constant within its model: equal for equal sources and packing."""
    return hashlib.sha256(repr((constant.sources, constant.packing)).encode()).hexdigest()[:32]


def constants_of(
    graph: Graph,
    identity: str,
    wanted: Sequence[Constant],
    used: Sequence[bool],
    bundles: Bundles | None = None,
    packers: Packers | None = None,
    *,
    keep: bool = True,
) -> list[Array]:
    """The arrays of a plan's constants, in order; those not `used` come as empty arrays.

    Args:
        graph: Holds the sources.
        identity: Distinguishes graphs whose values share names.
        wanted: The plan's constants.
        used: Which of them the program reads.
        bundles: Where they are on disk, if anywhere.
        keep: Whether to pack what is missing into a file there, and map it. What is not kept so is
            packed into memory, which is faster; `keep_constants` writes that later.
        packers: Native code for what is missing; without it, or where it is not ready, functions
            of NumPy give the same bits.
    """
    names = _names(wanted, used)
    needed = {name: c for name, c in zip(names, wanted, strict=True) if name}
    with _lock:
        found = _known(identity, needed)
        if bundles is not None and len(found) < len(needed):
            found |= _from_disk(bundles, set(needed) - set(found))
        missing = {name: c for name, c in needed.items() if name not in found}
        if missing:
            found |= _packed(graph, missing, bundles if keep else None, packers)
        _hold(identity, found)
    return _in_order(names, found)


def unknown_constants(
    identity: str, wanted: Sequence[Constant], used: Sequence[bool]
) -> dict[str, Constant]:
    """Those of the constants used, by name, that no program of this process holds."""
    names = _names(wanted, used)
    held = _known(identity, names)
    return {n: c for n, c in zip(names, wanted, strict=True) if n and n not in held}


def _names(wanted: Sequence[Constant], used: Sequence[bool]) -> list[str]:
    return [key_of(c) if needed else "" for c, needed in zip(wanted, used, strict=True)]


def keep_constants(
    bundles: Bundles, graph: Graph, wanted: Sequence[Constant], arrays: Sequence[Array]
) -> None:
    """Write what no file of a model holds yet of a plan's constants, as far as there is room.

    Args:
        bundles: Of the model.
        graph: Whose constants they are made of.
        wanted: The plan's constants.
        arrays: As `constants_of` gave them.
    """
    held = set().union(*(names for _, names in bundles.weights()))
    fresh = {
        name: array
        for name, array in zip(map(key_of, wanted), arrays, strict=True)
        if array.nbytes and name not in held
    }
    placed = place((name, array.nbytes) for name, array in fresh.items())

    def fill(put: Put) -> None:
        for name, at, _ in placed:
            put(at, fresh[name])

    if fresh:
        weights = sum(array.nbytes for array in graph.constants.values())
        bundles.keep_weights(placed, fill, int(_MOST * weights))


def stored_constants(bundles: Bundles, names: Sequence[str]) -> list[Array] | None:
    """The constants of these names, in order, if all are in memory or on disk."""
    needed, identity = {name for name in names if name}, bundles.identity
    with _lock:
        found = _known(identity, needed)
        if len(found) < len(needed):
            found |= _from_disk(bundles, needed - set(found))
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
    packers: Packers | None,
) -> dict[str, Array]:
    from saccade.runtime import packing  # noqa: PLC0415 - a warm start packs nothing

    work = packing.unpacked(graph, missing)
    found: dict[str, Array] = {}
    if bundles is not None:
        placed = place((name, constant.nbytes) for name, constant in missing.items())
        if bundles.keep_weights(
            placed, lambda put: packing.pack_into_file(work, placed, put, packers)
        ):
            found = _from_disk(bundles, set(missing))
    rest = {name: one for name, one in work.items() if name not in found}
    return found | packing.pack_into_memory(rest, packers)
