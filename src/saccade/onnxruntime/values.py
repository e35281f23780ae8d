"""ONNX Runtime's box around an array."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from saccade.errors import InputError, OptionError
from saccade.logs import logger

__all__ = ["OrtValue", "array_at", "say_where", "tensor_type"]

_TYPES = {"float32": "float", "float64": "double"}
"""Element types that ONNX calls otherwise than NumPy does."""


def tensor_type(dtype: str) -> str:
    """As ONNX Runtime spells the type of a tensor: `tensor(float)`."""
    return f"tensor({_TYPES.get(dtype, dtype)})"


def say_where(device_type: str) -> None:
    """Warn of a device whose memory nothing here is kept in."""
    if device_type != "cpu":
        logger().warning("device %s has no meaning here: values are in the host's", device_type)


def array_at(
    address: int, device_type: str, element_type: object, shape: Sequence[int]
) -> NDArray[Any]:
    """Memory of the host as an array.

    Raises:
        OptionError: If it is a device's.
    """
    if device_type != "cpu":
        raise OptionError(
            f"memory of device {device_type} is not bound by its address: give arrays on it to "
            "run, or to a model of saccade.compile"
        )
    dtype = _dtype(element_type)
    held = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.ndarray(tuple(shape), dtype, memoryview(held))


def _dtype(element_type: Any) -> np.dtype[Any]:  # noqa: ANN401
    """Of NumPy's name or type, or of ONNX's number."""
    kind = element_type
    if isinstance(element_type, int):
        from onnx import helper  # noqa: PLC0415 - seldom asked for

        kind = helper.tensor_dtype_to_np_dtype(element_type)
    found: np.dtype[Any] = np.dtype(kind)
    return found


class OrtValue:
    """A tensor in the host's memory, which it shares with the array that it is made of.

    Raises:
        InputError: If that is no array of numbers.
    """

    def __init__(self, array: object) -> None:
        if not isinstance(array, np.ndarray | np.generic) or array.dtype.kind in "OSUM":
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(f"an OrtValue holds an array of numbers, not {kind}: use run")
        self._array: NDArray[Any] = np.require(array, requirements="C")

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: NDArray[Any], device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Of an array; another device than the CPU is accepted, with a warning."""
        del device_id
        say_where(device_type)
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: object,
        device_type: str = "cpu",
        device_id: int = 0,
    ) -> OrtValue:
        """Of elements that nobody set; for the device see `ortvalue_from_numpy`."""
        del device_id
        say_where(device_type)
        return cls(np.empty(tuple(shape), _dtype(element_type)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """For NumPy's functions."""
        return self._array.astype(self._array.dtype if dtype is None else dtype, copy=bool(copy))

    def numpy(self) -> NDArray[Any]:
        """The array."""
        return self._array

    def shape(self) -> list[int]:
        """Its sizes."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """As `tensor(float)`."""
        return tensor_type(self._array.dtype.name)

    def element_type(self) -> int:
        """ONNX's number of the type."""
        from onnx import helper  # noqa: PLC0415 - seldom asked for

        return int(helper.np_dtype_to_tensor_dtype(self._array.dtype))

    def device_name(self) -> str:
        """Where it is: `cpu`."""
        return "cpu"

    def data_ptr(self) -> int:
        """Its address."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """How long it is."""
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        """That it does."""
        return True

    def is_tensor(self) -> bool:
        """That it is."""
        return True

    def is_sparse_tensor(self) -> bool:
        """That it is not."""
        return False

    def is_tensor_sequence(self) -> bool:
        """That it is not."""
        return False

    def update_inplace(self, data: OrtValue | NDArray[Any]) -> None:
        """Copy an array of this type and shape into it.

        Raises:
            InputError: If it is of another.
        """
        array = OrtValue(data.numpy() if isinstance(data, OrtValue) else data)
        if (array.shape(), array.data_type()) != (self.shape(), self.data_type()):
            raise InputError(
                f"{array.data_type()} {array.shape()} does not fit into "
                f"{self.data_type()} {self.shape()}"
            )
        np.copyto(self._array, array.numpy())
