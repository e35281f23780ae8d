"""How large and how slow things may become: a small file must not take all that a machine has.

Each bound is checked where the thing that it bounds is made. None depends on the machine, and all
are far beyond what models of today come to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields

from saccade.errors import OptionError, PlanError

__all__ = ["Deadline", "Limits"]

_MOST_DEPTH = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds; what exceeds one is refused with a `ModelError` or a `PlanError` that names it.

    Attributes:
        nodes: Nodes of a file, functions expanded, subgraphs included.
        depth: Functions and subgraphs inside each other, at most 128: Python's stack ends too.
        attribute: Numbers in a list attribute of a node; tensors are not bounded by it.
        elements: Elements of a value, whether or not it ever lies in memory.
        extent: Elements along an axis that windows slide over or that is resampled.
        expression: Operators of one fused elementwise expression, and a sixteenth of its terms as
            it is written; what would be longer stays in several steps.
        folded_bytes: Bytes of constants that are computed while lowering, beyond as many as the
            file holds; what exceeds them is computed at each run. Elements of less than a byte are
            unpacked within as many bytes more, or refused.
        turns: Turns of a loop whose end data decide; a run that makes more is ended with a
            `LoopError`.
        gathered: Turns whose results such a loop may gather, where nothing else bounds them; there
            is memory for as many, and a run that makes more is ended in the same way.
        arena_bytes: Bytes of the memory that a run keeps its intermediate values in.
        seconds: Of each of the two stages of lowering a file, the import and the passes, and of
            planning a size, its layout and its memory. It only ever ends in an error: what comes
            out never depends on it.

    Raises:
        OptionError: If one is not a positive number.
    """

    nodes: int = 100_000
    depth: int = 64
    attribute: int = 1 << 20
    elements: int = 1 << 34
    extent: int = 1 << 24
    expression: int = 64
    folded_bytes: int = 1 << 30
    turns: int = 1 << 20
    gathered: int = 1024
    arena_bytes: int = 256 << 30
    seconds: float = 120.0

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            kinds = (int, float) if bound.name == "seconds" else (int,)
            # True is an integer to Python, and NaN is not above 0.
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                what = "a number" if bound.name == "seconds" else "an integer"
                raise OptionError(f"Limits: {bound.name}={value!r} must be {what} above 0")
        if self.depth > _MOST_DEPTH:
            raise OptionError(f"Limits: depth={self.depth} must be at most {_MOST_DEPTH}")


class Deadline:
    """When a stage has to be done; asked in its loops.

    Args:
        stage: What it is called in the error.
        limits: `seconds` from now on.
    """

    def __init__(self, stage: str, limits: Limits) -> None:
        self._stage = stage
        self._seconds = limits.seconds
        # The clock on the wall may be set while a stage runs.
        self._end = time.monotonic() + limits.seconds

    def check(self) -> None:
        """Raise once the time is over.

        Raises:
            PlanError: Naming the stage.
        """
        if time.monotonic() > self._end:
            raise PlanError(
                f"{self._stage} takes longer than {self._seconds:g} seconds; a model that may "
                "take longer needs larger Limits.seconds"
            )
