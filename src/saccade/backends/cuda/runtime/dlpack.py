"""DLPack's structures: arrays of other libraries read, and ours handed to them, without a copy."""

from __future__ import annotations

import atexit
import ctypes
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from saccade.ir import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Imported", "export", "imported", "live_exports"]

_NAME, _USED = b"dltensor", b"used_dltensor"
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6  # DLPack's numbers of element types
_CODES: dict[DType, tuple[int, int]] = {
    DType.F64: (_FLOAT, 64), DType.F32: (_FLOAT, 32), DType.F16: (_FLOAT, 16),
    DType.BF16: (_BFLOAT, 16), DType.I64: (_INT, 64), DType.I32: (_INT, 32),
    DType.I16: (_INT, 16), DType.I8: (_INT, 8), DType.U64: (_UINT, 64), DType.U32: (_UINT, 32),
    DType.U16: (_UINT, 16), DType.U8: (_UINT, 8), DType.BOOL: (_BOOL, 8),
}  # fmt: skip
_TYPES = {code: dtype for dtype, code in _CODES.items()}
_FAMILIES = {_INT: "int", _UINT: "uint", _FLOAT: "float", 5: "complex", _BOOL: "bool"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_python = ctypes.pythonapi
_new_capsule = _python.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer_of = _python.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
_rename = _python.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
# Of a capsule that is on its way out: no reference to it may be made.
_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_raw_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)

_exports: dict[int, tuple[_Managed, object, object]] = {}
"""By address: the structure, its sizes, and what keeps the memory."""


def _delete(address: int) -> None:
    """The consumer is done, on whatever thread."""
    _exports.pop(address, None)


def _drop(capsule: int) -> None:
    """A capsule goes that nobody consumed."""
    # Whoever consumed it has renamed it: then the structure is the consumer's to delete.
    if _is_named(capsule, _NAME):
        _exports.pop(_raw_pointer_of(capsule, _NAME), None)


# A deleter may be called without the interpreter's lock, a capsule's destructor never is.
_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete)
_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_drop)


@atexit.register
def _abandon() -> None:
    """Consumers may outlive the interpreter: they must find their structure, and call nothing."""
    # In C, without arguments, and good without an interpreter: called as a deleter it does nothing.
    harmless = ctypes.cast(_python.Py_IsInitialized, ctypes.c_void_p).value
    for managed, *kept in list(_exports.values()):
        managed.deleter = harmless
        # One reference too many: what the interpreter clears as it ends must not free these.
        for one in (managed, *kept):
            _python.Py_IncRef(ctypes.py_object(one))


def live_exports() -> int:
    """Arrays that other libraries hold."""
    return len(_exports)


def export(
    address: int, shape: Sequence[int], kind: DType, device: tuple[int, int], owner: object
) -> object:
    """A capsule of dense row-major elements.

    Args:
        address: Of the first.
        shape: Sizes.
        kind: Element type.
        device: DLPack's type and number of it.
        owner: Kept until the consumer is done.
    """
    rank = len(shape)
    numbers = (ctypes.c_int64 * (2 * rank or 1))(*shape, *_row_major(shape))
    managed = _Managed()
    tensor = managed.tensor
    # DLPack wants no address where there are no elements.
    tensor.data = address if prod(shape) else None
    tensor.device_type, tensor.device_id = device
    tensor.ndim, tensor.lanes = rank, 1
    tensor.code, tensor.bits = _CODES[kind]
    first = ctypes.addressof(numbers)
    tensor.shape = ctypes.cast(first, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(first + 8 * rank, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    place = ctypes.addressof(managed)
    # The capsule holds an address only: this keeps all of it until the consumer is done.
    _exports[place] = (managed, numbers, owner)
    return _new_capsule(place, _NAME, ctypes.cast(_destructor, ctypes.c_void_p))


def _row_major(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


@dataclass(frozen=True, slots=True)
class Imported:
    """Another library's array.

    Attributes:
        address: Of its first element.
        shape: Sizes.
        kind: Element type; None if there is no such type here.
        type_name: The element type in words.
        dense: Whether it is row-major without gaps.
        device: DLPack's type and number.
        owner: Keeps the memory; the library's deleter is called when it goes.
    """

    address: int
    shape: tuple[int, ...]
    kind: DType | None
    type_name: str
    dense: bool
    device: tuple[int, int]
    owner: object


class _Consumed:
    """A structure that was taken out of its capsule."""

    def __init__(self, managed: _Managed, address: int) -> None:
        self._managed, self._address = managed, address

    def __del__(self) -> None:
        if self._managed.deleter:
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self._managed.deleter)(self._address)


def imported(capsule: object) -> Imported:
    """What a capsule of `__dlpack__` holds, which is consumed."""
    place = _pointer_of(capsule, _NAME)
    managed = _Managed.from_address(place)
    # As DLPack has it: so the capsule's destructor leaves alone what is ours from now on.
    _rename(capsule, _USED)
    owner = _Consumed(managed, place)
    tensor = managed.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    dense = (
        # Row-major elements need no strides in DLPack; those of sizes of 1 say nothing.
        not tensor.strides
        or not prod(shape)
        or all(
            size == 1 or tensor.strides[i] == step
            for i, (size, step) in enumerate(zip(shape, _row_major(shape), strict=True))
        )
    )
    code = (tensor.code, tensor.bits)
    kind = _TYPES.get(code) if tensor.lanes == 1 else None
    name = kind.value if kind else f"{_FAMILIES.get(tensor.code, 'type')}{tensor.bits}"
    address = (tensor.data or 0) + tensor.byte_offset
    device = (tensor.device_type, tensor.device_id)
    return Imported(address, shape, kind, name, dense, device, owner)
