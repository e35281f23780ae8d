"""What `--shape` asks for: sizes to run at, or other input shapes than the file declares.

Shapes that fit the file are those of a run, so that its programs are the ones that every start with
the same options finds. Whatever does not fit, and every name, has the model compiled for inputs
that are declared otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from saccade.cli._types import TensorInfoLike
from saccade.errors import InputError, meant

if TYPE_CHECKING:
    import onnx

    from saccade.shapes import Axis

__all__ = [
    "Asked", "Sizes", "check_names", "declared_as", "merged", "name_the_only", "redeclared",
    "sizes_in", "told",
]  # fmt: skip

Shape = TypeVar("Shape", bound=tuple[object, ...])

Asked: TypeAlias = "Mapping[str, tuple[Axis, ...]]"
"""As `--shape` gives them: by input, "" for the only one; numbers, names, None for any size."""
Sizes: TypeAlias = "dict[str, tuple[int, ...]]"


def declared_as(inputs: Sequence[TensorInfoLike], sets: Sequence[Asked]) -> Asked | None:
    """What the inputs have to be declared as for all these shapes; None if they fit as they are.

    Raises:
        InputError: If it is not told which input a shape is for.
    """
    named = told(inputs, sets)
    known = {info.name: info.shape for info in inputs}
    pairs = [(known.get(name, ()), axes) for one in named for name, axes in one.items()]
    if all(isinstance(axis, int) for _, axes in pairs for axis in axes):
        # Where no declaration helps, whoever takes the sizes says what is wrong.
        unfit = any(len(size) != len(axes) for size, axes in pairs)
        if unfit or all(
            isinstance(size, str) or size == axis
            for sizes, axes in pairs
            for size, axis in zip(sizes, axes, strict=True)
        ):
            return None
    return merged(named)


def told(inputs: Sequence[TensorInfoLike], sets: Sequence[Asked]) -> list[Asked]:
    """Each shape under the name of its input.

    Raises:
        InputError: If it is not told which that is, or there is none of that name.
    """
    named = [name_the_only(one, inputs) if "" in one else one for one in sets]
    check_names((name for one in named for name in one), inputs)
    return named


def check_names(names: Iterable[str], inputs: Sequence[TensorInfoLike]) -> None:
    """Raise `InputError` unless these are inputs of the model."""
    known = [info.name for info in inputs]
    for name in names:
        if name not in known:
            near = meant(name, known)
            raise InputError(f"the model has no input {name!r}{near}; it has {', '.join(known)}")


def name_the_only(given: Mapping[str, Shape], inputs: Sequence[TensorInfoLike]) -> dict[str, Shape]:
    """A shape without a name belongs to the only input."""
    if not inputs:
        raise InputError("--shape: the model has no inputs")
    if len(inputs) != 1 or len(given) != 1:
        names = ", ".join(info.name for info in inputs)
        raise InputError(f"--shape has to say which input it is for: {names}")
    return {inputs[0].name: given[""]}


def merged(sets: Sequence[Asked]) -> Asked:
    """One declaration for all; an axis that they do not agree on may be of any size."""
    found: dict[str, tuple[Axis, ...]] = {}
    for name, axes in ((name, axes) for one in sets for name, axes in one.items()):
        before = found.setdefault(name, axes)
        if len(before) != len(axes):
            raise InputError(f"--shape gives input {name!r} {len(before)} axes, and {len(axes)}")
        found[name] = tuple(a if a == b else None for a, b in zip(before, axes, strict=True))
    return found


def sizes_in(sets: Sequence[Asked]) -> list[Sizes]:
    """The shapes that are of numbers alone; where there are names, sizes are left to defaults."""
    return [
        {
            name: tuple(axis for axis in axes if isinstance(axis, int))
            for name, axes in one.items()
            if all(isinstance(axis, int) for axis in axes)
        }
        for one in sets
    ]


def redeclared(path: Path, axes: Asked) -> onnx.ModelProto:
    """The file with its inputs declared otherwise, for other engines to run.

    Sizes that it states of what is computed were of its own inputs, and are left out.
    """
    import onnx  # noqa: PLC0415 - for who compares

    model = onnx.load(str(path))
    for value in model.graph.input:
        if value.name in axes:
            del value.type.tensor_type.shape.dim[:]
            for axis in axes[value.name]:
                dim = value.type.tensor_type.shape.dim.add()
                if isinstance(axis, int):
                    dim.dim_value = axis
                elif axis is not None:
                    dim.dim_param = axis
    del model.graph.value_info[:]
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return model
