"""Inputs and outputs bound to a session before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError
from saccade.onnxruntime.values import OrtValue, array_at, say_where

if TYPE_CHECKING:
    from saccade.onnxruntime.session import InferenceSession

__all__ = ["IOBinding"]


class IOBinding:
    """What `InferenceSession.run_with_iobinding` takes, and where it leaves results.

    Memory is the host's: a device that results are asked on is accepted with a warning, an address
    on one refused.

    Attributes:
        session: Whose inputs and outputs these are.
        feed: Inputs by name.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.feed: dict[str, object] = {}
        self._wanted: dict[str, OrtValue | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: object) -> None:
        """An array, as it is when the session runs.

        Raises:
            InputError: If there is no such input.
        """
        _check("input", name, [one.name for one in self.session.get_inputs()])
        self.feed[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """The same in its box."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: object,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """The same by its address.

        Raises:
            OptionError: If it is a device's.
        """
        del device_id
        self.bind_cpu_input(name, array_at(buffer_ptr, device_type, element_type, shape))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """An output that is wanted, in memory of its own or at an address.

        Raises:
            InputError: If there is no such output, or an address comes without type and shape.
            OptionError: If the address is a device's.
        """
        del device_id
        _check("output", name, [one.name for one in self.session.get_outputs()])
        self._wanted[name] = None
        if buffer_ptr is None:
            say_where(device_type)
            return
        if element_type is None or shape is None:
            raise InputError(f"output {name!r}: an address needs element_type and shape, too")
        self._wanted[name] = OrtValue(array_at(buffer_ptr, device_type, element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An output, into a box."""
        self.bind_output(name)
        self._wanted[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.feed.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._wanted.clear()

    def synchronize_inputs(self) -> None:
        """Accepted: nothing is on its way."""

    def synchronize_outputs(self) -> None:
        """Accepted: nothing is on its way."""

    def wanted(self) -> list[str]:
        """Names of the outputs, in the order in which they were bound.

        Raises:
            InputError: If there are none.
        """
        if not self._wanted:
            raise InputError("no output is bound: bind_output says which are wanted")
        return list(self._wanted)

    def keep(self, results: Sequence[object]) -> None:
        """Put what a run gave where it is wanted.

        Raises:
            InputError: If it does not fit there.
        """
        self._results = []
        for result, place in zip(results, self._wanted.values(), strict=True):
            value = OrtValue(np.asarray(result))
            if place is not None:
                place.update_inplace(value)
            self._results.append(value if place is None else place)

    def get_outputs(self) -> list[OrtValue]:
        """Of the run before, in the order in which they were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[NDArray[Any]]:
        """The same as arrays."""
        return [value.numpy() for value in self._results]


def _check(kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise InputError(f"there is no {kind} {name!r}; there are {', '.join(known)}")
