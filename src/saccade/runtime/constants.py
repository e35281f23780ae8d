"""Constants as kernels read them; each packing is held once per process, for all its plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

import numpy as np

from saccade.ir import Array, Graph
from saccade.kernels import packing
from saccade.locks import Lock
from saccade.options import default_threads
from saccade.plan import Constant

__all__ = ["constants_of"]

_Key = tuple[str, tuple[str, ...], object]
_held: WeakValueDictionary[_Key, Array] = WeakValueDictionary()
_lock = Lock()


def constants_of(
    graph: Graph, identity: str, wanted: Sequence[Constant], used: Sequence[bool]
) -> list[Array]:
    """The arrays of a plan's constants, in order; those not `used` come as empty arrays.

    Args:
        graph: Holds the sources.
        identity: Distinguishes graphs whose values share names.
        wanted: The plan's constants.
        used: Which of them the program reads.
    """
    by_name = {value.name: array for value, array in graph.constants.items()}

    def get(constant: Constant, needed: bool) -> Array:
        if not needed:
            return np.empty(0, np.uint8)
        if constant.packing is None:
            return np.ascontiguousarray(by_name[constant.sources[0]])
        key = (identity, constant.sources, constant.packing)
        found = _held.get(key)
        return found if found is not None else _pack(constant, by_name)

    with _lock:
        with ThreadPoolExecutor(default_threads()) as pool:
            arrays = list(pool.map(get, wanted, used))
        for constant, array in zip(wanted, arrays, strict=True):
            if constant.packing is not None and array.size:
                _held[identity, constant.sources, constant.packing] = array
    return arrays


def _pack(constant: Constant, by_name: Mapping[str, Array]) -> Array:
    assert constant.packing is not None
    function = packing.FUNCTIONS[constant.packing.function]
    sources = [by_name[name] for name in constant.sources]
    packed = np.ascontiguousarray(function(*sources, *constant.packing.parameters))
    assert packed.nbytes == constant.nbytes, (constant, packed.nbytes)
    return packed
