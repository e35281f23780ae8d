"""Arrays in a GPU's memory, for programs and for other libraries (DLPack, CUDA array interface)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cuda.runtime.buffers import Lease
from saccade.backends.cuda.runtime.driver import LEGACY_STREAM
from saccade.ir import DType
from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.context import DeviceContext
    from saccade.ir import Array

__all__ = ["DeviceArray", "Make"]

_STANDARD_LEGACY = 1
"""What the exchange protocols call the legacy default stream; 0 they do not take."""


Make = Callable[["DeviceContext", tuple[int, ...], DType, int], "DeviceArray"]
"""Makes an array of a shape and a type, to be written on a stream."""


class DeviceArray:
    """A dense row-major array on a GPU.

    Args:
        device: The GPU.
        address: Of the first element.
        shape: Sizes.
        kind: Element type.
        stream: What is on it so far may still write the array.
        owner: Keeps the memory.
        caller: Whether the stream is the caller's, who wants programs there.
        make: Makes results in memory of the caller's library, if there is a way to.

    Attributes:
        shape: Sizes.
        kind: Element type.
    """

    def __init__(
        self,
        device: DeviceContext,
        address: int,
        shape: tuple[int, ...],
        kind: DType,
        stream: int,
        owner: object,
        *,
        caller: bool = False,
        make: Make | None = None,
    ) -> None:
        self.device, self.address, self.stream = device, address, stream
        self.shape, self.kind = shape, kind
        self.owner, self.caller, self.make = owner, caller, make

    def __repr__(self) -> str:
        return f"DeviceArray({self.device.driver.facts.name}, {self.kind.value}, {self.shape})"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Element type as NumPy has it."""
        return self.kind.numpy

    @property
    def nbytes(self) -> int:
        """Of its elements."""
        return prod(self.shape) * self.kind.itemsize

    @property
    def leased(self) -> bool:
        """Whether the memory is ours."""
        return isinstance(self.owner, Lease)

    def used_on(self, stream: int) -> None:
        """Say that work on a stream reads it, so that its memory is not another's before."""
        if isinstance(self.owner, Lease):
            self.owner.block.streams.add(stream)

    @staticmethod
    def empty(
        device: DeviceContext, shape: tuple[int, ...], kind: DType, stream: int
    ) -> DeviceArray:
        """A new one, to be written on a stream.

        Raises:
            OutOfMemoryError: If the GPU has none.
        """
        lease = device.lease(prod(shape) * kind.itemsize, stream)
        return DeviceArray(device, lease.block.address, shape, kind, stream, lease)

    def numpy(self) -> Array:
        """A copy in the host's memory, once it is written.

        Raises:
            DeviceError: If the GPU was lost.
        """
        array: Array = np.empty(self.shape, self.dtype)
        if array.nbytes:
            with self.device.driver.current(), self.device.staging() as chunks:
                chunks.download(array.ctypes.data, self.address, array.nbytes, self.stream)
        return array

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a GPU cannot be NumPy's without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(np.dtype(dtype))  # type: ignore[call-overload]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule over the same memory, written as far as the consumer's `stream` is concerned.

        Raises:
            BufferError: If another device or a copy is asked for.
        """
        del max_version  # all know the first version
        if copy or dl_device not in (None, self.device.dlpack):
            raise BufferError("an array on a GPU is exported where it is, without a copy")
        # By DLPack, -1 asks for no waiting, and None for the legacy stream.
        if stream != -1:
            legacy = stream in (None, _STANDARD_LEGACY)
            consumer = LEGACY_STREAM if legacy or stream is None else int(stream)
            self.used_on(consumer)
            if consumer != self.stream:
                with self.device.driver.current():
                    self.device.order(consumer, [self.stream])
        with forkless:
            from saccade.backends.cuda.runtime.dlpack import export  # noqa: PLC0415

        return export(self.address, self.shape, self.kind, self.device.dlpack, self.owner)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Version 3.

        Raises:
            AttributeError: For bfloat16, which it has no name for.
        """
        if self.kind is DType.BF16:
            raise AttributeError("the CUDA array interface has no bfloat16: use DLPack")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            # The protocol wants 0 where there are no elements.
            "data": (self.address if prod(self.shape) else 0, False),
            "strides": None,
            "stream": self.stream or _STANDARD_LEGACY,
        }
