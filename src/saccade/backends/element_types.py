"""Element types by name, also those that NumPy does not have by itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from saccade.locks import forkless

__all__ = ["bring_types"]


def bring_types(names: Iterable[str]) -> None:
    """Have NumPy know these names: some are those of `ml_dtypes`, which few programs need."""
    for name in names:
        try:
            np.dtype(name)
        except TypeError:
            with forkless:
                import ml_dtypes  # noqa: F401, PLC0415 - registers its names
