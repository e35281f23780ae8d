"""Another engine's times by layer, and which of our steps they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

__all__ = ["PeerLayer", "PeerLayers"]


@dataclass(frozen=True, slots=True)
class PeerLayer:
    """One layer as the peer ran it.

    Attributes:
        names: Nodes of the file that it computes.
        kind: The peer's own name of what it is.
        microseconds: Mean over its runs.
    """

    names: tuple[str, ...]
    kind: str
    microseconds: float


@dataclass(frozen=True, slots=True)
class PeerLayers:
    """All layers of one peer.

    Attributes:
        engine: Name and version.
        layers: In its order of execution.
    """

    engine: str
    layers: tuple[PeerLayer, ...]

    def of_steps(self, owners: Mapping[str, str]) -> PeerLayers:
        """The same layers under the names of the steps that their nodes became part of."""
        layers = (
            replace(layer, names=tuple(dict.fromkeys(owners.get(n, n) for n in layer.names)))
            for layer in self.layers
        )
        return replace(self, layers=tuple(layers))

    def beside(self, steps: Iterable[str]) -> tuple[dict[str, float], tuple[PeerLayer, ...]]:
        """Microseconds by step, and the layers that match none.

        A layer that computes several of our steps counts for the first of them, because engines
        fuse what follows into what leads.
        """
        known = dict.fromkeys(steps)
        times: dict[str, float] = {}
        left = []
        for layer in self.layers:
            name = next((name for name in layer.names if name in known), None)
            if name is None:
                left.append(layer)
            else:
                times[name] = times.get(name, 0.0) + layer.microseconds
        return times, tuple(left)
