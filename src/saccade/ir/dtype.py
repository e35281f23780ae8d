"""Element types of values."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from saccade.errors import ModelError
from saccade.locks import forkless

__all__ = ["DType"]

_NARROW_BITS = {
    "float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8, "float4_e2m1fn": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2,
}  # fmt: skip
"""Bits of the elements that only store what is wider to all operators."""


class DType(Enum):
    """Element type; the value is NumPy's name for it (`ml_dtypes`' for what NumPy does not have).

    Those of less than a byte take one in memory, as `ml_dtypes` has them; only their lower bits
    count.

    Attributes:
        itemsize: Bytes per element.
        bits: How many bits of an element count.
        is_float: Whether arithmetic on it is floating point.
        is_narrow: Whether it is one of at most 8 bits that NumPy does not have.
    """

    F32 = "float32"
    F16 = "float16"
    BF16 = "bfloat16"
    F64 = "float64"
    I64 = "int64"
    I32 = "int32"
    I16 = "int16"
    I8 = "int8"
    U8 = "uint8"
    U16 = "uint16"
    U32 = "uint32"
    U64 = "uint64"
    BOOL = "bool"
    F8E4M3FN = "float8_e4m3fn"
    F8E4M3FNUZ = "float8_e4m3fnuz"
    F8E5M2 = "float8_e5m2"
    F8E5M2FNUZ = "float8_e5m2fnuz"
    F8E8M0 = "float8_e8m0fnu"
    F4E2M1 = "float4_e2m1fn"
    I4 = "int4"
    U4 = "uint4"
    I2 = "int2"
    U2 = "uint2"

    def __init__(self, name: str) -> None:
        # NumPy knows these only once `ml_dtypes` is imported, which few starts need.
        foreign = {"bfloat16": 2, **dict.fromkeys(_NARROW_BITS, 1)}
        self.itemsize = foreign.get(name) or np.dtype(name).itemsize
        self.bits = _NARROW_BITS.get(name, 8 * self.itemsize)
        self.is_float = "float" in name
        self.is_narrow = name in _NARROW_BITS

    # Members are single objects; Enum's own hash is a call of Python for every view looked up.
    __hash__ = object.__hash__

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        kind: Any = self.value
        if self is DType.BF16 or self.is_narrow:
            with forkless:
                import ml_dtypes  # noqa: PLC0415 - 5 ms that only reduced precision needs

            kind = getattr(ml_dtypes, self.value)
        found: np.dtype[Any] = np.dtype(kind)
        return found

    @property
    def arithmetic(self) -> DType:
        """The type that operators of a graph compute in: halves only store what is float32."""
        return _STORAGE.get(self, self)

    @classmethod
    def of(cls, dtype: object) -> DType:
        """The DType of a NumPy dtype.

        Raises:
            ModelError: If Saccade has no such type.
        """
        name = np.dtype(dtype).name  # type: ignore[call-overload]
        try:
            return cls(name)
        except ValueError:
            raise ModelError(f"element type {name} is not supported") from None


_STORAGE: dict[DType, DType] = {
    **dict.fromkeys((d for d in DType if d.is_float and d is not DType.F64), DType.F32),
    DType.I4: DType.I8, DType.I2: DType.I8, DType.U4: DType.U8, DType.U2: DType.U8,
}  # fmt: skip
