"""The engine's public contract as the commands use it, for typing without importing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

if TYPE_CHECKING:
    from saccade.profile import PeerLayers
    from saccade.tuning import Algorithms, Outcome, Progress

__all__ = ["Arrays", "ModelLike", "PlanLike", "ProfileLike", "StepLike", "TensorInfoLike"]

Arrays = dict[str, NDArray[Any]]


class TensorInfoLike(Protocol):
    """One input or output: an int or a symbol's name per dimension, dtype as NumPy names it."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int | str, ...]: ...
    @property
    def held(self) -> bool: ...


class StepLike(Protocol):
    """One step of a plan."""

    @property
    def name(self) -> str: ...
    @property
    def kernel(self) -> str | None: ...
    @property
    def by(self) -> str: ...
    @property
    def reasons(self) -> Sequence[str]: ...


class PlanLike(Protocol):
    """What `Model.plan` returns; `str` of it is a table."""

    @property
    def steps(self) -> Sequence[StepLike]: ...
    @property
    def refused(self) -> Sequence[str]: ...


class Named(Protocol):
    """A step of a profile."""

    @property
    def name(self) -> str: ...


class ProfileLike(Protocol):
    """What `Model.profile` returns."""

    @property
    def steps(self) -> Sequence[Named]: ...
    def table(self, peer: PeerLayers | None = None) -> str: ...
    def to_json(self, peer: PeerLayers | None = None) -> str: ...
    def to_chrome_trace(self) -> str: ...


class ModelLike(Protocol):
    """What `saccade.compile` returns."""

    @property
    def inputs(self) -> Sequence[TensorInfoLike]: ...
    @property
    def outputs(self) -> Sequence[TensorInfoLike]: ...
    @property
    def stages(self) -> Sequence[str]: ...
    @property
    def remarks(self) -> Sequence[str]: ...
    def run(self, inputs: Arrays) -> Arrays: ...
    def plan(self, **shapes: tuple[int, ...]) -> PlanLike: ...
    def save(self, path: Path, *shapes: Mapping[str, object]) -> int: ...
    def warm(self, *shapes: Mapping[str, object]) -> None: ...
    def profile(self, *inputs: NDArray[Any], repeat: int) -> ProfileLike: ...
    def graph(self, stage: str) -> str: ...
    def assembly(self, steps: str, /, **shapes: tuple[int, ...]) -> Mapping[str, Sequence[str]]: ...
    def tune(
        self,
        *inputs: NDArray[Any],
        seconds: float | None,
        report: Callable[[Progress], None],
    ) -> Outcome: ...
    @property
    def algorithms(self) -> Algorithms: ...
