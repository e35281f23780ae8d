"""What a model takes and gives, known before anything of it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from saccade.errors import InputError, meant

__all__ = ["Signature", "TensorInfo", "by_name", "is_unnamed", "shape_text", "unfit"]

_UNNAMED = re.compile(r"_dim_\d+\b")
"""In names of sizes that files have none for: `x_dim_2` is that of x's axis 2."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output.

    Attributes:
        name: As in the file.
        dtype: NumPy's name of the element type.
        shape: Sizes; the names of symbols (or their expressions) where they vary, with a bound
            (`selected<=100`) where a size depends on what is in the inputs; `...` alone where even
            their number depends on it.
        held: Whether it is an object that no memory of a plan holds (`saccade.held`): strings, a
            sequence, a tensor of unknown sizes. `dtype` is the type as `sequence(float32)` then.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    held: bool = False

    @property
    def text(self) -> str:
        """As representations of models show it: `x float32[Nx3x8x8]`."""
        return f"{self.name} {self.dtype}" + ("" if self.held else f"[{shape_text(self.shape)}]")


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs in the file's order.

    Attributes:
        inputs, outputs: As the user sees them.
        source: Name of the file, for people; empty if there was none.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    source: str = ""

    def to_json(self) -> str:
        """As text."""
        sides = [[astuple(info) for info in side] for side in (self.inputs, self.outputs)]
        return json.dumps([*sides, self.source])

    @classmethod
    def from_json(cls, text: bytes) -> Signature:
        """Back from text.

        Raises:
            ValueError: If it is none of ours.
        """
        try:
            first, second, *named = json.loads(text)
            source = str(*named)  # which earlier versions left out
            inputs, outputs = (
                tuple(
                    TensorInfo(str(name), str(dtype), tuple(shape), bool(held))
                    for name, dtype, shape, held in side
                )
                for side in (first, second)
            )
        except (TypeError, RecursionError) as error:
            raise ValueError(f"no signature: {error}") from error
        return cls(inputs, outputs, source)


def by_name(
    inputs: Sequence[TensorInfo], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """What a caller gives by position and by name, under the names of the inputs.

    Raises:
        InputError: If an input is missing, unknown or given twice.
    """
    names = [info.name for info in inputs]
    if len(args) > len(names):
        raise InputError(
            f"{len(args)} inputs given, the model has {len(names)}: {', '.join(names)}"
        )
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            near = meant(name, names)
            raise InputError(f"there is no input {name!r}{near}; the model has {', '.join(names)}")
        if name in given:
            raise InputError(f"input {name!r} is given twice")
        given[name] = value
    missing = [name for name in names if name not in given]
    if missing:
        raise InputError(f"missing input(s): {', '.join(missing)}")
    return given


def unfit(name: str, wanted: Sequence[object], given: Sequence[object]) -> InputError:
    """The error of an array whose shape is none that an input of the model may have."""
    text = f"input {name!r} must have shape {shape_text(wanted)}, given is {shape_text(given)}"
    if len(wanted) == len(given):
        text += ": shapes= of saccade.compile, or --shape, frees sizes that the file fixes"
    return InputError(text)


def is_unnamed(size: str) -> bool:
    """Whether a size is called after its place, or computed from one that is."""
    return _UNNAMED.search(size) is not None


def shape_text(shape: Sequence[object]) -> str:
    """`1x3x224x224`, `Nx3xHxW`, `?x3x?x?` where sizes have no name; `scalar` for no axes.

    Longer names, which an x could be part of, stand apart: `batch x 3 x height x width`.
    """
    sizes = ["?" if is_unnamed(size) else size for size in map(str, shape)]
    plain = all(size.isdigit() or (len(size) == 1 and size != "x") for size in sizes)
    return ("x" if plain else " x ").join(sizes) or "scalar"
