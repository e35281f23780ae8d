"""What backends say to the caller's arrays: NumPy's, PyTorch's, anything with `__dlpack__`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import InputError, OutOfMemoryError
from saccade.signature import shape_text, unfit

if TYPE_CHECKING:
    from saccade.ir import Array
    from saccade.program import Result
    from saccade.signature import TensorInfo

__all__ = ["UNREADABLE", "check_fits", "detached", "host_array", "on_another_device"]

UNREADABLE = (BufferError, RuntimeError, TypeError, ValueError, AttributeError)
"""What other libraries raise where they cannot show their memory."""


def check_fits(info: TensorInfo, kind: str, shape: Sequence[int]) -> None:
    """Compare an array with the model's input.

    Args:
        info: The input.
        kind: The array's element type: NumPy's name of it, if it has one.
        shape: Its shape.

    Raises:
        InputError: If they differ.
    """
    if kind != info.dtype:
        raise InputError(
            f"input {info.name!r} must be {info.dtype} of shape {shape_text(info.shape)}, "
            f"given is {kind} of shape {shape_text(shape)}"
        )
    fits = len(shape) == len(info.shape) and all(
        isinstance(want, str) or want == have for want, have in zip(info.shape, shape, strict=True)
    )
    if not fits:
        raise unfit(info.name, info.shape, shape)


def host_array(info: TensorInfo, value: object, place: str = "the CPU") -> Array:
    """Elements of the input's type and shape, one after the other in the host's memory.

    Args:
        info: The input.
        value: Whatever the caller gave.
        place: Where the model runs, for messages.

    Raises:
        InputError: If it is no array, or of another dtype, shape or device.
        OutOfMemoryError: If it has to be copied and there is no memory.
    """
    array: Array = value if type(value) is np.ndarray else _as_numpy(info, value, place)
    # The names of byte-swapped types hide that they are.
    check_fits(info, str(array.dtype) if array.dtype.isnative else array.dtype.str, array.shape)
    try:
        return np.require(array, requirements=["C", "A"])
    except MemoryError as error:  # of a broadcast view, for one
        raise OutOfMemoryError(
            f"input {info.name!r} has to be copied to {array.nbytes} contiguous bytes, which the "
            "system does not give: use a smaller one"
        ) from error


def on_another_device(info: TensorInfo, device: object, place: str) -> InputError:
    """The error of an array elsewhere than where the model runs."""
    return InputError(f"input {info.name!r} is on {device}, the model runs on {place}")


def _as_numpy(info: TensorInfo, value: object, place: str) -> Array:
    """Another library's array, or a kind of NumPy's, as one whose sizes are true."""
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise InputError(
            f"input {info.name!r} is a masked array, give what stands for masked elements: "
            ".filled(value)"
        )
    if isinstance(value, np.ndarray):
        return np.asarray(value)  # subclasses may say anything of themselves
    if not hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        raise InputError(f"input {info.name!r} is a {type(value).__name__}, not an array")
    device = getattr(value, "device", "cpu")
    if str(getattr(device, "type", device)) != "cpu":
        raise on_another_device(info, device, place)
    plain = detached(info, value)
    exchanged = hasattr(plain, "__dlpack__")
    try:
        array: Array = np.from_dlpack(plain) if exchanged else np.asarray(plain)
    except UNREADABLE as error:  # bfloat16, for one, which NumPy does not have
        given = getattr(value, "dtype", type(value).__name__)
        raise InputError(
            f"input {info.name!r} must be {info.dtype} of shape {shape_text(info.shape)}, "
            f"given is {given}, which NumPy cannot read: {error}"
        ) from error
    if exchanged and array.size and array.flags.owndata:  # NumPy's own, as there was none
        raise InputError(f"input {info.name!r} is a {type(value).__name__} without memory")
    return array


def detached(info: TensorInfo, value: object) -> Result:
    """Another library's array without its gradient; of PyTorch's the elements as they count.

    Raises:
        InputError: If it is a tensor without memory of its own, or a sparse one.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        detach = getattr(value, "detach", None)
        return detach() if detach is not None else value
    kind = type(value)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:  # `FakeTensor`, for one
        raise InputError(f"input {info.name!r} is a {kind.__name__}, not a tensor with elements")
    if value.layout is not torch.strided:
        raise InputError(f"input {info.name!r} is a {value.layout} tensor, not a dense one")
    with torch._C.DisableTorchFunctionSubclass():
        plain = torch.Tensor.as_subclass(value, torch.Tensor).detach()
    # DLPack knows of addresses and strides only.
    return torch.zeros_like(plain) if plain._is_zerotensor() else plain.resolve_conj().resolve_neg()
