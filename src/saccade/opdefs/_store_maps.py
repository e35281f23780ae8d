"""Where a convolution stores its result's elements, if not as [N, K, P, Q]."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DepthToSpaceStore", "InterleaveStore", "StoreMap"]


@dataclass(frozen=True)
class DepthToSpaceStore:
    """Stores channels as pixels: the result is [N, K/(b·b), P·b, Q·b].

    Attributes:
        block: Edge length b of the block of pixels that channels become.
        mode: "DCR" or "CRD", as in ONNX DepthToSpace.
    """

    block: int
    mode: str = "DCR"


@dataclass(frozen=True)
class InterleaveStore:
    """Channel shuffle of a Concat of equal parts.

    Channel `c·parts + j` of the result is channel c of part j. The convolution computes part
    `position`; the other parts are extra operands, in order, after the epilogue's.

    Attributes:
        parts: How many parts there are.
        position: Which of them the convolution computes.
    """

    parts: int
    position: int


StoreMap = DepthToSpaceStore | InterleaveStore
