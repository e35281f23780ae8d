"""Element types of values."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from saccade.errors import ModelError
from saccade.locks import forkless

__all__ = ["DType"]


class DType(Enum):
    """Element type; the value is NumPy's name for it (`ml_dtypes`' for bfloat16).

    Attributes:
        itemsize: Bytes per element.
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

    def __init__(self, name: str) -> None:
        # NumPy knows bfloat16 only once `ml_dtypes` is imported, which few starts need.
        self.itemsize = 2 if name == "bfloat16" else np.dtype(name).itemsize

    # Members are single objects; Enum's own hash is a call of Python for every view looked up.
    __hash__ = object.__hash__

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        kind: Any = self.value
        if self is DType.BF16:
            with forkless:
                import ml_dtypes  # noqa: PLC0415 - 5 ms that only reduced precision needs

            kind = ml_dtypes.bfloat16
        found: np.dtype[Any] = np.dtype(kind)
        return found

    @property
    def is_float(self) -> bool:
        """Whether arithmetic on it is floating point."""
        return self in (DType.F32, DType.F16, DType.BF16, DType.F64)

    @property
    def arithmetic(self) -> DType:
        """The type that operators of a graph compute in: halves only store what is float32."""
        return DType.F32 if self in _STORAGE else self

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


_STORAGE = frozenset({DType.F16, DType.BF16})
