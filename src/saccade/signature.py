"""What a model takes and gives, known before anything of it is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Signature", "TensorInfo"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output.

    Attributes:
        name: As in the file.
        dtype: NumPy's name of the element type.
        shape: Sizes; the names of symbols (or their expressions) where they vary, with a bound
            (`selected<=100`) where a size depends on what is in the inputs.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs in the file's order."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
