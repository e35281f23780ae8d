"""What runs, as the model sees it: programs, what they take and give, and where they are kept.

Backends fulfil these protocols; `model` and `engine` ask through them and never which device it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from saccade.kernels.machine import Machine
    from saccade.plan import Plan
    from saccade.profile.types import Facts, Reading
    from saccade.signature import Signature, TensorInfo

__all__ = [
    "Arrays", "DeviceBuffer", "HostArray", "HostResult", "Program", "Result", "Store", "T",
    "Tensor", "TensorResult",
]  # fmt: skip

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Result: TypeAlias = Any
"""An array of the library that the caller uses: NumPy's, PyTorch's. No type here could name it."""

HostArray: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
HostResult: TypeAlias = "np.ndarray[Any, np.dtype[Any]] | Any"
"""Of NumPy's arrays: one, unless the model has several outputs or gives strings or sequences. A
checker shows what arrays have, and lets pass what it cannot know."""

TensorResult: TypeAlias = "T | Any"
"""Of PyTorch's, likewise."""


class Tensor(Protocol[T_co]):
    """A PyTorch tensor, known by how one leaves its graph; subclasses give plain tensors there."""

    def detach(self) -> T_co: ...


class DeviceBuffer(Protocol):
    """A dense row-major array in a device's memory: NumPy's where that is the host's.

    A device's programs take what its `Arrays` made, and no other.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""


class Program(Protocol):
    """A plan ready to run; may be called from several threads at once."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    def run(self, inputs: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
        """Results, in memory of their own, for inputs that `Arrays.take` gave.

        Raises:
            OutOfMemoryError: If the system does not give what it needs.
        """

    def asked_again(self) -> None:
        """Told whenever the program is taken once more."""

    def profile(self, inputs: Sequence[DeviceBuffer], repeat: int) -> Sequence[Reading]:
        """Clock readings of every phase in `repeat` runs."""

    def speeds(self) -> Machine:
        """Of the machine that it runs on, measured."""

    def facts(self) -> Sequence[Facts]:
        """What is known of each phase's code, by name, in the order of `profile`; or nothing."""


class Arrays(Protocol):
    """How the caller's arrays become a program's, and back."""

    def take(self, info: TensorInfo, value: object) -> DeviceBuffer:
        """What a program reads, without a copy where that can be.

        Args:
            info: The model's input.
            value: Whatever the caller gave.

        Raises:
            InputError: If it is no array, or not of the input's dtype, shape and device.
            OutOfMemoryError: If it has to be copied and there is no memory.
        """

    def give(self, results: Sequence[DeviceBuffer], given: Iterable[object]) -> tuple[Result, ...]:
        """Results as arrays of the library that the inputs `given` came from."""

    @property
    def queued(self) -> int:
        """How many calls to time as one: 1 where a call returns once its results are written."""

    def clock(self, call: Callable[[], object], runs: int) -> float:
        """Milliseconds of a call, the mean of so many, one after the other, by the device's clock.

        Args:
            call: Runs a model on what `take` gave.
            runs: How many times, at least 1.
        """


class Store(Protocol):
    """What earlier starts of a model left, and where to leave more."""

    def signature(self) -> Signature | None:
        """What the model takes and gives, if that is known."""

    def keep_signature(self, signature: Signature) -> None:
        """Write it."""

    def program(self, shapes: Sequence[Sequence[int]]) -> Program | None:
        """The program for these input shapes, if it is there and sound."""

    def graph_is_at(self, entry: str | None) -> None:
        """Told the name of the entry that holds the model's graph, if one does."""
