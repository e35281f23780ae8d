"""Which fusions pay on GPUs at which sizes."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cuda.fusions.subpixel_convs import subpixel_pairs
from saccade.backends.fusions.fuse_attention import fuse_attention
from saccade.ir import Graph
from saccade.layout import Pairs, Shapes, Taken

__all__ = ["CudaFusions"]


@dataclass(frozen=True, slots=True)
class CudaFusions:
    """What layout asks GPUs about fusions (`layout.Fusions`)."""

    def fuse(self, graph: Graph, shapes: Shapes, taken: Taken) -> Graph:
        """The graph with `Attention` wherever a kernel takes it.

        It pays at every size: three launches become one, and the scores are neither written nor
        read.
        """
        return fuse_attention(graph, shapes, taken)

    def pairs(self, graph: Graph, shapes: Shapes, *, tuned: bool) -> Pairs:
        """What may become a `Conv2dSum`, `Conv2dPoint` or `Conv2dSubPixel`, at any size."""
        del shapes, tuned
        return subpixel_pairs(graph)
