"""What of a program's constants lies packed on disk, and what each start packs again.

Whatever sizes are run, a model takes at most 2.2 times the bytes of its weights: once for the
graph's file, which holds them, and the rest for packed constants. Kept is what native packers
cannot make, and of the rest, as far as there is space, what is the least larger than its source.
Spectra are several times as large, and making them takes about as long as checking them would.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.backends.cpu.store.derived import WORD_LIMIT, Derived
from saccade.backends.cpu.store.packing import Unpacked, unpacked
from saccade.options import cache_bytes

if TYPE_CHECKING:
    from saccade.backends.cpu.store.bundle import Bundles
    from saccade.ir import Graph
    from saccade.kernels.cpu.pack.panels_config import PackConfig
    from saccade.plan import Constant

__all__ = ["KeptConstants", "choose_kept"]

_MOST = 2.2
"""Bytes of the graph's file and of all packed constants on disk, over those of the weights."""
_LEAST = 256 << 10
"""Bytes of packed constants that the smallest model may have: about those of a program's code."""
_NEAR = 1.25
"""Constants that are no larger than their sources by more than this are what sizes share most."""
_LEFT_PARTS, _LEFT_BYTES = 16, 4 << 20
"""Of the space for packed constants, one part in so many, or so many bytes where that is less, are
left for further sizes: half of it for what only functions make, which is small but theirs alone."""
_FRAME, _ALIGN, _INDEXED = 2 * 4096, 64, 128
"""Bytes of a file besides its constants, the unit of these, and what the index says of each."""


@dataclass(frozen=True, slots=True)
class KeptConstants:
    """What becomes of constants that no file holds yet.

    Attributes:
        packed: Names of those that go into a file.
        derived: Those that starts make, by name.
        most: Bytes that all files of packed constants may take.
    """

    packed: frozenset[str]
    derived: Mapping[str, Derived]
    most: int

    @property
    def configs(self) -> frozenset[PackConfig]:
        """Of the native code that starts need."""
        return frozenset(p.config for one in self.derived.values() for p in one.panels)


def choose_kept(
    bundles: Bundles, graph: Graph, wanted: Mapping[str, Constant]
) -> KeptConstants | None:
    """Which constants to keep, and which to make at each start; None if there is no space.

    Args:
        bundles: Of the model.
        graph: Holds the sources.
        wanted: Constants by name, none of which any file holds.
    """
    most, kept = _bounds(bundles, graph)
    work = unpacked(graph, wanted)
    made = {name: _derived(one) if kept else None for name, one in work.items()}
    derivable = {name: how for name, how in made.items() if how is not None}
    bare = [work[name].constant.nbytes for name in work if name not in derivable]
    budget = most - bundles.weights_bytes() - _size(bare)
    if bare and budget < 0:
        return None
    packed = _worth_keeping(derivable, budget, most)
    return KeptConstants(
        frozenset(name for name in work if name in packed or name not in derivable),
        {name: how for name, how in derivable.items() if name not in packed},
        most,
    )


def _bounds(bundles: Bundles, graph: Graph) -> tuple[int, bool]:
    """Bytes that packed constants may take, and whether the graph's file has the sources."""
    weights = sum(array.nbytes for array in graph.constants.values())
    of_graph = bundles.graph_bytes()
    most = int(_MOST * weights) - (weights if of_graph is None else of_graph)
    return min(max(most, _LEAST), cache_bytes()), of_graph is not None


def _derived(one: Unpacked) -> Derived | None:
    """How a start makes a constant, if it can."""
    constant, sources = one.constant, one.sources
    if len(sources) != 1 or sources[0].size > WORD_LIMIT:
        return None
    if constant.packing is not None and not one.panels:
        return None
    return Derived(constant.sources[0], sources[0].nbytes, constant.nbytes, one.panels)


def _worth_keeping(derivable: Mapping[str, Derived], budget: int, most: int) -> Collection[str]:
    """Those to keep all the same in `budget` bytes, of `most` there are in all."""
    left_free = min(most // _LEFT_PARTS, _LEFT_BYTES)
    if _size([one.nbytes for one in derivable.values()]) <= budget - left_free // 2:
        return derivable.keys()
    ratios = {name: one.nbytes / max(one.source_bytes, 1) for name, one in derivable.items()}
    chosen, left = set[str](), budget - _FRAME
    for name in sorted(ratios, key=lambda name: ratios[name]):
        taken = _taken(derivable[name].nbytes)
        if taken <= left - (left_free // 2 if ratios[name] <= _NEAR else left_free):
            chosen.add(name)
            left -= taken
    return chosen


def _size(constants: Collection[int]) -> int:
    """At least the bytes of a file that holds constants of these sizes."""
    return _FRAME + sum(map(_taken, constants)) if constants else 0


def _taken(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN + _INDEXED
