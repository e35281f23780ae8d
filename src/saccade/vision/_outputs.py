"""What a model or a session returned, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError

__all__ = ["Outputs", "named_outputs"]

Outputs: TypeAlias = "Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]] | NDArray[Any]"
"""By name, as `Model.run` gives them, or what a call of a model or a session's run gives."""


def named_outputs(outputs: Outputs) -> Mapping[str, NDArray[Any]]:
    """Arrays by name; by place where there are no names.

    Raises:
        InputError: If they are no arrays.
    """
    listed = outputs if isinstance(outputs, Mapping | list | tuple) else [outputs]
    pairs = listed.items() if isinstance(listed, Mapping) else enumerate(listed)
    named = {str(name): array for name, array in pairs}
    for name, array in named.items():
        if not hasattr(array, "__array__"):
            raise InputError(f"output {name} is a {type(array).__name__}, not an array")
    return {name: np.asarray(array) for name, array in named.items()}
