"""What the parent and the process of an engine say to each other; light, because both import it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from saccade.cli._engines import EngineSpec

__all__ = ["Failure", "Open", "Opened", "Round", "RoundDone"]


@dataclass(frozen=True, slots=True)
class Open:
    """Load the model, pinned to `cores` (empty: wherever), and run it once on `inputs`.

    `work` asks for what a run does, too. Its floor needs the machine's speeds, which are looked for
    in buffers far larger than many a model.
    """

    spec: EngineSpec
    inputs: dict[str, NDArray[Any]]
    cores: tuple[int, ...] = ()
    work: bool = True


@dataclass(frozen=True, slots=True)
class Opened:
    """The model is loaded.

    Attributes:
        version: The engine's version.
        load_s: Seconds from the call that loads the model to the loaded model.
        first_answer_s: Seconds from the call that loads the model to the first outputs.
        outputs: The first outputs, in graph order.
        peak_rss_bytes: Largest resident set up to here.
        work: Flops and bytes of one run, where the engine states them.
    """

    version: str
    load_s: float
    first_answer_s: float
    outputs: list[NDArray[Any]]
    peak_rss_bytes: int
    work: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """Run for `seconds` from `callers` Python threads, and say how long each run took."""

    seconds: float
    callers: int = 1


@dataclass(frozen=True, slots=True)
class RoundDone:
    """Milliseconds of every run, wall time of them all, largest resident set so far."""

    times_ms: list[float]
    wall_s: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The engine failed; what Saccade's own code refuses is sent as its `SaccadeError`."""

    message: str
