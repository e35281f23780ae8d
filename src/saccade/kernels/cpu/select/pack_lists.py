"""The table of room that `select.packed` walks."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array

__all__ = ["list_rooms"]


def list_rooms(*room: int) -> Array:
    """The room of each list, int64 [lists]."""
    return np.array(room, np.int64)
