"""Which fusions pay on the CPU at which sizes."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.fusions.fuse_excite import fuse_excite
from saccade.backends.cpu.fusions.fuse_expand import fuse_expand
from saccade.backends.cpu.fusions.fuse_separable import separable_pairs
from saccade.backends.cpu.target import NOMINAL_THREADS, Target
from saccade.backends.fusions.fuse_attention import fuse_attention
from saccade.ir import Graph
from saccade.layout import Pairs, Shapes, Taken

__all__ = ["CpuFusions"]

# Measured on two cores of a Zen 4 server, 1 MiB of L2 cache each (docs/performance/depthwise.md).
_EXPAND_BEYOND = NOMINAL_THREADS
"""L2 caches that one image of the intermediate has to exceed for `ExpandDepthwise`: of 4.8 MB it
took 409 µs for 434 apart, of 3.2 MB 170 for 202, but of 1.8 MB 276 for 254."""
_SEPARABLE_LEAST = 0.5
"""L2 caches that the intermediate of `SeparableConv2d` has to fill: when the estimates of smaller
ones were asked for, planning a new size took up to twice as long."""
_MOST_IMAGES = 2
"""Images of a batch up to which `Excite` is taken: it reads the weights for one after the other,
where 1x1 convolutions share them among the images. No measurement is on record."""


@dataclass(frozen=True, slots=True)
class CpuFusions:
    """What layout asks the CPU about fusions (`layout.Fusions`), for a machine."""

    target: Target

    def fuse(self, graph: Graph, shapes: Shapes, taken: Taken) -> Graph:
        """The graph with `ExpandDepthwise`, `RowSums` and `Excite` where they pay.

        `Attention` pays at every size: scores stay in a core's cache.
        """
        graph = fuse_attention(graph, shapes, taken)
        graph = fuse_expand(graph, shapes, taken, _EXPAND_BEYOND * self.target.l2)
        return fuse_excite(graph, shapes, taken, _MOST_IMAGES)

    def pairs(self, graph: Graph, shapes: Shapes, *, tuned: bool) -> Pairs:
        """What may become a `SeparableConv2d`; of any size where measured times may decide."""
        least = 0 if tuned else int(_SEPARABLE_LEAST * self.target.l2)
        return separable_pairs(graph, shapes, least)
