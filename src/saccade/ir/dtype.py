"""Element types of values."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from saccade.errors import ModelError

__all__ = ["DType"]


class DType(Enum):
    """Element type; the value is NumPy's name for it."""

    F32 = "float32"
    F16 = "float16"
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

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return np.dtype(self.value)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """Whether arithmetic on it is floating point."""
        return self in (DType.F32, DType.F16, DType.F64)

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


_ITEMSIZE = {dtype: np.dtype(dtype.value).itemsize for dtype in DType}
