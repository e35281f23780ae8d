"""Whether a tensor in a file holds as many bytes as its shape and element type say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from saccade.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["check_size", "check_tensor"]

_RANK = 64
_BITS = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64,
    15: 128, 16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2,
}  # fmt: skip
"""Bits per element of `onnx.TensorProto` element types."""

_STRING = 8
_FIELDS = {
    1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data", 13: "uint64_data",
}  # fmt: skip
"""Where a tensor without raw data keeps its elements; all others use `int32_data`."""


def check_tensor(tensor: onnx.TensorProto) -> int:
    """Check one `TensorProto`; its external data, if any, is left to the caller.

    Returns:
        Bytes that the tensor takes.

    Raises:
        ModelError: If shape, element type and data contradict each other.
    """
    name = f"tensor {tensor.name!r}"
    if len(tensor.dims) > _RANK or any(extent < 0 for extent in tensor.dims):
        raise ModelError(f"{name} has the shape {list(tensor.dims)[:_RANK]}")
    # The shape is that of the whole then, and the data only a part's.
    if tensor.HasField("segment"):
        raise ModelError(f"{name} is stored in segments, which ONNX has given up")
    # Python's integers: the product of claimed extents may be larger than 64 bits.
    elements = math.prod(tensor.dims)
    if tensor.data_type == _STRING:
        if len(tensor.string_data) != elements:
            raise ModelError(f"{name} of {elements} strings holds {len(tensor.string_data)}")
        return 0
    if tensor.data_type not in _BITS:
        raise ModelError(f"{name} has the unknown element type {tensor.data_type}")
    # Elements of less than a byte are packed, and the last byte may be part full.
    size: int = (elements * _BITS[tensor.data_type] + 7) // 8
    if tensor.data_location == tensor.EXTERNAL:
        return size
    _check_data(tensor, name, elements, size)
    return size


def _check_data(tensor: onnx.TensorProto, name: str, elements: int, size: int) -> None:
    """The one field that holds the data has to be full."""
    if tensor.HasField("raw_data"):
        check_size(tensor, size, len(tensor.raw_data))
        return
    count = len(getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data")))
    bits = _BITS[tensor.data_type]
    if tensor.data_type in (14, 15):  # pairs of real and imaginary parts
        field = tensor.float_data if tensor.data_type == 14 else tensor.double_data
        count = len(field) // 2
    # Types of less than a byte are packed here too: an entry of `int32_data` is a byte of them.
    expected = (elements * bits + 7) // 8 if bits < 8 else elements
    if count != expected:
        raise ModelError(f"{name} of shape {list(tensor.dims)} has {count} elements")


def check_size(tensor: onnx.TensorProto, size: int, held: int) -> None:
    """Hold the raw data of a tensor against what it takes."""
    if held != size:
        shape = list(tensor.dims)
        raise ModelError(f"tensor {tensor.name!r} of shape {shape} takes {size} bytes, has {held}")
