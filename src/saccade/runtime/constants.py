"""Constants as kernels read them; each is held once per process, for all plans of its model.

With a bundle they are packed into a file and mapped from there, so that processes share them and
the next start packs nothing. Without one they live in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from saccade.locks import Lock
from saccade.options import default_threads
from saccade.runtime.weights import Put, place

if TYPE_CHECKING:
    from saccade.ir import Array, Graph
    from saccade.plan import Constant
    from saccade.runtime.bundle import Bundles

__all__ = ["constants_of", "key_of", "stored_constants"]

A = TypeVar("A")
R = TypeVar("R")

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
) -> list[Array]:
    """The arrays of a plan's constants, in order; those not `used` come as empty arrays.

    Args:
        graph: Holds the sources.
        identity: Distinguishes graphs whose values share names.
        wanted: The plan's constants.
        used: Which of them the program reads.
        bundles: Where to keep them on disk, if anywhere.
    """
    names = [key_of(c) if needed else "" for c, needed in zip(wanted, used, strict=True)]
    needed = {name: c for name, c in zip(names, wanted, strict=True) if name}
    with _lock:
        found = _known(identity, needed)
        if bundles is not None and len(found) < len(needed):
            found |= _from_disk(bundles, set(needed) - set(found))
        missing = {name: c for name, c in needed.items() if name not in found}
        if missing:
            found |= _packed(graph, missing, bundles)
        _hold(identity, found)
    return _in_order(names, found)


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
    graph: Graph, missing: Mapping[str, Constant], bundles: Bundles | None
) -> dict[str, Array]:
    by_name = {value.name: array for value, array in graph.constants.items()}
    found: dict[str, Array] = {}
    if bundles is not None:
        placed = place((name, constant.nbytes) for name, constant in missing.items())

        def fill(put: Put) -> None:
            _side_by_side(lambda one: put(one[1], _pack(missing[one[0]], by_name)), placed)

        if bundles.keep_weights(placed, fill):
            found = _from_disk(bundles, set(missing))
    rest = [name for name in missing if name not in found]
    return found | dict(
        zip(rest, _side_by_side(lambda name: _pack(missing[name], by_name), rest), strict=True)
    )


def _side_by_side(work: Callable[[A], R], items: Sequence[A]) -> list[R]:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - a warm start packs nothing

    with ThreadPoolExecutor(default_threads()) as pool:
        return list(pool.map(work, items))


def _pack(constant: Constant, by_name: Mapping[str, Array]) -> Array:
    from saccade.kernels import packing  # noqa: PLC0415 - a warm start packs nothing

    sources = [by_name[name] for name in constant.sources]
    if constant.packing is None:
        return np.ascontiguousarray(sources[0])
    function = packing.FUNCTIONS[constant.packing.function]
    packed = np.ascontiguousarray(function(*sources, *constant.packing.parameters))
    assert packed.nbytes == constant.nbytes, (constant, packed.nbytes)
    return packed
