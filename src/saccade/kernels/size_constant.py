"""What follows from a plan's sizes alone, as a constant that is packed from nothing but these."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from saccade.ir import Array, DType, Op
from saccade.ir.serialize import decode_op

__all__ = ["SIZE_CONSTANT", "size_constant"]


def size_constant(*operands: Any) -> Array:  # noqa: ANN401 - arrays, then plain parameters
    """The results of a `SizeConstant` as plans hold them: bytes, one result behind the other.

    Args:
        operands: Its constants; its text; sizes of its symbols, by name; for each result where it
            begins, the name of the element type that it is stored as, and the order of its axes in
            memory; bytes of all together.
    """
    *known, text, sizes, places, nbytes = operands
    results = _decoded(text).bind(dict(sizes)).reference(*known)
    held = np.zeros(nbytes, np.uint8)
    for array, (at, dtype, axes) in zip(results, places, strict=True):
        stored = array.astype(DType(dtype).numpy, copy=False).transpose(axes)
        held[at : at + stored.nbytes].view(stored.dtype).reshape(stored.shape)[...] = stored
    return held


SIZE_CONSTANT = size_constant.__name__
"""As plans name it."""


# Each new size decodes the same text.
@lru_cache(maxsize=64)
def _decoded(text: str) -> Op:
    return decode_op(json.loads(text))
