"""Tensor maps (`CUtensorMap`) of operands, as kernels that load and store by TMA take them.

Such a parameter is the map's 128 bytes by value; Triton's code then takes the operand's sizes
(32 bits each) and its strides (64 bits each) as parameters of their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from saccade.errors import LaunchError

if TYPE_CHECKING:
    from saccade.backends.cuda.codegen.entry import Descriptor, Size

__all__ = ["MAP_ALIGNMENT", "MAP_BYTES", "Encoders", "TensorMap", "encode", "reach", "words"]

MAP_BYTES, MAP_ALIGNMENT = 128, 64
"""Of a map in memory."""
_TYPES: Mapping[str, int] = MappingProxyType({"fp16": 6, "fp32": 7, "bf16": 9})
_SWIZZLES: Mapping[int, int] = MappingProxyType({32: 1, 64: 2, 128: 3})
_MOST_OF_BOX = 256  # along an axis; larger blocks come in several loads
_INTERLEAVE, _PROMOTION, _FILL = 0, 2, 0  # none, 128 bytes in the L2, zeros


class Encoders(Protocol):
    """The driver's two functions, as `ctypes.CDLL("libcuda.so.1")` has them; 0 is success."""

    cuTensorMapEncodeTiled: Any  # noqa: N815 - the driver's name
    cuTensorMapEncodeIm2col: Any  # noqa: N815


class TensorMap(ctypes.Structure):
    """128 bytes that only the driver reads and writes. Where they lie is a multiple of 64."""

    _align_ = MAP_ALIGNMENT
    _fields_ = (("opaque", ctypes.c_uint64 * 16),)


def _aligned() -> TensorMap:
    """A tensor map at a multiple of 64 (`_align_` is only kept from Python 3.13 on)."""
    raw = (ctypes.c_char * (MAP_BYTES + MAP_ALIGNMENT))()
    return TensorMap.from_buffer(raw, -ctypes.addressof(raw) % MAP_ALIGNMENT)


def encode(
    descriptor: Descriptor, address: int, integers: Mapping[str, Any], driver: Encoders
) -> TensorMap:
    """The tensor map of an operand.

    Args:
        descriptor: What the code expects.
        address: Of the operand's first element, a multiple of 16.
        integers: The launch's.
        driver: Makes it.

    Raises:
        LaunchError: If the driver refuses.
    """
    item = descriptor.item
    *outer, columns = descriptor.box or descriptor.block
    # A box is no wider than its swizzle: wider blocks come in several loads.
    inner = min(columns, descriptor.swizzle // item)
    # The driver counts axes from the innermost one, whose stride it takes for one element.
    sizes = _numbers(reversed(descriptor.sizes), integers)
    strides = [n * item for n in _numbers(reversed(descriptor.strides[:-1]), integers)]
    tensor_map = _aligned()
    head = (
        ctypes.byref(tensor_map), ctypes.c_uint32(_TYPES[descriptor.element]),
        ctypes.c_uint32(len(sizes)), ctypes.c_void_p(address),
        (ctypes.c_uint64 * len(sizes))(*sizes), (ctypes.c_uint64 * len(strides))(*strides),
    )  # fmt: skip
    modes = (_INTERLEAVE, _SWIZZLES[descriptor.swizzle], _PROMOTION, _FILL)
    tail = tuple(ctypes.c_uint32(mode) for mode in modes)
    # Windows step over rows and columns only: every channel and every image counts.
    steps = (1, *reversed(descriptor.steps), 1) if descriptor.steps else (1,) * len(sizes)
    counts = ctypes.c_uint32 * len(sizes)
    if descriptor.im2col:
        lower = _numbers(reversed(descriptor.lower), integers)
        upper = _numbers(reversed(descriptor.upper), integers)
        status = driver.cuTensorMapEncodeIm2col(
            *head, (ctypes.c_int * len(lower))(*lower), (ctypes.c_int * len(upper))(*upper),
            ctypes.c_uint32(inner), ctypes.c_uint32(outer[0]), counts(*steps), *tail,
        )  # fmt: skip
    else:
        # A box is counted with what steps leave out of it.
        box = (n * step for n, step in zip((inner, *reversed(outer)), steps, strict=True))
        most = (min(n, _MOST_OF_BOX) for n in box)
        status = driver.cuTensorMapEncodeTiled(*head, counts(*most), counts(*steps), *tail)
    if status:
        raise LaunchError(
            f"tensor map of {descriptor.name}: error {status} of the driver for {address:#x}, "
            f"sizes {sizes}, strides {strides} bytes"
        )
    return tensor_map


def reach(descriptor: Descriptor, integers: Mapping[str, Any]) -> int:
    """Bytes from an operand's address to the end of the last element that its map has."""
    sizes = _numbers(descriptor.sizes, integers)
    strides = _numbers(descriptor.strides, integers)
    last = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    return (last + 1) * descriptor.item


def words(
    descriptor: Descriptor, integers: Mapping[str, Any]
) -> tuple[ctypes.c_int32 | ctypes.c_int64, ...]:
    """The parameters that follow the map: sizes, then strides, outermost first."""
    sizes = _numbers(descriptor.sizes, integers)
    strides = _numbers(descriptor.strides, integers)
    return (*map(ctypes.c_int32, sizes), *map(ctypes.c_int64, strides))


def _numbers(names: Iterable[Size], integers: Mapping[str, Any]) -> list[int]:
    return [name if isinstance(name, int) else integers[name] for name in names]
